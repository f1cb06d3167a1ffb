"""Inputs of trials: the user's, or generated from the schema, and copies of them for each call."""

from __future__ import annotations

import random
import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from dispatchlab.errors import DispatchLabError

KEPT: Final = 3
"""How many generated inputs of an operator are kept, each of other types or ranks."""

_TRIES: Final = 60
_SHAPES: Final = ((3, 4), (4, 4), (4,), (2, 3, 4), (2, 3, 4, 4))
_DTYPES: Final = ("float32", "float64", "int64", "float16", "bool", "complex64")


class InputsError(DispatchLabError):
    """The user's inputs cannot be read.

    Args:
        file: the file.
        reason: what was found and what was expected.
    """

    file: str
    reason: str

    template = "{file}: {reason}"


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arguments of one call."""

    positional: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> tuple[Any, ...]:
        """Return all arguments."""
        return (*self.positional, *self.named.values())

    def map(self, change: Callable[[Any], Any]) -> Inputs:
        """Return the same arguments with each tensor changed, those in lists too."""
        from torch.utils._pytree import tree_map

        def changed(value: Any) -> Any:
            return change(value) if is_tensor(value) else value

        return Inputs(tree_map(changed, self.positional), tree_map(changed, self.named))

    def copy(self) -> Inputs:
        """Return the same arguments in memory of their own, with their strides."""
        return self.map(copy_of)

    def __str__(self) -> str:
        parts = [*map(_text, self.positional), *(f"{name}={_text(value)}" for name, value in self.named.items())]
        return f"({', '.join(parts)})"


def is_tensor(value: object) -> bool:
    """Return whether it is a tensor."""
    import torch

    return isinstance(value, torch.Tensor)


def tensors_of(values: object) -> list[Any]:
    """Return the tensors among values, in order."""
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(values) if is_tensor(leaf)]


def copy_of(tensor: Any) -> Any:
    """Return a tensor with its strides in memory of its own."""
    import torch

    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_quantized:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    result = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    if 0 in tensor.stride():
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    torch.ops.aten.copy_(result, tensor.detach())
    return result.requires_grad_(tensor.requires_grad)


def transposed(inputs: Inputs) -> Inputs | None:
    """Return the same values with the last two dimensions the other way round in memory; None without such tensors."""
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


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if not is_tensor(value):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    tensor: Any = value
    strides = "" if tensor.is_contiguous() else f" strides {list(tensor.stride())}"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}{strides}"


def read_inputs(path: str) -> dict[str, list[Inputs]]:
    """Return the calls that a file gives: a dictionary in it has operators' names as keys.

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
        raise InputsError(path, f"{type(error).__name__}: {error}") from None
    if not found:
        raise InputsError(path, 'it has no dictionary such as INPUTS = {"ns::name": [((x,), {})]}')
    return found


def _call(given: Any) -> Inputs:
    match given:
        case (tuple() | list() as positional, dict() as named):
            return Inputs(tuple(positional), dict(named))
        case tuple() | list():
            return Inputs(tuple(given))
    return Inputs((given,))


# -- generated


class NoInputError(Exception):
    """No input can be made of a schema."""


def generated(op: Any, device: str, seed: int = 0) -> Iterator[Inputs]:
    """Return inputs of a schema, the simplest first.

    The first tries take one shape and one type for all tensors, and the defaults; later ones vary each argument.

    Raises:
        NoInputError: the schema has a type of which no value is known.
    """
    draw = random.Random(f"{op} {seed}")
    uniform = [(shape, dtype) for dtype in _DTYPES[:3] for shape in _SHAPES]
    uniform += [(shape, dtype) for dtype in _DTYPES[3:] for shape in _SHAPES[:2]]
    for at in range(_TRIES):
        shape, dtype = uniform[at % len(uniform)]
        maker = _Maker(draw, shape, dtype, device, varied=at >= len(uniform))
        inputs = Inputs((), {})
        for argument in op._schema.arguments:
            if argument.has_default_value() and (at < len(uniform) or draw.random() < 0.6):
                value = argument.default_value
            else:
                value = maker.value(str(argument.real_type), argument.name.lower(), argument.N)
            if argument.kwarg_only:
                inputs.named[argument.name] = value
            else:
                inputs = Inputs((*inputs.positional, value), inputs.named)
        yield inputs


_INTEGERS: Final = ("ind", "idx", "ids", "offset", "label", "target", "token", "position", "length")
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
            NoInputError: values of this type cannot be made.
        """
        import torch

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
            case "complex":
                return complex(0.5, 0.5)
            case "ScalarType":
                return torch.float32
            case "Device":
                return torch.device(self.device)
            case "Layout":
                return torch.strided
            case "MemoryFormat":
                return torch.contiguous_format
        raise NoInputError(f"no value of the type {kind} is generated, which {name} has")

    def _tensor(self, name: str) -> Any:
        import torch

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
