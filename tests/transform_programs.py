"""Generated programs under transforms: bodies of operators inside of two levels of vmap, grad, functionalize, autocast.

A program is a value that says nothing about who runs it. `run` runs it on a `Side`: the lab, or in tests/live the
installed PyTorch. Operands and dimensions are chosen while it runs, by the shapes that are there, so that both sides
choose the same as long as they agree.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

# -- programs


@dataclass(frozen=True, slots=True)
class Level:
    """One transform.

    Args:
        kind: `vmap`, `grad`, `functionalize`, `autocast` or `no_grad`.
        option: the randomness, what is removed, the dtype, or nothing.
        in_dims: for `vmap`, where the batch is in each argument, or None.
        out_dim: for `vmap`, where it goes.
    """

    kind: str
    option: str = ""
    in_dims: tuple[int | None, ...] = ()
    out_dim: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    """One operator, and numbers by which its operands and dimensions are chosen."""

    operator: str
    picks: tuple[int, ...]
    without_grad: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """Arguments, transforms around the body, the outermost first, and the body.

    Args:
        shapes: of the arguments, with the dimensions of the batches.
        dtypes: likewise.
        requires_grad: whether autograd outside of all transforms records them.
        levels: the transforms.
        body: the statements.
        results: how many tensors the body returns, the last ones that it made; 1 where it is differentiated.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    requires_grad: tuple[bool, ...]
    levels: tuple[Level, ...]
    body: tuple[Statement, ...]
    results: int


UNARY = ("neg", "sin", "cos", "exp", "relu", "clone", "detach", "alias", "ones_like", "zeros_like", "mul.Scalar")
SHAPED = (
    *("t", "view", "unsqueeze", "squeeze.dim", "squeeze.dims", "select.int", "expand", "transpose.int", "permute"),
    *("sum", "sum.dim_IntList", "_to_copy", "select_scatter"),
)
BINARY = (
    "add.Tensor",
    "sub.Tensor",
    "mul.Tensor",
    "div.Tensor",
    "stack",
    "mm",
    "mv",
    "dot",
    "bmm",
    "matmul",
    "gt.Tensor",
)
WRITES = ("add_.Tensor", "sub_.Tensor", "mul_.Tensor", "copy_", "normal_")
NUMBERS = ("add.Tensor number", "mul.Tensor number", "add_.Tensor number")
FACTORIES = ("randn",)
_BATCHES = (2, 3)
_LARGEST = 100
"""The elements of a tensor, beyond which none is made larger."""


def program(seed: int) -> Program:
    """A random one."""
    rng = random.Random(seed)
    count = rng.choice((1, 2, 2, 3))
    shapes = [_shape(rng) for _ in range(count)]
    levels: list[Level] = []
    for batch in _BATCHES[: rng.choice((0, 1, 1, 2, 2, 2))]:
        kind = rng.choice(("vmap", "vmap", "vmap", "grad", "grad", "functionalize", "autocast", "no_grad"))
        levels.append(_level(rng, kind, batch, shapes))
    body = tuple(_statement(rng, write=rng.random()) for _ in range(rng.choice((1, 2, 3, 4, 6, 8))))
    return Program(
        tuple(shapes),
        tuple(rng.choice(("float32", "float32", "float64")) for _ in shapes),
        tuple(rng.random() < 0.3 for _ in shapes),
        tuple(reversed(levels)),
        body,
        rng.choice((1, 1, 1, 2)),
    )


def _shape(rng: random.Random) -> tuple[int, ...]:
    return rng.choice(((), (3,), (2, 3), (3, 3), (3, 3), (3, 2), (1, 3), (2, 1, 3), (2, 3, 3)))


def _level(rng: random.Random, kind: str, batch: int, shapes: list[tuple[int, ...]]) -> Level:
    if kind == "vmap":
        dims = [rng.randrange(len(shape) + 1) if rng.random() < 0.8 else None for shape in shapes]
        if all(dim is None for dim in dims) and rng.random() < 0.95:
            dims[0] = 0
        shapes[:] = [
            shape if dim is None else (*shape[:dim], batch, *shape[dim:])
            for shape, dim in zip(shapes, dims, strict=True)
        ]
        given = tuple(
            dim - len(shape) if dim is not None and rng.random() < 0.2 else dim
            for shape, dim in zip(shapes, dims, strict=True)
        )
        return Level(kind, rng.choice(("error", "same", "different")), given, rng.choice((0, 0, 0, 1, -1)))
    options = {
        "functionalize": ("mutations", "mutations", "mutations_and_views"),
        "autocast": ("bfloat16", "float16", "off"),
    }
    return Level(kind, rng.choice(options.get(kind, ("",))))


def _statement(rng: random.Random, *, write: float) -> Statement:
    if write < 0.2:
        name = rng.choice(WRITES)
    elif write < 0.25:
        name = rng.choice(FACTORIES)
    elif write < 0.35:
        name = rng.choice(NUMBERS)
    else:
        name = rng.choice((*UNARY, *SHAPED, *SHAPED, *BINARY, *BINARY))
    return Statement(name, tuple(rng.randrange(1000) for _ in range(4)), rng.random() < 0.08)


# -- running


class Side(Protocol):
    """Who runs a program."""

    def op(self, name: str) -> Callable[..., Any]:
        """An operator of the namespace aten."""

    def tensor(self, array: Any, *, dtype: str, requires_grad: bool) -> Any:
        """A leaf."""

    def dtype(self, name: str) -> Any:
        """A dtype by its name."""

    def vmap(self, function: Any, in_dims: Any, out_dims: Any, randomness: str) -> Callable[..., Any]:
        """The transform."""

    def grad(self, function: Any) -> Callable[..., Any]:
        """The transform, by the first argument."""

    def functionalize(self, function: Any, remove: str) -> Callable[..., Any]:
        """The transform."""

    def autocast(self, dtype: str) -> AbstractContextManager[object]:
        """Autocast of the CPU; off for `off`."""

    def no_grad(self) -> AbstractContextManager[object]:
        """What records nothing."""

    def backward(self, tensor: Any) -> None:
        """Autograd's, outside of all transforms."""

    def shape(self, tensor: Any) -> tuple[int, ...]:
        """The sizes."""

    def look(self, tensor: Any) -> tuple[int, int, int]:
        """What the thread includes and excludes, and the keys of a tensor."""

    def found(self, tensor: Any) -> tuple[str, Any]:
        """The dtype and the elements of a result."""

    def kind(self, error: Exception) -> str:
        """The kind of an error; raises one that has none."""

    def logged(self) -> AbstractContextManager[list[str]]:
        """The operators that come to a mode below all transforms."""


@dataclass(slots=True)
class Outcome:
    """What came of a program.

    Args:
        results: the dtype and elements of each result.
        gradients: those of the arguments; None for one without.
        error: the kind of the error; empty for none.
        calls: the operators below all transforms.
        keys: what was seen inside, before each statement.
    """

    results: list[tuple[str, Any]] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    arguments: list[Any] = field(default_factory=list)
    error: str = ""
    calls: list[str] = field(default_factory=list)
    keys: list[tuple[int, int, int]] = field(default_factory=list)


def run(side: Side, program: Program) -> Outcome:
    """Run it."""
    outcome = Outcome()
    numbers = np.random.default_rng(len(program.body))
    arguments = [
        side.tensor(numbers.normal(size=shape), dtype=dtype, requires_grad=requires_grad)
        for shape, dtype, requires_grad in zip(program.shapes, program.dtypes, program.requires_grad, strict=True)
    ]
    differentiated = any(level.kind == "grad" for level in program.levels)

    def body(*inside: Any) -> Any:
        pool = [*inside]
        for statement in program.body:
            outcome.keys.append(side.look(pool[-1]))
            if statement.without_grad:
                with side.no_grad():
                    pool.append(_step(side, statement, pool))
            else:
                pool.append(_step(side, statement, pool))
        if differentiated:
            return pool[-1]
        return pool[-1] if program.results == 1 else tuple(pool[-program.results :])

    try:
        with side.logged() as outcome.calls:
            result = _transformed(side, body, program.levels)(*arguments)
        results = result if isinstance(result, tuple) else (result,)
        total = None
        for one in results:
            if one.requires_grad:
                whole = side.op("sum")(one)
                total = whole if total is None else side.op("add.Tensor")(total, whole)
        if total is not None:
            side.backward(total)
        outcome.results = [side.found(one) for one in results]
        outcome.gradients = [None if one.grad is None else side.found(one.grad) for one in arguments]
    except Exception as error:
        outcome.error = side.kind(error)
    outcome.arguments = [side.found(one) for one in arguments]
    return outcome


def _transformed(side: Side, body: Callable[..., Any], levels: Sequence[Level]) -> Callable[..., Any]:
    if not levels:
        return body
    level, *inner = levels
    function = _transformed(side, body, inner)
    match level.kind:
        case "vmap":
            return side.vmap(function, level.in_dims, level.out_dim, level.option)
        case "grad":
            return side.grad(lambda *given: _scalar(side, function(*given)))
        case "functionalize":
            return side.functionalize(function, level.option)
        case "autocast":
            return _within(lambda: side.autocast(level.option), function)
        case _:
            return _within(side.no_grad, function)


def _scalar(side: Side, result: Any) -> Any:
    return side.op("sum")(result) if side.shape(result) else result


def _within(context: Callable[[], AbstractContextManager[object]], function: Callable[..., Any]) -> Callable[..., Any]:
    def inside(*given: Any) -> Any:
        with context():
            return function(*given)

    return inside


def _step(side: Side, statement: Statement, pool: list[Any]) -> Any:
    """One statement; what it gives joins the pool."""
    first, second, third, fourth = statement.picks
    # The latest is the likeliest operand.
    x = pool[-1] if first % 3 else pool[first % len(pool)]
    y = pool[second % len(pool)]
    shape = side.shape(x)
    rank = len(shape)
    dim = third % max(rank, 1) - (rank if fourth % 4 == 0 else 0)
    name = statement.operator
    if fourth % 10 and name in (*BINARY, *WRITES):
        y = _fitting(side, name, x, pool, second)
        if y is None:
            name, y = "mul.Tensor", x
    if name in ("select.int", "select_scatter") and not rank and fourth % 10:
        name = "unsqueeze"
    if np.prod(shape) > _LARGEST:
        name = "sum"
    op = side.op(name.partition(" ")[0])
    match name:
        case "view":
            return op(x, [-1] if third % 2 else [1, *shape])
        case "unsqueeze":
            return op(x, third % (rank + 1))
        case "squeeze.dim":
            return op(x, dim)
        case "squeeze.dims":
            return op(x, [dim])
        case "select.int":
            return op(x, dim, 0 if fourth % 5 else 1)
        case "select_scatter":
            return op(x, side.op("select.int")(x, dim, 0), dim, 0 if fourth % 5 else 1)
        case "expand":
            return op(x, [2, *shape])
        case "transpose.int":
            return op(x, dim, fourth % max(rank, 1))
        case "permute":
            return op(x, [(at + third) % max(rank, 1) for at in range(rank)])
        case "sum.dim_IntList":
            return op(x, [dim] if fourth % 3 else None, bool(fourth % 2))
        case "_to_copy":
            return op(x, dtype=side.dtype("float64" if third % 2 else "float32"))
        case "mul.Scalar" | "add.Tensor number" | "mul.Tensor number" | "add_.Tensor number":
            return op(x, 0.5 if third % 2 else 2)
        case "normal_":
            return op(x, 3.0, 0.0)
        case "randn" if third % 3 == 0:
            return side.op("normal_")(op([*shape]), 1.0, 0.0)
        case "randn":
            return side.op("add.Tensor")(x, side.op("mul.Scalar")(op([*shape]), 0.0))
        case "gt.Tensor":
            return side.op("mul.Tensor")(op(x, y), 1.0)
        case "stack":
            return op([x, y], dim % (rank + 1))
        case "t" if rank > 2 and fourth % 10:
            return side.op("transpose.int")(x, -1, -2)
        case _ if name in UNARY or name in ("t", "sum"):
            return op(x)
        case _:
            return op(x, y)


def _fitting(side: Side, name: str, x: Any, pool: Sequence[Any], pick: int) -> Any:
    """A tensor of the pool that the operator takes after `x`; None when there is none."""
    shape = side.shape(x)
    for at in range(len(pool)):
        y = pool[(pick + at) % len(pool)]
        other = side.shape(y)
        if name in ("mm", "mv", "dot", "bmm"):
            ranks = {"mm": (2, 2), "mv": (2, 1), "dot": (1, 1), "bmm": (3, 3)}[name]
            fits = (len(shape), len(other)) == ranks and shape[-1] == other[-2 if len(other) > 1 else -1]
            fits = fits and (name != "bmm" or shape[0] == other[0])
        elif name == "matmul":
            fits = bool(shape and other) and shape[-1] == other[-2 if len(other) > 1 else -1]
        elif name == "stack":
            fits = shape == other
        else:
            pairs = zip(reversed(shape), reversed(other), strict=False)
            fits = all(one == two or 1 in (one, two) for one, two in pairs)
            if name.endswith("_.Tensor") or name == "copy_":
                padded = (*[1] * (len(shape) - len(other)), *other)
                fits = len(other) <= len(shape) and all(two in (one, 1) for one, two in zip(shape, padded, strict=True))
        if fits:
            return y
    return None


@contextmanager
def listing(enter: Callable[[Callable[[str], None]], AbstractContextManager[object]]) -> Iterator[list[str]]:
    """A list of what a mode hears."""
    heard: list[str] = []
    with enter(heard.append):
        yield heard


def line(name: str, arguments: Sequence[Any], shape_of: Callable[[Any], tuple[int, ...] | None]) -> str:
    """A call as both sides write it: the operator, and each tensor as its shape."""

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(text, value))}]"
        shape = shape_of(value)
        return str(list(shape)) if shape is not None else str(value)

    # `matmul` of a vector ends with `squeeze_`, which the lab has not: it takes `squeeze`, which calls the same below.
    return f"{name.replace('squeeze_.', 'squeeze.')}{text(list(arguments))}"
