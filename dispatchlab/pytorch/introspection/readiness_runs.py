"""Run an operator on inputs for what the columns of readiness claim: a fake call, a gradient, a vmap, a compile.

It runs in a worker process: what is called there is a package's own code, on inputs of a user.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from typing import Any, NamedTuple

from dispatchlab.model.operator_runs import InputsError, Outcome, Run
from dispatchlab.pytorch.bridge.torch import torch

_LONGEST = 300


class Inputs(NamedTuple):
    """The arguments of one call."""

    positional: tuple[Any, ...]
    named: dict[str, Any]


class _NotDecided(Exception):
    """A run that shows nothing of what is asked; its text says why."""


class _NotNeeded(Exception):
    """A run that shows that the thing is not needed; its text says why."""


def operators_with_inputs(reference: str) -> tuple[str, ...]:
    """The operators that inputs are given for.

    Raises:
        InputsError: the reference means no such table.
    """
    return tuple(_table(reference))


def run_operator(reference: str, operator: str) -> dict[str, Run]:
    """Run one operator for every column that a run can decide; see `_CHECKS`.

    Raises:
        InputsError: the inputs cannot be made.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    make = _table(reference)[operator]

    def fresh() -> Inputs:
        given = make() if callable(make) else make
        return _inputs_of(given)

    try:
        fresh()
        op = _overload(operator)
    except Exception as error:
        raise InputsError(reference, f"the inputs of {operator} cannot be made: {_first_line(error)}") from None
    return {column: _run(check, op, fresh) for column, check in _CHECKS.items()}


def _table(reference: str) -> Mapping[str, object]:
    module, _, name = reference.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:
        raise InputsError(reference, f"it cannot be imported: {_first_line(error)}") from None
    table = found() if callable(found) else found
    if not isinstance(table, Mapping) or not all(isinstance(one, str) for one in table):
        raise InputsError(reference, "it is no dictionary of operators, and no function that returns one")
    return {name.removesuffix(".default"): make for name, make in table.items()}


def _inputs_of(given: object) -> Inputs:
    match given:
        case (tuple() | list() as positional, dict() as named):
            return Inputs(tuple(positional), dict(named))
        case tuple() | list():
            return Inputs(tuple(given), {})
    return Inputs((given,), {})


def _overload(name: str) -> Any:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch().ops, namespace), base), overload or "default")


def _run(check: _Check, op: Any, fresh: Callable[[], Inputs]) -> Run:
    try:
        with redirect_stdout(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Run(Outcome.WORKS, check(op, fresh))
    except _NotDecided as error:
        return Run(Outcome.NOT_DECIDED, str(error))
    except _NotNeeded as error:
        return Run(Outcome.NOT_NEEDED, str(error))
    except Exception as error:  # what was asked is whether it raises
        return Run(Outcome.FAILS, f"{type(error).__name__}: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:_LONGEST]


# -- values


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch().Tensor)


def _is_real(value: object) -> bool:
    """Whether it is a tensor that can have a gradient which a small step can be compared with."""
    return _is_tensor(value) and value.dtype in (torch().float32, torch().float64)  # type: ignore[attr-defined]


def _leaves(values: object) -> list[Any]:
    return [leaf for leaf in import_module("torch.utils._pytree").tree_leaves(values) if _is_tensor(leaf)]


def _mapped(function: Callable[[Any], Any], values: Any) -> Any:
    tree: Any = import_module("torch.utils._pytree")
    return tree.tree_map(lambda leaf: function(leaf) if _is_tensor(leaf) else leaf, values)


def _called(op: Any, given: Inputs) -> Any:
    return op(*given.positional, **given.named)


def _result(op: Any, fresh: Callable[[], Inputs]) -> Any:
    """What the kernel gives; whoever needs one to compare with decides nothing without."""
    try:
        with torch().no_grad():
            return _called(op, fresh())
    except Exception as error:
        raise _NotDecided(f"a call itself raises {type(error).__name__} on the inputs") from None


def _needs_tensors(given: Inputs) -> None:
    if not _leaves(given):
        raise _NotDecided("the inputs have no tensor")


# -- the columns


def _cpu(op: Any, fresh: Callable[[], Inputs]) -> str:
    given = fresh()
    if any(tensor.device.type != "cpu" for tensor in _leaves(given)):
        raise _NotDecided("the inputs are not on the CPU")
    with torch().no_grad():
        _called(op, given)
    return "a call on the inputs"


def _cuda(op: Any, fresh: Callable[[], Inputs]) -> str:
    if not torch().cuda.is_available():
        raise _NotDecided("there is no CUDA device here")
    given = _mapped(lambda tensor: tensor.cuda(), fresh())
    _needs_tensors(given)
    with torch().no_grad():
        _called(op, given)
        torch().cuda.synchronize()
    return "a call on the inputs, moved to CUDA"


@contextmanager
def _fake_mode(*, static: bool) -> Iterator[Callable[[Any], Any]]:
    """FakeTensorMode, and what makes a fake tensor of a tensor."""
    shapes: Any = import_module("torch.fx.experimental.symbolic_shapes")
    mode = import_module("torch._subclasses.fake_tensor").FakeTensorMode(
        shape_env=shapes.ShapeEnv(), static_shapes=static
    )
    yield mode.from_tensor


def fake_call(op: Any, given: Inputs, *, static: bool) -> Any:
    """Call it on tensors without data.

    Args:
        op: the overload.
        given: the arguments.
        static: with sizes that are numbers; else with symbols for them.
    """
    with _fake_mode(static=static) as fake_of:
        fakes = _mapped(fake_of, given)
        mode = import_module("torch._subclasses.fake_tensor").FakeTensorMode
        with torch().no_grad():
            tensors = _leaves(fakes)
            with tensors[0].fake_mode if tensors else mode():
                return _called(op, fakes)


def _fake(op: Any, fresh: Callable[[], Inputs]) -> str:
    found = fake_call(op, fresh(), static=True)
    how = "a call on tensors without data"
    with suppress(_NotDecided):
        expected = _result(op, fresh)
        for one, other in zip(_leaves(found), _leaves(expected), strict=True):
            sizes = [(size, wanted) for size, wanted in zip(one.shape, other.shape, strict=True) if type(size) is int]
            if one.dtype != other.dtype or any(size != wanted for size, wanted in sizes):
                raise AssertionError(
                    f"the fake gives {one.dtype} {list(one.shape)}, and the kernel {other.dtype} {list(other.shape)}"
                )
        how += ", which gives what the kernel gives"
    try:
        fake_call(op, fresh(), static=False)
    except Exception as error:
        how += f"; with symbols for the sizes it raises {type(error).__name__}"
    return how


def _autograd(op: Any, fresh: Callable[[], Inputs]) -> str:
    """Compare the gradient along one direction with a small step. See Note [What a gradient is compared with]."""
    tensors = [one for one in _leaves(fresh()) if _is_real(one)]
    if not tensors:
        raise _NotDecided("no input can have a gradient: none is a float32 or float64")
    before = _result(op, fresh)
    writes = op._schema.is_mutable
    if not writes and not any(one.is_floating_point() or one.is_complex() for one in _leaves(before)):
        raise _NotNeeded("no result can have a gradient: none has a floating-point type")

    def total(given: Inputs) -> Any:
        results = _called(op, given)
        parts = [*_leaves(results), *(_leaves(given) if writes else ())]
        return sum(one.sum() for one in parts if _is_real(one))

    known = [True] * len(tensors)

    def at(step: float) -> float:
        moved = iter([one + step * moves for one, moves in zip(tensors, known, strict=True)])
        with torch().no_grad():
            return float(total(_mapped(lambda one: next(moved) if _is_real(one) else one.clone(), fresh())))

    leaves = [one.clone().requires_grad_() for one in tensors]
    own = iter([one * 1 for one in leaves])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*autograd kernel.*")
        result = total(_mapped(lambda one: next(own) if _is_real(one) else one.clone(), fresh()))
        if not _is_tensor(result) or not result.requires_grad:
            raise AssertionError("the result has no gradient")
        result.backward()
    known[:] = [one.grad is not None for one in leaves]
    if not any(known):
        raise AssertionError("no input got a gradient")
    found = sum(float(one.grad.sum()) for one in leaves if one.grad is not None)
    differences = [(at(step) - at(-step)) / (2 * step) for step in (0.01, 0.001)]
    if not any(abs(found - one) <= 0.05 * max(1.0, abs(one)) for one in differences):
        raise AssertionError(f"the gradient adds up to {found:.4g}, and a small step to {differences[-1]:.4g}")
    return "a gradient on the inputs, which agrees with a small step"


# Note [What a gradient is compared with]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The sum of the results is moved by a small step of all inputs that got a gradient at once. That takes two calls and
# finds a formula that is wrong; it does not find one whose errors cancel, as `torch.autograd.gradcheck` would, which
# needs float64 and many calls. A function with jumps, such as rounding, has a step of another size than its gradient:
# where every step disagrees, the run says so with both numbers.


def _functionalized(op: Any, fresh: Callable[[], Inputs]) -> str:
    """As torch.compile does it where the operator writes; else as `torch.func.functionalize` does."""
    if op._schema.is_mutable:
        return _compiled("aot_eager")(op, fresh)
    _needs_tensors(fresh())
    expected, given = fresh(), fresh()
    result = _result(op, lambda: expected)
    with torch().no_grad():
        found = torch().func.functionalize(lambda arguments: _called(op, arguments))(given)
    _same((result, expected), (found, given), "made functional, it gives something else")
    return "a call under torch.func.functionalize gives what the kernel gives"


def _compiled(backend: str) -> _Check:
    def check(op: Any, fresh: Callable[[], Inputs]) -> str:
        expected = fresh()
        result = _result(op, lambda: expected)
        dynamo: Any = import_module("torch._dynamo")
        dynamo.reset()
        given = fresh()
        with torch().no_grad():
            compiled = torch().compile(lambda one: _called(op, one), backend=backend, fullgraph=True, dynamic=False)
            found = compiled(given)
        _same((result, expected), (found, given), "compiled, it gives something else")
        return f"torch.compile with {backend} gives what the kernel gives"

    return check


def _same(expected: object, found: object, text: str) -> None:
    for one, other in zip(_leaves(expected), _leaves(found), strict=True):
        real = one.is_floating_point() and one.dtype.itemsize > 1
        same = one.shape == other.shape and one.dtype == other.dtype
        if real:
            same = same and bool(torch().allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True))
        elif same:
            same = bool((one.view(torch().uint8) if one.dtype.itemsize == 1 else one).equal(_bytes_like(one, other)))
        if not same:
            raise AssertionError(text)


def _bytes_like(tensor: Any, other: Any) -> Any:
    return other.view(torch().uint8) if tensor.dtype.itemsize == 1 else other


def _vmap(op: Any, fresh: Callable[[], Inputs]) -> str:
    _needs_tensors(fresh())
    each = []
    for given in (fresh(), fresh()):
        result = _result(op, lambda given=given: given)  # type: ignore[misc]
        each.append([*_leaves(result), *_leaves(given)])
    tree: Any = import_module("torch.utils._pytree")
    flat, spec = tree.tree_flatten(_mapped(lambda one: torch().stack([one, one]), fresh()))
    dims = tuple(0 if _is_tensor(one) else None for one in flat)

    def batched(*rest: Any) -> tuple[Any, ...]:
        given = tree.tree_unflatten(rest, spec)
        result = _called(op, given)
        return (*_leaves(result), *_leaves(given))  # what is written is compared, too

    _same(
        [torch().stack(pair) for pair in zip(*each, strict=True)],
        torch().vmap(batched, in_dims=dims)(*flat),
        "batched, it gives something else than each by itself",
    )
    return "a vmap over two copies of the inputs gives what two calls give"


def _as(dtype: Any, values: Inputs) -> Inputs:
    """The same with the real tensors converted."""
    converted: Inputs = _mapped(lambda one: one.to(dtype) if _is_real(one) else one, values)
    return converted


_AUTOCAST = ("AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS", "AutocastPrivateUse1")


def _autocast(op: Any, fresh: Callable[[], Inputs]) -> str:
    """Whether its kernel sees other types than it is given, in either direction."""
    mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    seen: list[list[Any]] = []

    class Seeing(mode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if func is op:
                seen.append([one.dtype for one in _leaves((args, kwargs))])
            return func(*args, **(kwargs or {}))

    _needs_tensors(fresh())
    if any(one.device.type != "cpu" for one in _leaves(fresh())):
        raise _NotDecided("the inputs are not on the CPU")
    bindings: Any = torch()._C
    keys = [key for key in _AUTOCAST if bindings._dispatch_has_kernel_for_dispatch_key(op.name(), key)]
    if keys and "AutocastCPU" not in keys:
        raise _NotDecided(f"calls on the CPU do not reach its kernel at {keys[0]}")
    reached = False
    for dtype in (torch().float32, torch().bfloat16):
        given = _as(dtype, fresh())
        before = [one.dtype for one in _leaves(given)]
        with Seeing(), torch().autocast("cpu", dtype=torch().bfloat16), suppress(Exception):
            _called(op, given)
        if any(dtypes != before for dtypes in seen):
            return "on the CPU, its kernel is given other types under autocast than the call was"
        reached |= bool(seen)
        seen.clear()
    if not reached:
        raise _NotNeeded("no kernel of it is called under autocast, which sees what it calls")
    raise AssertionError("on the CPU, its kernel is given the types that the call was, under autocast too")


def _dtensor(op: Any, fresh: Callable[[], Inputs]) -> str:
    _needs_tensors(fresh())
    distributed: Any = torch().distributed
    if not distributed.is_available():
        raise _NotDecided("this PyTorch is built without torch.distributed")
    if not distributed.is_initialized():
        store = import_module("torch.testing._internal.distributed.fake_pg").FakeStore()
        distributed.init_process_group("fake", store=store, rank=0, world_size=2)
    mesh = import_module("torch.distributed.device_mesh").init_device_mesh("cpu", (2,))
    tensors: Any = import_module("torch.distributed.tensor")
    replicated = [tensors.Replicate()]
    given = _mapped(lambda one: tensors.DTensor.from_local(one, mesh, replicated, run_check=False), fresh())
    _called(op, given)
    return "a call on the inputs as DTensors that are replicated"


def _export(op: Any, fresh: Callable[[], Inputs]) -> str:
    tree: Any = import_module("torch.utils._pytree")
    flat, spec = tree.tree_flatten(fresh())

    class Module(torch().nn.Module):  # type: ignore[misc]
        def forward(self, *tensors: Any) -> Any:
            given = iter(tensors)
            return _called(op, tree.tree_unflatten([next(given) if _is_tensor(one) else one for one in flat], spec))

    tensors = tuple(one for one in flat if _is_tensor(one))
    program = torch().export.export(Module(), tensors).run_decompositions({})
    if any(node.target is op for node in program.graph.nodes):
        return "an exported graph that has a node of it"
    return "an exported graph that has what it calls"


def _schema(op: Any, fresh: Callable[[], Inputs]) -> str:
    _result(op, fresh)
    given = fresh()
    try:
        torch().library.opcheck(op, given.positional, given.named, test_utils=("test_schema",))
    except Exception as error:
        if not any(text in str(error) for text in ("is not defined", "alias unexpectedly")):
            raise _NotDecided(f"opcheck cannot compare these inputs: {_first_line(error)}") from None
        raise
    return "opcheck's test_schema, which finds no write and no alias that the schema leaves out"


_Check = Callable[[Any, Callable[[], Inputs]], str]

_CHECKS: dict[str, _Check] = {
    "cpu": _cpu,
    "cuda": _cuda,
    "fake": _fake,
    "autograd": _autograd,
    "functionalize": _functionalized,
    "vmap": _vmap,
    "autocast": _autocast,
    "dtensor": _dtensor,
    "export": _export,
    "inductor": _compiled("inductor"),
    "schema": _schema,
}
