"""Write the body of a fake kernel: call the kernel in a fork with real tensors, and describe its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from traceback import walk_tb
from typing import Any, Final

from dispatchlab.live.failure.program_watch import ProgramWatch, raw_chain
from dispatchlab.live.introspection.process_copies import CopyEndedError, in_a_copy

_LONGEST_S: Final = 10.0
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

    Args:
        name: the operator.
        error: the exception; its stack contains a call of the operator.
        watch: the noted events, with the arguments of successful calls.
    """
    call = next(calls_of(name, error), None) or _kept_call(name, watch)
    if call is None or _overload(call.operator) is None:
        return ""
    with suppress(TimeoutError, CopyEndedError):
        return str(in_a_copy(lambda: body_of(call), _LONGEST_S))
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


def body_of(call: Call) -> str:
    """Return the body; runs in a process that may crash."""
    overload = _overload(call.operator)
    first = _results(overload, call, 0, 0)
    others = [*filter(None, (_results(overload, call, seed, 0) for seed in (1, 2)))]
    if first is None or not others:
        return ""
    values, results = first
    varying = next((other for _, other in others if [t.shape for t in results] != [t.shape for t in other]), None)
    runs = [first, *filter(None, (_results(overload, call, 0, *growth) for growth in _GROWTHS))]
    parts = [_part(index, runs) for index in range(len(results)) if len(runs) > 1]
    parts = parts if varying is None else [_of_unknown_size(values, results, varying)]
    kind = str(overload._schema).rpartition("-> ")[2]
    if not parts or not all(parts):
        return ""
    if kind == "Tensor":
        return parts[0]
    return f"[{', '.join(parts)}]" if kind.startswith("Tensor[") else f"({', '.join(parts)},)"


def _results(overload: Any, call: Call, seed: int, *growth: int) -> tuple[dict[str, Any], list[Any]] | None:
    """Return the arguments by name and the results of a call with real tensors of the same or larger shapes."""
    import torch
    from torch.utils._pytree import tree_leaves

    try:
        args, kwargs = call.real(seed, *growth)
        names = [argument.name for argument in overload._schema.arguments]
        found = [leaf for leaf in tree_leaves(overload(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    except Exception:
        return None
    return {**dict(zip(names, args, strict=False)), **kwargs}, found


def _hint(size: Any) -> int:
    node = getattr(size, "node", None)
    return int(node.hint) if node is not None and node.has_hint() else int(size)


def _part(index: int, runs: Sequence[tuple[dict[str, Any], list[Any]]]) -> str:
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


def _shape(sizes: Sequence[str]) -> str:
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def _sizes(index: int, size: int, values: dict[str, Any], tensors: dict[str, Any]) -> list[str]:
    """Return the ways to write a size: the same dimension of an argument, another dimension, a number, a sum."""
    own = [f"{n}.shape[{d}]" for n, t in tensors.items() for d in range(t.dim()) if t.shape[d] == size and d == index]
    own += [f"{n}.shape[{d}]" for n, t in tensors.items() for d in range(t.dim()) if t.shape[d] == size and d != index]
    numbers = [name for name, value in values.items() if type(value) is int and value == size]
    every = [(f"{n}.shape[{d}]", t.shape[d]) for n, t in tensors.items() for d in range(t.dim())]
    rules: list[tuple[str, Callable[[int], bool]]] = [
        (f"{{}} {sign} {number}", check)
        for number in (1, 2, 3, 4)
        for sign, check in (
            ("*", lambda s, n=number: s * n == size),
            ("//", lambda s, n=number: s // n == size),
            ("-", lambda s, n=number: s - n == size),
            ("+", lambda s, n=number: s + n == size),
        )
        if not (number == 1 and sign in "*//")
    ]
    made = [text.format(expression) for expression, s in every for text, check in rules if check(s)]
    made += [f"{a} + {b}" for a, s in every for b, t in every if a < b and s + t == size]
    made += [f"{n}.numel()" for n, t in tensors.items() if t.numel() == size and t.dim() > 1]
    return [*own, *numbers, *made, str(size)][:12]


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
