"""The inputs that readiness runs operators on: given, captured or made from a schema, and copies for each run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from functools import cache
from importlib import import_module
from io import StringIO
from typing import Any, NamedTuple

from dispatchlab.model.operator_runs import GENERATED, InputsError
from dispatchlab.pytorch.bridge.torch import torch
from dispatchlab.pytorch.introspection.readiness_captures import SUFFIX, read_captures

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
