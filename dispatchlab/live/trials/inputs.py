"""Inputs of trials: the user's, or generated from the schema, and copies of them for each call."""

from __future__ import annotations

import random
import runpy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

KEPT: Final = 3
"""How many generated inputs of an operator are kept, each of other types or ranks."""

NOTED: Final = Path(".pytest_cache", "d", "dispatchlab", "inputs.pt")
_TRIES: Final = 60
_SHAPES: Final = ((3, 4), (4, 4), (4,), (2, 3, 4), (2, 3, 4, 4))
_DTYPES: Final = ("float32", "float64", "int64", "float16", "bool", "complex64")
_UNIFORM: Final = (
    *((shape, dtype) for dtype in _DTYPES[:3] for shape in _SHAPES),
    *((shape, dtype) for dtype in _DTYPES[3:] for shape in _SHAPES[:2]),
)


class InputsError(Exception):
    """The user's inputs cannot be read."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arguments of one call."""

    positional: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> tuple[Any, ...]:
        """All arguments."""
        return (*self.positional, *self.named.values())

    def map(self, change: Callable[[Any], Any]) -> Inputs:
        """Return the same arguments with each tensor changed, also in lists."""
        return Inputs(*tree_map_only(torch.Tensor, change, (self.positional, self.named)))

    def copy(self) -> Inputs:
        """Return the same arguments in memory of their own, with their strides."""
        return self.map(copy_of)

    def __str__(self) -> str:
        parts = [*map(_text, self.positional), *(f"{name}={_text(value)}" for name, value in self.named.items())]
        return f"({', '.join(parts)})"


def overload(name: str) -> Any:
    """Return an overload by its full name."""
    packet, _, overload = name.partition(".")
    namespace, _, base = packet.partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def tensors_of(values: object) -> list[Any]:
    """Return the tensors among values, in order."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def function_of(op: Any, inputs: Inputs) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function of the tensor arguments alone, and these tensors."""

    def function(*given: Any) -> Any:
        left = iter(given)
        filled = inputs.map(lambda tensor: next(left))
        return op(*filled.positional, **filled.named)

    return function, tensors_of(inputs.values)


def operator_of(function: Any, inputs: Inputs) -> tuple[str, Inputs]:
    """Make an operator of an autograd.Function with the other arguments of a call; return its name and its inputs."""
    apply, tensors = function_of(function.apply, inputs)
    name, arguments = f"functions::{function.__name__}", [f"Tensor x{at}" for at in range(len(tensors))]
    torch.library.define(name, f"({', '.join(arguments)}) -> Tensor[]")
    torch.library.impl(name, "CompositeImplicitAutograd", lambda *given: tensors_of(apply(*given)))
    return name, Inputs(tuple(tensors))


def copy_of(tensor: Any) -> Any:
    """Return a tensor with its strides, and its offset in its storage, in memory of its own."""
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_quantized
    if not plain or 0 in tensor.stride():
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    memory = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    if offset := tensor.storage_offset():
        whole = memory.new_empty(offset + memory.untyped_storage().nbytes() // memory.itemsize)
        memory = memory.new_empty(0).set_(whole.untyped_storage(), offset, tensor.shape, tensor.stride())
    torch.ops.aten.copy_(memory, tensor.detach())
    return memory.requires_grad_(tensor.requires_grad)


def transposed(inputs: Inputs) -> Inputs | None:
    """Return the same values with the last two dimensions swapped in memory; None without such tensors."""
    tensors = [tensor for tensor in tensors_of(inputs.values) if tensor.dim() > 1]
    if not any(tensor.size(-1) > 1 and tensor.size(-2) > 1 for tensor in tensors):
        return None
    return inputs.map(
        lambda tensor: (
            tensor.detach().transpose(-1, -2).contiguous().transpose(-1, -2)
            if tensor.dim() > 1 and tensor.is_contiguous()
            else tensor
        )
    )


def varied(inputs: Inputs, variants: Callable[[Any], Iterable[Any]]) -> Iterator[Inputs]:
    """Return the same arguments with one value changed, for each variant of each value."""
    leaves, spec = tree_flatten((inputs.positional, inputs.named))
    for at, leaf in enumerate(leaves):
        for other in variants(leaf):
            yield Inputs(*tree_unflatten([*leaves[:at], other, *leaves[at + 1 :]], spec))


def gapped(inputs: Inputs) -> Inputs:
    """Return the same values at an offset, with a gap in memory after each."""
    return inputs.map(
        lambda tensor: tensor.detach().repeat_interleave(2, -1)[..., 1::2] if tensor.numel() > 1 else tensor
    )


def emptied(inputs: Inputs) -> Inputs | None:
    """Return the inputs without rows: the first tensor and those with as many rows; None where it has no rows."""
    sizes = [tensor.size(0) for tensor in tensors_of(inputs.values)[:1] if tensor.dim()]
    if not any(sizes):
        return None
    return inputs.map(lambda tensor: tensor[:0] if tensor.dim() and tensor.size(0) == sizes[0] else tensor)


def with_optional_tensors(op: Any, inputs: Inputs) -> Iterator[Inputs]:
    """Return the inputs with each absent tensor given: like the first tensor, or like its last dimension."""
    arguments = op._schema.arguments
    given = dict(zip((one.name for one in arguments if not one.kwarg_only), inputs.positional, strict=True))
    given |= inputs.named
    absent = [one.name for one in arguments if str(one.real_type) == "Optional[Tensor]" and given[one.name] is None]
    for first in tensors_of(inputs.values)[:1] if absent else ():
        for tensor in (first, first[(0,) * (first.dim() - 1)])[: max(1, first.dim())]:
            yield _of(op, {**given, **{name: copy_of(tensor) for name in absent}})


def _of(op: Any, values: dict[str, Any]) -> Inputs:
    """Return the arguments of an operator by their names as a call passes them."""
    named = {one.name: values.pop(one.name) for one in op._schema.arguments if one.kwarg_only}
    return Inputs(tuple(values.values()), named)


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if not isinstance(value, torch.Tensor):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    strides = "" if value.is_contiguous() else f" strides {list(value.stride())}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{strides}"


def read_inputs(path: str) -> dict[str, list[Inputs]]:
    """Return the calls in a file, which has a dictionary with operators' names as keys.

    A value is a list of calls `(args, kwargs)`, or a function that returns one.

    Raises:
        InputsError: the file cannot be run, or has no such dictionary.
    """
    try:
        variables = runpy.run_path(path)
        tables = [
            value
            for value in variables.values()
            if isinstance(value, dict) and value and all(isinstance(key, str) and "::" in key for key in value)
        ]
        found = {
            name.removesuffix(".default"): [_call(call) for call in (calls() if callable(calls) else calls)]
            for table in tables
            for name, calls in table.items()
        }
    except Exception as error:
        raise InputsError(f"{path}: {type(error).__name__}: {error}") from None
    if not found:
        raise InputsError(path + ': it has no dictionary such as INPUTS = {"ns::name": [((x,), {})]}')
    return found


def noted_inputs() -> dict[str, list[Inputs]]:
    """Return the calls that `pytest --why` noted when tests ran in this folder."""
    found = torch.load(NOTED, weights_only=True) if NOTED.exists() else {}
    return {name: [Inputs(tuple(args), dict(named)) for args, named in calls] for name, calls in found.items()}


def _call(given: Any) -> Inputs:
    match given:
        case (tuple() | list() as positional, dict() as named):
            return Inputs(tuple(positional), dict(named))
        case tuple() | list():
            return Inputs(tuple(given))
    return Inputs((given,))


class NothingTriedError(Exception):
    """There is no input, or no device to try it on."""


def generated(op: Any, device: str, seed: int = 0, *, varied: bool = True) -> Iterator[Inputs]:
    """Return inputs of a schema, the simplest first.

    The first tries take one shape and one type for all tensors, and the defaults; if `varied`, later ones vary each
    argument.

    Raises:
        NothingTriedError: the schema has a type without a known value.
    """
    draw = random.Random(f"{op} {seed}")
    is_number = [str(returned.type) for returned in op._schema.returns] == ["number"]  # of the only element
    for at in range(_TRIES if varied else len(_UNIFORM)):
        shape, dtype = _UNIFORM[at % len(_UNIFORM)]
        maker = _Maker(draw, (1,) if is_number else shape, dtype, device, varied=at >= len(_UNIFORM))
        values: dict[str, Any] = {}
        for argument in op._schema.arguments:
            if argument.has_default_value() and (at < len(_UNIFORM) or draw.random() < 0.6):
                values[argument.name] = argument.default_value
            else:
                values[argument.name] = maker.value(str(argument.real_type), argument.name.lower(), argument.N)
        yield _of(op, values)


_INTEGERS: Final = ("ind", "idx", "ids", "offset", "label", "target", "token", "position", "length")
_CONSTANTS: Final[dict[str, Any]] = {
    "complex": complex(0.5, 0.5),
    "ScalarType": torch.float32,
    "Layout": torch.strided,
    "MemoryFormat": torch.contiguous_format,
}
_SHORT: Final = ("bias", "weight", "scale", "gamma", "beta", "mean", "var")


@dataclass(slots=True)
class _Maker:
    """Makes values of types, small ones."""

    draw: random.Random
    shape: tuple[int, ...]
    dtype: str
    device: str
    varied: bool

    def value(self, kind: str, name: str, length: int | None) -> Any:
        """Return a value of a type.

        Raises:
            NothingTriedError: values of this type cannot be made.
        """
        if kind.startswith("Optional["):
            return None if self.draw.random() < 0.5 else self.value(kind[9:-1], name, length)
        if kind.startswith("List["):
            count = length or self.draw.choice((2, 2, 1, 3))
            if kind == "List[int]" and any(part in name for part in ("size", "shape")) and length is None:
                return list(self.shape)
            return [self.value(kind[5:-1], name, None) for _ in range(count)]
        match kind:
            case "Tensor":
                return self._tensor(name)
            case "int":
                if "dim" in name or "axis" in name:
                    return self.draw.choice((0, -1, 1)) if self.varied else -1
                return self.draw.choice((1, 2, 4, 3, 0)) if self.varied else 1
            case "number" | "float":
                return 1e-5 if "eps" in name else self.draw.choice((0.5, 1.0, 2.0)) if self.varied else 0.5
            case "bool":
                return self.varied and self.draw.random() < 0.5
            case "str":
                return self.draw.choice(("none", "mean", "sum", "default", ""))
            case "Device":
                return torch.device(self.device)
            case kind if kind in _CONSTANTS:
                return _CONSTANTS[kind]
        raise NothingTriedError(f"no value of the type {kind} is generated, which {name} has")

    def _tensor(self, name: str) -> Any:
        shape, dtype = self.shape, self.dtype
        if self.varied:
            short = any(part in name for part in _SHORT) and self.draw.random() < 0.7
            shape = shape[-1:] if short else shape if self.draw.random() < 0.7 else self.draw.choice(_SHAPES)
            dtype = dtype if self.draw.random() < 0.8 else self.draw.choice(_DTYPES)
        if any(part in name for part in _INTEGERS):
            dtype = "int64"
        elif "mask" in name:
            dtype = "bool"
        generator = torch.Generator().manual_seed(self.draw.randrange(1 << 30))
        kind = getattr(torch, dtype)
        if dtype == "bool":
            return (torch.rand(shape, generator=generator) < 0.5).to(self.device)
        if not (kind.is_floating_point or kind.is_complex):
            return torch.randint(0, 3, shape, generator=generator).to(kind).to(self.device)
        sizes = torch.rand(shape, generator=generator, dtype=torch.float64) * 1.5 + 0.25
        return sizes.to(kind).to(self.device)
