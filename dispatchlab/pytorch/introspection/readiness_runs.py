"""Run an operator on inputs, cell by cell: opcheck's tests, gradients, vmap, a compile, beside what a plain call gives.

It runs in a worker process: what is called there is a package's own code, on inputs of a user.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from functools import partial
from importlib import import_module
from io import StringIO
from tempfile import TemporaryDirectory
from traceback import extract_tb
from typing import Any

from dispatchlab.model.operator_runs import InputsError, Outcome, Run
from dispatchlab.pytorch.bridge.torch import torch
from dispatchlab.pytorch.introspection.readiness_inputs import (
    Inputs,
    copy_of,
    describe,
    difference,
    first_line,
    inputs_of,
    is_tensor,
    overload,
    seed,
    tensors_of,
)

_FEW = {"export": 2, "export_dynamic": 2, "inductor": 2, "functionalize": 2, "dtensor": 2, "aot_package": 1}
"""On how many inputs the slow columns are run."""


class _NotDecided(Exception):
    """A run that shows nothing of what is asked; its text says why."""


class _NotNeeded(Exception):
    """A run that shows that the thing is not needed; its text says why."""


class _Wrong(Exception):
    """A run that gives something else than it should; its text says what."""


def begin_runs(source: str, operator: str) -> tuple[str, ...]:
    """Make the inputs of an operator, and give the columns that runs decide, those first that cost least.

    Raises:
        InputsError: the inputs cannot be made.
    """
    inputs_of(source, operator)
    try:
        overload(operator)
    except AttributeError as error:
        raise InputsError(source, f"{operator} is not there: {first_line(error)}") from None
    return tuple(_CHECKS)


def run_cell(source: str, operator: str, column: str) -> Run:
    """Run one operator on its inputs for one column.

    Args:
        source: where the inputs are from; see `inputs_of`.
        operator: its name.
        column: one of `_CHECKS`.

    Raises:
        InputsError: the inputs cannot be made.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    calls = inputs_of(source, operator)
    op = overload(operator)
    some = calls[: _FEW.get(column, len(calls))]
    return summed([_run(_CHECKS[column], op, given) for given in some], len(calls))


def summed(runs: Sequence[Run], total: int) -> Run:
    """What the runs on several inputs show together: a failure of one is one, and success needs no more than one."""
    for outcome in (Outcome.FAILS, Outcome.WORKS, Outcome.NOT_NEEDED, Outcome.NOT_DECIDED):
        same = [run for run in runs if run.outcome is outcome]
        if same and outcome is Outcome.WORKS and total > 1:
            return Run(outcome, f"{same[0].how} ({len(same)} of {total} inputs)")
        if same:
            return same[0]
    raise ValueError("no runs")


def _run(check: _Check, op: Any, given: Inputs) -> Run:
    where = f"on {describe(given)}: "
    seed()
    try:
        with redirect_stdout(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Run(Outcome.WORKS, check(op, given))
    except _NotDecided as error:
        return Run(Outcome.NOT_DECIDED, str(error))
    except _NotNeeded as error:
        return Run(Outcome.NOT_NEEDED, str(error))
    except _Wrong as error:
        return Run(Outcome.FAILS, f"{where}{error}")
    except Exception as error:  # what was asked is whether it raises
        return Run(Outcome.FAILS, f"{where}it raises {type(error).__name__}: {first_line(error)}")


# -- calls


def _mapped(function: Callable[[Any], Any], values: Any) -> Any:
    tree: Any = import_module("torch.utils._pytree")
    return tree.tree_map(lambda leaf: function(leaf) if is_tensor(leaf) else leaf, values)


def _called(op: Any, given: Inputs) -> Any:
    return op(*given.positional, **given.named)


def _plain(op: Any, given: Inputs, seed_: int = 0) -> tuple[Any, Inputs]:
    """What the kernel gives on a copy, and that copy after it, which it may have written to."""
    own: Inputs = copy_of(given)
    seed(seed_)
    with torch().no_grad():
        return _called(op, own), own


def _expected(op: Any, given: Inputs) -> tuple[Any, Inputs]:
    """The same; what needs it to compare with decides nothing without."""
    try:
        return _plain(op, given)
    except Exception as error:
        raise _NotDecided(f"a call itself raises {type(error).__name__}: {first_line(error)}") from None


def _compare(expected: object, found: object, text: str, *, strides: bool = False, values: bool = True) -> None:
    differs = difference(expected, found, strides=strides, values=values)
    if differs:
        raise _Wrong(f"{text}: {differs}")


def _is_random(op: Any, given: Inputs) -> bool:
    """Whether it gives other values after another seed."""
    return bool(difference(_expected(op, given)[0], _plain(op, given, 1)[0]))


def _needs_tensors(given: Inputs) -> None:
    if not tensors_of(given):
        raise _NotDecided("the inputs have no tensor")


def _cpu(op: Any, given: Inputs) -> str:
    if any(tensor.device.type != "cpu" for tensor in tensors_of(given)):
        raise _NotDecided("the inputs are not on the CPU")
    _plain(op, given)
    return "a call on the inputs"


def _cuda(op: Any, given: Inputs) -> str:
    if not torch().cuda.is_available():
        raise _NotDecided("there is no CUDA device here")
    _needs_tensors(given)
    _plain(op, _mapped(lambda tensor: tensor.cuda(), given))
    torch().cuda.synchronize()
    return "a call on the inputs, moved to CUDA"


def _repeat(op: Any, given: Inputs) -> str:
    _compare(_expected(op, given), _plain(op, given), "a second call after the same seed differs from the first")
    return "a second call after the same seed gives the same"


def _strides(op: Any, given: Inputs) -> str:
    """Whether it reads and writes tensors by their strides."""
    tree: Any = import_module("torch.utils._pytree")
    expected = _expected(op, given)
    shared: set[int] = set()
    for tensor in tensors_of(given):
        if tensor.layout is not torch().strided or tensor.untyped_storage()._cdata in shared:
            raise _NotDecided("the inputs share memory, or are not strided")
        shared.add(tensor.untyped_storage()._cdata)
    flat, spec = tree.tree_flatten(given)
    tensors = [at for at, one in enumerate(flat) if is_tensor(one)]
    candidates = [at for at in tensors if flat[at].numel() > 1]
    if not candidates:
        raise _NotDecided("no input has two elements")
    ran, values = 0, not _is_random(op, given)
    why = ""
    for chosen in [*([at] for at in candidates if len(candidates) > 1), candidates]:
        which = f"tensor {tensors.index(chosen[0]) + 1} of {len(tensors)}" if len(chosen) < len(tensors) else "tensors"
        for spread in (_transposed, _stepped):
            moved = tree.tree_unflatten([spread(one) if at in chosen else one for at, one in enumerate(flat)], spec)
            try:
                found = _plain(op, moved)
            except Exception as error:  # it refuses them, which is no wrong result
                why = f"it refuses them with {type(error).__name__}: {first_line(error)}"
                continue
            ran += 1
            _compare(expected, found, f"with {which} not contiguous", values=values)
    if not ran:
        raise _NotDecided(why)
    return "calls with tensors that are not contiguous give what it gives with contiguous ones"


def _transposed(tensor: Any) -> Any:
    """The same values, with the dimensions in memory the other way round."""
    with torch().no_grad():
        order = tuple(range(tensor.dim()))[::-1]
        result = tensor.detach().permute(order).contiguous().permute(order)
    return result.requires_grad_(tensor.requires_grad)


def _stepped(tensor: Any) -> Any:
    """The same values, with room between them that holds others, and before them."""
    if not tensor.dim():
        return copy_of(tensor)
    with torch().no_grad():
        wide = tensor.detach().contiguous().repeat_interleave(2, -1)
        if wide.dtype.is_floating_point:
            wide[..., 0::2] = 77
        wide[..., 1::2] = tensor
    return wide[..., 1::2].requires_grad_(tensor.requires_grad)


def _empty(op: Any, given: Inputs) -> str:
    """Whether its fake agrees with its kernel on tensors without elements."""
    ran, why = 0, ""
    ranks = max((tensor.dim() for tensor in tensors_of(given)), default=0)
    for dim in range(ranks):
        small = _mapped(partial(_narrowed, dim), given)
        try:
            expected, _ = _plain(op, small)
        except Exception as error:  # it refuses them, which is no wrong result
            why = f"it refuses them with {type(error).__name__}: {first_line(error)}"
            continue
        with suppress(torch()._subclasses.fake_tensor.UnsupportedOperatorException, NotImplementedError):
            try:
                found = fake_call(op, small, static=True)
            except Exception as error:
                if len(tensors_of(given)) == 1:
                    raise
                # NB: sizes may belong together that are not all 0 now, and kernels seldom check what is empty
                why = f"its fake refuses them with {type(error).__name__}: {first_line(error)}"
                continue
            _compare_fake(expected, found, f"with size 0 at dimension {dim}, its fake")
        ran += 1
    if not ran:
        raise _NotDecided(why or "no input has a dimension")
    return "it runs on tensors without elements, and its fake gives what its kernel gives"


def _narrowed(dim: int, tensor: Any) -> Any:
    return tensor.detach().narrow(dim, 0, 0) if tensor.dim() > dim else tensor


# -- opcheck's four


def _opcheck(test: str) -> _Check:
    def check(op: Any, given: Inputs) -> str:
        own: Inputs = copy_of(given)
        seed()
        outcome = torch().library.opcheck(op, own.positional, own.named, test_utils=(test,), raise_exception=False)
        result = outcome[test]
        if isinstance(result, BaseException):
            frames = extract_tb(result.__traceback__)
            if isinstance(result, NotImplementedError) and frames[-1].filename.endswith("schema_check_mode.py"):
                raise _NotDecided(f"opcheck cannot compare the inputs after the call: {first_line(result)}")
            raise result
        return f"opcheck's {test} passes"

    return check


def _registration(op: Any, given: Inputs) -> str:
    """opcheck passes unseen what has no input that needs a gradient: there, copies that need one are tried, too."""
    check = _opcheck("test_autograd_registration")
    how = check(op, given)
    if any(one.requires_grad for one in tensors_of(given)):
        return how
    if not any(map(_is_real, tensors_of(given))):
        raise _NotNeeded("no input can have a gradient: none is a float32 or float64")
    needing: Inputs = _mapped(lambda one: one.requires_grad_() if _is_real(one) else one, copy_of(given))
    try:
        check(op, needing)
    except Exception as error:
        why = "opcheck passes unseen what has no input that needs a gradient; with such inputs"
        raise _NotDecided(f"{why} it raises {type(error).__name__}: {first_line(error)}") from None
    return f"{how} on the inputs, made to need a gradient"


# -- tensors without data


def fake_call(op: Any, given: Inputs, *, static: bool) -> Any:
    """Call it on tensors without data.

    Args:
        op: the overload.
        given: the arguments.
        static: with sizes that are numbers; else with symbols for them.
    """
    own = copy_of(given)
    shapes: Any = import_module("torch.fx.experimental.symbolic_shapes")
    mode = import_module("torch._subclasses.fake_tensor").FakeTensorMode(
        shape_env=shapes.ShapeEnv(), static_shapes=static
    )
    # NB: kernels in C++ take symbols for sizes under it alone, as in torch.compile
    python = nullcontext() if static else import_module("torch._dispatch.python").enable_python_dispatcher()
    fakes = _mapped(mode.from_tensor, own)
    with torch().no_grad(), python, mode if tensors_of(fakes) else type(mode)():
        return _called(op, fakes)


def _number(size: Any) -> int | None:
    """A size as a number, by what its symbol stands for; None when that depends on data."""
    if isinstance(size, int):
        return size
    return None if not size.node.has_hint() else int(size.node.hint)


def _compare_fake(expected: Any, found: Any, text: str, *, strides: bool = True) -> None:
    tree: Any = import_module("torch.utils._pytree")
    before, after = tree.tree_leaves(expected), tree.tree_leaves(found)
    if len(before) != len(after) or list(map(is_tensor, before)) != list(map(is_tensor, after)):
        raise _Wrong(f"{text} gives {len(after)} values of other kinds instead of {len(before)}")
    for one, other in zip(before, after, strict=True):
        if not is_tensor(one):
            continue
        for what in ("dtype", "device", "layout"):
            if getattr(one, what) != getattr(other, what):
                raise _Wrong(f"{text} gives {what} {getattr(other, what)} instead of {getattr(one, what)}")
        sizes = list(map(_number, other.shape))
        known = [one.shape[at] if size is None and at < one.dim() else size for at, size in enumerate(sizes)]
        if known != list(one.shape):
            raise _Wrong(f"{text} gives shape {sizes} instead of {list(one.shape)}")
        if strides and one.layout is torch().strided and one.numel() and None not in sizes:
            steps = [
                (a, _number(b)) for size, a, b in zip(one.shape, one.stride(), other.stride(), strict=True) if size > 1
            ]
            if any(b is not None and a != b for a, b in steps):
                raise _Wrong(
                    f"{text} gives stride {list(map(_number, other.stride()))} instead of {list(one.stride())}"
                )


def _faked(*, static: bool) -> _Check:
    def check(op: Any, given: Inputs) -> str:
        try:
            found = fake_call(op, given, static=static)
        except Exception:
            _expected(op, given)  # where the call itself raises, a fake may, too
            raise
        sizes = "" if static else " and symbols for their sizes"
        how = f"a call on tensors without data{sizes}"
        with suppress(_NotDecided):
            expected, _ = _expected(op, given)
            _compare_fake(expected, found, "its fake" if static else "with symbols for the sizes, its fake")
            how += ", which gives what the kernel gives"
        return how

    return check


# -- gradients

# Note [What a gradient is compared with]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `torch.autograd.gradcheck` in float64, on the inputs that need a gradient, or on all real ones where none does. An
# operator that takes no float64, or computes in float32, is compared along one direction with a larger step. A
# function that jumps or has a kink at the inputs has no derivative there: where gradcheck disagrees, the steps to both
# sides and of two sizes are compared, first. When these disagree, too, other inputs close by are tried, and then
# nothing is decided: the gradient of rounding is a choice of its author.


class _Function:
    """An operator as a function of the tensors that are differentiated."""

    def __init__(self, op: Any, given: Inputs) -> None:
        tree: Any = import_module("torch.utils._pytree")
        self._op, self._writes = op, op._schema.is_mutable
        self._flat, self._spec = tree.tree_flatten(given)
        real = [at for at, one in enumerate(self._flat) if _is_real(one)]
        self.asked = [at for at in real if self._flat[at].requires_grad]
        self.at = self.asked or real
        self.has_half = any(is_tensor(one) and str(one.dtype) in _HALVES for one in self._flat)

    def drop(self, at: int) -> None:
        """Leave one input as it is."""
        self.at = [other for other in self.at if other != at]

    def leaves(self, noise: float = 0.0) -> list[Any]:
        """The inputs that are moved, each a leaf."""
        seed()
        with torch().no_grad():
            tensors = [self._flat[at].detach().clone() for at in self.at]
            moved = [one + noise * torch().randn_like(one) if noise else one for one in tensors]
        return [one.requires_grad_() for one in moved]

    def __call__(self, *moved: Any) -> Any:
        tree: Any = import_module("torch.utils._pytree")
        places = dict(zip(self.at, moved, strict=True))
        rest = [one.detach() if is_tensor(one) else one for one in self._flat]
        flat = copy_of(rest)
        for at, one in places.items():
            flat[at] = one * 1 if self._writes else one
        seed()
        given = Inputs(*tree.tree_unflatten(flat, self._spec))
        results = _called(self._op, given)
        parts = [*tensors_of(results), *(tensors_of(given) if self._writes else ())]
        return tuple(filter(_has_gradient, parts))


def _has_gradient(one: Any) -> bool:
    """Whether its type is one that PyTorch computes gradients in, as those of eight bits are not."""
    return bool(one.is_complex() or (one.is_floating_point() and one.element_size() > 1))


_HALVES = ("torch.float16", "torch.bfloat16")


def _is_real(value: Any) -> bool:
    """Whether it is a tensor that can have a gradient which a small step can be compared with."""
    return is_tensor(value) and str(value.dtype) in (
        "torch.float32",
        "torch.float64",
        "torch.complex64",
        "torch.complex128",
    )


def _wide(given: Inputs) -> Inputs:
    """The same in float64."""
    module: Any = torch()
    wide = {module.float32: module.float64, module.complex64: module.complex128}
    return Inputs(
        *_mapped(
            lambda one: one.detach().to(wide.get(one.dtype, one.dtype)).requires_grad_(one.requires_grad), tuple(given)
        )
    )


def _differentiable(op: Any, given: Inputs) -> _Function:
    """What can be differentiated.

    Raises:
        _NotDecided, _NotNeeded, _Wrong: nothing can, or nothing has to be, or no gradient comes.
    """
    function = _Function(op, given)
    if not function.at:
        raise _NotDecided("no input can have a gradient: none is a float32 or float64")
    before, after = _expected(op, given)
    parts = [*tensors_of(before), *(tensors_of(after) if op._schema.is_mutable else ())]
    if not any(map(_has_gradient, parts)):
        raise _NotNeeded("no result can have a gradient: none is a float of 16 bits or more")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*autograd kernel.*")
        leaves = function.leaves()
        results = [one for one in function(*leaves) if one.requires_grad]
        if not results and not function.has_half:
            raise _Wrong("the result has no gradient")
        total = sum(map(_sum, results))
        gradients = torch().autograd.grad(total, leaves, allow_unused=True) if results else [None]
    if all(one is None for one in gradients):
        if function.has_half:  # as where the rest are tables of weights
            raise _NotDecided("no gradient of a float16 or bfloat16 is looked at, and no other input got one")
        raise _Wrong("no input got a gradient")
    for at, one in list(zip(function.at, gradients, strict=True)):
        if one is None:
            if at in function.asked and _depends(function, at):
                raise _Wrong(
                    f"tensor {at + 1} of the arguments needs a gradient and gets none, and the result changes with it"
                )
            function.drop(at)
    return function


def _depends(function: _Function, at: int) -> bool:
    """Whether the results change smoothly with an input."""
    alone = _Function.__new__(_Function)
    alone.__dict__ = {**function.__dict__, "at": [at]}
    return bool(_slopes(alone, (1e-2, 1e-3)))


def _autograd(op: Any, given: Inputs) -> str:
    """See Note [What a gradient is compared with]."""
    _differentiable(op, given)
    wide = _wide(given)
    try:
        expected, _ = _plain(op, wide)
        is_wide = any(str(one.dtype) in ("torch.float64", "torch.complex128") for one in tensors_of(expected))
    except Exception:  # it takes no float64
        is_wide = False
    if is_wide:
        function = _differentiable(op, wide)
        for noise in (0.0, 0.05):
            text = _checked(torch().autograd.gradcheck, function, noise)
            if not text:
                return "a gradient on the inputs in float64, which agrees with gradcheck"
            if _slopes(function, (1e-4, 1e-8), noise):
                raise _Wrong(f"its gradient is wrong: {text}")
    return _along(_differentiable(op, given))


def _checked(gradcheck: Callable[..., object], function: _Function, noise: float) -> str:
    """What gradcheck finds, in a line; empty when it agrees."""
    leaves = function.leaves(noise)
    fast = sum(one.numel() for one in leaves) > 128
    options: dict[str, Any] = {"check_undefined_grad": False} if gradcheck is torch().autograd.gradcheck else {}
    errors: Any = import_module("torch.autograd.gradcheck").GradcheckError
    try:
        gradcheck(function, leaves, atol=1e-4, rtol=1e-3, nondet_tol=1e-6, fast_mode=fast, **options)
    except errors as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return "; ".join(lines[:3])[:300] or "it raises GradcheckError"
    return ""


def _slopes(function: _Function, steps: tuple[float, float], noise: float = 0.0) -> float:
    """The derivative along a direction where the function is smooth; 0 where it is not, or is constant."""
    leaves = [one.detach() for one in function.leaves(noise)]
    module: Any = torch()
    module.manual_seed(7)
    ways = [module.randn_like(one) for one in leaves]
    middle = function(*leaves)
    weights = [module.randn_like(one) for one in middle]

    def at(step: float) -> float:
        with module.no_grad():
            results = function(*(one + step * way for one, way in zip(leaves, ways, strict=True)))
            return float(sum((one * weight).real.double().sum() for one, weight in zip(results, weights, strict=True)))

    try:
        begin = at(0)
        found = [((at(step) - begin) / step, (begin - at(-step)) / step) for step in steps]
    except Exception:  # it does not take other numbers
        return 0.0
    numbers = [number for pair in found for number in pair]
    mean = sum(numbers) / len(numbers)
    if max(abs(number - mean) for number in numbers) > 0.02 * abs(mean) or abs(mean) < 1e-9:
        return 0.0
    return mean


def _along(function: _Function) -> str:
    """The gradient along one direction beside steps that float32 can show."""
    leaves = function.leaves()
    results = function(*leaves)
    module: Any = torch()
    total = sum(map(_sum, results))
    gradients = module.autograd.grad(total, leaves, allow_unused=True)
    found = sum(float(one.sum().real) for one in gradients if one is not None)

    def at(step: float) -> float:
        with module.no_grad():
            moved = function(
                *(one.detach() + (0 if grad is None else step) for one, grad in zip(leaves, gradients, strict=True))
            )
            return float(sum(map(_sum, moved)))

    digits = max(module.finfo(one.dtype).eps for one in results)
    large, small = (0.1, 0.05) if digits > 1e-4 else (0.01, 0.001)  # a half has no digit that a smaller step moves
    begin = at(0)
    sides = [((at(step) - begin) / step, (begin - at(-step)) / step) for step in (large, small)]
    steps = [(one + other) / 2 for one, other in sides]
    if any(abs(found - step) <= 0.05 * max(1.0, abs(step)) for step in steps):
        return "a gradient on the inputs, which agrees with a small step"
    numbers = [number for pair in sides for number in pair]
    mean = sum(numbers) / len(numbers)
    rounded = digits * sum(float(one.detach().abs().double().square().sum()) for one in results) ** 0.5 / large
    if abs(mean) < 1e-3 or max(abs(number - mean) for number in numbers) > 0.05 * abs(mean):
        raise _NotDecided("the function is not smooth at the inputs, so nothing shows which gradient is right")
    if abs(found - mean) <= rounded:
        raise _NotDecided("the results have too few digits to show which gradient is right")
    raise _Wrong(
        f"its gradient is wrong: along one direction it is {found:.4g}, and a small step gives {steps[-1]:.4g}"
    )


def _sum(one: Any) -> Any:
    """What is differentiated of a result, summed in float64: the sum of many halves has no digit that a step moves."""
    return (one.abs() if one.is_complex() else one).double().sum()


def _second_order(op: Any, given: Inputs) -> str:
    """Whether the gradient has a gradient, and that is right."""
    wide = _wide(given)
    try:
        first = _autograd(op, given)
    except (_NotDecided, _NotNeeded):
        raise
    except Exception:
        raise _NotDecided("its first gradient fails already") from None
    if "gradcheck" not in first:
        raise _NotDecided("it is not differentiated in float64")
    function = _differentiable(op, wide)
    if sum(one.numel() for one in function.leaves()) > 1000:
        raise _NotDecided("the inputs are too large for second derivatives")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*autograd kernel.*")
        text = _checked(torch().autograd.gradgradcheck, function, 0.05)
        if text and _checked(torch().autograd.gradcheck, function, 0.05):
            raise _NotDecided("the function is not smooth at the inputs")
    if text:
        raise _Wrong(f"its second derivative is wrong: {text}")
    return "a second derivative on the inputs in float64, which agrees with gradgradcheck"


# -- transforms


def _functionalized(op: Any, given: Inputs) -> str:
    """As torch.compile does it where the operator writes; else as `torch.func.functionalize` does."""
    if op._schema.is_mutable:
        return _compiled("aot_eager")(op, given)
    _needs_tensors(given)
    expected = _expected(op, given)
    own: Inputs = copy_of(given)
    seed(0)
    with torch().no_grad():
        found = torch().func.functionalize(lambda arguments: _called(op, arguments))(own)
    _compare(expected, (found, own), "made functional", values=not _is_random(op, given))
    return "a call under torch.func.functionalize gives what the kernel gives"


def _compiled(backend: str) -> _Check:
    def check(op: Any, given: Inputs) -> str:
        expected = _expected(op, given)
        dynamo: Any = import_module("torch._dynamo")
        dynamo.reset()
        config: Any = import_module("torch._inductor.config")
        with suppress(AttributeError):  # NB: its cache goes by operators' names, and gives what older fakes led to
            config.force_disable_caches = True
        own: Inputs = copy_of(given)
        seed(0)
        with torch().no_grad():
            compiled = torch().compile(lambda one: _called(op, one), backend=backend, fullgraph=True, dynamic=False)
            found = compiled(own)
        _compare(expected, (found, own), "compiled", values=not _is_random(op, given))
        return f"torch.compile with {backend} gives what the kernel gives"

    return check


def _vmap(op: Any, given: Inputs) -> str:
    """Beside a loop over calls: all tensors batched at the first and the last dimension, and each tensor alone."""
    _needs_tensors(given)
    values = not _is_random(op, given)
    tree: Any = import_module("torch.utils._pytree")
    flat, spec = tree.tree_flatten(given)
    tensors = [at for at, one in enumerate(flat) if is_tensor(one)]
    others = [[_rolled(one, by) if at in tensors else one for at, one in enumerate(flat)] for by in (1, 2)]
    try:
        for other in others:
            _plain(op, tree.tree_unflatten(other, spec))
    except Exception:  # it does not take these values
        others = [flat, flat]
    calls = [flat, *others]
    how = _batched(op, spec, calls, tensors, 0, values=values)
    ways = [(tensors, -1), *(([at], 0) for at in tensors[:4] if len(tensors) > 1 and not op._schema.is_mutable)]
    for at, dim in ways:
        try:
            _batched(op, spec, calls, at, dim, values=values)
        except _Wrong:
            raise
        except Exception:  # it refuses this way of batching, which is no wrong result
            how = "a vmap at the first dimension over all tensors gives what calls in a loop give"
    return how


def _rolled(tensor: Any, by: int) -> Any:
    """The tensor with its values in other places; as it is where they may be indices, which kernels do not check."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    with torch().no_grad():
        return tensor.detach().flatten().roll(by).reshape(tensor.shape).requires_grad_(tensor.requires_grad)


def _batched(op: Any, spec: Any, calls: list[list[Any]], at: list[int], dim: int, *, values: bool) -> str:
    tree: Any = import_module("torch.utils._pytree")
    rows = []
    for flat in calls:
        mixed = [one if index in at else first for index, (one, first) in enumerate(zip(flat, calls[0], strict=True))]
        result, own = _plain(op, tree.tree_unflatten(mixed, spec))
        rows.append([*tensors_of(result), *(tensors_of(own) if op._schema.is_mutable else ())])
    try:
        expected = [torch().stack(parts) for parts in zip(*rows, strict=True)]
    except (RuntimeError, ValueError):
        raise _NotDecided("its results have other sizes for other values") from None
    with torch().no_grad():
        given = copy_of(
            [
                torch().stack([flat[index].detach() for flat in calls], dim) if index in at else one
                for index, one in enumerate(calls[0])
            ]
        )

    def call(*rest: Any) -> tuple[Any, ...]:
        own = tree.tree_unflatten(rest, spec)
        result = _called(op, own)
        return (*tensors_of(result), *(tensors_of(own) if op._schema.is_mutable else ()))

    dims = tuple(dim if index in at else None for index in range(len(given)))
    torch()._C._functorch._set_vmap_fallback_warning_enabled(False)  # noqa: FBT003
    seed(0)
    with torch().no_grad():
        found = torch().vmap(call, in_dims=dims, randomness="different")(*given)
    where = "all tensors" if len(at) > 1 else "one tensor"
    _compare(expected, list(found), f"batched at dimension {dim} of {where}, beside a loop", values=values)
    return "vmaps over all tensors and over each alone give what calls in a loop give"


def _as(dtype: Any, values: Inputs) -> Inputs:
    """The same with the real tensors converted."""
    return Inputs(*_mapped(lambda one: one.detach().to(dtype) if one.is_floating_point() else one, tuple(values)))


_AUTOCAST = ("AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS", "AutocastPrivateUse1")


def _autocast(op: Any, given: Inputs) -> str:
    """Whether its kernel sees other types than it is given, in either direction."""
    mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    seen: list[list[Any]] = []

    class Seeing(mode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if func is op:
                seen.append([one.dtype for one in tensors_of((args, kwargs))])
            return func(*args, **(kwargs or {}))

    if not any(one.is_floating_point() for one in tensors_of(given)):
        raise _NotNeeded("no input has a floating-point type, and autocast casts no others")
    if any(one.device.type != "cpu" for one in tensors_of(given)):
        raise _NotDecided("the inputs are not on the CPU")
    bindings: Any = torch()._C
    keys = [key for key in _AUTOCAST if bindings._dispatch_has_kernel_for_dispatch_key(op.name(), key)]
    if keys and "AutocastCPU" not in keys:
        raise _NotDecided(f"calls on the CPU do not reach its kernel at {keys[0]}")
    reached = False
    for dtype in (torch().float32, torch().bfloat16):
        own = _as(dtype, copy_of(given))
        before = [one.dtype for one in tensors_of(own)]
        with Seeing(), torch().autocast("cpu", dtype=torch().bfloat16), suppress(Exception):
            _called(op, own)
        if any(dtypes != before for dtypes in seen):
            return "on the CPU, its kernel is given other types under autocast than the call was"
        reached |= bool(seen)
        seen.clear()
    if not reached:
        raise _NotNeeded("no kernel of it is called under autocast, which sees what it calls")
    raise _Wrong("on the CPU, its kernel is given the types that the call was, under autocast too")


def _dtensor(op: Any, given: Inputs) -> str:
    _needs_tensors(given)
    device, *others = {one.device.type for one in tensors_of(given)}
    if others:
        raise _NotDecided("the inputs are on more than one device")
    distributed: Any = torch().distributed
    if not distributed.is_available():
        raise _NotDecided("this PyTorch is built without torch.distributed")
    if not distributed.is_initialized():
        store = import_module("torch.testing._internal.distributed.fake_pg").FakeStore()
        distributed.init_process_group("fake", store=store, rank=0, world_size=2)
    mesh = import_module("torch.distributed.device_mesh").init_device_mesh(device, (2,))
    tensors: Any = import_module("torch.distributed.tensor")
    replicated = [tensors.Replicate()]
    expected = _expected(op, given)
    own = copy_of(given)
    seed(0)
    with torch().no_grad():
        dtensors = _mapped(lambda one: tensors.DTensor.from_local(one, mesh, replicated, run_check=False), own)
        found = _called(op, dtensors), dtensors

    def local(one: Any) -> Any:
        return one.to_local() if isinstance(one, tensors.DTensor) else one

    _compare(expected, _mapped(local, found), "with DTensors", values=not _is_random(op, given))
    return "a call on the inputs as DTensors that are replicated gives what the kernel gives"


def _exported(op: Any, given: Inputs, *, dynamic: bool = False) -> tuple[Any, list[Any], Inputs]:
    """An exported program of a call, the tensors to call it on, and the arguments that these are among."""
    tree: Any = import_module("torch.utils._pytree")
    own = Inputs(*_mapped(lambda one: one.detach(), tuple(copy_of(given))))
    flat, spec = tree.tree_flatten(own)

    class Module(torch().nn.Module):  # type: ignore[misc]
        def forward(self, *tensors: Any) -> Any:
            moved = iter(tensors)
            return _called(op, tree.tree_unflatten([next(moved) if is_tensor(one) else one for one in flat], spec))

    tensors = [one for one in flat if is_tensor(one)]
    options: dict[str, Any] = {}
    if dynamic:
        auto = getattr(getattr(torch().export, "Dim", None), "AUTO", None)
        sizes = [{at: auto for at, size in enumerate(one.shape) if size > 1} for one in tensors]
        if auto is None or not any(sizes):
            raise _NotDecided("this PyTorch has no Dim.AUTO" if auto is None else "no input has a size that can vary")
        options = {"dynamic_shapes": (tuple(sizes),)}
    return torch().export.export(Module(), tuple(copy_of(tensors)), **options), tensors, own


def _export(*, dynamic: bool) -> _Check:
    def check(op: Any, given: Inputs) -> str:
        expected = _expected(op, given)
        program, tensors, own = _exported(op, given, dynamic=dynamic)
        program = program.run_decompositions({})
        values = {node.name: node.meta.get("val") for node in program.graph.nodes}
        inputs = [values[name] for name in program.graph_signature.user_inputs if is_tensor(values.get(name))]
        symbols = {str(size) for one in inputs for size in one.shape if not isinstance(size, int)}
        results = [values[name] for name in program.graph_signature.user_outputs if is_tensor(values.get(name))]
        if len(results) == len(tensors_of(expected[0])):
            _compare_fake(tensors_of(expected[0]), results, "exported, its graph", strides=False)
        if dynamic and not symbols:
            raise _NotDecided("its export makes each size a number")
        seed(0)
        with torch().no_grad():
            found = program.module()(*tensors)
        _compare(expected, (found, own), "exported", values=not _is_random(op, given))
        node = "a node of it" if any(node.target is op for node in program.graph.nodes) else "what it calls"
        sizes = f" and {len(symbols)} symbols for sizes" if dynamic else ""
        return f"an exported graph that has {node}{sizes}, and gives what the kernel gives"

    return check


def _aot_package(op: Any, given: Inputs) -> str:
    """A package of compiled code that is saved, loaded and called."""
    inductor: Any = import_module("torch._inductor")
    if not hasattr(inductor, "aoti_compile_and_package"):
        raise _NotDecided("this PyTorch makes no such package")
    expected = _expected(op, given)
    program, tensors, own = _exported(op, given)
    missing = getattr(import_module("torch._inductor.exc"), "InvalidCxxCompiler", ())
    with TemporaryDirectory() as folder, torch().no_grad():
        try:
            path = inductor.aoti_compile_and_package(program, package_path=f"{folder}/model.pt2")
        except missing as error:
            raise _NotDecided(f"there is no C++ compiler: {first_line(error)}") from None
        seed(0)
        found = inductor.aoti_load_package(path)(*tensors)
    _compare(expected, (found, own), "in a saved package", values=not _is_random(op, given))
    return "a package of compiled code that was saved and loaded gives what the kernel gives"


_Check = Callable[[Any, Inputs], str]

_CHECKS: dict[str, _Check] = {
    "repeat": _repeat,
    "cpu": _cpu,
    "cuda": _cuda,
    "fake": _faked(static=True),
    "dynamic_shapes": _faked(static=False),
    "test_schema": _opcheck("test_schema"),
    "test_autograd_registration": _registration,
    "test_faketensor": _opcheck("test_faketensor"),
    "test_aot_dispatch_dynamic": _opcheck("test_aot_dispatch_dynamic"),
    "autograd": _autograd,
    "second_order": _second_order,
    "strides": _strides,
    "empty": _empty,
    "functionalize": _functionalized,
    "vmap": _vmap,
    "autocast": _autocast,
    "dtensor": _dtensor,
    "export": _export(dynamic=False),
    "export_dynamic": _export(dynamic=True),
    "inductor": _compiled("inductor"),
    "aot_package": _aot_package,
}
