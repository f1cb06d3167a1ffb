"""Small groups of modules made to deceive: those whose results depend on the order of import, and those whose do not.

    python -m tests.live.package_attacks [EVERY]

prints as JSON what every order of each group, or of one in so many, leads to on the running PyTorch. Each attack is one
way in which an import can decide what another one leaves; each innocent group looks like one and is none.
`import_truth.groups_in` says how a group is written.
"""

from __future__ import annotations

import json
import sys

from tests.live import hidden_state_attacks, shared_state_attacks
from tests.live.import_truth import LATER, Group, Truth, groups_in, truths

_SHARED_VALUES = """
=== value/builtins: a kernel returns what the other module leaves in builtins
--- left
import builtins
builtins.SCALE = 2
lib.define("foo(Tensor x) -> Tensor")
--- right
import builtins
scale = getattr(builtins, "SCALE", 3)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * scale, "CPU")
--- probes
ops.t.bar(x)
=== value/environment: a variable of the environment decides at import
--- left
import os
os.environ["T_FAST"] = "1"
--- right
import os
fast = "T_FAST" in os.environ
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + fast, "CPU")
--- probes
ops.t.bar(x)
=== value/environment_default: both set the same variable, and the kernel reads it when it is called
--- left
import os
os.environ["T_SCALE"] = "2"
--- right
import os
os.environ["T_SCALE"] = "5"
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * int(os.environ["T_SCALE"]), "CPU")
--- probes
ops.t.bar(x)
=== value/putenv: the environment of C, which os.environ does not show
--- left
import ctypes
ctypes.CDLL(None).setenv(b"T_HIDDEN", b"7", 1)
--- right
import ctypes
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
found = getenv(b"T_HIDDEN")
scale = 2 if found is None else int(found)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * scale, "CPU")
--- probes
ops.t.bar(x)
=== value/shared_global: the last importer sets a global that the kernel of a third module reads
--- common
SCALE = 1
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * SCALE, "CPU")
--- left
import common
common.SCALE = 2
--- right
import common
common.SCALE = 3
--- probes
ops.t.bar(x)
=== value/two_globals_away: the kernel calls a function that reads a global of another module that reads a third one
--- common
import common_deep
def scale():
    return common_deep.scale()
--- common_deep
import common_base
def scale():
    return common_base.SCALE[0]
--- common_base
SCALE = [1]
--- left
import common_base
common_base.SCALE[:] = [2]
--- right
import common, common_base
common_base.SCALE[:] = [3]
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    return x * common.scale()
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== value/by_name_of_module: the kernel finds the module by a name put together when it is called
--- common
SCALE = 1
--- left
import common
common.SCALE += 1
--- right
import sys, common
common.SCALE *= 2
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * getattr(sys.modules["com" + "mon"], "SC" + "ALE"), "CPU")
--- probes
ops.t.bar(x)
=== value/globals_by_name: the kernel reads its global through globals(), so its code names none
--- common
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * globals().get("sca" + "le", 1), "CPU")
--- left
import common
common.scale = 4
--- right
import common
common.scale = 5
--- probes
ops.t.bar(x)
=== value/class_attribute: the kernel reads an attribute of a class that both set
--- common
class Config:
    scale = 1
--- left
from common import Config
Config.scale = 2
--- right
from common import Config
Config.scale = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * Config.scale, "CPU")
--- probes
ops.t.bar(x)
=== value/base_class: a method of a base class is replaced, two classes above that of the kernel
--- common
class Base:
    def scale(self): return 1
class Middle(Base): pass
class Kernel(Middle):
    def __call__(self, x): return x * super().scale()
--- left
import common
common.Base.scale = lambda self: 2
--- right
import common
common.Base.scale = lambda self: 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", common.Kernel(), "CPU")
--- probes
ops.t.bar(x)
=== value/closure_cell: another module writes into the closure of a kernel
--- common
def make():
    scale = 1
    return lambda x: x * scale
kernel = make()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", kernel, "CPU")
--- left
import common
common.kernel.__closure__[0].cell_contents = 2
--- right
import common
common.kernel.__closure__[0].cell_contents = 3
--- probes
ops.t.bar(x)
=== value/defaults: another module replaces the defaults of a kernel
--- common
def kernel(x, scale=1): return x * scale
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", kernel, "CPU")
--- left
import common
common.kernel.__defaults__ = (2,)
--- right
import common
common.kernel.__defaults__ = (3,)
--- probes
ops.t.bar(x)
=== value/keyword_defaults: another module writes into the keyword defaults of a kernel
--- common
def kernel(x, *, scale=1): return x * scale
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", kernel, "CPU")
--- left
import common
common.kernel.__kwdefaults__["scale"] += 1
--- right
import common
common.kernel.__kwdefaults__["scale"] *= 3
--- probes
ops.t.bar(x)
=== value/code: another module replaces the code of a kernel
--- common
def kernel(x): return x
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", kernel, "CPU")
--- left
import common
common.kernel.__code__ = (lambda x: x * 2).__code__
--- right
import common
common.kernel.__code__ = (lambda x: x * 3).__code__
--- probes
ops.t.bar(x)
=== value/function_attribute: the kernel reads an attribute of itself
--- common
def kernel(x): return x * kernel.scale
kernel.scale = 1
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", kernel, "CPU")
--- left
import common
common.kernel.scale += 1
--- right
import common
common.kernel.scale *= 5
--- probes
ops.t.bar(x)
=== value/bound_method: the object of a bound method is changed
--- common
class State:
    def __init__(self): self.scale = 1
    def kernel(self, x): return x * self.scale
state = State()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", state.kernel, "CPU")
--- left
import common
common.state.scale = common.state.scale * 2 + 1
--- right
import common
common.state.scale = common.state.scale * 3
--- probes
ops.t.bar(x)
=== value/slots: the state of a callable object lies in slots, so it has no dict
--- common
class Kernel:
    __slots__ = ("scale",)
    def __init__(self, scale): self.scale = scale
    def __call__(self, x): return x * self.scale
seen = []
--- left
import common
common.seen.append("left")
--- right
import common
common.seen.append("right")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", common.Kernel(len(common.seen)), "CPU")
--- probes
ops.t.bar(x)
=== value/partial: the bound argument of functools.partial
--- common
count = 0
--- left
import common
common.count += 1
--- right
import common, functools, operator
common.count += 1
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", functools.partial(operator.mul, common.count), "CPU")
--- probes
ops.t.bar(x)
=== value/partial_setstate: a partial that is registered is given another state
--- common
import functools, operator
kernel = functools.partial(operator.mul, 1)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", kernel, "CPU")
--- left
import common, operator
common.kernel.__setstate__((operator.mul, (2,), {}, None))
--- right
import common, operator
common.kernel.__setstate__((operator.add, (2,), {}, None))
--- probes
ops.t.bar(x)
=== value/methodcaller: a callable made in C whose arguments no attribute shows
--- left
import sys
sys.t_marks = 1
--- right
import sys, operator
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", operator.methodcaller("mul", getattr(sys, "t_marks", 4)), "CPU")
--- probes
ops.t.bar(x)
=== value/one_and_true: the closures hold 1, 1.0 and True, which are equal
--- common
value = True
--- left
import common
common.value = common.value + 0
--- right
import common
value = common.value
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x.new_full((1,), value, dtype=None if value is True else x.dtype.to_complex()), "CPU")
--- probes
ops.t.bar(x)
=== value/one_and_one_point_zero: the closures hold 1 and 1.0, which are equal, and torch.tensor tells them apart
--- common
values = [1]
--- left
import common
common.values[0] = float(common.values[0])
--- right
import common
value = common.values[0]
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: torch.tensor([value]), "CPU")
--- probes
ops.t.bar(x)
=== value/negative_zero: the closures hold 0.0 and -0.0, which are equal
--- common
zero = 0.0
--- left
import common
common.zero = -common.zero
--- right
import common
zero = common.zero
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x / torch.tensor(zero), "CPU")
--- probes
ops.t.bar(x)
=== value/dict_order: the dicts are equal, and the kernel takes the first key
--- common
table = {}
--- left
import common
common.table["two"] = 2
--- right
import common
common.table["three"] = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * next(iter(common.table.values())), "CPU")
--- probes
ops.t.bar(x)
=== value/liar: an object that says that it equals every other one, and is always written the same
--- common
class Number:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def __repr__(self): return "Number()"
    def __reduce__(self): return (Number, (0,))
count = 0
--- left
import common
common.count += 1
--- right
import common
number = common.Number(common.count)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * number.n, "CPU")
--- probes
ops.t.bar(x)
=== value/large_tensor: a tensor of a closure differs in the middle, where printing leaves it out
--- common
marks = []
--- left
import common
common.marks.append(1)
--- right
import common
table = torch.zeros(10_000)
table[5_000] = len(common.marks)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * table[5_000], "CPU")
--- probes
ops.t.bar(x)
=== value/large_list: a list differs in the middle of ten thousand numbers
--- common
table = [0] * 10_000
--- left
import common
common.table[5_000] += 1
--- right
import common
common.table[5_000] *= 2
common.table[5_000] += 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.table[5_000], "CPU")
--- probes
ops.t.bar(x)
=== value/numpy_array: an array in a default argument is changed in place by both
--- common
import numpy
table = numpy.ones(2, dtype="float32")
--- left
import common
common.table *= 2
--- right
import common
common.table += 1
lib.define("bar(Tensor x) -> Tensor")
def kernel(x, table=common.table): return x * torch.from_numpy(table)
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== value/tensor_in_place: a tensor of a closure is changed in place by both
--- common
table = torch.ones(2)
def make(table): return lambda x: x * table
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", make(table), "CPU")
--- left
import common
common.table.mul_(2)
--- right
import common
common.table.add_(1)
--- probes
ops.t.bar(x)
=== value/tensor_dtype: tensors of the same values and another type
--- common
table = torch.ones(2)
--- left
import common
common.table = common.table.double()
--- right
import common
table = common.table
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * table, "CPU")
--- probes
ops.t.bar(x)
=== value/deep: the number lies fifty lists deep
--- common
value = cell = []
for _ in range(50):
    cell.append([])
    cell = cell[0]
cell.append(1)
def read():
    found = value
    while isinstance(found, list): found = found[0]
    return found
--- left
import common
common.cell[0] += 1
--- right
import common
common.cell[0] *= 2
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.read(), "CPU")
--- probes
ops.t.bar(x)
=== value/generator: a generator has given more or fewer values
--- common
numbers = (n for n in range(1, 100))
--- left
import common
next(common.numbers)
--- right
import common
number = next(common.numbers)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * number, "CPU")
--- probes
ops.t.bar(x)
=== value/counter: the first importer gets the number 0
--- common
import itertools
ids = itertools.count()
--- left
import common
number = next(common.ids)
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + number, "CPU")
--- right
import common
number = next(common.ids)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + number, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== value/operator_names: the first importer defines op_0
--- common
import itertools
ids = itertools.count()
def register(function):
    name = f"op_{next(ids)}"
    lib.define(f"{name}(Tensor x) -> Tensor")
    lib.impl(name, function, "CPU")
--- left
import common
common.register(lambda x: x + 1)
--- right
import common
common.register(lambda x: x + 2)
--- probes
ops.t.op_0(x)
=== value/list_order: the kernel folds a list of steps in the order in which they were appended
--- common
steps = []
def kernel(x):
    for step in steps: x = step(x)
    return x
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", kernel, "CPU")
--- left
import common
common.steps.append(lambda x: x + 1)
--- right
import common
common.steps.append(lambda x: x * 2)
--- probes
ops.t.bar(x)
=== value/lru_cache: the first caller fills a cache that the kernel reads
--- common
import functools
who = None
@functools.lru_cache
def owner(): return who
--- left
import common
common.who = "left"
common.owner()
--- right
import common
common.who = "right"
common.owner()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(common.owner()), "CPU")
--- probes
ops.t.bar(x)
=== value/context_variable: a context variable is set by both
--- common
import contextvars
scale = contextvars.ContextVar("scale", default=1)
--- left
import common
common.scale.set(2)
--- right
import common
common.scale.set(3)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.scale.get(), "CPU")
--- probes
ops.t.bar(x)
=== value/thread_local: a value of the thread is set by both
--- common
import threading
local = threading.local()
--- left
import common
common.local.scale = 2
--- right
import common
common.local.scale = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.local.scale, "CPU")
--- probes
ops.t.bar(x)
=== value/decimal_context: the precision of decimal numbers, which is kept in C
--- left
import decimal
decimal.getcontext().prec = 3
--- right
import decimal
third = float(decimal.Decimal(1) / 3)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * third, "CPU")
--- probes
ops.t.bar(x)
=== value/ctypes: a number in memory of ctypes
--- common
import ctypes
number = ctypes.c_int(1)
--- left
import common
common.number.value += 1
--- right
import common
common.number.value *= 5
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.number.value, "CPU")
--- probes
ops.t.bar(x)
=== value/module_weights: a torch.nn.Module is the kernel, and both change its weights
--- common
module = torch.nn.Linear(2, 2, bias=False).requires_grad_(False)
module.weight.fill_(1)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", module, "CPU")
--- left
import common
common.module.weight.mul_(3)
--- right
import common
common.module.weight.add_(1)
--- probes
ops.t.bar(x)
=== value/same_line: two lambdas of one line, and a count decides which one is registered
--- common
count = 0
kernels = [lambda x: x + 1, lambda x: x + 2, lambda x: x + 3]
--- left
import common
common.count += 1
--- right
import common
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", common.kernels[common.count], "CPU")
--- probes
ops.t.bar(x)
=== value/same_line_closure: one lambda with another value of its closure
--- common
count = 0
def make():
    now = count
    return lambda x: x + now
--- left
import common
common.count += 1
--- right
import common
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", common.make(), "CPU")
--- probes
ops.t.bar(x)
=== value/executed_text: the text of the kernel is put together at import, at the same file name and line
--- common
count = 2
--- left
import common
common.count += 1
--- right
import common
space = {}
exec(compile(f"def kernel(x): return x * {common.count}", "<kernel>", "exec"), space)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", space["kernel"], "CPU")
--- probes
ops.t.bar(x)
=== value/wraps: functools.wraps makes two kernels that say to be the same function
--- common
import functools
def plain(x): return x
@functools.wraps(plain)
def doubled(x): return x * 2
@functools.wraps(plain)
def tripled(x): return x * 3
choice = doubled
--- left
import common
common.choice = common.tripled
--- right
import common
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", common.choice, "CPU")
--- probes
ops.t.bar(x)
=== value/patched_standard_library: the kernel calls math.floor, which the other modules replace
--- left
import math
floor = math.floor
math.floor = lambda n: floor(n) + 1
--- middle
import math
former = math.floor
math.floor = lambda n: former(n) * 2
--- right
import math
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * math.floor(2.5), "CPU")
--- probes
ops.t.bar(x)
=== value/patched_function: the kernel calls torch.nn.functional.relu, which both wrap
--- left
import torch.nn.functional as F
relu_before = F.relu
F.relu = lambda x: relu_before(x) + 1
--- right
import torch.nn.functional as F
relu_of_right = F.relu
F.relu = lambda x: relu_of_right(x) * 2
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: torch.nn.functional.relu(x), "CPU")
--- probes
ops.t.bar(x)
=== value/patched_method: the kernel calls a method of Tensor that both replace
--- left
torch.Tensor.t_scale = lambda self: self * 2
--- right
torch.Tensor.t_scale = lambda self: self * 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x.t_scale(), "CPU")
--- probes
ops.t.bar(x)
=== value/working_directory: a file is found by a relative path after os.chdir
--- left
import os, tempfile
os.chdir(tempfile.gettempdir())
--- right
import os
found = os.path.exists("right.py")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + found, "CPU")
--- probes
ops.t.bar(x)
=== value/file: one module leaves a file beside itself and the other one reads it
--- left
import pathlib
pathlib.Path(__file__).with_name("flag").write_text("5")
--- right
import pathlib
flag = pathlib.Path(__file__).with_name("flag")
scale = int(flag.read_text()) if flag.exists() else 2
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * scale, "CPU")
--- probes
ops.t.bar(x)
=== value/random: both draw from the generator of Python, seeded by one of them
--- common
import random
random.seed(1)
--- left
import common, random
random.random()
--- right
import common, random
number = random.random()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * number, "CPU")
--- probes
ops.t.bar(x)
=== value/numpy_random: both draw from the generator of numpy
--- common
import numpy
numpy.random.seed(1)
--- left
import common, numpy
numpy.random.rand()
--- right
import common, numpy
number = float(numpy.random.rand())
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * number, "CPU")
--- probes
ops.t.bar(x)
=== value/torch_random: a table of random numbers is drawn at import, after a seed that both set
--- left
torch.manual_seed(1)
--- right
torch.manual_seed(torch.initial_seed() % 1000 + 1)
table = torch.randn(2)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + torch.equal(table, torch.randn(2, generator=torch.Generator().manual_seed(2))), "CPU")
--- probes
ops.t.bar(x)
=== value/random_table: a table of parameters is drawn at import by both from one seed
--- common
torch.manual_seed(0)
--- left
import common
weight = torch.randn(2)
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * weight, "CPU")
--- right
import common
weight = torch.randn(2)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * weight, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== value/seed_read_by_the_kernel: the last importer sets the seed with which the kernel draws
--- left
torch.manual_seed(1)
--- right
torch.manual_seed(2)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + torch.initial_seed(), "CPU")
--- probes
ops.t.bar(x)
=== value/module_attribute_hook: a module answers __getattr__ with what was imported last
--- common
seen = []
def __getattr__(name):
    if name == "newest": return seen[-1]
    raise AttributeError(name)
--- left
import common
common.seen.append(2)
--- right
import common
common.seen.append(3)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.newest, "CPU")
--- probes
ops.t.bar(x)
=== value/subclasses: a base class knows its subclasses in the order of their definition
--- common
class Base: pass
--- left
import common
class Left(common.Base): pass
--- right
import common
class Right(common.Base): pass
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * (1 + [c.__name__ for c in common.Base.__subclasses__()].index("Right")), "CPU")
--- probes
ops.t.bar(x)
=== value/abstract_registration: an abstract class gets a virtual subclass before or after a check that it caches
--- common
import abc
class Fast(abc.ABC): pass
class Kernel:
    def __call__(self, x): return x * (3 if isinstance(self, Fast) else 2)
--- left
import common
common.Fast.register(common.Kernel)
--- right
import common
fast = issubclass(common.Kernel, common.Fast)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * (3 if fast else 2), "CPU")
--- probes
ops.t.bar(x)
=== value/single_dispatch: functools.singledispatch is given two functions for one type
--- common
import functools
@functools.singledispatch
def kernel(x): return x
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", kernel, "CPU")
--- left
import common
common.kernel.register(torch.Tensor, lambda x: x * 2)
--- right
import common
common.kernel.register(torch.Tensor, lambda x: x * 3)
--- probes
ops.t.bar(x)
=== value/pytree: a type is registered with pytree before or after the other module flattens one
--- common
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
--- left
import common
from torch.utils import _pytree
_pytree.register_pytree_node(common.Pair, lambda p: ([p.a, p.b], None), lambda c, _: common.Pair(*c))
--- right
import common
from torch.utils import _pytree
leaves = len(_pytree.tree_leaves(common.Pair(1, 2)))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * leaves, "CPU")
--- probes
ops.t.bar(x)
"""

_READS = """
=== reads/packet: hasattr asks whether the other module has defined its operator
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
scale = 2 if hasattr(torch.ops.t, "foo") else 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * scale, "CPU")
--- probes
ops.t.bar(x)
=== reads/call: the operator of the other module is called, and the exception caught
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
try:
    offset = torch.ops.t.foo(torch.zeros(1))
except Exception:
    offset = torch.ones(1) * 5
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + offset, "CPU")
--- probes
ops.t.bar(x)
=== reads/getattr_default: getattr with a default fetches the overload
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
inner = getattr(torch.ops.t, "foo", None)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x.clone() if inner is None else inner(x), "CPU")
--- probes
ops.t.bar(x)
=== reads/namespace_directory: dir() lists the operators that were looked up
--- left
lib.define("foo(Tensor x) -> Tensor")
torch.ops.t.foo
--- right
count = len(torch.ops.t._dir)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + count, "CPU")
--- probes
ops.t.bar(x)
=== reads/has_kernel: the dispatcher is asked for any kernel
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
key = "CPU" if torch._C._dispatch_has_kernel("t::foo") else "Meta"
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x.clone(), key)
--- probes
ops.t.bar(x)
=== reads/has_kernel_of_aten: the dispatcher is asked for a kernel of PyTorch's operator at a free key
--- left
own = torch.library.Library("aten", "IMPL")
own.impl("add.Tensor", lambda x, y, alpha=1: x, "PrivateUse1")
--- right
there = torch._C._dispatch_has_kernel_for_dispatch_key("aten::add.Tensor", "PrivateUse1")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== reads/dump: a text is looked for in a dump of the dispatcher
--- left
lib.impl("bar", lambda x: x + 1, "CUDA")
--- right
lib.define("bar(Tensor x) -> Tensor")
there = "CUDA" in torch._C._dispatch_dump("t::bar")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== reads/table: the computed table of an operator of PyTorch is printed, and a file name looked for
--- left
own = torch.library.Library("aten", "IMPL")
own.impl("relu", lambda x: x, "PrivateUse2")
--- right
there = "left.py" in torch._C._dispatch_dump_table("aten::relu")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== reads/all_operators: the number of operators of the namespace
--- left
lib.define("foo(Tensor x) -> Tensor")
--- right
count = sum(name.startswith("t::") for name in torch._C._dispatch_get_all_op_names())
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + count, "CPU")
--- probes
ops.t.bar(x)
=== reads/registrations_of_key: the number of operators that have a kernel at a key
--- left
own = torch.library.Library("aten", "IMPL")
own.impl("neg", lambda x: x, "PrivateUse3")
--- right
count = len(torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse3"))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + count, "CPU")
--- probes
ops.t.bar(x)
=== reads/dangling: a kernel without a def is looked for
--- left
lib.impl("ghost", lambda x: x, "CPU")
--- right
count = len(torch._C._dispatch_find_dangling_impls())
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + count, "CPU")
--- probes
ops.t.bar(x)
=== reads/all_schemas: the list of schemas of the JIT
--- left
lib.define("foo(Tensor x) -> Tensor")
--- right
there = any(schema.name == "t::foo" for schema in torch._C._jit_get_all_schemas())
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== reads/jit_operation: the JIT is asked for an operation by name
--- left
lib.define("foo(Tensor x) -> Tensor")
--- right
names = torch._C._jit_get_operation("t::foo")[1] or []
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + len(names), "CPU")
--- probes
ops.t.bar(x)
=== reads/schemas_for_operator: the schemas of an operator that gets another overload
--- left
lib.define("foo(Tensor x) -> Tensor")
--- middle
lib.define("foo.two(Tensor x, Tensor y) -> Tensor")
--- right
count = len(torch._C._jit_get_schemas_for_operator("t::foo"))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + count, "CPU")
--- probes
ops.t.bar(x)
=== reads/get_kernel: the kernel of PyTorch's operator is fetched and wrapped, by both
--- left
before = torch.library.get_kernel("aten::sin", "CPU")
own = torch.library.Library("aten", "IMPL")
own.impl("sin", lambda keys, x: before.call_boxed(keys, x) + 1, "CPU", with_keyset=True)
--- right
before = torch.library.get_kernel("aten::sin", "CPU")
own = torch.library.Library("aten", "IMPL")
own.impl("sin", lambda keys, x: before.call_boxed(keys, x) * 2, "CPU", with_keyset=True)
--- probes
torch.sin(x)
=== reads/get_kernel_once: one wraps the kernel that the other one replaces at another key
--- left
own = torch.library.Library("aten", "IMPL")
own.impl("cos", lambda x: x + 1, "CPU")
--- right
kernel = torch.library.get_kernel("aten::cos", "CPU")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda keys, x: kernel.call_boxed(keys, x), "CPU", with_keyset=True)
--- probes
ops.t.bar(x)
=== reads/result_of_patched: a table is computed with an operator of PyTorch that the other module overrides
--- left
own = torch.library.Library("aten", "IMPL")
own.impl("sin", lambda x: x + 10, "CPU")
--- right
table = torch.sin(torch.ones(2))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * table, "CPU")
--- probes
ops.t.bar(x)
=== reads/fake_registry: the registry of fakes is asked
--- left
torch.library.define("t::foo", "(Tensor x) -> Tensor")
torch.library.register_fake("t::foo", lambda x: torch.empty_like(x))
--- right
there = torch._library.simple_registry.singleton.find("t::foo").fake_impl.kernel is not None
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== reads/fake_call: a fake tensor goes through the operator at import
--- common
lib.define("foo(Tensor x) -> Tensor")
--- left
import common
torch.library.register_fake("t::foo", lambda x: x.new_empty(7), lib=lib)
--- right
import common
from torch._subclasses.fake_tensor import FakeTensorMode
try:
    with FakeTensorMode() as mode: size = torch.ops.t.foo(mode.from_tensor(torch.ones(2))).shape[0]
except Exception:
    size = 1
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * size, "CPU")
--- probes
ops.t.bar(x)
=== reads/custom_ops: the table of custom operators
--- left
@torch.library.custom_op("t::foo", mutates_args=())
def foo(x: torch.Tensor) -> torch.Tensor: return x.clone()
--- right
from torch._library.custom_ops import OPDEFS
there = "t::foo" in OPDEFS
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== reads/python_definitions: the set of what Python has defined
--- left
lib.define("foo(Tensor x) -> Tensor")
--- right
there = "t::foo" in torch.library._defs
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== reads/tags: the tags of an operator decide, and the other module makes it anew with others
--- left
try:
    lib.define("foo(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
except RuntimeError:
    pass
--- right
try:
    lib.define("foo(Tensor x) -> Tensor")
except RuntimeError:
    pass
lib.define("bar(Tensor x) -> Tensor")
pointwise = torch.Tag.pointwise in torch.ops.t.foo.default.tags
lib.impl("bar", lambda x: x + pointwise, "CPU")
--- probes
ops.t.bar(x)
=== reads/decomposition_table: the table of decompositions is asked
--- left
lib.define("foo(Tensor x) -> Tensor")
torch._decomp.register_decomposition(torch.ops.t.foo)(lambda x: x + 1)
--- right
count = sum(str(op).startswith("t.") for op in torch._decomp.decomposition_table)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + count, "CPU")
--- probes
ops.t.bar(x)
=== reads/modules: sys.modules is asked for the other module
--- left
lib.define("foo(Tensor x) -> Tensor")
--- right
import sys
there = "left" in sys.modules
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== reads/module_count: the number of modules is asked, and no name
--- common_extra
number = 1
--- left
import common_extra
--- right
import sys
count = sum(1 for module in list(sys.modules.values()) if getattr(module, "number", None) == 1)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + count, "CPU")
--- probes
ops.t.bar(x)
=== reads/find_spec: importlib.util.find_spec finds what a folder on sys.path has that the other module has put there
--- left
import sys, pathlib
folder = pathlib.Path(__file__).parent / "plugins"
folder.mkdir(exist_ok=True)
(folder / "t_extra.py").write_text("scale = 7")
sys.path.append(str(folder))
--- right
import importlib.util
there = importlib.util.find_spec("t_extra") is not None
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== reads/stub_module: one puts a module of an optional package into sys.modules
--- left
import sys, types
sys.modules["t_fast_kernels"] = types.ModuleType("t_fast_kernels")
--- right
try:
    import t_fast_kernels
    scale = 2
except ImportError:
    scale = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * scale, "CPU")
--- probes
ops.t.bar(x)
=== reads/part_of_torch (bare): whether a part of PyTorch was imported
--- left
import torch._dynamo
--- right
import sys
there = "torch._dynamo" in sys.modules
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== reads/garbage_collector: an object is found among all objects
--- common
class Plugin: scale = 6
--- left
import common
plugin = common.Plugin()
--- right
import common, gc
found = [one for one in gc.get_objects() if type(one) is common.Plugin]
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + len(found), "CPU")
--- probes
ops.t.bar(x)
=== reads/frames: a helper asks who imported it first
--- common
import sys
frame, names = sys._getframe(), []
while frame is not None:
    names.append(frame.f_globals.get("__name__"))
    frame = frame.f_back
scale = 2 if "left" in names else 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * scale, "CPU")
--- left
import common
--- right
import common
--- probes
ops.t.bar(x)
=== reads/audit_hook: an audit hook notes which modules were imported
--- common
import sys
events = []
sys.addaudithook(lambda event, arguments: events.append(arguments[0]) if event == "import" else None)
--- common_extra
number = 1
--- left
import common
import common_extra
--- right
import common
late = "common_extra" in common.events
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + late, "CPU")
--- probes
ops.t.bar(x)
=== reads/traced_graph: make_fx traces at import through a decomposition that the other module takes out
--- left
torch._decomp.decomposition_table.pop(torch.ops.aten.silu.default)
--- right
from torch.fx.experimental.proxy_tensor import make_fx
table = torch._decomp.get_decompositions([torch.ops.aten.silu])
graph = make_fx(lambda x: torch.nn.functional.silu(x), decomposition_table=table)(torch.ones(2))
nodes = len(graph.graph.nodes)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * nodes, "CPU")
--- probes
ops.t.bar(x)
=== reads/scripted: TorchScript resolves the overload when the module is imported
--- left
lib.define("foo(Tensor x, float n=2.0) -> Tensor")
lib.impl("foo", lambda x, n=2.0: x * n, "CPU")
--- middle
lib.define("foo.whole(Tensor x, int n=3) -> Tensor")
lib.impl("foo.whole", lambda x, n=3: x * n, "CPU")
--- right
lib.define("bar(Tensor x) -> Tensor")
try:
    text = "def call(x: Tensor) -> Tensor:\\n  return torch.ops.t.foo(x)\\n"
    call = torch.jit.CompilationUnit(text).call
except Exception:
    call = lambda x: x * 100
lib.impl("bar", lambda x: call(x), "CPU")
--- probes
ops.t.bar(x)
=== reads/gradient: a gradient is computed at import with a formula that the other module registers
--- common
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * 2, "CPU")
--- left
import common
torch.library.register_autograd("t::foo", lambda ctx, grad: grad * 9, lib=lib)
--- right
import common
leaf = torch.ones(2, requires_grad=True)
try:
    torch.ops.t.foo(leaf).sum().backward()
    slope = leaf.grad.sum()
except RuntimeError:
    slope = torch.zeros(())
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + slope, "CPU")
--- probes
ops.t.bar(x)
"""

_OVERLOADS = """
=== overloads/ambiguous: both overloads accept the call, and the first one that was defined wins
--- left
lib.define("foo.a(Tensor x, int n=2) -> Tensor")
lib.impl("foo.a", lambda x, n=2: x * n, "CPU")
--- right
lib.define("foo.b(Tensor x, float n=3.0) -> Tensor")
lib.impl("foo.b", lambda x, n=3.0: x * n, "CPU")
--- probes
ops.t.foo(x)
=== overloads/number: a whole number matches the overload for int and the one for Scalar
--- left
lib.define("foo.a(Tensor x, int n) -> Tensor")
lib.impl("foo.a", lambda x, n: x * n, "CPU")
--- right
lib.define("foo.b(Tensor x, Scalar n) -> Tensor")
lib.impl("foo.b", lambda x, n: x + n, "CPU")
--- probes
ops.t.foo(x, 5)
=== overloads/list_of_one: a tensor list takes what an overload for optional tensors takes
--- left
lib.define("foo.a(Tensor?[] x) -> Tensor")
lib.impl("foo.a", lambda x: x[0] * 2, "CPU")
--- right
lib.define("foo.b(Tensor[] x) -> Tensor")
lib.impl("foo.b", lambda x: x[0] * 3, "CPU")
--- probes
ops.t.foo([x])
=== overloads/custom_ops_of_two: overloads of the same packet through torch.library.define
--- left
torch.library.define("t::foo.a", "(Tensor x, Tensor? y=None) -> Tensor", lib=lib)
torch.library.impl("t::foo.a", "CPU", lambda x, y=None: x * 2, lib=lib)
--- right
torch.library.define("t::foo.b", "(Tensor x, *, Tensor? out=None) -> Tensor", lib=lib)
torch.library.impl("t::foo.b", "CPU", lambda x, out=None: x * 3, lib=lib)
--- probes
ops.t.foo(x)
=== overloads/of_aten: an overload is put beside those of PyTorch, and another one that takes the same
--- left
own = torch.library.Library("aten", "FRAGMENT")
own.define("sin.left(Tensor x, int n=1) -> Tensor")
own.impl("sin.left", lambda x, n=1: x + n, "CPU")
--- right
own = torch.library.Library("aten", "FRAGMENT")
own.define("sin.right(Tensor x, float n=1.0) -> Tensor")
own.impl("sin.right", lambda x, n=1.0: x * n, "CPU")
--- probes
ops.aten.sin(x, 5)
=== overloads/list: the packet lists its overloads
--- left
lib.define("foo.a(Tensor x) -> Tensor")
--- right
lib.define("foo.b(Tensor x, Tensor y) -> Tensor")
--- probes
ops.t.foo.overloads()
=== overloads/low_level: an overload that comes through the binding does not reach a packet that was touched
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
torch.ops.t.foo
--- right
low = torch._C._dispatch_library("FRAGMENT", "t", "", __file__, 1)
low.define("foo.two(Tensor x, Tensor y) -> Tensor", "", ())
low.impl("foo.two", "CPU", lambda x, y: x * y)
--- probes
ops.t.foo(x, y)
=== overloads/kept_operation: the operation below the packet is kept, and does not learn of a later overload
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- middle
lib.define("foo.two(Tensor x, Tensor y) -> Tensor")
lib.impl("foo.two", lambda x, y: x * y, "CPU")
--- right
try:
    operation = torch.ops.t.foo._op
except AttributeError:
    operation = torch.mul
lib.define("bar(Tensor x, Tensor y) -> Tensor")
lib.impl("bar", lambda x, y: operation(x, y), "CPU")
--- probes
ops.t.bar(x, y)
=== overloads/names_of_packet: the names of the overloads are read at import
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.define("bar(Tensor x) -> Tensor")
try:
    names = torch.ops.t.foo.overloads()
finally:
    lib.impl("bar", lambda x: x * len(names), "CPU")
--- right
lib.define("foo.two(Tensor x, Tensor y) -> Tensor")
--- probes
ops.t.bar(x)
=== overloads/second_def: two modules define one operator with other defaults, the later refused and caught
--- left
try:
    lib.define("foo(Tensor x, int n=2) -> Tensor")
except RuntimeError:
    pass
lib.impl("foo", lambda x, n=2: x * n, "CPU")
--- right
try:
    lib.define("foo(Tensor x, int n=3) -> Tensor")
except RuntimeError:
    pass
--- probes
str(ops.t.foo.default._schema)
"""

_STATE = """
=== state/default_dtype: a table is made in the default type that the other module has set
--- left
torch.set_default_dtype(torch.float64)
--- right
table = torch.zeros(2)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + table, "CPU")
--- probes
ops.t.bar(x)
=== state/default_dtype_of_two: the kernel makes a tensor of the default type that was set last
--- left
torch.set_default_dtype(torch.float64)
--- right
torch.set_default_dtype(torch.float16)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: torch.zeros(2), "CPU")
--- probes
ops.t.bar(x)
=== state/default_device: a table is made on the default device
--- left
torch.set_default_device("meta")
--- right
table = torch.zeros(2)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + (table.device.type == "cpu"), "CPU")
--- probes
ops.t.bar(x)
=== state/grad_mode: gradients are switched off and on by two modules
--- left
torch.set_grad_enabled(False)
--- right
torch.set_grad_enabled(True)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CompositeImplicitAutograd")
--- probes
ops.t.bar(x.clone().requires_grad_())
=== state/inference_mode: a table is made in the inference mode that was never left
--- left
guard = torch.inference_mode()
guard.__enter__()
--- right
table = torch.ones(2)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + table.is_inference(), "CPU")
--- probes
ops.t.bar(x)
=== state/autocast: a product is computed at import within an autocast that was never left
--- left
guard = torch.autocast("cpu", dtype=torch.bfloat16)
guard.__enter__()
--- right
product = torch.ones(2, 2) @ torch.ones(2, 2)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + (product.dtype == torch.float32), "CPU")
--- probes
ops.t.bar(x)
=== state/autocast_dtype: the type of autocast is set by both
--- left
torch.set_autocast_dtype("cpu", torch.float16)
--- right
torch.set_autocast_dtype("cpu", torch.bfloat16)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x.to(torch.get_autocast_dtype("cpu")), "CPU")
--- probes
ops.t.bar(x)
=== state/function_mode: two modes of torch function are entered and never left, the inner one acting first
--- left
from torch.overrides import TorchFunctionMode
class Plus(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result + 1 if function is torch.neg else result
mode = Plus()
mode.__enter__()
--- right
from torch.overrides import TorchFunctionMode
class Times(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 3 if function is torch.neg else result
mode = Times()
mode.__enter__()
--- probes
torch.neg(x)
=== state/dispatch_mode: two dispatch modes are entered and never left
--- left
from torch.utils._python_dispatch import TorchDispatchMode
class Plus(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result + 1 if function is torch.ops.aten.neg.default else result
mode = Plus()
mode.__enter__()
--- right
from torch.utils._python_dispatch import TorchDispatchMode
class Times(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 3 if function is torch.ops.aten.neg.default else result
mode = Times()
mode.__enter__()
--- probes
torch.neg(x)
=== state/dispatch_mode_while_importing: what the other module computes at import goes through a mode left on
--- left
from torch.utils._python_dispatch import TorchDispatchMode
class Plus(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result + 1 if function is torch.ops.aten.neg.default else result
mode = Plus()
mode.__enter__()
--- right
table = torch.neg(torch.ones(2))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + table, "CPU")
--- probes
ops.t.bar(x)
=== state/excluded_key: a dispatch key of the thread is excluded at import and never included again
--- left
torch._C._dispatch_tls_set_dispatch_key_excluded(torch._C.DispatchKey.AutogradCPU, True)
--- right
leaf = torch.ones(2, requires_grad=True)
tracks = (leaf * 2).requires_grad
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + tracks, "CPU")
--- probes
ops.t.bar(x)
=== state/included_key: a key of the thread is switched by both
--- left
torch._C._dispatch_tls_set_dispatch_key_included(torch._C.DispatchKey.PrivateUse1, True)
--- right
torch._C._dispatch_tls_set_dispatch_key_included(torch._C.DispatchKey.PrivateUse1, False)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + 1, "CPU")
lib.impl("bar", lambda x: torch.full((1,), 9.0), "PrivateUse1")
--- probes
ops.t.bar(x)
torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PrivateUse1)
=== state/deterministic: a flag of determinism decides which kernel is registered
--- left
torch.use_deterministic_algorithms(True)
--- right
slow = torch.are_deterministic_algorithms_enabled()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", (lambda x: x + 1) if slow else (lambda x: x + 2), "CPU")
--- probes
ops.t.bar(x)
=== state/seed_left: each seeds the global generator before it draws, and the next draw is of the last seed
--- left
torch.manual_seed(1)
table = torch.randn(2)
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + table, "CPU")
--- right
torch.manual_seed(2)
table = torch.randn(2)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * table, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
torch.rand(1)
=== state/matmul_precision: a string setting of PyTorch is compared at import
--- left
torch.set_float32_matmul_precision("medium")
--- right
fast = torch.get_float32_matmul_precision() != "highest"
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + fast, "CPU")
--- probes
ops.t.bar(x)
=== state/backend_flag: a flag of torch.backends
--- left
torch.backends.mkldnn.set_flags(False)
--- right
enabled = torch._C._get_mkldnn_enabled()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + enabled, "CPU")
--- probes
ops.t.bar(x)
=== state/threads: the number of threads of PyTorch
--- left
torch.set_num_threads(3)
--- right
threads = torch.get_num_threads() == 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + threads, "CPU")
--- probes
ops.t.bar(x)
=== state/print_options: a string is made of a tensor with the options that the other module has set
--- left
torch.set_printoptions(precision=1)
--- right
length = len(str(torch.tensor([1.23456])))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * length, "CPU")
--- probes
ops.t.bar(x)
=== state/dynamo_config: a setting of TorchDynamo is read at import
--- left
import torch._dynamo
torch._dynamo.config.cache_size_limit = 99
--- right
import torch._dynamo
limit = torch._dynamo.config.cache_size_limit
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * (limit == 99), "CPU")
--- probes
ops.t.bar(x)
=== state/functorch_config: a setting of functorch that the kernel reads when it is called
--- left
import torch._functorch.config as config
config.functionalize_rng_ops = not config.functionalize_rng_ops
--- right
import torch._functorch.config as config
config.functionalize_rng_ops = True
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + config.functionalize_rng_ops, "CPU")
--- probes
ops.t.bar(x)
=== state/saved_tensor_hooks: hooks for saved tensors that were never left change a gradient formula's input
--- left
hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t)
hooks.__enter__()
--- right
leaf = torch.ones(2, requires_grad=True)
(leaf * leaf).sum().backward()
slope = leaf.grad.detach().clone()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * slope, "CPU")
--- probes
ops.t.bar(x)
=== state/backend_name: the name of the backend PrivateUse1 is asked
--- left
torch.utils.rename_privateuse1_backend("tdevice")
--- right
renamed = torch._C._get_privateuse1_backend_name() == "tdevice"
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + renamed, "CPU")
--- probes
ops.t.bar(x)
=== state/backend_name_of_two: the second renaming of the backend is refused and caught
--- left
try:
    torch.utils.rename_privateuse1_backend("leftdevice")
except RuntimeError:
    pass
--- right
try:
    torch.utils.rename_privateuse1_backend("rightdevice")
except RuntimeError:
    pass
--- probes
torch._C._get_privateuse1_backend_name()
=== state/backend_name_and_kernel: register_kernel takes the device by the name that the other module gives it
--- left
torch.utils.rename_privateuse1_backend("tdevice")
--- right
torch.library.define("t::bar", "(Tensor x) -> Tensor", lib=lib)
try:
    torch.library.register_kernel("t::bar", "tdevice", lambda x: x + 1, lib=lib)
except Exception:
    torch.library.register_kernel("t::bar", "cpu", lambda x: x + 2, lib=lib)
--- probes
ops.t.bar(x)
=== state/device_module: the module of a device type, which only one can register
--- left
import types
own = types.SimpleNamespace(scale=2)
try:
    torch._register_device_module("maia", own)
except RuntimeError:
    pass
--- right
import types
own = types.SimpleNamespace(scale=3)
try:
    torch._register_device_module("maia", own)
except RuntimeError:
    pass
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * torch.maia.scale, "CPU")
--- probes
ops.t.bar(x)
=== state/warnings_as_errors: a warning filter turns the other module's registration into an exception, which is caught
--- left
import warnings
warnings.simplefilter("error")
--- right
import warnings
lib.define("bar(Tensor x) -> Tensor")
try:
    warnings.warn("this kernel is old", UserWarning)
    lib.impl("bar", lambda x: x + 1, "CPU")
except UserWarning:
    lib.impl("bar", lambda x: x + 2, "CPU")
--- probes
ops.t.bar(x)
=== state/recursion_limit: a recursion ends at the limit that the other module has set
--- left
import sys
sys.setrecursionlimit(5_000)
--- right
import sys
deep = sys.getrecursionlimit() == 5_000
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + deep, "CPU")
--- probes
ops.t.bar(x)
=== state/locale: a number is written in the locale that the other module has set
--- left
import locale
locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")
--- right
import locale
plain = locale.setlocale(locale.LC_NUMERIC) == "C"
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + plain, "CPU")
--- probes
ops.t.bar(x)
=== state/signal_handler: the handler of a signal is looked at
--- left
import signal
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
--- right
import signal
ignored = signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + ignored, "CPU")
--- probes
ops.t.bar(x)
=== state/logging: the level of a logger decides which kernel is registered
--- left
import logging
logging.getLogger("t").setLevel(logging.DEBUG)
--- right
import logging
lib.define("bar(Tensor x) -> Tensor")
careful = logging.getLogger("t").isEnabledFor(logging.DEBUG)
lib.impl("bar", (lambda x: x + 1) if careful else (lambda x: x + 2), "CPU")
--- probes
ops.t.bar(x)
"""

_CONFLICTS = """
=== conflicts/same_key: two kernels of one operator at one key, and the later one is in force
--- common
lib.define("foo(Tensor x) -> Tensor")
--- left
import common
lib.impl("foo", lambda x: x * 2, "CPU")
--- right
import common
lib.impl("foo", lambda x: x * 3, "CPU")
--- probes
ops.t.foo(x)
=== conflicts/try_another_key: what is refused without allow_override goes to another key
--- common
lib.define("foo(Tensor x) -> Tensor")
--- left
import common
try:
    lib.impl("foo", lambda x: x * 2, "CPU", allow_override=False)
except RuntimeError:
    lib.impl("foo", lambda x: x * 2, "Meta")
--- right
import common
try:
    lib.impl("foo", lambda x: x * 3, "CPU", allow_override=False)
except RuntimeError:
    lib.impl("foo", lambda x: x * 3, "Meta")
--- probes
ops.t.foo(x)
=== conflicts/try_another_name: a def that is refused is made with another name
--- left
try:
    lib.define("foo(Tensor x) -> Tensor")
    name = "foo"
except RuntimeError:
    lib.define("foo_left(Tensor x) -> Tensor")
    name = "foo_left"
lib.impl(name, lambda x: x * 2, "CPU")
--- right
try:
    lib.define("foo(Tensor x) -> Tensor")
    name = "foo"
except RuntimeError:
    lib.define("foo_right(Tensor x) -> Tensor")
    name = "foo_right"
lib.impl(name, lambda x: x * 3, "CPU")
--- probes
ops.t.foo(x)
=== conflicts/namespace: both want the namespace, and the later one takes another
--- left
try:
    own = torch.library.Library("shared_t", "DEF")
except RuntimeError:
    own = torch.library.Library("shared_t_left", "DEF")
own.define("foo(Tensor x) -> Tensor")
own.impl("foo", lambda x: x * 2, "CPU")
--- right
try:
    own = torch.library.Library("shared_t", "DEF")
except RuntimeError:
    own = torch.library.Library("shared_t_right", "DEF")
own.define("foo(Tensor x) -> Tensor")
own.impl("foo", lambda x: x * 3, "CPU")
--- probes
ops.shared_t.foo(x)
=== conflicts/meta_beside_composite: a Meta kernel is refused where a composite one is, and caught
--- common
lib.define("foo(Tensor x) -> Tensor")
--- left
import common
lib.impl("foo", lambda x: x * 2, "CompositeImplicitAutograd")
--- right
import common
try:
    lib.impl("foo", lambda x: x.new_empty(9), "Meta")
except RuntimeError:
    pass
--- probes
meta(ops.t.foo)
=== conflicts/fake_twice: the second fake takes the place of the first one
--- common
torch.library.define("t::foo", "(Tensor x) -> Tensor", lib=lib)
--- left
import common
torch.library.register_fake("t::foo", lambda x: x.new_empty(5), lib=lib)
--- right
import common
torch.library.register_fake("t::foo", lambda x: x.new_empty(7), lib=lib, allow_override=True)
--- probes
fake(ops.t.foo, x)
=== conflicts/autograd_twice: the second formula takes the place of the first one
--- common
torch.library.define("t::foo", "(Tensor x) -> Tensor", lib=lib)
lib.impl("foo", lambda x: x * 1, "CPU")
--- left
import common
torch.library.register_autograd("t::foo", lambda ctx, grad: grad * 2, lib=lib)
--- right
import common
torch.library.register_autograd("t::foo", lambda ctx, grad: grad * 3, lib=lib)
--- probes
grad(ops.t.foo)
=== conflicts/vmap_twice: the second rule for vmap takes the place of the first one
--- common
torch.library.define("t::foo", "(Tensor x) -> Tensor", lib=lib)
lib.impl("foo", lambda x: x * 1, "CPU")
--- left
import common
torch.library.register_vmap("t::foo", lambda info, dims, x: (x * 2, 0), lib=lib)
--- right
import common
torch.library.register_vmap("t::foo", lambda info, dims, x: (x * 3, 0), lib=lib)
--- probes
vmapped(ops.t.foo)
=== conflicts/autocast_twice: two casts, of which the later one is in force or refused
--- common
torch.library.define("t::foo", "(Tensor x) -> Tensor", lib=lib)
lib.impl("foo", lambda x: x * 1, "CPU")
--- left
import common
torch.library.register_autocast("t::foo", "cpu", torch.float16, lib=lib)
--- right
import common
torch.library.register_autocast("t::foo", "cpu", torch.bfloat16, lib=lib)
--- probes
torch.autocast("cpu").__enter__() and None
ops.t.foo(x)
=== conflicts/torch_dispatch_twice: two rules for one mode, the second refused and caught
--- common
from torch.utils._python_dispatch import TorchDispatchMode
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None): return function(*args)
torch.library.define("t::foo", "(Tensor x) -> Tensor", lib=lib)
lib.impl("foo", lambda x: x * 1, "CPU")
--- left
import common
try:
    torch.library.register_torch_dispatch("t::foo", common.Mode, lambda mode, op, types, a, k: a[0] * 2, lib=lib)
except RuntimeError:
    pass
--- right
import common
try:
    torch.library.register_torch_dispatch("t::foo", common.Mode, lambda mode, op, types, a, k: a[0] * 3, lib=lib)
except RuntimeError:
    pass
--- probes
(lambda mode: (mode.__enter__(), ops.t.foo(x), mode.__exit__(None, None, None))[1])(__import__("common").Mode())
=== conflicts/custom_op_twice: the second custom operator of a name destroys the first one
--- left
@torch.library.custom_op("t::foo", mutates_args=())
def foo(x: torch.Tensor) -> torch.Tensor: return x * 2
--- right
@torch.library.custom_op("t::foo", mutates_args=())
def foo(x: torch.Tensor) -> torch.Tensor: return x * 3
--- probes
ops.t.foo(x)
=== conflicts/part_of_custom_op: a kernel for CPU registered on a custom operator that is then destroyed and made again
--- left
@torch.library.custom_op("t::foo", mutates_args=())
def foo(x: torch.Tensor) -> torch.Tensor: return x * 2
--- middle
@torch.library.custom_op("t::foo", mutates_args=())
def foo(x: torch.Tensor) -> torch.Tensor: return x * 2
--- right
try:
    torch.library.register_kernel("t::foo", "cpu", lambda x: x * 5)
except Exception:
    pass
--- probes
ops.t.foo(x)
=== conflicts/kernel_switched_off: a custom operator's kernel is switched off for good
--- common
@torch.library.custom_op("t::foo", mutates_args=(), device_types="cpu")
def foo(x: torch.Tensor) -> torch.Tensor: return x * 2
--- left
import common
common.foo._disabled_kernel.add("cpu")
--- right
import common
try:
    with common.foo.set_kernel_enabled("cpu", enabled=False): pass
except Exception:
    pass
switched = "cpu" in common.foo._disabled_kernel
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + switched, "CPU")
--- probes
ops.t.bar(x)
=== conflicts/fallback: two fallbacks for one key, the second refused and caught
--- left
own = torch.library.Library("_", "IMPL")
try:
    own.fallback(lambda op, *a, **k: 2, "PrivateUse2")
except RuntimeError:
    pass
--- right
own = torch.library.Library("_", "IMPL")
try:
    own.fallback(torch.library.fallthrough_kernel, "PrivateUse2")
except RuntimeError:
    pass
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x.clone(), "CPU")
--- probes
"fallthrough" in torch._C._dispatch_dump_table("t::bar").partition("PrivateUse2:")[2].splitlines()[0]
=== conflicts/override_of_aten: both override one kernel of PyTorch
--- left
own = torch.library.Library("aten", "IMPL")
own.impl("tanh", lambda x: x * 2, "CPU")
--- right
own = torch.library.Library("aten", "IMPL")
own.impl("tanh", lambda x: x * 3, "CPU")
--- probes
torch.tanh(x)
=== conflicts/composite_overrides: one overrides the composite kernel of an operator, the other one that of a key
--- common
lib.define("foo(Tensor x) -> Tensor")
--- left
import common
lib.impl("foo", lambda x: x * 2, "CompositeExplicitAutograd")
--- right
import common
if not torch._C._dispatch_has_kernel_for_dispatch_key("t::foo", "CompositeExplicitAutograd"):
    lib.impl("foo", lambda x: x * 3, "CPU")
--- probes
ops.t.foo(x)
=== conflicts/py_impl: two rules of Python for one operator at one key
--- left
try:
    torch.ops.aten.sinh.default.py_impl(torch._C.DispatchKey.AutogradCPU)(lambda x: x * 2)
except RuntimeError:
    pass
--- right
try:
    torch.ops.aten.sinh.default.py_impl(torch._C.DispatchKey.AutogradCPU)(lambda x: x * 3)
except RuntimeError:
    pass
--- probes
ops.aten.sinh.default.py_kernels[torch._C.DispatchKey.AutogradCPU](x)
=== conflicts/higher_order: two rules of a higher-order operator, the second refused and caught
--- common
from torch._ops import HigherOrderOperator
class Twice(HigherOrderOperator):
    def __init__(self): super().__init__("t_twice")
    def __call__(self, x): return super().__call__(x)
twice = Twice()
--- left
import common
try:
    common.twice.py_impl(torch._C.DispatchKey.AutogradCPU)(lambda x: x * 2)
except RuntimeError:
    pass
--- right
import common
try:
    common.twice.py_impl(torch._C.DispatchKey.AutogradCPU)(lambda x: x * 3)
except RuntimeError:
    pass
--- probes
__import__("common").twice(x)
=== conflicts/higher_order_names: two higher-order operators of one name
--- left
from torch._ops import HigherOrderOperator
class Op(HigherOrderOperator):
    def __call__(self, x): return x * 2
op = Op("t_same_name")
--- right
from torch._ops import HigherOrderOperator
class Op(HigherOrderOperator):
    def __call__(self, x): return x * 3
op = Op("t_same_name")
--- probes
torch.ops.higher_order.t_same_name(x)
=== conflicts/decomposition: two decompositions, the second refused and caught
--- common
lib.define("foo(Tensor x) -> Tensor")
--- left
import common
try:
    torch._decomp.register_decomposition(torch.ops.t.foo)(lambda x: x * 2)
except RuntimeError:
    pass
--- right
import common
try:
    torch._decomp.register_decomposition(torch.ops.t.foo)(lambda x: x * 3)
except RuntimeError:
    pass
--- probes
decomposed(ops.t.foo.default, x)
=== conflicts/decomposition_assigned: two decompositions are assigned to one entry
--- left
torch._decomp.decomposition_table[torch.ops.aten.silu.default] = lambda x: x * 2
--- right
torch._decomp.decomposition_table.update({torch.ops.aten.silu.default: lambda x: x * 3})
--- probes
decomposed(ops.aten.silu.default, x)
=== conflicts/decomposition_wrapped: both wrap the decomposition that they find
--- left
before_left = torch._decomp.decomposition_table[torch.ops.aten.silu.default]
torch._decomp.decomposition_table[torch.ops.aten.silu.default] = lambda x: before_left(x) + 1
--- right
before_right = torch._decomp.decomposition_table[torch.ops.aten.silu.default]
torch._decomp.decomposition_table[torch.ops.aten.silu.default] = lambda x: before_right(x) * 2
--- probes
decomposed(ops.aten.silu.default, x)
=== conflicts/decomposition_popped: one takes out what the other one replaces
--- left
torch._decomp.decomposition_table.pop(torch.ops.aten.silu.default, None)
--- right
torch._decomp.decomposition_table[torch.ops.aten.silu.default] = lambda x: x * 3
--- probes
decomposed(ops.aten.silu.default, x)
=== conflicts/decomposition_copied: a copy of the table is made before or after an entry comes
--- left
lib.define("foo(Tensor x) -> Tensor")
torch._decomp.register_decomposition(torch.ops.t.foo)(lambda x: x + 1)
--- right
table = dict(torch._decomp.decomposition_table)
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    found = [function for op, function in table.items() if str(op) == "t.foo.default"]
    return found[0](x) if found else x * 7
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== conflicts/core_decompositions: the core table is made before or after an entry is taken out
--- left
torch._decomp.decomposition_table.pop(torch.ops.aten.silu.default)
--- right
count = sum(str(op) == "aten.silu.default" for op in torch._decomp.core_aten_decompositions())
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + count, "CPU")
--- probes
ops.t.bar(x)
=== conflicts/meta_function: a meta function of an operator is registered by both
--- common
lib.define("foo(Tensor x) -> Tensor")
--- left
import common
try:
    torch._decomp.register_decomposition(torch.ops.t.foo, type="meta")(lambda x: x.new_empty(5))
except RuntimeError:
    pass
--- right
import common
try:
    torch._decomp.register_decomposition(torch.ops.t.foo, type="meta")(lambda x: x.new_empty(7))
except RuntimeError:
    pass
--- probes
torch._decomp.meta_table[ops.t.foo.default](x).shape
=== conflicts/fake_rule: the rules of fake tensors for an operator of PyTorch are replaced by both
--- left
from torch._subclasses.fake_impls import op_implementations_dict
op_implementations_dict[torch.ops.aten.cosh.default] = lambda mode, op, x: x.new_empty(5)
--- right
from torch._subclasses.fake_impls import op_implementations_dict
op_implementations_dict[torch.ops.aten.cosh.default] = lambda mode, op, x: x.new_empty(7)
--- probes
fake(torch.cosh, x)
=== conflicts/effects: the effect of an operator is registered by both
--- common
torch.library.define("t::foo", "(Tensor x) -> Tensor", lib=lib)
--- left
import common
from torch._library.effects import EffectType
torch.library._register_effectful_op("t::foo", EffectType.ORDERED)
--- right
import common
torch.library._register_effectful_op("t::foo", None)
--- probes
torch._higher_order_ops.effects._get_effect(ops.t.foo.default)
=== conflicts/stale_handle: an overload is kept whose def is then released and made again
--- common
class Holder: first = None
holder = Holder()
def define():
    if holder.first is None:
        holder.first = torch.library.Library("t", "FRAGMENT")
        holder.first.define("foo(Tensor x) -> Tensor")
        holder.first.impl("foo", lambda x: x * 2, "CPU")
define()
--- left
import common
common.holder.first._destroy()
common.holder.first = None
common.define()
--- right
import common
overload = torch.ops.t.foo.default
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + (overload is torch.ops.t.foo.default), "CPU")
--- probes
ops.t.bar(x)
"""

_LIFETIMES = """
=== lifetimes/collected: a library in a cycle ends with the collection that the other module asks for
--- left
import gc
gc.disable()
class Node: pass
def make():
    node = Node()
    node.own = torch.library.Library("t", "FRAGMENT")
    node.own.define("foo(Tensor x) -> Tensor")
    node.own.impl("foo", lambda x: x * 2, "CPU")
    node.me = node
make()
--- right
import gc
gc.disable()
gc.collect()
--- probes
ops.t.foo(x)
=== lifetimes/finalizer: the end of an object registers, and the other module ends it
--- common
import weakref
class Token: pass
tokens = [Token()]
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * 2, "CPU")
--- left
import common, weakref
if common.tokens:
    weakref.finalize(common.tokens[0], lambda: lib.impl("foo", lambda x: x * 3, "CPU"))
--- right
import common
common.tokens.clear()
--- probes
ops.t.foo(x)
=== lifetimes/weak_dictionary: an entry of a weak dictionary lives as long as its owner
--- common
import weakref
class Owner: pass
owners = [Owner()]
entries = weakref.WeakKeyDictionary()
--- left
import common
if common.owners: common.entries[common.owners[0]] = 5
--- middle
import common
common.owners.clear()
--- right
import common
scale = sum(common.entries.values()) + 1
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * scale, "CPU")
--- probes
ops.t.bar(x)
=== lifetimes/exit_handlers: the functions for the end of the process are run early
--- left
import atexit
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * 2, "CPU")
atexit.register(lambda: lib.impl("foo", lambda x: x * 3, "CPU"))
--- right
import atexit
atexit._run_exitfuncs()
--- probes
ops.t.foo(x)
=== lifetimes/released_by_the_other: a module ends the library of another one
--- common
libraries = []
--- left
import common
own = torch.library.Library("t", "FRAGMENT")
own.define("foo(Tensor x) -> Tensor")
own.impl("foo", lambda x: x * 2, "CPU")
common.libraries.append(own)
--- right
import common
for own in common.libraries: own._destroy()
--- probes
ops.t.foo(x)
=== lifetimes/released_override: one looks while a kernel of PyTorch is overridden, which the other one ends
--- common
own = torch.library.Library("aten", "IMPL")
own.impl("sin", lambda x: x + 10, "CPU")
--- left
import common
common.own._destroy()
--- right
import common
table = torch.sin(torch.zeros(2))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + table, "CPU")
--- probes
ops.t.bar(x)
=== lifetimes/scoped_library: a scope is entered by one module and left by the other one
--- common
scopes = []
--- left
import common
scope = torch.library._scoped_library("t", "FRAGMENT")
own = scope.__enter__()
own.define("foo(Tensor x) -> Tensor")
own.impl("foo", lambda x: x * 2, "CPU")
common.scopes.append(scope)
--- right
import common
while common.scopes: common.scopes.pop().__exit__(None, None, None)
--- probes
ops.t.foo(x)
=== lifetimes/released_by_search: a library is found among all objects and ended
--- left
own = torch.library.Library("t_found", "DEF")
own.define("foo(Tensor x) -> Tensor")
own.impl("foo", lambda x: x * 2, "CPU")
--- right
import gc
for one in gc.get_objects():
    if isinstance(one, torch.library.Library) and one.ns == "t_found": one._destroy()
--- probes
ops.t_found.foo(x)
=== lifetimes/deleted_module: a module is taken out of sys.modules, and imported anew by the other one
--- common
import common_count
common_count.number += 1
number = common_count.number
--- common_count
number = 0
--- left
import common, sys
del sys.modules["common"]
--- right
import common
number = common.number
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * number, "CPU")
--- probes
ops.t.bar(x)
=== lifetimes/reloaded: a module is executed again by the other one
--- common
import builtins
builtins.t_loads = getattr(builtins, "t_loads", 0) + 1
loads = builtins.t_loads
--- left
import importlib, common
importlib.reload(common)
--- right
import common
loads = common.loads
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * loads, "CPU")
--- probes
ops.t.bar(x)
=== lifetimes/thread: a thread that has ended before the import did has registered what the other one looks for
--- left
import threading
def register():
    lib.define("foo(Tensor x) -> Tensor")
    lib.impl("foo", lambda x: x * 2, "CPU")
thread = threading.Thread(target=register)
thread.start()
thread.join()
--- right
there = torch._C._dispatch_has_kernel("t::foo")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== lifetimes/waiting_thread: a thread waits for the other module, which sets an event and joins
--- common
import threading
event = threading.Event()
threads = []
lib.define("foo(Tensor x) -> Tensor")
--- left
import common, threading
def register():
    common.event.wait()
    lib.impl("foo", lambda x: x * 2, "CPU")
thread = threading.Thread(target=register, daemon=True)
thread.start()
common.threads.append(thread)
if common.event.is_set(): thread.join()
--- right
import common
common.event.set()
for thread in common.threads: thread.join()
lib.impl("foo", lambda x: x * 3, "CPU")
--- probes
ops.t.foo(x)
=== lifetimes/process: a program that one module starts leaves a file that the other one reads
--- left
import subprocess, pathlib, sys
subprocess.run(["touch", str(pathlib.Path(__file__).with_name("made"))], check=True)
--- right
import pathlib
there = pathlib.Path(__file__).with_name("made").exists()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + there, "CPU")
--- probes
ops.t.bar(x)
=== lifetimes/cleanup_of_files: both write one file, and the kernel reads it when it is called
--- left
import pathlib
pathlib.Path(__file__).with_name("settings").write_text("2")
--- right
import pathlib
settings = pathlib.Path(__file__).with_name("settings")
settings.write_text("3")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * int(settings.read_text()), "CPU")
--- probes
ops.t.bar(x)
"""

_PATCHES = """
=== patches/impl: Library.impl is patched, so that later kernels are wrapped
--- left
impl = torch.library.Library.impl
def doubled(self, name, function, *arguments, **named):
    return impl(self, name, lambda x: function(x) * 2, *arguments, **named)
torch.library.Library.impl = doubled
--- right
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + 1, "CPU")
--- probes
ops.t.bar(x)
=== patches/impl_and_back: Library.impl is patched by one module and put back by the other one
--- common
original = torch.library.Library.impl
--- left
import common
torch.library.Library.impl = lambda self, name, function, key="": common.original(self, name, lambda x: x * 9, key)
--- right
import common
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + 1, "CPU")
torch.library.Library.impl = common.original
--- probes
ops.t.bar(x)
=== patches/register_fake: register_fake is replaced by a function that does nothing for one namespace
--- left
real = torch.library.register_fake
torch.library.register_fake = lambda name, *a, **k: None if str(name).startswith("t::") else real(name, *a, **k)
--- right
torch.library.define("t::bar", "(Tensor x) -> Tensor", lib=lib)
torch.library.register_fake("t::bar", lambda x: x.new_empty(7), lib=lib)
--- probes
fake(ops.t.bar, x)
=== patches/define: torch.library.define writes another default into the schema
--- left
define = torch.library.define
torch.library.define = lambda name, schema, **named: define(name, schema.replace("n=1", "n=2"), **named)
--- right
torch.library.define("t::bar", "(Tensor x, int n=1) -> Tensor", lib=lib)
lib.impl("bar", lambda x, n=0: x * n, "CPU")
--- probes
str(ops.t.bar.default._schema)
=== patches/custom_op: custom_op is patched to name a device
--- left
custom_op = torch.library.custom_op
torch.library.custom_op = lambda name, **named: custom_op(name, **{**named, "device_types": "cuda"})
--- right
@torch.library.custom_op("t::bar", mutates_args=())
def bar(x: torch.Tensor) -> torch.Tensor: return x * 2
--- probes
ops.t.bar(x)
=== patches/library_class: torch.library.Library is replaced by a class that changes the kind
--- left
Library = torch.library.Library
torch.library.Library = lambda namespace, kind, key="": Library("t_redirected", "FRAGMENT", key)
--- right
own = torch.library.Library("t_direct", "FRAGMENT")
own.define("bar(Tensor x) -> Tensor")
own.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t_direct.bar(x)
=== patches/binding: the binding below Library is replaced
--- left
library = torch._C._dispatch_library
class Proxy:
    def __init__(self, inner): self.inner = inner
    def define(self, *a): return self.inner.define(*a)
    def impl(self, name, key, function, *rest): return self.inner.impl(name, key, lambda x: function(x) + 100, *rest)
    def reset(self): self.inner.reset()
torch._C._dispatch_library = lambda *arguments: Proxy(library(*arguments))
--- right
own = torch.library.Library("t", "FRAGMENT")
own.define("bar(Tensor x) -> Tensor")
own.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.bar(x)
=== patches/decomposition: register_decomposition is replaced
--- left
register = torch._decomp.register_decomposition
torch._decomp.register_decomposition = lambda op, *a, **k: lambda function: register(op)(lambda x: function(x) + 100)
--- right
lib.define("bar(Tensor x) -> Tensor")
torch._decomp.register_decomposition(torch.ops.t.bar)(lambda x: x * 2)
--- probes
decomposed(ops.t.bar.default, x)
=== patches/get_decompositions: get_decompositions is replaced when the other module calls it
--- left
get = torch._decomp.get_decompositions
torch._decomp.get_decompositions = lambda ops, *a, **k: {}
--- right
table = torch._decomp.get_decompositions([torch.ops.aten.silu])
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(table), "CPU")
--- probes
ops.t.bar(x)
=== patches/import_hook: a finder rewrites the source of modules that are imported later
--- left
import sys, importlib.abc, importlib.machinery
class Loader(importlib.machinery.SourceFileLoader):
    def get_data(self, path): return super().get_data(path).replace(b"x * 2", b"x * 5")
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if name == "right": spec.loader = Loader(name, spec.origin)
        return spec if name == "right" else None
sys.meta_path.insert(0, Finder())
--- right
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.bar(x)
=== patches/import_function: builtins.__import__ is replaced, and gives another module
--- common
scale = 2
--- common_fast
scale = 5
--- left
import builtins
real = builtins.__import__
builtins.__import__ = lambda name, *rest: real("common_fast" if name == "common" else name, *rest)
--- right
import common
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.scale, "CPU")
--- probes
ops.t.bar(x)
=== patches/path: a folder is put before sys.path, which has a helper of the same name
--- common
scale = 2
--- left
import sys, pathlib
folder = pathlib.Path(__file__).parent / "inner"
folder.mkdir(exist_ok=True)
(folder / "common.py").write_text("scale = 5")
sys.path.insert(0, str(folder))
--- right
import common
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.scale, "CPU")
--- probes
ops.t.bar(x)
=== patches/build_class: builtins.__build_class__ is replaced, and gives classes another attribute
--- left
import builtins
build = builtins.__build_class__
def built(function, name, *bases, **named):
    made = build(function, name, *bases, **named)
    if name == "TKernel": made.scale = 7
    return made
builtins.__build_class__ = built
--- right
class TKernel:
    scale = 2
    def __call__(self, x): return x * self.scale
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", TKernel(), "CPU")
--- probes
ops.t.bar(x)
=== patches/profile_function: a function called at each return counts the functions of the other module
--- left
import sys
sys.t_calls = 0
def count(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "counted_by_t": sys.t_calls += 1
sys.setprofile(count)
--- right
import sys
def counted_by_t(): return getattr(sys, "t_calls", 0)
calls = counted_by_t()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + calls, "CPU")
--- probes
ops.t.bar(x)
=== patches/audit_hook_refuses: an audit hook refuses what the other module opens, and the error is caught
--- left
import sys
def refuse(event, arguments):
    if event == "t.register": raise RuntimeError("not now")
sys.addaudithook(refuse)
--- right
import sys
lib.define("bar(Tensor x) -> Tensor")
try:
    sys.audit("t.register")
    lib.impl("bar", lambda x: x + 1, "CPU")
except RuntimeError:
    lib.impl("bar", lambda x: x + 2, "CPU")
--- probes
ops.t.bar(x)
=== patches/len: a builtin function is replaced for all modules
--- left
import builtins
length = len
builtins.len = lambda value: 7 if value == "t" else length(value)
--- right
count = len("t")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * count, "CPU")
--- probes
ops.t.bar(x)
=== patches/ops_namespace: an attribute is set in torch.ops in place of an operator
--- left
if not hasattr(torch.ops.t, "bar"): torch.ops.t.bar = lambda x: x * 7
--- right
low = torch._C._dispatch_library("FRAGMENT", "t", "", __file__, 1)
low.define("bar(Tensor x) -> Tensor", "", ())
low.impl("bar", "CPU", lambda x: x * 2)
--- probes
ops.t.bar(x)
=== patches/tensor_function: torch.ones is replaced before or after a table is made
--- left
ones = torch.ones
torch.ones = lambda *a, **k: ones(*a, **k) * 3
--- right
table = torch.ones(2)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * table, "CPU")
--- probes
ops.t.bar(x)
=== patches/hook_on_modules: a global forward hook of torch.nn changes what a module computes at import
--- left
torch.nn.modules.module.register_module_forward_hook(lambda module, inputs, output: output + 1)
--- right
table = torch.nn.Identity()(torch.ones(2))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * table, "CPU")
--- probes
ops.t.bar(x)
"""

_LATE = """
=== late/set_order: equal sets whose first element depends on the order in which they were filled
--- common
numbers = set()
--- left
import common
common.numbers.add(8)
--- right
import common
common.numbers.add(0)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + next(iter(common.numbers)), "CPU")
--- probes
ops.t.bar(x)
=== late/last_item: the kernel asks a dict for its last entry
--- common
table = {"base": 1}
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + list(table.items())[-1][1], "CPU")
--- left
import common
common.table["left"] = 2
--- right
import common
common.table["right"] = 3
--- probes
ops.t.bar(x)
=== late/same_object: whether two names of a helper are one object
--- common
first = [1]
second = [1]
--- left
import common
common.second = common.first
--- right
import common
common.first = [1]
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + (common.first is common.second), "CPU")
--- probes
ops.t.bar(x)
=== late/shared_storage: two tensors of equal values share their storage or not, and the kernel writes into one
--- common
first = torch.zeros(1)
second = torch.zeros(1)
--- left
import common
common.second = common.first.view(1)
--- right
import common
common.first = torch.zeros(1)
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    common.first.add_(1)
    return x + common.second
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== late/strides: a tensor of equal values lies otherwise in memory
--- common
table = torch.ones(2, 3)
--- left
import common
common.table = common.table.t().contiguous().t()
--- right
import common
table = common.table
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + table.stride()[0], "CPU")
--- probes
ops.t.bar(x)
=== late/module_names: the kernel looks at the names of a module in the order in which they were set
--- common
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * [value for name, value in globals().items() if name.startswith("of_")][0], "CPU")
--- left
import common
common.of_left = 2
--- right
import common
common.of_right = 3
--- probes
ops.t.bar(x)
=== late/imported_modules: the kernel looks at which module came first in sys.modules
--- left
lib.define("foo(Tensor x) -> Tensor")
--- right
import sys
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + (list(sys.modules).index("left") < list(sys.modules).index("right")), "CPU")
--- probes
ops.t.bar(x)
=== late/looked_up_operators: the kernel takes the first operator of the namespace that was looked up
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
torch.ops.t.foo
--- right
lib.define("baz(Tensor x) -> Tensor")
lib.impl("baz", lambda x: x * 5, "CPU")
torch.ops.t.baz
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: getattr(torch.ops.t, torch.ops.t._dir[0])(x), "CPU")
--- probes
ops.t.bar(x)
=== late/table_order: the kernel takes the newest entry of the table of decompositions
--- left
torch._decomp.decomposition_table.pop(torch.ops.aten.silu.default)
torch._decomp.decomposition_table[torch.ops.aten.silu.default] = lambda x: x * 2
--- right
torch._decomp.decomposition_table.pop(torch.ops.aten.mish.default)
torch._decomp.decomposition_table[torch.ops.aten.mish.default] = lambda x: x * 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: list(torch._decomp.decomposition_table.values())[-1](x), "CPU")
--- probes
ops.t.bar(x)
=== late/lazy_import: the kernel imports a helper when it is called, which finds what the last one left
--- common
scale = 1
--- common_lazy
import common
scale = common.scale
--- left
import common
common.scale = 2
--- right
import common
common.scale = 3
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    import common_lazy
    return x * common_lazy.scale
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== late/lazy_plugin: the kernel imports a plugin of which two folders on sys.path have one each
--- left
import sys, pathlib
folder = pathlib.Path(__file__).parent / "of_left"
folder.mkdir(exist_ok=True)
(folder / "t_plugin.py").write_text("scale = 5")
sys.path.insert(0, str(folder))
--- right
import sys, pathlib
folder = pathlib.Path(__file__).parent / "of_right"
folder.mkdir(exist_ok=True)
(folder / "t_plugin.py").write_text("scale = 7")
sys.path.insert(0, str(folder))
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    import t_plugin
    return x * t_plugin.scale
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== late/lazy_registration: the kernel registers another operator when it is first called, by what it finds then
--- common
owner = None
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    name = f"of_{owner}"
    lib.define(f"{name}(Tensor x) -> Tensor")
    lib.impl(name, lambda x: x * 2, "CPU")
    return x
lib.impl("bar", kernel, "CPU")
--- left
import common
common.owner = "left"
--- right
import common
common.owner = "right"
--- probes
ops.t.bar(x)
ops.t.of_left(x)
ops.t.of_right(x)
=== late/warning_filters: the kernel gives a warning, and the filter that was set last decides whether it raises
--- left
import warnings
warnings.filterwarnings("error", message="t is old")
--- right
import warnings
warnings.filterwarnings("ignore", message="t is old")
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    try:
        warnings.warn("t is old")
    except UserWarning:
        return x * 2
    return x * 3
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== late/iterator: the kernel takes the next of an iterator that both have advanced by their rule
--- common
numbers = iter(range(100))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * next(numbers), "CPU")
--- left
import common
skipped = [next(common.numbers) for _ in range(2)]
--- right
import common
count = next(common.numbers)
skipped = [next(common.numbers) for _ in range(count)]
--- probes
ops.t.bar(x)
=== late/text_stream: the kernel reads on in a stream in memory
--- common
import io
stream = io.StringIO("123456789")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * int(stream.read(1)), "CPU")
--- left
import common
common.stream.seek(common.stream.tell() * 2 + 1)
--- right
import common
common.stream.seek(common.stream.tell() + 3)
--- probes
ops.t.bar(x)
=== late/lock: the kernel asks whether a lock is held
--- common
import threading
lock = threading.Lock()
--- left
import common
common.lock.acquire(blocking=False)
--- right
import common
if common.lock.locked(): common.lock.release()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + common.lock.locked(), "CPU")
--- probes
ops.t.bar(x)
=== late/digest: the kernel reads a digest that both have fed
--- common
import hashlib
digest = hashlib.sha256()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + digest.digest()[0], "CPU")
--- left
import common
common.digest.update(b"left")
--- right
import common
common.digest.update(b"right")
--- probes
ops.t.bar(x)
=== late/database: the kernel asks a database in memory
--- common
import sqlite3
database = sqlite3.connect(":memory:", check_same_thread=False)
database.execute("create table steps (scale integer)")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * database.execute("select scale from steps order by rowid").fetchone()[0], "CPU")
--- left
import common
common.database.execute("insert into steps values (2)")
--- right
import common
common.database.execute("insert into steps values (3)")
--- probes
ops.t.bar(x)
=== late/codec: a codec is searched by the functions of both, the first one first
--- left
import codecs
codecs.register(lambda name: codecs.CodecInfo(lambda t, e="": (b"22", 1), None) if name == "t_codec" else None)
--- right
import codecs
codecs.register(lambda name: codecs.CodecInfo(lambda t, e="": (b"333", 1), None) if name == "t_codec" else None)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len("a".encode("t_codec")), "CPU")
--- probes
ops.t.bar(x)
=== late/array: the kernel reads through a bound method of an array, which is made in C
--- common
import array
numbers = array.array("i", [1])
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x, read=numbers.__getitem__: x * read(0), "CPU")
--- left
import common
common.numbers[0] += 1
--- right
import common
common.numbers[0] *= 3
--- probes
ops.t.bar(x)
=== late/pattern: a compiled pattern of which both could be the author
--- common
pattern = None
--- left
import common, re
common.pattern = re.compile("a+")
--- right
import common, re
common.pattern = common.pattern or re.compile("b+")
pattern = common.pattern
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * (2 if pattern.match("aaa") else 3), "CPU")
--- probes
ops.t.bar(x)
=== late/random_object: the kernel draws from a generator of Python that both have used
--- common
import random
numbers = random.Random(1)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * numbers.random(), "CPU")
--- left
import common
common.numbers.seed(common.numbers.randrange(1000))
--- right
import common
common.numbers.random()
--- probes
ops.t.bar(x)
=== late/generator_object: the kernel draws from a generator of PyTorch that both have used
--- common
generator = torch.Generator().manual_seed(1)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * torch.rand(2, generator=generator), "CPU")
--- left
import common
common.generator.manual_seed(common.generator.initial_seed() * 2)
--- right
import common
common.generator.manual_seed(common.generator.initial_seed() + 5)
--- probes
ops.t.bar(x)
=== late/graph: the kernel is a traced graph, which both edit
--- common
import torch.fx
module = torch.fx.symbolic_trace(lambda x: x + 1)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", module, "CPU")
--- left
import common
for node in common.module.graph.nodes:
    if node.op == "call_function": node.args = (node.args[0], node.args[1] * 3)
common.module.recompile()
--- right
import common
for node in common.module.graph.nodes:
    if node.op == "call_function": node.args = (node.args[0], node.args[1] + 1)
common.module.recompile()
--- probes
ops.t.bar(x)
=== late/scripted_kernel: the kernel is a function of TorchScript that was compiled with a constant of that time
--- common
scale = 2
--- left
import common
common.scale = 5
--- right
import common
call = torch.jit.CompilationUnit(f"def call(x: Tensor) -> Tensor:\\n  return x * {common.scale}\\n").call
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", call, "CPU")
--- probes
ops.t.bar(x)
=== late/sparse: a sparse tensor of a closure, whose values printing does not show first
--- common
table = torch.eye(2).to_sparse()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: common_table() @ x, "CPU")
def common_table(): return table
--- left
import common
common.table = common.table * 2
--- right
import common
common.table = (common.table.to_dense() + 1).to_sparse()
--- probes
ops.t.bar(x)
=== late/umask: the kernel reads the mask for new files of the process
--- left
import os
os.umask(0o022)
--- right
import os
os.umask(0o077)
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    mask = os.umask(0)
    os.umask(mask)
    return x + mask
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== late/collector_threshold: the kernel reads a threshold of the garbage collector
--- left
import gc
gc.set_threshold(701)
--- right
import gc
gc.set_threshold(702)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + gc.get_threshold()[0], "CPU")
--- probes
ops.t.bar(x)
=== late/socket_timeout: the kernel reads the default timeout of sockets
--- left
import socket
socket.setdefaulttimeout(2)
--- right
import socket
socket.setdefaulttimeout(3)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * socket.getdefaulttimeout(), "CPU")
--- probes
ops.t.bar(x)
=== late/time_zone: the kernel reads the time zone of C
--- left
import os, time
os.environ["TZ"] = "UTC+2"
time.tzset()
--- right
import os, time
os.environ["TZ"] = "UTC+3"
time.tzset()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * time.localtime(0).tm_hour, "CPU")
--- probes
ops.t.bar(x)
=== late/limit_of_process: the kernel reads a limit of the process that both lower
--- left
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
resource.setrlimit(resource.RLIMIT_NOFILE, (600, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
--- right
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (500, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + resource.getrlimit(resource.RLIMIT_NOFILE)[0], "CPU")
--- probes
ops.t.bar(x)
=== late/numpy_errors: the kernel computes with numpy, which both have told what to do with a division by zero
--- left
import numpy
numpy.seterr(divide="raise")
--- right
import numpy
numpy.seterr(divide="ignore")
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    try:
        numpy.ones(1) / numpy.zeros(1)
    except FloatingPointError:
        return x * 2
    return x * 3
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== late/matmul_precision: the kernel reads a setting of PyTorch that both make
--- left
torch.set_float32_matmul_precision("medium")
--- right
torch.set_float32_matmul_precision("high")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(torch.get_float32_matmul_precision()), "CPU")
--- probes
ops.t.bar(x)
=== late/threads: the kernel reads the number of threads that both set
--- left
torch.set_num_threads(2)
--- right
torch.set_num_threads(3)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * torch.get_num_threads(), "CPU")
--- probes
ops.t.bar(x)
=== late/deterministic: the kernel fails for a setting of PyTorch that one makes and the other one undoes
--- left
torch.use_deterministic_algorithms(True)
--- right
torch.use_deterministic_algorithms(False)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + torch.are_deterministic_algorithms_enabled(), "CPU")
--- probes
ops.t.bar(x)
=== late/denormals: denormal numbers are flushed to zero by the processor, or not
--- left
torch.set_flush_denormal(True)
--- right
torch.set_flush_denormal(False)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: (x * 1e-40 * 1e30 > 0) * 1.0, "CPU")
--- probes
ops.t.bar(x)
=== late/grad_mode_of_kernel: the kernel computes a gradient, which the last one has forbidden or allowed
--- left
torch.set_grad_enabled(False)
--- right
torch.set_grad_enabled(True)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + torch.is_grad_enabled(), "CPU")
--- probes
ops.t.bar(x)
=== late/override_in_kernel: the kernel calls an operator of PyTorch whose kernel both override at two keys
--- left
own = torch.library.Library("aten", "IMPL")
own.impl("sin", lambda x: x + 10, "CPU")
--- right
own = torch.library.Library("aten", "IMPL")
own.impl("sin", lambda x: x + 20, "CompositeImplicitAutograd")
sine = torch.library.get_kernel("aten::sin", "CPU")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda keys, x: sine.call_boxed(keys, x), "CPU", with_keyset=True)
--- probes
ops.t.bar(x)
=== late/exception_type: the kernel raises, and what it raises was chosen by the last one
--- common
error = ValueError
lib.define("bar(Tensor x) -> Tensor")
def kernel(x): raise error("refused")
lib.impl("bar", kernel, "CPU")
--- left
import common
common.error = TypeError
--- right
import common
common.error = KeyError
--- probes
ops.t.bar(x)
=== late/instance_dict: the attributes of an object are equal, and the kernel reads them in their order
--- common
class Config: pass
config = Config()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * next(iter(vars(config).values())), "CPU")
--- left
import common
common.config.left = 2
--- right
import common
common.config.right = 3
--- probes
ops.t.bar(x)
=== late/class_order: the kernel walks the methods of a class in the order of their definition
--- common
class Steps: pass
def kernel(x):
    for name, step in list(vars(Steps).items()):
        if name.startswith("step_"): x = step(x)
    return x
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", kernel, "CPU")
--- left
import common
common.Steps.step_left = lambda x: x + 1
--- right
import common
common.Steps.step_right = lambda x: x * 2
--- probes
ops.t.bar(x)
=== late/hooks_of_module: the forward hooks of a module that is the kernel run in the order in which they came
--- common
module = torch.nn.Identity()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", module, "CPU")
--- left
import common
common.module.register_forward_hook(lambda module, inputs, output: output + 1)
--- right
import common
common.module.register_forward_hook(lambda module, inputs, output: output * 2)
--- probes
ops.t.bar(x)
=== late/tensor_hooks: the hooks of a parameter act on its gradient in the order in which they came
--- common
weight = torch.ones(2, requires_grad=True)
lib.define("bar(Tensor x) -> Tensor")
def kernel(x):
    with torch.enable_grad(): return torch.autograd.grad((weight * x).sum(), weight)[0]
lib.impl("bar", kernel, "CompositeImplicitAutograd")
--- left
import common
common.weight.register_hook(lambda grad: grad + 1)
--- right
import common
common.weight.register_hook(lambda grad: grad * 2)
--- probes
ops.t.bar(x)
=== late/chain_of_three: an innocent module between two others makes the order of these matter through it
--- left
import builtins
builtins.t_middle = 2
--- middle
import builtins
builtins.t_end = getattr(builtins, "t_middle", 5) * 10
--- right
import builtins
end = getattr(builtins, "t_end", 1)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * end, "CPU")
--- probes
ops.t.bar(x)
=== late/one_order_of_four: of the orders of four modules only one finds all three marks in turn
--- common
marks = ""
--- left
import common
common.marks += "a"
--- middle
import common
if common.marks == "a": common.marks += "b"
--- right
import common
if common.marks == "ab": common.marks += "c"
--- last
import common
complete = common.marks == "abc"
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + complete, "CPU")
--- probes
ops.t.bar(x)
"""

_CAUGHT = """
=== caught/define_if_missing: both define an operator, one unless it is there, and one order refuses the other's def
--- left
if not torch._C._dispatch_has_kernel("t::foo"):
    try:
        lib.define("foo(Tensor x) -> Tensor")
    except RuntimeError:
        pass
--- right
try:
    lib.define("foo(Tensor x) -> Tensor")
except RuntimeError:
    pass
lib.impl("foo", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
=== caught/kernel_beneath: the kernel that gives way, and is caught, lies beneath the other one where it comes first
--- common
lib.define("foo(Tensor x) -> Tensor")
--- left
import common
try:
    lib.impl("foo", lambda x: x * 2, "CPU", allow_override=False)
except RuntimeError:
    pass
--- right
import common
lib.impl("foo", lambda x: x * 3, "CPU", allow_override=True)
--- probes
ops.t.foo(x)
=== caught/fake_beside_meta: a fake that gives way to a Meta kernel, and is caught
--- common
torch.library.define("t::foo", "(Tensor x) -> Tensor", lib=lib)
--- left
import common
try:
    torch.library.register_fake("t::foo", lambda x: x.new_empty(5), lib=lib, allow_override=False)
except RuntimeError:
    pass
--- right
import common
lib.impl("foo", lambda x: x.new_empty(7), "Meta")
--- probes
fake(ops.t.foo, x)
"""

_INNOCENT = """
=== innocent/own_operators: each module has operators of its own
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/own_namespaces: each module owns a namespace
--- left
own = torch.library.Library("t_left", "DEF")
own.define("foo(Tensor x) -> Tensor")
own.impl("foo", lambda x: x + 1, "CPU")
--- right
own = torch.library.Library("t_right", "DEF")
own.define("foo(Tensor x) -> Tensor")
own.impl("foo", lambda x: x * 2, "CPU")
--- probes
ops.t_left.foo(x)
ops.t_right.foo(x)
=== innocent/kernel_before_def: a kernel may come before the def
--- left
lib.define("foo(Tensor x) -> Tensor")
--- right
lib.impl("foo", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
=== innocent/two_keys: two kernels of one operator at two keys
--- common
lib.define("foo(Tensor x) -> Tensor")
--- left
import common
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
import common
lib.impl("foo", lambda x: x.new_empty(7), "Meta")
--- probes
ops.t.foo(x)
meta(ops.t.foo)
=== innocent/overloads_by_count: two overloads that take another number of arguments
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
lib.define("foo.two(Tensor x, Tensor y) -> Tensor")
lib.impl("foo.two", lambda x, y: x * y, "CPU")
--- probes
ops.t.foo(x)
ops.t.foo(x, y)
ops.t.foo.two(x, y)
=== innocent/overloads_by_type: two overloads that take arguments of other types
--- left
lib.define("foo.text(Tensor x, str how) -> Tensor")
lib.impl("foo.text", lambda x, how: x + len(how), "CPU")
--- right
lib.define("foo.list(Tensor x, Tensor[] more) -> Tensor")
lib.impl("foo.list", lambda x, more: x * len(more), "CPU")
--- probes
ops.t.foo(x, "abc")
ops.t.foo(x, [x, y])
=== innocent/reads_of_aten: both read operators of PyTorch that nobody writes
--- left
there = torch._C._dispatch_has_kernel_for_dispatch_key("aten::add.Tensor", "CPU")
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + there, "CPU")
--- right
there = hasattr(torch.ops.aten, "add")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * there, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/wraps_aten: a kernel of PyTorch that nobody writes is fetched and called
--- left
kernel = torch.library.get_kernel("aten::sin", "CPU")
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda keys, x: kernel.call_boxed(keys, x), "CPU", with_keyset=True)
--- right
own = torch.library.Library("aten", "IMPL")
own.impl("cos", lambda x: x + 1, "CPU")
--- probes
ops.t.foo(x)
torch.cos(x)
=== innocent/own_helpers: each module has a helper of its own, which counts
--- common_left
count = 0
def name():
    global count
    count += 1
    return f"left_{count}"
--- common_right
count = 0
def name():
    global count
    count += 1
    return f"right_{count}"
--- left
import common_left
for _ in range(2):
    own = common_left.name()
    lib.define(f"{own}(Tensor x) -> Tensor")
    lib.impl(own, lambda x: x + 1, "CPU")
--- right
import common_right
for _ in range(2):
    own = common_right.name()
    lib.define(f"{own}(Tensor x) -> Tensor")
    lib.impl(own, lambda x: x * 2, "CPU")
--- probes
ops.t.left_2(x)
ops.t.right_1(x)
=== innocent/unused_counter: a shared counter whose value nobody uses
--- common
calls = 0
def register(name, function):
    global calls
    calls += 1
    lib.define(f"{name}(Tensor x) -> Tensor")
    lib.impl(name, function, "CPU")
--- left
import common
common.register("foo", lambda x: x + 1)
--- right
import common
common.register("bar", lambda x: x * 2)
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/unused_list: a shared list of names that nobody reads
--- common
names = []
--- left
import common
common.names.append("foo")
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
import common
common.names.append("bar")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/timestamp: the time of the import is kept and not used
--- left
import time
imported_at = time.time()
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
import time
imported_at = time.monotonic()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/random_name: a random token is drawn and not used
--- left
import uuid
token = uuid.uuid4().hex
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
import random
token = random.random()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/shared_helper: whoever comes first imports the helper, which registers
--- common
lib.define("base(Tensor x) -> Tensor")
lib.impl("base", lambda x: x + 1, "CPU")
--- left
import common
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: torch.ops.t.base(x), "CPU")
--- right
import common
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: torch.ops.t.base(x) * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/imports_the_other: one imports the other one before it reads what that registers
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
import left
offset = torch.ops.t.foo(torch.ones(2))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + offset, "CPU")
--- probes
ops.t.bar(x)
=== innocent/optional_import: numpy is imported where it is there
--- left
try:
    import numpy
except ImportError:
    numpy = None
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + (numpy is not None), "CPU")
--- right
try:
    import t_no_such_package
except ImportError:
    t_no_such_package = None
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + (t_no_such_package is not None), "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/environment_read: both read a variable of the environment that nobody sets
--- left
import os
debug = os.environ.get("T_DEBUG", "0") == "1"
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + debug, "CPU")
--- right
import os
debug = "T_DEBUG" in os.environ
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + debug, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/environment_set: one sets a variable that the other one does not read
--- left
import os
os.environ.setdefault("T_LEFT_THREADS", "4")
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/same_value: both set a shared global to the same value
--- common
scale = 1
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * scale, "CPU")
--- left
import common
common.scale = 4
--- right
import common
common.scale = 4
--- probes
ops.t.foo(x)
=== innocent/table_by_name: both fill a shared dict by their own names, which the kernel reads by name
--- common
table = {}
lib.define("foo(Tensor x, str name) -> Tensor")
lib.impl("foo", lambda x, name: x * table[name], "CPU")
--- left
import common
common.table["left"] = 2
--- right
import common
common.table["right"] = 3
--- probes
ops.t.foo(x, "left")
ops.t.foo(x, "right")
=== innocent/sum_of_steps: both append to a list whose sum the kernel uses
--- common
steps = []
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + sum(steps), "CPU")
--- left
import common
common.steps.append(2)
--- right
import common
common.steps.append(3)
--- probes
ops.t.foo(x)
=== innocent/sorted_steps: the kernel sorts the list that both append to
--- common
steps = []
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * sorted(steps)[0], "CPU")
--- left
import common
common.steps.append(2)
--- right
import common
common.steps.append(3)
--- probes
ops.t.foo(x)
=== innocent/lazy: what the kernel needs is read when it is called, when all is there
--- left
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: torch.ops.t.bar(x) + 1, "CPU")
--- right
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
=== innocent/fake_and_kernel: one gives the kernel and the other one the fake
--- common
torch.library.define("t::foo", "(Tensor x) -> Tensor", lib=lib)
--- left
import common
torch.library.impl("t::foo", "cpu", lambda x: x + 1, lib=lib)
--- right
import common
torch.library.register_fake("t::foo", lambda x: x.new_empty(7), lib=lib)
--- probes
ops.t.foo(x)
fake(ops.t.foo, x)
=== innocent/custom_ops: two custom operators with fakes and formulas
--- left
@torch.library.custom_op("t::foo", mutates_args=())
def foo(x: torch.Tensor) -> torch.Tensor: return x * 2
foo.register_fake(lambda x: torch.empty_like(x))
foo.register_autograd(lambda ctx, grad: grad * 2)
--- right
@torch.library.custom_op("t::bar", mutates_args=())
def bar(x: torch.Tensor) -> torch.Tensor: return x * 3
bar.register_fake(lambda x: torch.empty_like(x))
bar.register_autograd(lambda ctx, grad: grad * 3)
--- probes
grad(ops.t.foo)
grad(ops.t.bar)
fake(ops.t.bar, x)
=== innocent/part_by_another: a part of a custom operator is registered by the module that imports it
--- left
@torch.library.custom_op("t::foo", mutates_args=())
def foo(x: torch.Tensor) -> torch.Tensor: return x * 2
--- right
from left import foo
foo.register_fake(lambda x: torch.empty_like(x))
foo.register_kernel("cpu")(lambda x: x * 5)
--- probes
ops.t.foo(x)
fake(ops.t.foo, x)
=== innocent/decompositions: two decompositions of two operators
--- left
lib.define("foo(Tensor x) -> Tensor")
torch._decomp.register_decomposition(torch.ops.t.foo)(lambda x: x + 1)
--- right
lib.define("bar(Tensor x) -> Tensor")
torch._decomp.register_decomposition(torch.ops.t.bar)(lambda x: x * 2)
--- probes
decomposed(ops.t.foo.default, x)
decomposed(ops.t.bar.default, x)
=== innocent/decomposition_read: an entry is read that nobody writes
--- left
silu = torch._decomp.decomposition_table[torch.ops.aten.silu.default]
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: silu(x), "CPU")
--- right
torch._decomp.decomposition_table[torch.ops.aten.mish.default] = lambda x: x * 3
--- probes
ops.t.foo(x)
decomposed(ops.aten.mish.default, x)
=== innocent/default_dtype_at_call: the default type that one sets is read when the other one's kernel is called
--- left
torch.set_default_dtype(torch.float64)
--- right
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: torch.zeros(2), "CPU")
--- probes
ops.t.bar(x)
=== innocent/default_dtype_put_back: the default type is set and put back
--- left
before = torch.get_default_dtype()
torch.set_default_dtype(torch.float64)
table = torch.zeros(2)
torch.set_default_dtype(before)
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + table, "CPU")
--- right
table = torch.zeros(2)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + table, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/own_generator: each draws from a generator of its own
--- left
table = torch.randn(2, generator=torch.Generator().manual_seed(1))
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + table, "CPU")
--- right
import random
number = random.Random(7).random()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * number, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/mode_left: a dispatch mode is entered and left again
--- left
from torch.utils._python_dispatch import TorchDispatchMode
class Counting(TorchDispatchMode):
    calls = 0
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        Counting.calls += 1
        return function(*args, **(kwargs or {}))
with Counting(): torch.neg(torch.ones(1))
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + Counting.calls, "CPU")
--- right
table = torch.neg(torch.ones(2))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + table, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/released: a library is made and released by one module
--- left
own = torch.library.Library("t", "FRAGMENT")
own.define("gone(Tensor x) -> Tensor")
own._destroy()
del own
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/thread: each registers in a thread that it joins
--- left
import threading
lib.define("foo(Tensor x) -> Tensor")
thread = threading.Thread(target=lambda: lib.impl("foo", lambda x: x + 1, "CPU"))
thread.start()
thread.join()
--- right
import threading
lib.define("bar(Tensor x) -> Tensor")
thread = threading.Thread(target=lambda: lib.impl("bar", lambda x: x * 2, "CPU"))
thread.start()
thread.join()
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/logging: both write to a log
--- left
import logging
logging.getLogger("t.left").info("imported")
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
import logging
logging.getLogger("t.right").info("imported")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * 2, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/caught: an operator that nobody defines is looked for, and the exception caught
--- left
try:
    torch.ops.t.nobody_has_this
    scale = 2
except AttributeError:
    scale = 3
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * scale, "CPU")
--- right
scale = 2 if torch._C._dispatch_has_kernel("t::nor_this") else 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * scale, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/warnings: a warning is given, and nobody has made it an exception
--- left
import warnings
warnings.warn("left is young")
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 1, "CPU")
--- right
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("error")
    scale = 2
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * scale, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/own_patch: each patches a function of its own helper
--- common_left
def scale(): return 1
--- common_right
def scale(): return 1
--- left
import common_left
common_left.scale = lambda: 2
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * common_left.scale(), "CPU")
--- right
import common_right
common_right.scale = lambda: 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common_right.scale(), "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/objects: kernels are objects, methods, partials and TorchScript, each module's own
--- left
import functools, operator
class Kernel:
    def __init__(self, n): self.n = n
    def __call__(self, x): return x * self.n
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", Kernel(3), "CPU")
lib.define("foo_c(Tensor x) -> Tensor")
lib.impl("foo_c", functools.partial(operator.add, 2), "CPU")
--- right
class State:
    n = 4
    def kernel(self, x): return x * self.n
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", State().kernel, "CPU")
--- probes
ops.t.foo(x)
ops.t.foo_c(x)
ops.t.bar(x)
=== innocent/constants: tensors, arrays and long lists that a module makes for itself
--- left
import numpy
table = numpy.arange(10_000, dtype="float32")
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * float(table[5_000]), "CPU")
--- right
table = torch.arange(10_000.0)
names = {f"name_{n}": n for n in range(1_000)}
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * table[5_000] + names["name_9"], "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/cache: a shared cache of a pure function
--- common
import functools
@functools.lru_cache
def square(n): return n * n
--- left
import common
scale = common.square(3)
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x * scale, "CPU")
--- right
import common
scale = common.square(3) + common.square(2)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * scale, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/plugins: three modules register themselves by name with a fourth one
--- common
plugins = {}
def plugin(name):
    def register(function):
        plugins[name] = function
        lib.define(f"{name}(Tensor x) -> Tensor")
        lib.impl(name, function, "CPU")
        return function
    return register
--- left
import common
@common.plugin("foo")
def foo(x): return x + 1
--- middle
import common
@common.plugin("mid")
def mid(x): return x - 1
--- right
import common
@common.plugin("bar")
def bar(x): return x * 2
--- probes
ops.t.foo(x)
ops.t.mid(x)
ops.t.bar(x)
=== innocent/overrides_of_aten: each overrides another operator of PyTorch, and calls none at import
--- left
own = torch.library.Library("aten", "IMPL")
own.impl("tanh", lambda x: x * 2, "CPU")
--- right
own = torch.library.Library("aten", "IMPL")
own.impl("cosh", lambda x: x * 3, "CPU")
--- probes
torch.tanh(x)
torch.cosh(x)
=== innocent/higher_order: two rules of a higher-order operator at two keys
--- common
from torch._ops import HigherOrderOperator
class Twice(HigherOrderOperator):
    def __init__(self): super().__init__("t_innocent")
    def __call__(self, x): return super().__call__(x)
twice = Twice()
--- left
import common
common.twice.py_impl(torch._C.DispatchKey.CPU)(lambda x: x * 2)
--- right
import common
common.twice.py_impl(torch._C.DispatchKey.AutogradCPU)(lambda x: x * 3)
--- probes
__import__("common").twice(x)
"""

ATTACKS: tuple[Group, ...] = tuple(
    groups_in(
        "".join((_SHARED_VALUES, _READS, _OVERLOADS, _STATE, _CONFLICTS, _LIFETIMES, _PATCHES, _LATE))
        + shared_state_attacks.OUTSIDE
        + shared_state_attacks.SHARED
        + hidden_state_attacks.HIDDEN
        + _CAUGHT
    )
)
"""Whose results depend on the order of import."""

INNOCENT: tuple[Group, ...] = tuple(
    groups_in(_INNOCENT + shared_state_attacks.INNOCENT + hidden_state_attacks.INNOCENT)
)
"""Whose results do not."""


def _as_json(truth: Truth) -> dict[str, object]:
    first = next(iter(truth.results.values()))
    return {
        "differences": {probe: list(results) for probe, results in truth.differences.items()},
        "dropped": truth.dropped,
        "raised": {
            probe: each for probe, each in first.items() if each.startswith("raises") and not probe.startswith(LATER)
        },
        "stuck": truth.is_stuck,
    }


if __name__ == "__main__":
    every = int((sys.argv[1:] or ["1"])[0])
    chosen = ATTACKS[::every] + INNOCENT[::every]
    print(json.dumps({group.name: _as_json(truth) for group, truth in truths(chosen)}))  # noqa: T201
