"""Write the body of a fake kernel: call the kernel in a fork with real tensors, and describe its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import add, floordiv, mul, sub
from traceback import walk_tb
from typing import Any, Final, TypeAlias

from dispatchlab.live.failure.program_watch import ProgramWatch, raw_chain
from dispatchlab.live.introspection.process_copies import CopyEndedError, in_a_copy

_ALIKE: Final = "  # for inputs like this one: the kernel also takes inputs for which it is wrong"
_LONGEST_S: Final = 10.0
_Run: TypeAlias = tuple[dict[str, Any], list[Any]]
_LARGEST: Final = 1 << 22
_GROWTHS: Final = ((1, 0), (2, 0), (8, 0), (2, 2), (8, 8))  # an even growth keeps a kernel that halves a size


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator, often with fake tensors."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def real(self, seed: int, grow: int, skew: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return its arguments with real tensors in the same order of strides; `skew` grows later dimensions more."""
        import torch
        from torch.utils._pytree import tree_map_only

        torch.manual_seed(seed)

        def made(tensor: Any) -> Any:
            shape = [size + (grow + skew * dim if size > 1 else 0) for dim, size in enumerate(map(_hint, tensor.shape))]
            if torch.Size(shape).numel() > _LARGEST:
                raise ValueError
            order = sorted(range(len(shape)), key=lambda dim: -_hint(tensor.stride(dim)))
            back, sizes = [order.index(dim) for dim in range(len(shape))], [shape[dim] for dim in order]
            if seed == 0 and tensor.dtype.is_floating_point:
                return torch.randn(sizes).to(tensor.dtype).permute(back)
            values = torch.arange(torch.Size(sizes).numel()) % 2 if seed == 2 else torch.tensor([seed])
            return values.to(tensor.dtype).expand(torch.Size(sizes).numel()).reshape(sizes).clone().permute(back)

        args, kwargs = tree_map_only(torch.Tensor, made, (self.args, self.kwargs))
        return tree_map_only(torch.SymInt, _hint, args), tree_map_only(torch.SymInt, _hint, kwargs)


def fake_body(name: str, error: BaseException, watch: ProgramWatch) -> str:
    """Return the body of a fake kernel as an expression of the schema's arguments; empty if it is not clear.

    A comment follows if the body is right only for inputs like those of the call.

    Args:
        name: the operator.
        error: the exception; its stack contains a call of the operator.
        watch: the noted events, with the arguments of successful calls.
    """
    call = next(calls_of(name, error), None) or _kept_call(name, watch)
    if call is None or _overload(call.operator) is None:
        return ""
    return body_in_a_copy(call)


def body_in_a_copy(call: Call) -> str:
    """Return the body; without calls of other ranks, dtypes and numbers if the kernel ends its process in one."""
    for others in (True, False):
        with suppress(TimeoutError, CopyEndedError):
            return str(in_a_copy(partial(body_of, call, others=others), _LONGEST_S))
    return ""


def _overload(operator: Any) -> Any:
    operator = getattr(operator, "_opoverload", operator)
    return operator if hasattr(operator, "_schema") else None


def calls_of(name: str, error: BaseException) -> Iterator[Call]:
    """Return the calls of an operator on the stacks of an exception, the innermost first, and in Dynamo's graph."""
    packet = name.partition(".")[0]
    for raised in reversed(list(raw_chain(error))):
        for frame, _ in reversed(list(walk_tb(raised.__traceback__))):
            names = frame.f_locals
            node = names.get("node")
            yield from _traced_calls(packet, node)
            if not isinstance(names.get("args"), tuple | list):
                continue
            for operator in (names.get("func"), names.get("op"), names.get("self"), getattr(node, "target", None)):
                overload = _overload(operator) if operator is not None else None
                if overload is not None and str(getattr(overload, "_name", "")).partition(".")[0] == packet:
                    yield Call(overload, tuple(names["args"]), dict(names.get("kwargs") or {}))


def _traced_calls(packet: str, node: Any) -> Iterator[Call]:
    """Return the calls of an operator in the graph of a node that have given a result."""
    from torch.fx.node import map_arg

    for earlier in reversed(getattr(getattr(node, "graph", None), "nodes", ())):
        overload = _overload(earlier.target)
        if "example_value" in earlier.meta and str(getattr(overload, "_name", "")).partition(".")[0] == packet:
            yield Call(overload, *map_arg((earlier.args, earlier.kwargs), lambda one: one.meta.get("example_value")))


def _kept_call(name: str, watch: ProgramWatch) -> Call | None:
    import torch

    kept = watch.calls.get(name.partition(".")[0])
    if not kept:
        return None
    namespace, _, base = name.partition(".")[0].partition("::")
    packet = getattr(getattr(torch.ops, namespace), base)
    return Call(getattr(packet, packet.overloads()[0]), *kept[0])


def body_of(call: Call, *, others: bool = True) -> str:
    """Return the body; runs in a process that may crash.

    Args:
        call: the call.
        others: also call the kernel with tensors of other ranks and dtypes, and with other numbers.
    """
    overload = _overload(call.operator)
    first, *again = (_results(overload, call, seed, 0) for seed in (0, 1, 2))
    if first is None or not any(again):
        return ""
    values, results = first
    shapes = [tensor.shape for tensor in results]
    varying = next((run[1] for run in again if run and shapes != [tensor.shape for tensor in run[1]]), None)
    runs = [first, *filter(None, (_results(overload, call, 0, *growth) for growth in _GROWTHS))]
    changed = [*filter(None, (_results_of(overload, *one) for one in _changed(call)))] if others else []

    def parts_of(alike: Sequence[_Run]) -> list[str]:
        if varying is not None:
            return [_of_unknown_size(values, results, varying)]
        return [_part(index, alike) for index in range(len(results)) if len(runs) > 1]

    parts, note = parts_of([*runs, *changed]), ""
    if not all(parts):
        parts, note = parts_of(runs), _ALIKE
    kind = str(overload._schema).rpartition("-> ")[2]
    if not parts or not all(parts):
        return ""
    if kind == "Tensor":
        return parts[0] + note
    return (f"[{', '.join(parts)}]" if kind.startswith("Tensor[") else f"({', '.join(parts)},)") + note


def _results(overload: Any, call: Call, seed: int, *growth: int) -> _Run | None:
    """Return the arguments by name and the results of a call with real tensors of the same or larger shapes."""
    with suppress(Exception):
        return _results_of(overload, *call.real(seed, *growth))
    return None


def _changed(call: Call) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return the arguments with one dimension more or less, also of one tensor alone, other dtypes and numbers."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, spec = tree_flatten(call.real(0, 0))
    tensors = {at: leaf for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    fewer = {at: tensor[0] for at, tensor in tensors.items() if tensor.dim() > 1}
    changes: list[dict[int, Any]] = [{at: torch.stack([tensor] * 2) for at, tensor in tensors.items()}, fewer]
    changes += [{at: tensor} for at, tensor in fewer.items() if len(tensors) > 1]
    with suppress(RuntimeError):  # they do not broadcast
        wide = torch.broadcast_tensors(*tensors.values()) if len(tensors) > 1 else ()  # type: ignore[no-untyped-call]
        changes += [{at: torch.stack([each] * 2)} for at, each in zip(tensors, wide, strict=False)]
    for dtype in (torch.float64, torch.float32):
        changes.append({at: tensor.to(dtype) for at, tensor in tensors.items() if tensor.is_floating_point()})
    changes += [{at: leaf + 1} for at, leaf in enumerate(leaves) if type(leaf) is int]
    for change in filter(None, changes):
        yield tree_unflatten([change.get(at, leaf) for at, leaf in enumerate(leaves)], spec)


def _results_of(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Run | None:
    """Return the arguments by name and the results of a call; None if it raises an error."""
    import torch
    from torch.utils._pytree import tree_leaves

    with suppress(Exception):
        names = [argument.name for argument in overload._schema.arguments]
        found = [leaf for leaf in tree_leaves(overload(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
        return {**dict(zip(names, args, strict=False)), **kwargs}, found
    return None


def _hint(size: Any) -> int:
    node = getattr(size, "node", None)
    return int(node.hint) if node is not None and node.has_hint() else int(size)


def _part(index: int, runs: Sequence[_Run]) -> str:
    """Return an expression for one result's shape, dtype and strides, which is right in each run."""
    texts = _candidates(runs[0][0], runs[0][1][index])
    return next((text for text in texts if all(_fits(text, values, found[index]) for values, found in runs)), "")


def _fits(text: str, values: dict[str, Any], result: Any) -> bool:
    import torch

    with suppress(Exception):
        made = eval(text, {"torch": torch, **values})
        return bool(made.shape == result.shape and made.dtype == result.dtype and made.stride() == result.stride())
    return False


def _candidates(values: dict[str, Any], result: Any) -> Iterator[str]:
    import torch

    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    for name, tensor in tensors.items():
        if tensor.shape == result.shape:
            dtype = "" if tensor.dtype == result.dtype else f", dtype={result.dtype}"
            yield f"torch.empty_like({name}{dtype})"
    dims = [_sizes(index, size, values, tensors) for index, size in enumerate(result.shape)]
    for name, tensor in tensors.items():
        dtype = "" if tensor.dtype == result.dtype else f", dtype={result.dtype}"
        for sizes in list(product(*dims))[:64]:
            yield f"{name}.new_empty({_shape(sizes)}{dtype})"
            order = sorted(range(result.dim()), key=lambda dim: -result.stride(dim))
            back = [order.index(dim) for dim in range(result.dim())]
            if back != list(range(result.dim())):
                inner = _shape([sizes[dim] for dim in order])
                yield f"{name}.new_empty({inner}{dtype}).permute({', '.join(map(str, back))})"
        for other in tensors:
            for shape in (f"{other}.shape", *(f"{other}.shape[{part}]" for part in (":-1", "1:", ":-2", "2:"))):
                yield f"{name}.new_empty({shape}{dtype})"
            for last in _sizes(-1, result.shape[-1], values, tensors) if result.dim() else ():
                yield f"{name}.new_empty((*{other}.shape[:-1], {last}){dtype})"
        if len(tensors) > 1:
            shapes = ", ".join(f"{other}.shape" for other in tensors)
            yield f"{name}.new_empty(torch.broadcast_shapes({shapes}){dtype})"


def _shape(sizes: Sequence[str]) -> str:
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def _sizes(index: int, size: int, values: dict[str, Any], tensors: dict[str, Any]) -> list[str]:
    """Return the ways to write a size: the same dimension of an argument, another dimension, a number, a sum.

    Dimensions are counted from the end if `index` is.
    """
    places = [(n, t, d - t.dim() * (index < 0)) for n, t in tensors.items() for d in range(t.dim())]
    every = [(f"{n}.shape[{d}]", t.shape[d]) for n, t, d in sorted(places, key=lambda place: place[2] != index)]
    own = [text for text, s in every if s == size]
    named = {name: value for name, value in values.items() if type(value) is int and value > 0}
    numbers = [name for name, value in named.items() if value == size]
    rules = [(f"{{}} {sign} {number}", sign, value) for number, value in (*named.items(), *_NUMBERS) for sign in _SIGNS]
    numbers += [f"{n}.dim()" for n, t in tensors.items() if t.dim() == size]
    made = [text.format(one) for one, s in every for text, sign, n in rules if _SIGNS[sign](s, n) == size]
    made += [f"{a} + {b}" for a, s in every for b, t in every if a < b and s + t == size]
    made += [f"{n}.numel()" for n, t in tensors.items() if t.numel() == size and t.dim() > 1]
    return [*own, *numbers, *made, str(size)][:12]


_SIGNS: Final[dict[str, Callable[[int, int], int]]] = {"*": mul, "//": floordiv, "-": sub, "+": add}
_NUMBERS: Final = tuple((number, number) for number in (1, 2, 3, 4))


def _of_unknown_size(values: dict[str, Any], results: list[Any], others: list[Any]) -> str:
    """Return the body for one result with one size that depends on the data."""
    import torch

    if not len(results) == len(others) == 1 or results[0].dim() != others[0].dim():
        return ""
    result, other = results[0], others[0]
    name, tensor = next(((n, v) for n, v in values.items() if isinstance(v, torch.Tensor)), ("", None))
    if tensor is None or sum(a != b for a, b in zip(result.shape, other.shape, strict=True)) != 1:
        return ""
    dtype = "" if tensor.dtype == result.dtype else f", dtype={result.dtype}"
    sizes = [
        "torch.library.get_ctx().new_dynamic_size()"
        if a != b
        else next(iter(_sizes(i, a, values, {n: v for n, v in values.items() if isinstance(v, torch.Tensor)})))
        for i, (a, b) in enumerate(zip(result.shape, other.shape, strict=True))
    ]
    return f"{name}.new_empty({_shape(sizes)}{dtype})"
