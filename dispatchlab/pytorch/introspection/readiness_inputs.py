"""The inputs that readiness runs operators on: where they come from, and copies of them for each run."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from dispatchlab.model.operator_runs import GENERATED, InputsError
from dispatchlab.pytorch.bridge.torch import torch
from dispatchlab.pytorch.introspection.readiness_captures import SUFFIX, read_captures
from dispatchlab.pytorch.introspection.readiness_generated import generated

_LONGEST = 300
_SEED = 20_260

# Note [Inputs are made once]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# What makes inputs may be random, and a check compares two calls. So inputs are made once in a process, from a seed,
# and each call gets a copy. A copy keeps what a kernel can see: sizes, strides, offsets, which arguments share memory,
# which are the same object, whether a tensor is a leaf that wants a gradient, and the state of a generator.


class Inputs(NamedTuple):
    """The arguments of one call."""

    positional: tuple[Any, ...]
    named: dict[str, Any]


def operators_with_inputs(source: str) -> tuple[str, ...]:
    """The operators that inputs are given for.

    Args:
        source: `module:name` of a table, or a file of captured inputs.

    Raises:
        InputsError: the reference means no such table.
        CaptureError: the file is damaged.
    """
    return tuple(_table(source))


@cache
def inputs_of(source: str, operator: str) -> tuple[Inputs, ...]:
    """The inputs of one operator, made once. See Note [Inputs are made once].

    Args:
        source: `module:name`, a file of captured inputs, or `GENERATED`.
        operator: its name.

    Raises:
        InputsError: they cannot be made.
    """
    if source == GENERATED:
        return _generated(operator)
    made = _table(source)[operator]
    seed()
    try:
        given = made() if callable(made) else made
        calls = given if isinstance(given, list) and given and all(map(_is_call, given)) else [given]
        return tuple(_as_kernels_see(operator, _inputs_of(call)) for call in calls)
    except Exception as error:
        raise InputsError(source, f"the inputs of {operator} cannot be made: {first_line(error)}") from None


def _generated(operator: str) -> tuple[Inputs, ...]:
    op = overload(operator)

    def call(positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        own = copy_of((positional, named))
        seed()
        with torch().no_grad():
            return op(*own[0], **own[1])

    return tuple(Inputs(*made) for made in generated(op, call, difference))


@cache
def _table(source: str) -> Mapping[str, object]:
    if source.endswith(SUFFIX):
        return {name: list(calls) for name, calls in read_captures(source).items()}
    module, _, name = source.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:
        raise InputsError(source, f"it cannot be imported: {first_line(error)}") from None
    seed()
    table = found() if callable(found) else found
    if not isinstance(table, Mapping) or not all(isinstance(key, str) for key in table):
        raise InputsError(source, "it is no dictionary of operators, and no function that returns one")
    return {key.removesuffix(".default"): made for key, made in table.items()}


def _is_call(given: object) -> bool:
    """Whether it says positional and named arguments, as each call of a list of several does."""
    match given:
        case (tuple(), dict()):
            return True
    return False


def _inputs_of(given: object) -> Inputs:
    match given:
        case (tuple() | list() as positional, dict() as named):
            return Inputs(tuple(positional), dict(named))
        case tuple() | list():
            return Inputs(tuple(given), {})
    return Inputs((given,), {})


_NUMBERS = ("int", "SymInt", "float", "bool", "number")


def _as_kernels_see(operator: str, given: Inputs) -> Inputs:
    """The same with numbers where a schema says so: PyTorch takes a tensor of one element for one, which has data."""
    try:
        arguments = overload(operator)._schema.arguments
    except AttributeError:  # it is not there, as its runs will say
        return given
    numbers = {one.name for one in arguments if str(one.real_type).removeprefix("Optional[").rstrip("]") in _NUMBERS}

    def seen(name: str, value: Any) -> Any:
        return value.item() if name in numbers and is_tensor(value) and value.numel() == 1 else value

    names = [one.name for one in arguments if not one.kwarg_only]
    positional = (seen(name, value) for name, value in zip(names, given.positional, strict=False))
    rest = given.positional[len(names) :]
    return Inputs((*positional, *rest), {name: seen(name, value) for name, value in given.named.items()})


def seed(value: int = _SEED) -> None:
    """Seed what a kernel can draw from."""
    random.seed(value)
    torch().manual_seed(value)
    with suppress(ImportError):
        import_module("numpy.random").seed(value)


def first_line(error: BaseException) -> str:
    """What an exception says, on one line; a line that ends with a colon says nothing without the next."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])[:_LONGEST]


def overload(name: str) -> Any:
    """The operator of a name such as `ns::name.overload`."""
    namespace, _, rest = name.partition("::")
    base, _, over = rest.partition(".")
    return getattr(getattr(getattr(torch().ops, namespace), base), over or "default")


# -- copies


def is_tensor(value: object) -> bool:
    """Whether it is a tensor."""
    return isinstance(value, torch().Tensor)


def tensors_of(values: object) -> list[Any]:
    """The tensors among values, in order."""
    return [leaf for leaf in import_module("torch.utils._pytree").tree_leaves(values) if is_tensor(leaf)]


def copy_of(values: Any) -> Any:
    """The same arguments in memory of their own. See Note [Inputs are made once]."""
    storages: dict[int, Any] = {}
    objects: dict[int, Any] = {}

    def copied(value: Any) -> Any:
        if id(value) not in objects:
            objects[id(value)] = _copied(value, storages)
        return objects[id(value)]

    return import_module("torch.utils._pytree").tree_map(copied, values)


def _copied(value: Any, storages: dict[int, Any]) -> Any:
    module: Any = torch()
    if isinstance(value, module.Generator):
        generator = module.Generator(value.device)
        generator.set_state(value.get_state())
        return generator
    if not is_tensor(value):
        return value
    plain = type(value) in (module.Tensor, module.nn.Parameter) and value.layout is module.strided
    if not plain or value.is_quantized or value.is_conj() or value.is_neg() or value.device.type == "meta":
        return value.detach().clone().requires_grad_(value.requires_grad)
    storage = value.untyped_storage()
    key = storage._cdata
    if key not in storages:
        storages[key] = storage.clone()
    with module.no_grad():
        result = module.empty(0, dtype=value.dtype, device=value.device)
        result.set_(storages[key], value.storage_offset(), value.shape, value.stride())
    if type(value) is module.nn.Parameter:
        return module.nn.Parameter(result, requires_grad=value.requires_grad)
    return result.requires_grad_(value.requires_grad)


# -- texts


def describe(given: Inputs) -> str:
    """The arguments in a line: `(float32[3, 4] needing a gradient, 0.5, scale=2)`."""
    parts = [*map(_described, given.positional), *(f"{name}={_described(one)}" for name, one in given.named.items())]
    return f"({', '.join(parts)})"


def _described(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_described, value))}]"
    if not is_tensor(value):
        text = repr(value) if isinstance(value, (int, float, str, complex, type(None))) else str(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    tensor: Any = value
    text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    if tensor.layout is torch().strided and not tensor.is_contiguous():
        text += f" strides {list(tensor.stride())}"
    return f"{text} needing a gradient" if tensor.requires_grad else text


def difference(expected: object, found: object, *, strides: bool = False, values: bool = True) -> str:
    """How values differ from expected ones: what, by how much and where; empty when they agree.

    Args:
        expected: tensors and other values.
        found: those to compare.
        strides: compare how they lie in memory, too.
        values: compare what is in the tensors.
    """
    tree: Any = import_module("torch.utils._pytree")
    before, after = tree.tree_leaves(expected), tree.tree_leaves(found)
    if len(before) != len(after):
        return f"{len(after)} values instead of {len(before)}"
    for at, (one, other) in enumerate(zip(before, after, strict=True)):
        where = "" if len(before) == 1 else f"value {at + 1} of {len(before)}: "
        if is_tensor(one) and is_tensor(other):
            text = _difference(one, other, strides=strides, values=values)
        else:
            same = type(one) is type(other) or (isinstance(one, (int, float)) and isinstance(other, (int, float)))
            text = "" if same and (not values or _equal(one, other)) else f"{other!r} instead of {one!r}"
        if text:
            return where + text
    return ""


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other) or not isinstance(one, (int, float, str, complex)))


_TOLERANCE = {"float64": 1e-7, "float32": 1e-4, "complex128": 1e-7, "complex64": 1e-4, "float16": 1e-2}


def _difference(one: Any, other: Any, *, strides: bool, values: bool) -> str:
    module: Any = torch()
    for what in ("dtype", "layout", "device"):
        if getattr(one, what) != getattr(other, what):
            return f"{what} {getattr(other, what)} instead of {getattr(one, what)}"
    if tuple(one.shape) != tuple(other.shape):
        return f"shape {list(other.shape)} instead of {list(one.shape)}"
    if one.layout is module.strided and strides and one.numel():
        wanted = [step for size, step in zip(one.shape, one.stride(), strict=True) if size > 1]
        if wanted != [step for size, step in zip(one.shape, other.stride(), strict=True) if size > 1]:
            return f"stride {list(other.stride())} instead of {list(one.stride())}"
    if not values or not one.numel():
        return ""
    with module.no_grad():
        one, other = (given.detach().resolve_conj().resolve_neg() for given in (one, other))
        if one.layout is not module.strided:
            one, other = one.to_dense(), other.to_dense()
        if one.is_quantized:
            one, other = one.dequantize(), other.dequantize()
        name = str(one.dtype).removeprefix("torch.")
        wide = module.complex128 if one.is_complex() else module.float64 if one.is_floating_point() else None
        if wide is None:
            bad = one != other
        else:
            one, other = one.to(wide), other.to(wide)
            finite = one[module.isfinite(one)].abs()
            scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
            bad = ~module.isclose(one, other, rtol=0, atol=_TOLERANCE.get(name, 3e-2) * scale, equal_nan=True)
        if not bool(bad.any()):
            return ""
        gaps = module.where(bad, (one.to(wide or module.float64) - other.to(wide or module.float64)).abs(), -1.0)
        gaps = module.where(module.isnan(gaps), float("inf"), gaps)
        at = tuple(int(index) for index in module.unravel_index(gaps.flatten().argmax(), gaps.shape))
        text = f"{other[at].item()!r} instead of {one[at].item()!r} at {list(at)}"
        return f"{text}, the largest of {int(bad.sum())} deviations in {bad.numel()} elements"
