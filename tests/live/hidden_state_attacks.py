"""Groups of modules that meet where objects of C, caches and parts of PyTorch that come late keep what they were given.

`package_attacks` takes them; `import_truth.groups_in` says how a group is written.
"""

from __future__ import annotations

HIDDEN = r"""
=== hidden/cache_by_name: both leave a number in torch under a name that says that it is a cache
--- left
torch.t_cache = 2
--- right
torch.t_cache = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * torch.t_cache, "CPU")
--- probes
ops.t.bar(x)
=== hidden/cache_by_text: the name of the cache is a text
--- left
setattr(torch, "t_cache", 2)
--- right
setattr(torch, "t_cache", 3)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * getattr(torch, "t_cache"), "CPU")
--- probes
ops.t.bar(x)
=== hidden/annotations: both write an annotation of a module of PyTorch
--- left
torch.nn.__annotations__ = {"t_scale": 2}
--- right
torch.nn.__annotations__ = {"t_scale": 3}
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * torch.nn.__annotations__["t_scale"], "CPU")
--- probes
ops.t.bar(x)
=== hidden/large_key: both write an entry of a table of PyTorch by a number that looks like an address
--- left
torch.nn.modules.module._global_forward_hooks[2**45] = 2
--- right
torch.nn.modules.module._global_forward_hooks[2**45] = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * torch.nn.modules.module._global_forward_hooks[2**45], "CPU")
--- probes
ops.t.bar(x)
=== hidden/once: a warning that is given once, and the kernel counts those that were
--- left
import warnings
warnings.onceregistry[("t", UserWarning)] = 2
--- right
import warnings
warnings.onceregistry[("t", UserWarning)] = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * warnings.onceregistry[("t", UserWarning)], "CPU")
--- probes
ops.t.bar(x)
=== hidden/alias_of_encoding: both name an encoding, and the kernel encodes with it
--- left
import encodings.aliases
encodings.aliases.aliases["t_alias"] = "utf_16"
--- right
import encodings.aliases
encodings.aliases.aliases["t_alias"] = "utf_8"
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len("x".encode("t_alias")), "CPU")
--- probes
ops.t.bar(x)
=== hidden/line_of_source: both leave lines of a source that is in no file
--- left
import linecache
linecache.cache["<t>"] = (2, None, ["ab"], "<t>")
--- right
import linecache
linecache.cache["<t>"] = (3, None, ["abc"], "<t>")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(linecache.getline("<t>", 1)), "CPU")
--- probes
ops.t.bar(x)
=== hidden/single_dispatch: both register with a function of the standard library that dispatches on types
--- left
import pkgutil
pkgutil.iter_importer_modules.register(int, lambda number, prefix="": [2])
--- right
import pkgutil
pkgutil.iter_importer_modules.register(int, lambda number, prefix="": [3])
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * pkgutil.iter_importer_modules(0)[0], "CPU")
--- probes
ops.t.bar(x)
=== hidden/dialect: both register a dialect of csv, which C keeps
--- left
import csv
csv.register_dialect("t", delimiter=";")
--- right
import csv
csv.register_dialect("t", delimiter=",")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * len(next(csv.reader(["1;2"], "t"))), "CPU")
--- probes
ops.t.bar(x)
=== hidden/largest_field: both set the size of a field of csv
--- left
import csv
csv.field_size_limit(1000)
--- right
import csv
csv.field_size_limit(2000)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * csv.field_size_limit(), "CPU")
--- probes
ops.t.bar(x)
=== hidden/collector: the garbage collector is switched off and on, and the kernel asks
--- left
import gc
gc.disable()
--- right
import gc
gc.enable()
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + gc.isenabled(), "CPU")
--- probes
ops.t.bar(x)
=== hidden/longest_number: both set how many digits a number may have
--- left
import sys
sys.set_int_max_str_digits(1000)
--- right
import sys
sys.set_int_max_str_digits(2000)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + sys.get_int_max_str_digits(), "CPU")
--- probes
ops.t.bar(x)
=== hidden/queue: both put a number into a queue of C
--- common
import queue
numbers = queue.SimpleQueue()
--- left
import common
common.numbers.put(2)
--- right
import common
common.numbers.put(3)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.numbers.get(), "CPU")
--- probes
ops.t.bar(x)
=== hidden/virtual_subclass: a class is made a subclass of a number where it is none yet
--- common
class Thing: pass
--- left
import common, numbers
numbers.Number.register(common.Thing)
--- right
import common, numbers
if not isinstance(common.Thing(), numbers.Number):
    numbers.Integral.register(common.Thing)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + isinstance(common.Thing(), numbers.Integral), "CPU")
--- probes
ops.t.bar(x)
=== hidden/version_of_tensor: a tensor is written in place and back again, and the kernel asks how often
--- common
table = torch.zeros(2)
--- left
import common
common.table.add_(0)
--- right
import common
if common.table._version == 0:
    common.table.add_(0)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + common.table._version, "CPU")
--- probes
ops.t.bar(x)
=== hidden/attention_switch: a switch of attention that no attribute of Python shows
--- left
torch.backends.cuda.enable_math_sdp(False)
--- right
torch.backends.cuda.enable_math_sdp(True)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + torch._C._get_math_sdp_enabled(), "CPU")
--- probes
ops.t.bar(x)
=== hidden/anomaly_nan: whether gradients are looked at for NaN
--- left
torch.autograd.set_detect_anomaly(True, check_nan=False)
--- right
torch.autograd.set_detect_anomaly(True, check_nan=True)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + torch.is_anomaly_check_nan_enabled(), "CPU")
--- probes
ops.t.bar(x)
=== hidden/fallback_of_autograd: what PyTorch does where an operator has no formula
--- left
torch._C._set_autograd_fallback_mode("nothing")
--- right
torch._C._set_autograd_fallback_mode("warn")
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + len(torch._C._get_autograd_fallback_mode()), "CPU")
--- probes
ops.t.bar(x)
=== hidden/cells_of_standard_library: a cell of a closure of the standard library is written
--- left
import pkgutil
pkgutil.iter_importer_modules.__closure__[0].cell_contents = 2
--- right
import pkgutil
pkgutil.iter_importer_modules.__closure__[0].cell_contents = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * pkgutil.iter_importer_modules.__closure__[0].cell_contents, "CPU")
--- probes
ops.t.bar(x)
=== hidden/environment_of_c (bare): C is told a variable of the environment that os.environ does not show
--- left
import ctypes
ctypes.CDLL(None).setenv(b"T_LATE", b"7", 1)
--- right
import ctypes
ctypes.CDLL(None).setenv(b"T_LATE", b"5", 1)
def kernel(x):
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return x * int(getenv(b"T_LATE"))
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", kernel, "CPU")
--- probes
ops.t.bar(x)
=== hidden/storage: the bytes of a storage that no tensor is made of
--- common
storage = torch.UntypedStorage(1)
--- left
import common
common.storage[0] = 2
--- right
import common
common.storage[0] = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.storage[0], "CPU")
--- probes
ops.t.bar(x)
=== hidden/scalar_of_numpy: a number of numpy, of a class of C that no class of Python is above
--- common
import numpy
scale = numpy.float32(1)
--- left
import common, numpy
common.scale = numpy.float32(2)
--- right
import common, numpy
common.scale = numpy.float32(3)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * float(common.scale), "CPU")
--- probes
ops.t.bar(x)
=== hidden/constant_of_c: a member of an enumeration of C
--- left
torch.t_type = torch.profiler.ProfilerActivity.CPU
--- right
torch.t_type = torch.profiler.ProfilerActivity.CUDA
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + (torch.t_type == torch.profiler.ProfilerActivity.CPU), "CPU")
--- probes
ops.t.bar(x)
=== hidden/many_values: the list is longer than what is compared
--- common
numbers = list(range(300_000))
--- left
import common
common.numbers[-1] = 2
--- right
import common
common.numbers[-1] = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x, numbers=common.numbers: x * numbers[-1], "CPU")
--- probes
ops.t.bar(x)
=== hidden/named_cache: both leave a table in PyTorch that is called a cache
--- left
import torch.utils._pytree as pytree
pytree._t_cache = {"scale": 2}
--- right
import torch.utils._pytree as pytree
pytree._t_cache = {"scale": 3}
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * pytree._t_cache["scale"], "CPU")
--- probes
ops.t.bar(x)
=== hidden/entry_of_cache: both write an entry of a table of the standard library that is called a cache
--- left
import copyreg
copyreg._extension_cache["t"] = 2
--- right
import copyreg
copyreg._extension_cache["t"] = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * copyreg._extension_cache["t"], "CPU")
--- probes
ops.t.bar(x)
=== hidden/counted_calls: both write into the table in which PyTorch counts the calls of fake tensors
--- left
from torch.utils import _stats
_stats.simple_call_counter["t"] = 2
--- right
from torch.utils import _stats
_stats.simple_call_counter["t"] = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * _stats.simple_call_counter["t"], "CPU")
--- probes
ops.t.bar(x)
=== hidden/kept_without_dynamo: a function keeps at its first call what `disable` makes of it, which one replaces
--- left
torch.manual_seed(1)
--- right
import torch._dynamo
former = torch._dynamo.disable
def disable(fn, *given, **named):
    made = former(fn, *given, **named)
    return lambda seed: made(seed + 5)
torch._dynamo.disable = disable
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + torch.manual_seed(3).initial_seed(), "CPU")
--- probes
ops.t.bar(x)
=== hidden/overloads_of_typing: both note an overload of one function, by the same name and line
--- common
import typing
def note(scale):
    space = {"typing": typing, "__name__": "common", "SCALE": scale}
    exec("@typing.overload\ndef f(): return SCALE", space)
def f(): pass
def kernel(x): return x * typing.get_overloads(f)[0]()
--- left
import common
common.note(2)
--- right
import common
common.note(3)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", common.kernel, "CPU")
--- probes
ops.t.bar(x)
=== hidden/iterator: a number is taken from an iterator over a generator, by both
--- common
def numbers():
    yield from (2, 3, 5, 7)
taken = numbers()
--- left
import common
next(common.taken)
--- right
import common
first = next(common.taken)
if first == 2:
    next(common.taken)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * next(common.taken), "CPU")
--- probes
ops.t.bar(x)
=== hidden/buffer: a memory map has what the last one wrote
--- common
import mmap
memory = mmap.mmap(-1, 8)
--- left
import common
common.memory[0] = 2
--- right
import common
common.memory[0] = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.memory[0], "CPU")
--- probes
ops.t.bar(x)
=== hidden/struct_of_file: a file without a name has what was written into it, and where one reads on
--- common
import io
file = io.BytesIO(b"2357")
--- left
import common
common.file.read(1)
--- right
import common
if common.file.read(1) == b"2":
    common.file.read(1)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * int(common.file.read(1)), "CPU")
--- probes
ops.t.bar(x)
=== hidden/dropped_reference: what runs when an object dies, and who lets it die first
--- common
scale = [1]
class Kept:
    def __init__(self, number): self.number = number
    def __del__(self): scale[0] = scale[0] * 10 + self.number
kept = None
--- left
import common
common.kept = common.Kept(2)
--- right
import common
common.kept = common.Kept(3)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * common.scale[0], "CPU")
--- probes
ops.t.bar(x)
=== hidden/late_part (bare): both write into a part of PyTorch that the first of them imports
--- left
import torch._inductor.cpu_vec_isa as late
late.t_scale = 2
--- right
import torch._inductor.cpu_vec_isa as late
late.t_scale = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * late.t_scale, "CPU")
--- probes
ops.t.bar(x)
=== hidden/document_of_late_part (bare): the number stands in a text that looks like an address
--- left
import torch._inductor.cpu_vec_isa as late
late.VecAVX2.__doc__ = "at 0x7f0000000002"
--- right
import torch._inductor.cpu_vec_isa as late
late.VecAVX2.__doc__ = "at 0x7f0000000003"
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * int(late.VecAVX2.__doc__[-1]), "CPU")
--- probes
ops.t.bar(x)
=== hidden/address_in_late_part (bare): the address of an object is left in a part of PyTorch that came late
--- common
one, other = [2], [3]
--- left
import common
import torch._inductor.cpu_vec_isa as late
late.t_owner = id(common.one)
--- right
import common
import torch._inductor.cpu_vec_isa as late
late.t_owner = id(common.other)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + (late.t_owner == id(common.one)), "CPU")
--- probes
ops.t.bar(x)
=== hidden/counter_of_dependency (bare): a counter of a module that PyTorch needs is counted up, and the kernel reads it
--- left
import sympy
sympy.Dummy._count += 5
--- right
import sympy
sympy.Dummy._count *= 2
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + sympy.Dummy._count, "CPU")
--- probes
ops.t.bar(x)
=== hidden/noisy_number (bare): a number that is drawn anew in each process is replaced by both
--- left
import sympy
sympy.Dummy._base_dummy_index = 2
--- right
import sympy
sympy.Dummy._base_dummy_index = 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + sympy.Dummy._base_dummy_index, "CPU")
--- probes
ops.t.bar(x)
"""

INNOCENT = r"""
=== innocent/late_parts (bare): each imports a part of PyTorch that came late, and writes nothing there
--- left
import torch._inductor.cpu_vec_isa
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + 2, "CPU")
--- right
import sympy
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x + 3, "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/virtual_subclasses: each makes a class of its own a number
--- left
import numbers
class Mine: pass
numbers.Number.register(Mine)
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", lambda x: x + isinstance(Mine(), numbers.Number), "CPU")
--- right
import numbers
class Own: pass
numbers.Number.register(Own)
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * isinstance(Own(), numbers.Number), "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/weak_tables: kernels keep locks, weak references and memory of their own
--- left
import threading, weakref
class Kept: pass
kept = Kept()
reference, lock = weakref.ref(kept), threading.Lock()
def foo(x):
    with lock:
        return x * (reference() is kept)
lib.define("foo(Tensor x) -> Tensor")
lib.impl("foo", foo, "CPU")
--- right
import functools
@functools.lru_cache
def scale(): return 3
lib.define("bar(Tensor x) -> Tensor")
lib.impl("bar", lambda x: x * scale(), "CPU")
--- probes
ops.t.foo(x)
ops.t.bar(x)
=== innocent/gives_way_to_its_own: a kernel and a fake that give way to those of the same module, and are caught
--- common
torch.library.define("t::foo", "(Tensor x) -> Tensor", lib=lib)
--- left
import common
for number in (5, 6):
    try:
        torch.library.register_fake("t::foo", lambda x: x.new_empty(number), lib=lib, allow_override=False)
        lib.impl("foo", lambda x: x * number, "CPU", allow_override=False)
    except RuntimeError:
        pass
--- right
import common
lib.impl("foo", lambda x: x.detach() * 3, "AutogradCPU", allow_override=False)
--- probes
ops.t.foo(x)
fake(ops.t.foo, x)
=== innocent/overrides_what_it_imports: the kernel of a module that is imported first
--- common
lib.define("foo(Tensor x) -> Tensor")
--- left
import common
lib.impl("foo", lambda x: x * 2, "CPU")
--- right
import left
lib.impl("foo", lambda x: x * 3, "CPU", allow_override=True)
try:
    lib.impl("foo", lambda x: x * 4, "CPU", allow_override=False)
except RuntimeError:
    pass
--- probes
ops.t.foo(x)
"""
