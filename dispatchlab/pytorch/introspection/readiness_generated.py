"""Inputs for an operator that none are given for, made from its schema and kept where plain calls succeed alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from dispatchlab.model.operator_runs import GENERATED, InputsError
from dispatchlab.pytorch.bridge.torch import torch

KEPT = 4
"""How many inputs of an operator are kept, each of other types or ranks."""

_TRIES = 120
_SHAPES = ((3, 4), (4, 4), (4,), (2, 3, 4), (2, 3, 4, 4), (1, 4), (8, 8), ())
_DTYPES = ("float32", "float64", "int64", "float16", "int32", "bool", "uint8", "complex64")

# Note [Generated inputs]
# ~~~~~~~~~~~~~~~~~~~~~~~
# The same seed makes the same inputs. The first tries take one shape and one type for all tensors, and the defaults;
# later ones vary each argument by itself. What a name says is used: an index holds small integers, a mask truth
# values, an epsilon a small number. That a call succeeds does not say that it is meant: a NO on such inputs may be one
# that no user meets, so each shows its inputs.


def generated(
    op: Any, call: Callable[[tuple[Any, ...], dict[str, Any]], Any], same: Callable[[object, object], str]
) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Inputs on which plain calls succeed, and twice give the same.

    Args:
        op: the operator.
        call: calls it on a copy of arguments.
        same: how two results differ; empty when they do not.

    Raises:
        InputsError: no try succeeds.
    """
    kept: dict[object, tuple[tuple[Any, ...], dict[str, Any]]] = {}
    last: Exception | None = None
    for positional, named in _tries(op):
        key = str([(str(one.dtype), one.dim()) for one in _tensors([*positional, *named.values()])])
        if key in kept:
            continue
        try:
            with redirect_stdout(StringIO()):
                if same(call(positional, named), call(positional, named)):
                    continue
        except Exception as error:  # not an input that it takes
            last = error
            continue
        kept[key] = positional, named
        if len(kept) == KEPT:
            break
    if not kept:
        lines = str(last).splitlines() or [""]
        why = f"; the last raises {type(last).__name__}: {lines[0][:160]}" if last is not None else ""
        raise InputsError(GENERATED, f"no generated input of {op} gives a call that succeeds twice alike{why}")
    return list(kept.values())


def _tensors(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _tensors(value)
        elif isinstance(value, torch().Tensor):
            yield value


def _tries(op: Any) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    draw = random.Random(str(op))
    arguments = op._schema.arguments
    uniform = [(shape, dtype) for dtype in _DTYPES[:3] for shape in _SHAPES[:5]]
    uniform += [(shape, dtype) for dtype in _DTYPES[3:] for shape in _SHAPES[:2]]
    for at in range(_TRIES):
        shape, dtype = uniform[at % len(uniform)]
        maker = _Maker(draw, shape, dtype, varied=at >= len(uniform))
        positional, named = [], {}
        try:
            for one in arguments:
                if one.has_default_value() and (at < len(uniform) or draw.random() < 0.6):
                    value = one.default_value
                else:
                    value = maker.value(str(one.real_type), one.name.lower(), one.N)
                if one.kwarg_only:
                    named[one.name] = value
                else:
                    positional.append(value)
        except KeyError as error:
            raise InputsError(GENERATED, f"no input of {op} can be generated: it takes a {error.args[0]}") from None
        yield tuple(positional), named


_INTEGERS = ("ind", "idx", "ids", "offset", "label", "target", "token", "position", "cu_seqlens", "length")
_SHORT = ("bias", "weight", "scale", "gamma", "beta", "running", "mean", "var", "zero_point")


class _Maker:
    """Makes values of types, small ones."""

    def __init__(self, draw: random.Random, shape: tuple[int, ...], dtype: str, *, varied: bool) -> None:
        self._draw, self._shape, self._dtype, self._varied = draw, shape, dtype, varied
        self._seed = draw.randrange(1 << 30)

    def value(self, type_: str, name: str, length: int | None) -> Any:
        """A value of a type.

        Raises:
            KeyError: values of this type cannot be made.
        """
        if type_.startswith("Optional["):
            return None if self._draw.random() < 0.7 else self.value(type_[9:-1], name, length)
        if type_.startswith("List["):
            count = length or self._draw.choice((2, 2, 1, 3))
            if type_ == "List[int]" and any(part in name for part in ("size", "shape")) and length is None:
                return list(self._shape)
            return [self.value(type_[5:-1], name, None) for _ in range(count)]
        draw = self._draw
        match type_:
            case "Tensor":
                return self._tensor(name)
            case "int":
                return self._integer(name)
            case "number" | "float":
                return 1e-5 if "eps" in name else draw.choice((0.5, 1.0, 2.0)) if self._varied else 0.5
            case "bool":
                return self._varied and draw.random() < 0.5
            case "str":
                return draw.choice(("none", "mean", "sum", "default", ""))
            case "complex":
                return complex(0.5, 0.5)
            case "ScalarType":
                return getattr(torch(), draw.choice(("float32", "int8", "float64", "uint8", "bfloat16")))
            case "Device":
                return torch().device("cpu")
            case "Layout":
                return torch().strided
            case "MemoryFormat":
                return torch().contiguous_format
            case "Generator":
                return torch().Generator().manual_seed(0)
        raise KeyError(type_)

    def _integer(self, name: str) -> int:
        if "dim" in name or "axis" in name:
            return self._draw.choice((0, -1, 1)) if self._varied else -1
        if "quant_m" in name or "qmin" in name or "qmax" in name:
            return 127 if "max" in name else 0
        if "bit" in name:
            return self._draw.choice((8, 4))
        return self._draw.choice((1, 2, 4, 3, 0)) if self._varied else 1

    def _tensor(self, name: str) -> Any:
        module: Any = torch()
        shape, dtype = self._shape, self._dtype
        if self._varied:
            rank = self._draw.random()
            shape = shape if rank < 0.6 else self._draw.choice(_SHAPES)
            if any(part in name for part in _SHORT) and self._shape and rank > 0.3:
                shape = self._shape[-1:]
            dtype = dtype if self._draw.random() < 0.8 else self._draw.choice(_DTYPES)
        if any(part in name for part in _INTEGERS):
            dtype = self._draw.choice(("int64", "int32")) if self._varied else "int64"
        elif "mask" in name:
            dtype = "bool"
        generator = module.Generator().manual_seed(self._seed)
        self._seed += 1
        kind = getattr(module, dtype)
        if dtype == "bool":
            return module.rand(shape, generator=generator) < 0.5
        if not (kind.is_floating_point or kind.is_complex):
            return module.randint(0, 3, shape, generator=generator).to(kind)
        values = module.rand(shape, generator=generator, dtype=module.float64) * 1.5 + 0.25
        result = values.to(kind)
        return result.requires_grad_(self._draw.random() < 0.7)
