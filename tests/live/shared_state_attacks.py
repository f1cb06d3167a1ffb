"""Groups of modules that meet outside of PyTorch's registries: in files, programs, and what other modules keep.

`package_attacks` takes them; `import_truth.groups_in` says how a group is written.
"""

from __future__ import annotations

OUTSIDE = r"""
=== outside/shell: a command of the shell leaves a file that the other one reads
--- left
import os, pathlib
os.system(f"touch {pathlib.Path(__file__).with_name('made')}")
--- right
import pathlib
there = pathlib.Path(__file__).with_name("made").exists()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== outside/fork: a child that was forked leaves a file that the other one reads
--- left
import os, pathlib
child = os.fork()
if not child:
    pathlib.Path(__file__).with_name("made").write_text("2")
    os._exit(0)
os.waitpid(child, 0)
--- right
import pathlib
there = pathlib.Path(__file__).with_name("made").exists()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== outside/moved_file: a file is written under another name and then moved to where the other one reads it
--- left
import os, pathlib
made = pathlib.Path(__file__).with_name("made")
made.with_suffix(".new").write_text("2")
os.replace(made.with_suffix(".new"), made)
--- right
import pathlib
there = pathlib.Path(__file__).with_name("made").exists()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== outside/link_to_nothing: a link to a file that nobody has is looked for
--- left
import os, pathlib
os.symlink("nowhere", pathlib.Path(__file__).with_name("made"))
--- right
import os, pathlib
there = os.path.lexists(pathlib.Path(__file__).with_name("made"))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== outside/saved_tensor: torch.save writes a file, in C++, that the other one looks for
--- left
import pathlib
torch.save(torch.ones(1), str(pathlib.Path(__file__).with_name("made")))
--- right
import pathlib
there = pathlib.Path(__file__).with_name("made").exists()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== outside/mapped_file: a tensor lies in a file, which C++ makes
--- left
import pathlib
shared = torch.from_file(str(pathlib.Path(__file__).with_name("made")), shared=True, size=2)
shared.fill_(4)
--- right
import pathlib
there = pathlib.Path(__file__).with_name("made").exists()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== outside/database_file: a row of a database in a file decides
--- left
import sqlite3, pathlib
with sqlite3.connect(pathlib.Path(__file__).with_name("rows")) as database:
    database.execute("create table if not exists steps (step)")
--- right
import sqlite3, pathlib
with sqlite3.connect(pathlib.Path(__file__).with_name("rows")) as database:
    steps = database.execute("select count(*) from sqlite_master").fetchone()[0]
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + steps, "CPU")
--- probes
ops.t.bar(x)
=== outside/pipe: a named pipe is made by one and looked for by the other one
--- left
import os, pathlib
os.mkfifo(pathlib.Path(__file__).with_name("made"))
--- right
import pathlib
there = pathlib.Path(__file__).with_name("made").exists()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== outside/time_of_file: the time of a file is set by one and read by the other one
--- common_file
--- left
import os, pathlib
os.utime(pathlib.Path(__file__).with_name("common_file.py"), (5, 5))
--- right
import os, pathlib
old = os.stat(pathlib.Path(__file__).with_name("common_file.py")).st_mtime < 10
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + old, "CPU")
--- probes
ops.t.bar(x)
=== outside/relative_path: a file is written by a relative path, between two changes of the folder
--- left
import os, pathlib
before = os.getcwd()
os.chdir(pathlib.Path(__file__).parent)
open("made", "w").close()
os.chdir("/")
os.chdir(before)
--- right
import pathlib
there = pathlib.Path(__file__).with_name("made").exists()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
"""

SHARED = r"""
=== patches/by_object: a function of PyTorch is replaced by an object of a class that can be called
--- common
class Scaled:
    def __init__(self, scale): self.scale = scale
    def __call__(self, x): return x * self.scale
--- left
import common
torch.nn.functional.relu = common.Scaled(2)
--- right
import common
torch.nn.functional.relu = common.Scaled(3)
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: torch.nn.functional.relu(x), "CPU")
--- probes
ops.t.bar(x)
=== patches/by_partial: a function of PyTorch is replaced by a partial
--- left
import functools, operator
torch.nn.functional.relu = functools.partial(operator.mul, 2)
--- right
import functools, operator
torch.nn.functional.relu = functools.partial(operator.mul, 3)
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: torch.nn.functional.relu(x), "CPU")
--- probes
ops.t.bar(x)
=== patches/by_bound_method: a function of PyTorch is replaced by a method of an object
--- common
class Scaled:
    def __init__(self, scale): self.scale = scale
    def scaled(self, x): return x * self.scale
--- left
import common
torch.nn.functional.relu = common.Scaled(2).scaled
--- right
import common
torch.nn.functional.relu = common.Scaled(3).scaled
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: torch.nn.functional.relu(x), "CPU")
--- probes
ops.t.bar(x)
=== patches/property_of_tensor: a property is added to tensors by both
--- left
torch.Tensor.t_scale = property(lambda self: 2)
--- right
torch.Tensor.t_scale = property(lambda self: 3)
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * x.t_scale, "CPU")
--- probes
ops.t.bar(x)
=== patches/static_method_of_class: a static method of a class of PyTorch is replaced by both
--- left
torch.nn.Module.t_scale = staticmethod(lambda: 2)
--- right
torch.nn.Module.t_scale = staticmethod(lambda: 3)
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * torch.nn.Module.t_scale(), "CPU")
--- probes
ops.t.bar(x)
=== patches/method_of_module: the forward of a layer is replaced by both
--- left
torch.nn.ReLU.forward = lambda self, x: x * 2
--- right
torch.nn.ReLU.forward = lambda self, x: x * 3
--- third
layer = torch.nn.ReLU()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: layer(x), "CPU")
--- probes
ops.t.bar(x)
=== patches/method_of_standard_class: a method of a class of the standard library is replaced by both
--- left
import string
string.Template.scale = lambda self: 2
--- right
import string
string.Template.scale = lambda self: 3
--- third
import string
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * string.Template("").scale(), "CPU")
--- probes
ops.t.bar(x)
=== patches/attribute_of_torch: a tensor is kept as an attribute of torch by both
--- left
torch.t_scale = torch.full((1,), 2.)
--- right
torch.t_scale = torch.full((1,), 3.)
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * torch.t_scale, "CPU")
--- probes
ops.t.bar(x)
=== patches/list_in_torch: a list is kept in torch, and both append to it
--- left
torch.t_steps = [*getattr(torch, "t_steps", []), 2]
--- right
torch.t_steps = [*getattr(torch, "t_steps", []), 3]
--- third
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    for step in torch.t_steps: x = x * step + 1
    return x
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== patches/hooks_of_layers: the forward hooks of all layers of torch.nn run in the order in which they came
--- left
torch.nn.modules.module.register_module_forward_hook(lambda layer, arguments, result: result * 2)
--- right
torch.nn.modules.module.register_module_forward_hook(lambda layer, arguments, result: result + 1)
--- third
layer = torch.nn.Identity()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: layer(x) * 1, "CPU")
--- probes
ops.t.bar(x)
=== patches/table_of_standard_library: both write an entry of a table of the standard library
--- left
import html.entities
html.entities.html5["t;"] = "a"
--- right
import html.entities
html.entities.html5["t;"] = "abc"
--- third
import html
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(html.unescape("&t;")), "CPU")
--- probes
ops.t.bar(x)
=== patches/types_of_files: both say of what type files with a suffix are
--- left
import mimetypes
mimetypes.add_type("left/t", ".t_file")
--- right
import mimetypes
mimetypes.add_type("right/t_t", ".t_file")
--- third
import mimetypes
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(mimetypes.guess_type("a.t_file")[0]), "CPU")
--- probes
ops.t.bar(x)
=== patches/pickle_of_class: both say how objects of a class of the standard library are pickled
--- left
import copyreg, string
copyreg.pickle(string.Template, lambda one: (str, ("ab",)))
--- right
import copyreg, string
copyreg.pickle(string.Template, lambda one: (str, ("abc",)))
--- third
import copy, string
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(copy.copy(string.Template("a"))), "CPU")
--- probes
ops.t.bar(x)
=== patches/pytree_node: both register a class with pytree, and who comes second is refused
--- common
class Pair:
    def __init__(self, one, other): self.one, self.other = one, other
--- left
import common
from torch.utils import _pytree as pytree
try:
    pytree.register_pytree_node(common.Pair, lambda p: ((p.one, p.other), None), lambda each, _: common.Pair(*each))
except ValueError:
    pass
--- right
import common
from torch.utils import _pytree as pytree
try:
    pytree.register_pytree_node(common.Pair, lambda p: ((p.other,), None), lambda each, _: common.Pair(each[0], 1))
except ValueError:
    pass
--- third
import common
from torch.utils import _pytree as pytree
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(pytree.tree_leaves(common.Pair(1, 2))), "CPU")
--- probes
ops.t.bar(x)
=== patches/level_of_logger: the level of a logger is set by both, and the kernel asks it
--- left
import logging
logging.getLogger("t").setLevel(10)
--- right
import logging
logging.getLogger("t").setLevel(20)
--- third
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    import logging
    return x * logging.getLogger("t").level
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== patches/handlers_of_logger: the root logger gets the handlers of both, and the kernel asks the first one
--- left
import logging
logging.getLogger().addHandler(logging.NullHandler(2))
--- right
import logging
logging.getLogger().addHandler(logging.NullHandler(3))
--- third
import logging
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * logging.getLogger().handlers[0].level, "CPU")
--- probes
ops.t.bar(x)
=== patches/path_for_imports: both put a folder before sys.path, and the kernel asks for its last part
--- left
import sys
sys.path.insert(0, "/t_ab")
--- right
import sys
sys.path.insert(0, "/t_abc")
--- third
import sys
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(sys.path[0]), "CPU")
--- probes
ops.t.bar(x)
=== patches/divergence: both register a divergence of two distributions, and the later one is in force
--- common
class Mine(torch.distributions.Normal): pass
--- left
import common
torch.distributions.register_kl(common.Mine, common.Mine)(lambda p, q: torch.full((1,), 2.))
--- right
import common
torch.distributions.register_kl(common.Mine, common.Mine)(lambda p, q: torch.full((1,), 3.))
--- third
import common
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    mine = common.Mine(torch.zeros(1), torch.ones(1))
    return x * torch.distributions.kl_divergence(mine, mine)
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== patches/print_options: the kernel prints a tensor with the options that were set last
--- left
torch.set_printoptions(precision=2)
--- right
torch.set_printoptions(precision=7)
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(str(torch.full((1,), 1 / 3))), "CPU")
--- probes
ops.t.bar(x)
=== patches/list_of_class: a list of a class of PyTorch is changed in place by both
--- left
torch.nn.ReLU.__constants__.append("t_ab")
--- right
torch.nn.ReLU.__constants__.append("t_abc")
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(torch.nn.ReLU.__constants__[-1]), "CPU")
--- probes
ops.t.bar(x)
=== patches/docstring: the docstring of a function of PyTorch is set by both
--- left
torch.nn.functional.relu.__doc__ = "ab"
--- right
torch.nn.functional.relu.__doc__ = "abc"
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(torch.nn.functional.relu.__doc__), "CPU")
--- probes
ops.t.bar(x)
=== patches/defaults_of_function: the defaults of a function of PyTorch are set by both
--- left
torch.nn.functional.leaky_relu.__defaults__ = (2.0, False)
--- right
torch.nn.functional.leaky_relu.__defaults__ = (3.0, False)
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: torch.nn.functional.leaky_relu(-x), "CPU")
--- probes
ops.t.bar(x)
=== patches/code_of_function: the code of a function of PyTorch is replaced by both
--- left
torch.nn.functional.softsign.__code__ = (lambda input: input * 2).__code__
--- right
torch.nn.functional.softsign.__code__ = (lambda input: input * 3).__code__
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: torch.nn.functional.softsign(x), "CPU")
--- probes
ops.t.bar(x)
=== patches/attribute_of_function: an attribute of a function of PyTorch is set by both
--- left
torch.nn.functional.relu.t_scale = 2
--- right
torch.nn.functional.relu.t_scale = 3
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * torch.nn.functional.relu.t_scale, "CPU")
--- probes
ops.t.bar(x)
=== late/signal_of_kernel: the kernel asks for the handler of a signal, which both have set
--- left
import signal
def two(number, frame): pass
signal.signal(signal.SIGUSR1, two)
--- right
import signal
def three(number, frame): pass
signal.signal(signal.SIGUSR1, three)
--- third
import signal
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(signal.getsignal(signal.SIGUSR1).__name__), "CPU")
--- probes
ops.t.bar(x)
=== late/error_handler: both name a handler for errors of codecs, and the kernel encodes with it
--- left
import codecs
codecs.register_error("t_errors", lambda error: ("ab", error.end))
--- right
import codecs
codecs.register_error("t_errors", lambda error: ("abc", error.end))
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len("\u00fc".encode("ascii", "t_errors")), "CPU")
--- probes
ops.t.bar(x)
=== late/exit_function: the kernel runs the functions for the end of the process
--- common
steps = []
--- left
import atexit, common
atexit.register(common.steps.append, 2)
--- right
import atexit, common
atexit.register(common.steps.append, 3)
--- third
import atexit, common
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    atexit._run_exitfuncs()
    return x * common.steps[0]
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== late/switch_interval: the kernel asks for the interval at which threads are switched
--- left
import sys
sys.setswitchinterval(0.125)
--- right
import sys
sys.setswitchinterval(0.25)
--- third
import sys
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * sys.getswitchinterval(), "CPU")
--- probes
ops.t.bar(x)
=== late/thread_that_waits: the kernel asks a thread that waits for its name, and both have started one
--- left
import threading
stopped = threading.Event()
threading.Thread(target=stopped.wait, name="t_ab", daemon=True).start()
--- right
import threading
stopped = threading.Event()
threading.Thread(target=stopped.wait, name="t_abc", daemon=True).start()
--- third
import threading
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len([one for one in threading.enumerate() if one.name.startswith("t_")][0].name), "CPU")
--- probes
ops.t.bar(x)
=== late/global_of_main: both leave a name in the main module, which the kernel reads
--- left
import __main__
__main__.t_scale = 2
--- right
import __main__
__main__.t_scale = 3
--- third
import __main__
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * __main__.t_scale, "CPU")
--- probes
ops.t.bar(x)
=== late/stream: both put an object in the place of standard output
--- common
class Stream:
    def __init__(self, scale): self.scale = scale
    def write(self, text): return len(text)
    def flush(self): pass
--- left
import sys, common
sys.stdout = common.Stream(2)
--- right
import sys, common
sys.stdout = common.Stream(3)
--- third
import sys
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * sys.stdout.scale, "CPU")
--- probes
ops.t.bar(x)
=== late/lazy_fake: a fake that is registered when the operator is first called, as what was imported last says
--- common
scale = 1
--- left
import common
common.scale = 2
--- right
import common
common.scale = 3
--- third
@torch.library.custom_op("t::bar", mutates_args=())
def bar(x: torch.Tensor) -> torch.Tensor:
    import common
    bar.register_fake(lambda x: x.new_empty(common.scale))
    return x * common.scale
--- probes
ops.t.bar(x)
=== late/autograd_function: the backward of an autograd function reads what the last one has set
--- common
scale = 1
--- left
import common
common.scale = 2
--- right
import common
common.scale = 3
--- third
import common
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, grad): return grad * common.scale
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: Scaled.apply(x), "AutogradCPU")
lib.impl("bar", lambda x: x.clone(), "CPU")
--- probes
grad(ops.t.bar)
=== late/weak_reference: the kernel asks a weak reference whose object the last one has replaced
--- common
class Kept:
    def __init__(self, scale): self.scale = scale
kept = Kept(1)
--- left
import common
common.kept = common.Kept(2)
--- right
import common
common.kept = common.Kept(3)
--- third
import common, weakref
class Other: scale = 9
seen = weakref.WeakValueDictionary(kept=common.kept)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * seen.get("kept", Other).scale, "CPU")
--- probes
ops.t.bar(x)
=== late/reloaded_helper: a helper is executed again by both, and counts
--- common
count = globals().get("count", 0) + 1
--- left
import importlib, common
importlib.reload(common)
common.count *= 3
--- right
import importlib, common
importlib.reload(common)
--- third
import common
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.count, "CPU")
--- probes
ops.t.bar(x)
=== late/entry_point: the kernel loads what the first folder of sys.path with such metadata names
--- left
import pathlib, sys
one = pathlib.Path(__file__).with_name("of_left")
sys.path.insert(0, str(one))
--- right
import pathlib, sys
one = pathlib.Path(__file__).with_name("of_right_")
sys.path.insert(0, str(one))
--- third
import sys
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(sys.path[0].rpartition("_")[0].rpartition("/")[2]), "CPU")
--- probes
ops.t.bar(x)
=== late/dynamo_disabled: a setting of TorchDynamo is set by both and read by the kernel
--- left
import torch._dynamo.config as config
config.recompile_limit = 2
--- right
import torch._dynamo.config as config
config.recompile_limit = 3
--- third
import torch._dynamo.config as config
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * config.recompile_limit, "CPU")
--- probes
ops.t.bar(x)
=== late/wrapped_by_fx: one has FX wrap a function of a helper that the kernel traces
--- common
def doubled(x): return x * 2
def traced(x): return doubled(x)
--- left
import torch.fx, common
class Tracer(torch.fx.Tracer):
    def __init__(self): super().__init__(autowrap_functions=(common.doubled,))
common.tracer = Tracer
--- right
import torch.fx, common
common.tracer = torch.fx.Tracer
--- third
import common
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(str(common.tracer().trace(common.traced))), "CPU")
--- probes
ops.t.bar(x)
=== late/safe_globals: the kernel asks how many globals may be unpickled, one adds some and the other one clears them
--- common
class Kept: pass
--- left
import common
torch.serialization.add_safe_globals([common.Kept])
--- right
torch.serialization.clear_safe_globals()
--- third
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * (1 + len(torch.serialization.get_safe_globals())), "CPU")
--- probes
ops.t.bar(x)
"""

INNOCENT = r"""
=== innocent/temporary_file: a file is written and removed again
--- left
import tempfile, pathlib
with tempfile.TemporaryDirectory() as folder: pathlib.Path(folder, "made").write_text("2")
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
import tempfile
with tempfile.NamedTemporaryFile() as file: file.write(b"2")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/platform: the standard library starts a program that tells what the machine is
--- left
import platform
processor = platform.processor()
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
import ctypes.util
found = ctypes.util.find_library("c")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/pytree_nodes: each registers a class of its own with pytree
--- left
from torch.utils import _pytree as pytree
class Pair:
    def __init__(self, one, other): self.one, self.other = one, other
pytree.register_pytree_node(Pair, lambda p: ((p.one, p.other), None), lambda each, _: Pair(*each))
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * len(pytree.tree_leaves(Pair(1, 2))), "CPU")
--- right
from torch.utils import _pytree as pytree
class One:
    def __init__(self, one): self.one = one
pytree.register_pytree_node(One, lambda p: ((p.one,), None), lambda each, _: One(*each))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(pytree.tree_leaves(One(1))), "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/hook_for_a_while: a hook of all layers is registered and removed
--- left
hook = torch.nn.modules.module.register_module_forward_hook(lambda layer, arguments, result: result * 2)
hook.remove()
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: torch.nn.Identity()(x) + 1, "CPU")
--- right
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: torch.nn.Identity()(x) * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/own_attributes: each puts an attribute of its own on tensors
--- left
torch.Tensor.t_left = property(lambda self: 2)
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * x.t_left, "CPU")
--- right
torch.Tensor.t_right = lambda self: 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * x.t_right(), "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/exit_functions: each has a function for the end of the process
--- left
import atexit
atexit.register(print, "left")
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
import atexit
atexit.register(print, "right")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/safe_globals: each lets a class of its own be unpickled
--- left
class Kept: pass
torch.serialization.add_safe_globals([Kept])
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
class Kept: pass
torch.serialization.add_safe_globals([Kept])
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/autograd_function: kernels are autograd functions of each module
--- left
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, grad): return grad * 2
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: Scaled.apply(x), "CompositeImplicitAutograd")
--- right
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, grad): return grad * 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: Scaled.apply(x), "CompositeImplicitAutograd")
--- probes
grad(ops.t.foo)
grad(ops.t.bar)
=== innocent/wrapped_by_fx: each has FX keep calls of a function of its own
--- left
import torch.fx
def doubled(x): return x * 2
torch.fx.wrap("doubled")
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: doubled(x), "CPU")
--- right
import torch.fx
def tripled(x): return x * 3
torch.fx.wrap("tripled")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: tripled(x), "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/standard_library: each imports another part of the standard library first
--- left
import mimetypes, statistics
kind = mimetypes.guess_type("a.txt")[0]
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * len(kind), "CPU")
--- right
import colorsys, html
text = html.unescape("&amp;")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(text), "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
"""
