"""Random groups of modules that register, read, catch, release and touch, from statements over a few operators.

A module is a few statements, most of them of a few topics, so that what one module does often meets what another one
does, but not always. A statement that reads leaves a number in a variable, and kernels that come later in the module
may use it: what is read then decides results, or it does not. See `STATEMENTS`.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from string import Template

from tests.live.import_truth import HEAD, Group

STATEMENTS = """
=== dispatcher/define !
lib.define("$op(Tensor x) -> Tensor")
=== dispatcher/define_by_function !
torch.library.define("t::$op", "(Tensor x) -> Tensor", lib=lib)
=== dispatcher/define_tagged !
lib.define("$op(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
=== dispatcher/define_low !
low_$number = torch._C._dispatch_library("FRAGMENT", "t", "", __file__, 1)
low_$number.define("$op(Tensor x) -> Tensor", "", ())
=== dispatcher/impl
lib.impl("$op", lambda x: x * $value, "CPU")
=== dispatcher/impl_added
lib.impl("$op", lambda x: x + $value, "CPU")
=== dispatcher/impl_composite
lib.impl("$op", lambda x: x * $value, "CompositeImplicitAutograd")
=== dispatcher/impl_explicit
lib.impl("$op", lambda x: x + $value, "CompositeExplicitAutograd")
=== dispatcher/impl_meta !
lib.impl("$op", lambda x: x.new_empty($n), "Meta")
=== dispatcher/impl_autograd
lib.impl("$op", lambda x: x.detach() * $value, "AutogradCPU")
=== dispatcher/impl_no_override !
lib.impl("$op", lambda x: x * $value, "CPU", allow_override=False)
=== dispatcher/impl_other_key_if_taken
try:
    lib.impl("$op", lambda x: x * $value, "CPU", allow_override=False)
except RuntimeError:
    lib.impl("$op", lambda x: x * $n, "CompositeExplicitAutograd")
=== dispatcher/impl_keyset
lib.impl("$op", lambda keys, x: x * $value, "CPU", with_keyset=True)
=== dispatcher/impl_fallthrough
lib.impl("$op", torch.library.fallthrough_kernel, "AutogradCPU")
=== dispatcher/impl_other_device
lib.impl("$op", lambda x: x * $value, "CUDA")
=== dispatcher/impl_by_function !
torch.library.impl("t::$op", "cpu", lambda x: x * $value, lib=lib)
=== dispatcher/impl_default_argument
lib.impl("$op", lambda x, scale=$value: x * scale, "CPU")
=== dispatcher/impl_object
class Kernel_$number:
    def __init__(self, scale): self.scale = scale
    def __call__(self, x): return x * self.scale
lib.impl("$op", Kernel_$number($value), "CPU")
=== dispatcher/impl_method
class State_$number:
    scale = $value
    def kernel(self, x): return x + self.scale
lib.impl("$op", State_$number().kernel, "CPU")
=== dispatcher/impl_partial
import functools, operator
lib.impl("$op", functools.partial(operator.mul, $value), "CPU")
=== dispatcher/impl_tensor
table_$number = torch.full((2,), float($value))
lib.impl("$op", lambda x: x * table_$number, "CPU")
=== dispatcher/impl_calls_other
lib.impl("bar", lambda x: torch.ops.t.foo(x) + 1, "CPU")
=== dispatcher/whole
try:
    lib.define("$op(Tensor x) -> Tensor")
except RuntimeError:
    pass
lib.impl("$op", lambda x: x * $value, "CPU")
=== dispatcher/define_if_missing
if not torch._C._dispatch_has_kernel("t::$op"):
    lib.impl("$op", lambda x: x * $value, "CPU")
=== dispatcher/fallback !
lib_$number = torch.library.Library("_", "IMPL")
lib_$number.fallback(torch.library.fallthrough_kernel, "PrivateUse3")
=== dispatcher/read_has_kernel
$variable = 2 + torch._C._dispatch_has_kernel("t::$op")
=== dispatcher/read_has_kernel_at_key
$variable = 3
if torch._C._dispatch_has_kernel("t::$op"):
    $variable += torch._C._dispatch_has_kernel_for_dispatch_key("t::$op", "CPU")
=== dispatcher/read_packet
$variable = 2 if hasattr(torch.ops.t, "$op") else 5
=== dispatcher/read_call
try:
    $variable = float(torch.ops.t.$op(torch.ones(1)).sum())
except Exception:
    $variable = 7
=== dispatcher/read_dump
$variable = 1 + ("$other.py" in "".join(torch._C._dispatch_dump("t::$op")))
=== dispatcher/read_table
$variable = 1 + torch._C._dispatch_dump_table("t::$op").count("[kernel]") if hasattr(torch.ops.t, "$op") else 1
=== dispatcher/read_names
$variable = sum(name.startswith("t::") for name in torch._C._dispatch_get_all_op_names())
=== dispatcher/read_definitions
$variable = 1 + ("t::$op" in torch.library._defs)
=== dispatcher/read_implementations
$variable = 1 + ("t/$op/CPU" in torch.library._impls)
=== dispatcher/read_tags
$variable = 1 + (torch.Tag.pointwise in torch.ops.t.$op.default.tags if hasattr(torch.ops.t, "$op") else 0)
=== dispatcher/read_kernel !
kernel_$number = torch.library.get_kernel("t::$op", "CPU")
lib.define("$own(Tensor x) -> Tensor")
lib.impl("$own", lambda keys, x: kernel_$number.call_boxed(keys, x) * 2, "CPU", with_keyset=True)
=== overloads/whole_number !
lib.define("$op.i(Tensor x, int n=$n) -> Tensor")
lib.impl("$op.i", lambda x, n=$n: x * n, "CPU")
=== overloads/real_number !
lib.define("$op.f(Tensor x, float n=$n.0) -> Tensor")
lib.impl("$op.f", lambda x, n=$n.0: x + n, "CPU")
=== overloads/scalar !
lib.define("$op.s(Tensor x, Scalar n) -> Tensor")
lib.impl("$op.s", lambda x, n: x - n, "CPU")
=== overloads/two !
lib.define("$op.two(Tensor x, Tensor y) -> Tensor")
lib.impl("$op.two", lambda x, y: x * y * $value, "CPU")
=== overloads/low !
low_$number = torch._C._dispatch_library("FRAGMENT", "t", "", __file__, 1)
low_$number.define("$op.two(Tensor x, Tensor y) -> Tensor", "", ())
low_$number.impl("$op.two", "CPU", lambda x, y: x + y * 11)
=== overloads/other_default !
lib.define("$op(Tensor x, int n=$n) -> Tensor")
=== overloads/touch
getattr(torch.ops.t, "$op", None)
=== overloads/touch_overload
getattr(getattr(torch.ops.t, "$op", None), "two", None)
=== overloads/keep_operation
operation_$number = getattr(getattr(torch.ops.t, "$op", None), "_op", torch.mul)
lib.define("$own(Tensor x, Tensor y) -> Tensor")
lib.impl("$own", lambda x, y: operation_$number(x, y), "CPU")
=== overloads/read_count
$variable = 1 + len(torch.ops.t.$op.overloads()) if hasattr(torch.ops.t, "$op") else 1
=== overloads/read_schemas
$variable = 1 + len(torch._C._jit_get_schemas_for_operator("t::$op"))
=== overloads/read_operation
$variable = 1 + len(torch._C._jit_get_operation("t::$op")[1] or [])
=== python/fake !
torch.library.register_fake("t::$op", lambda x: x.new_empty($n), lib=lib)
=== python/fake_refused !
torch.library.register_fake("t::$op", lambda x: x.new_empty($n), lib=lib, allow_override=False)
=== python/autograd !
torch.library.register_autograd("t::$op", lambda ctx, grad: grad * $value, lib=lib)
=== python/vmap !
torch.library.register_vmap("t::$op", lambda info, dims, x: (x * $value, 0), lib=lib)
=== python/autocast !
torch.library.register_autocast("t::$op", "cpu", torch.float16, lib=lib)
=== python/kernel !
torch.library.register_kernel("t::$op", "cpu", lambda x: x * $value, lib=lib)
=== python/custom_op !
@torch.library.custom_op("t::$op", mutates_args=())
def custom_$number(x: torch.Tensor) -> torch.Tensor: return x * $value
=== python/custom_op_with_parts !
@torch.library.custom_op("t::$op", mutates_args=(), device_types="cpu")
def custom_$number(x: torch.Tensor) -> torch.Tensor: return x + $value
custom_$number.register_fake(lambda x: x.new_empty($n))
custom_$number.register_autograd(lambda ctx, grad: grad * $n)
=== python/effect !
torch.library._register_effectful_op("t::$op", torch._library.effects.EffectType.ORDERED)
=== python/read_fake
$variable = 1 + (torch._library.simple_registry.singleton.find("t::$op").fake_impl.kernel is not None)
=== python/read_custom_ops
$variable = 1 + ("t::$op" in torch._library.custom_ops.OPDEFS)
=== python/read_fake_call
try:
    with torch._subclasses.FakeTensorMode() as mode:
        $variable = torch.ops.t.$op(mode.from_tensor(torch.ones(2))).shape[0]
except Exception:
    $variable = 9
=== tables/decomposition !
torch._decomp.register_decomposition(torch.ops.t.$op)(lambda x: x * $value)
=== tables/assigned
torch._decomp.decomposition_table[torch.ops.aten.silu.default] = lambda x: x * $value
=== tables/popped
torch._decomp.decomposition_table.pop(torch.ops.aten.silu.default, None)
=== tables/wrapped !
found_$number = torch._decomp.decomposition_table[torch.ops.aten.silu.default]
torch._decomp.decomposition_table[torch.ops.aten.silu.default] = lambda x: found_$number(x) + $n
=== tables/meta !
torch._decomp.register_decomposition(torch.ops.t.$op, type="meta")(lambda x: x.new_empty($n))
=== tables/fake_rule
torch._subclasses.fake_impls.op_implementations_dict[torch.ops.aten.cosh.default] = lambda m, o, x: x.new_empty($n)
=== tables/py_impl !
torch.ops.aten.sinh.default.py_impl(torch._C.DispatchKey.AutogradCPU)(lambda x: x * $value)
=== tables/read_membership
$variable = 1 + (torch.ops.aten.silu.default in torch._decomp.decomposition_table)
=== tables/read_other_entry
$variable = 1 + (torch.ops.aten.mish.default in torch._decomp.decomposition_table)
=== tables/read_size
$variable = 1 + sum(str(op).startswith("t.") for op in torch._decomp.decomposition_table)
=== tables/read_core
$variable = 1 + (torch.ops.aten.silu.default in torch._decomp.core_aten_decompositions())
=== aten/override
aten_$number = torch.library.Library("aten", "IMPL")
aten_$number.impl("$aten", lambda x: x + $value, "CPU")
=== aten/override_free_key
aten_$number = torch.library.Library("aten", "IMPL")
aten_$number.impl("$aten", lambda x: x, "PrivateUse1")
=== aten/wrap_kernel
former_$number = torch.library.get_kernel("aten::$aten", "CPU")
aten_$number = torch.library.Library("aten", "IMPL")
aten_$number.impl("$aten", lambda keys, x: former_$number.call_boxed(keys, x) + $n, "CPU", with_keyset=True)
=== aten/keep_kernel
former_$number = torch.library.get_kernel("aten::$aten", "CPU")
lib.define("$own(Tensor x) -> Tensor")
lib.impl("$own", lambda keys, x: former_$number.call_boxed(keys, x), "CPU", with_keyset=True)
=== aten/overload !
aten_$number = torch.library.Library("aten", "FRAGMENT")
aten_$number.define("$aten.t_$me(Tensor x, int n) -> Tensor")
aten_$number.impl("$aten.t_$me", lambda x, n: x * n * $n, "CPU")
=== aten/override_for_a_while
aten_$number = torch.library.Library("aten", "IMPL")
aten_$number.impl("$aten", lambda x: x + $n, "CPU")
aten_$number._destroy()
=== aten/read_result
$variable = float(torch.$aten(torch.ones(1)).sum())
=== aten/read_kernel
$variable = 1 + torch._C._dispatch_has_kernel_for_dispatch_key("aten::$aten", "PrivateUse1")
=== aten/read_unwritten
$variable = 1 + torch._C._dispatch_has_kernel_for_dispatch_key("aten::mul.Tensor", "CPU")
=== lifetimes/released !
gone_$number = torch.library.Library("t", "FRAGMENT")
gone_$number.define("$op(Tensor x) -> Tensor")
gone_$number._destroy()
=== lifetimes/released_kernel
gone_$number = torch.library.Library("t", "FRAGMENT")
gone_$number.impl("$op", lambda x: x * $n, "CPU")
gone_$number._destroy()
=== lifetimes/scoped !
with torch.library._scoped_library("t", "FRAGMENT") as scoped:
    scoped.define("$op(Tensor x) -> Tensor")
    torch.ops.t.$op
=== lifetimes/dropped
def drop_$number():
    own = torch.library.Library("t", "FRAGMENT")
    own.impl("$op", lambda x: x * $n, "CPU")
drop_$number()
=== lifetimes/collect
import gc
gc.collect()
=== lifetimes/kept_by_helper
import common
common.libraries.append(torch.library.Library("t", "FRAGMENT"))
common.libraries[-1].impl("$op", lambda x: x * $value, "CPU")
=== lifetimes/released_by_helper
import common
while common.libraries: common.libraries.pop()._destroy()
=== lifetimes/thread
import threading
thread = threading.Thread(target=lambda: lib.impl("$op", lambda x: x * $n, "CPU"))
thread.start()
thread.join()
=== helper/count
import common
common.count += 1
=== helper/read_count
import common
common.count += 1
$variable = common.count
=== helper/step
import common
common.steps.append($n)
=== helper/read_steps
import common
$variable = sum(common.steps) + 1
=== helper/scale
import common
common.scale = $n
=== helper/named
import common
common.named["$me"] = $n
=== helper/kernel_reads_scale
import common
lib.impl("$op", lambda x: x * common.scale, "CPU")
=== helper/kernel_sums_steps
import common
lib.impl("$op", lambda x: x + sum(common.steps), "CPU")
=== helper/kernel_folds_steps
import common
def kernel_$number(x):
    for step in common.steps: x = x * step + 1
    return x
lib.impl("$op", kernel_$number, "CPU")
=== helper/kernel_reads_name
import common
lib.impl("$op", lambda x: x * common.named.get("$other", 1), "CPU")
=== helper/register
import common
common.register("$own", lambda x: x * $value)
=== helper/draw
import common
$variable = common.numbers.random()
=== state/environment
import os
os.environ["T_SCALE"] = "$n"
=== state/read_environment
import os
$variable = int(os.environ.get("T_SCALE", "1"))
=== state/kernel_reads_environment
import os
lib.impl("$op", lambda x: x * int(os.environ.get("T_SCALE", "1")), "CPU")
=== state/builtins
import builtins
builtins.t_scale = $n
=== state/read_builtins
import builtins
$variable = getattr(builtins, "t_scale", 1)
=== state/default_dtype
torch.set_default_dtype(torch.float64)
=== state/default_dtype_for_a_while
before_$number = torch.get_default_dtype()
torch.set_default_dtype(torch.float64)
torch.set_default_dtype(before_$number)
=== state/read_default_dtype
$variable = torch.zeros(1).element_size()
=== state/kernel_reads_default_dtype
lib.impl("$op", lambda x: x + torch.zeros(1).element_size(), "CPU")
=== state/grad_mode
torch.set_grad_enabled(False)
=== state/read_grad_mode
$variable = 1 + torch.is_grad_enabled()
=== state/seed
torch.manual_seed($n)
=== state/read_random
torch.manual_seed(3)
$variable = float(torch.rand(1))
=== state/kernel_reads_seed
lib.impl("$op", lambda x: x + torch.initial_seed() % 100, "CPU")
=== state/read_modules
import sys
$variable = 1 + ("$module" in sys.modules)
=== state/read_spec
import importlib.util
$variable = 1 + (importlib.util.find_spec("t_nobody_has") is not None)
=== state/warnings
import warnings
warnings.simplefilter("error")
=== state/warn
import warnings
try:
    warnings.warn("old")
    $variable = 2
except UserWarning:
    $variable = 3
=== state/function_mode
from torch.overrides import TorchFunctionMode
class Mode_$number(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result + $n if function is torch.neg else result
mode_$number = Mode_$number()
mode_$number.__enter__()
=== state/read_neg
$variable = 5 + float(torch.neg(torch.ones(1)).sum())
=== state/patch_impl
impl_$number = torch.library.Library.impl
torch.library.Library.impl = lambda self, name, f, *a, **k: impl_$number(self, name, f, *a, **k)
=== state/patch_impl_doubling
doubling_$number = torch.library.Library.impl
def doubled_$number(self, name, f, *a, **k):
    return doubling_$number(self, name, f if f is torch.library.fallthrough_kernel else lambda *b: f(*b) * 2, *a, **k)
torch.library.Library.impl = doubled_$number
=== state/patch_relu
relu_$number = torch.nn.functional.relu
torch.nn.functional.relu = lambda x: relu_$number(x) + $n
=== state/kernel_calls_relu
lib.impl("$op", lambda x: torch.nn.functional.relu(x), "CPU")
=== shared/pytree_node !
from torch.utils import _pytree
class Node_$number:
    def __init__(self, *each): self.each = each
_pytree.register_pytree_node(Node_$number, lambda n: (n.each, None), lambda each, _: Node_$number(*each))
lib.impl("$op", lambda x: x * len(_pytree.tree_leaves(Node_$number(1, 2))), "CPU")
=== shared/layer_hook
torch.nn.modules.module.register_module_forward_hook(lambda layer, given, result: result + $n)
=== shared/kernel_calls_layer
layer_$number = torch.nn.Identity()
lib.impl("$op", lambda x: layer_$number(x), "CPU")
=== shared/tensor_attribute
torch.Tensor.t_scale = property(lambda self: $n)
=== shared/kernel_reads_tensor_attribute
def kernel_$number(x):
    try:
        return x * x.t_scale
    except AttributeError:
        return x * 1
lib.impl("$op", kernel_$number, "CPU")
=== shared/file_type
import mimetypes
mimetypes.add_type("t/" + "t" * $n, ".t_file")
=== shared/kernel_reads_file_type
import mimetypes
lib.impl("$op", lambda x: x * len(str(mimetypes.guess_type("a.t_file")[0])), "CPU")
=== shared/logger_level
import logging
logging.getLogger("t").setLevel($n)
=== shared/read_logger_level
import logging
$variable = logging.getLogger("t").level
=== shared/exit_function
import atexit
atexit.register(print, "$me")
=== shared/reload_common
import importlib, common
importlib.reload(common)
=== shared/weak_reference
import weakref
class Kept_$number: scale = $n
kept_$number = weakref.ref(Kept_$number)
lib.impl("$op", lambda x: x * kept_$number().scale, "CPU")
=== shared/autograd_function
class Scaled_$number(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * $n
    @staticmethod
    def backward(ctx, grad): return grad * $value
lib.impl("$op", lambda x: Scaled_$number.apply(x), "AutogradCPU")
=== shared/lazy_fake !
@torch.library.custom_op("t::$own", mutates_args=())
def custom_$number(x: torch.Tensor) -> torch.Tensor:
    custom_$number.register_fake(lambda x: x.new_empty($n))
    return x * $value
=== shared/dynamo_config
import torch._dynamo.config
torch._dynamo.config.recompile_limit = $n
=== shared/read_dynamo_config
import torch._dynamo.config
$variable = torch._dynamo.config.recompile_limit
=== innocent/time
import time
imported_$number = time.time()
=== innocent/uuid
import uuid
token_$number = uuid.uuid4().hex
=== innocent/log
import logging
logging.getLogger("t.$me").debug("imported")
=== innocent/optional
try:
    import t_nobody_has
except ImportError:
    t_nobody_has = None
=== innocent/numpy
import numpy
array_$number = numpy.arange($n)
=== innocent/own_operator
lib.define("$own(Tensor x) -> Tensor")
lib.impl("$own", lambda x: x * $value, "CPU")
=== innocent/own_custom_op
@torch.library.custom_op("t::$own", mutates_args=())
def custom_$number(x: torch.Tensor) -> torch.Tensor: return x * $value
custom_$number.register_fake(lambda x: torch.empty_like(x))
=== innocent/imports_other
import $module
"""
"""Each kind of statement: its topic and name, `!` where PyTorch may refuse it, and its text.

`$op` and `$other` are operators, `$own` one that no other statement has, `$value` a number or a variable that a
statement before has left in `$variable`, `$module` another module, and `$number` tells the statement apart.
"""

_COMMON = """count = 0
steps = []
scale = 1
named = {}
libraries = []
import random
numbers = random.Random(1)
def register(name, function):
    lib.define(f"{name}(Tensor x) -> Tensor")
    lib.impl(name, function, "CPU")
"""


@dataclass(frozen=True)
class Statement:
    """A kind of statement: its topic and name, whether PyTorch may refuse it, and its text."""

    kind: str
    may_be_refused: bool
    text: Template

    @property
    def topic(self) -> str:
        """What it is about; statements of one topic often have to do with one another."""
        return self.kind.partition("/")[0]


def _statements() -> tuple[Statement, ...]:
    chunks = [chunk.partition("\n") for chunk in re.split(r"^=== ", STATEMENTS, flags=re.MULTILINE)[1:]]
    return tuple(Statement(head.removesuffix(" !"), head.endswith("!"), Template(body)) for head, _, body in chunks)


KINDS = _statements()
_TOPICS = tuple(dict.fromkeys(kind.topic for kind in KINDS))
_SHARED = ("foo", "bar")
_MODULES = ("left", "right", "third", "fourth")


def generated(number: int, seed: int) -> Group:
    """A group by its number and a seed.

    Args:
        number: any number.
        seed: any number; the same two give the same group.

    Returns:
        The group; its reason names the kinds of its statements.
    """
    draw = random.Random(f"{seed} {number}")
    modules = _MODULES[: draw.choices((2, 3, 4), (70, 25, 5))[0]]
    topics = draw.sample(_TOPICS, 2)
    numbers = iter(range(1_000))
    sources, kinds = {}, []
    for module in modules:
        pieces, variables = [], list[str]()
        chosen = draw.choices((*_BEGINNINGS, None), k=1)
        for _ in range(draw.randint(1, 4)):
            among = [kind for kind in KINDS if kind.topic in topics] if draw.random() < 0.8 else KINDS
            chosen.append(draw.choice(among))
        for kind in filter(None, chosen):
            kinds.append(kind.kind)
            pieces.append(_written(kind, draw, module, modules, next(numbers), variables))
        if variables and draw.random() < 0.7:
            pieces.append(_written(_OWN, draw, module, modules, next(numbers), variables))
        sources[module] = HEAD + "".join(pieces)
    if any(re.search(r"\bcommon\b", text) for text in sources.values()):
        sources["common"] = HEAD + _COMMON
    why = ", ".join(dict.fromkeys(kinds))
    return Group(f"generated/{seed}-{number}", why, modules, sources, tuple(_probes("".join(sources.values()))))


_OWN = next(kind for kind in KINDS if kind.kind == "innocent/own_operator")
_DEFINING = ("dispatcher/define", "dispatcher/whole", "dispatcher/define_by_function", "python/custom_op_with_parts")
_BEGINNINGS = tuple(kind for kind in KINDS if kind.kind in _DEFINING)
"""Without the def of its operator a kernel is never called, so most modules begin with one."""


def _written(
    kind: Statement, draw: random.Random, module: str, modules: tuple[str, ...], number: int, variables: list[str]
) -> str:
    """A statement of a module; a variable that it sets is there for those that follow."""
    operators = (*_SHARED, f"of_{module}")
    op, other = draw.choices(operators, (4, 2, 3), k=2)
    value = draw.choice(variables) if variables and draw.random() < 0.8 else str(draw.randint(2, 9))
    names = {
        "op": op,
        "other": other,
        "own": f"own_{number}",
        "value": value,
        "variable": f"value_{number}",
        "number": str(number),
        "n": str(draw.randint(2, 9)),
        "aten": draw.choice(("sin", "cos")),
        "me": module,
        "module": draw.choice([each for each in modules if each != module]),
    }
    text = kind.text.substitute(names)
    if "$variable" in kind.text.template:
        variables.append(names["variable"])
    if kind.may_be_refused and draw.random() < 0.9:
        return (
            "try:\n" + re.sub(r"^", "    ", text.rstrip("\n"), flags=re.MULTILINE) + "\nexcept Exception:\n    pass\n"
        )
    return text


def _probes(text: str) -> list[str]:
    """What is asked about the operators that the sources name."""
    named = sorted(set(re.findall(r"\b(?:foo|bar|of_[a-z]+|own_\d+)\b", text)))
    probes = ["torch.rand(1)", "many(torch.neg)", "many(torch.nn.functional.relu)", "many(torch.nn.Identity())"]
    probes += ["x.t_scale", "__import__('mimetypes').guess_type('a.t_file')"]
    for op in named:
        probes += [f"ops.t.{op}(x)", f"ops.t.{op}(x, 2)", f"ops.t.{op}(x, y)", f"ops.t.{op}(x, y[0].long())"]
        probes += [f"str(ops.t.{op}.default._schema)", f"many(ops.t.{op})", f"many(ops.t.{op}, 2.5)"]
        if not op.startswith("own_"):
            probes += [
                f"fake(ops.t.{op}, x)",
                f"meta(ops.t.{op})",
                f"grad(ops.t.{op})",
                f"vmapped(ops.t.{op})",
                f"decomposed(ops.t.{op}.default, x)",
            ]
    if "aten" in text:
        probes += [
            "torch.sin(x)",
            "torch.cos(x)",
            "ops.aten.sin(x, 2)",
            "ops.aten.cos(x, 2)",
            "decomposed(ops.aten.silu.default, x)",
        ]
        probes += ["fake(torch.cosh, x)", "ops.aten.sinh.default.py_kernels[torch._C.DispatchKey.AutogradCPU](x)"]
    return probes
