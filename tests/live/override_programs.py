"""Programs about `__torch_function__` and function modes, each for the lab and for PyTorch.

They ask what PyTorch's test_overrides.py asks, in other words and of what the lab has, too.
"""

from __future__ import annotations

import gc
import operator
from collections import namedtuple
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tests.live.override_sides import ProgramError, Side

Program = Callable[[Side], Any]
PROGRAMS: dict[str, Program] = {}


def program(run: Program) -> Program:
    """One of the programs, by its name."""
    PROGRAMS[run.__name__] = run
    return run


class Cast:
    """Classes with handlers, and functions in Python that ask for them.

    Diagonal is no tensor, and Scaled derives from it; Sub is a class of tensors. `halve` and the others are functions
    that ask for handlers by themselves.
    """

    def __init__(self, s: Side) -> None:
        self.s = s

        def halve(a: Any) -> Any:
            if s.has((a,)):
                return s.handle(halve, (a,), a)
            return a

        def combine(a: Any, b: Any, c: Any = None) -> Any:
            if s.has((a, b, c)):
                return s.handle(combine, (a, b, c), a, b, c=c)
            return a + b if c is None else a + b + c

        def nobody(a: Any, b: Any) -> Any:
            if s.has((a, b)):
                return s.handle(nobody, (a, b), a, b)
            return a + b

        self.halve, self.combine, self.nobody = halve, combine, nobody
        decline: Any = lambda *args, **kwargs: NotImplemented  # noqa: E731

        def fail(*args: Any, **kwargs: Any) -> Any:
            raise ProgramError("wanted")

        self.diagonal: dict[Any, Any] = {
            s.f.sum: lambda m: "diagonal sum",
            s.f.mm: lambda a, b: "diagonal mm",
            s.f.sub: lambda a, b, **k: "diagonal sub",
            s.f.add: fail,
            combine: lambda a, b, c=None: "diagonal combine",
            halve: lambda a: "diagonal halve",
        }
        self.scaled: dict[Any, Any] = {
            s.f.sum: lambda m: "scaled sum",
            s.f.mm: lambda a, b: "scaled mm",
            s.f.sub: decline,
            combine: decline,
            halve: lambda a: "scaled halve",
        }
        self.sub: dict[Any, Any] = {
            s.f.sum: lambda m: "sub sum",
            s.f.mm: lambda a, b: "sub mm",
            s.f.sub: decline,
            halve: lambda a: "sub halve",
        }
        self.Diagonal = s.duck("Diagonal", self._by(self.diagonal))
        self.Scaled = s.duck("Scaled", self._by(self.scaled), self.Diagonal)
        self.Sub = s.kind("Sub", self._by(self.sub))

    @staticmethod
    def _by(handled: dict[Any, Any]) -> Any:
        def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            return handled[func](*args, **kwargs) if func in handled else NotImplemented

        return handler

    def values(self) -> dict[str, Any]:
        s = self.s
        return {
            "tensor": s.tensor([[1.0, 2.0], [3.0, 4.0]]),
            "diagonal": self.Diagonal(),
            "scaled": self.Scaled(),
            "sub": s.new(self.Sub, [[1.0, 2.0], [3.0, 4.0]]),
        }


@program
def functions_of_one_argument_are_handled(s: Side) -> Any:
    cast = Cast(s)
    return [
        [s.outcome(f, v) for f in (s.f.sum, cast.halve, s.f.neg)]
        for name, v in cast.values().items()
        if name != "tensor"
    ]


def _pairs(s: Side, *names: str) -> Any:
    cast = Cast(s)
    values = cast.values()
    functions = [*(getattr(s.f, name) for name in names), cast.combine, cast.nobody]
    return [
        [one, other, s.outcome(f, values[one], values[other])] for f in functions for one in values for other in values
    ]


@program
def the_first_of_unrelated_classes_and_the_subclass_of_related_ones_handle_a_call(s: Side) -> Any:
    return _pairs(s, "mm")


@program
def handlers_that_decline_pass_on_to_the_next_and_a_call_that_all_decline_is_a_type_error(s: Side) -> Any:
    return _pairs(s, "sub", "mul")


@program
def what_a_handler_raises_reaches_the_caller(s: Side) -> Any:
    cast = Cast(s)
    one = cast.Diagonal()
    return [s.outcome(lambda: s.f.add(one, one)), s.outcome(lambda: s.f.add(s.tensor([1.0]), one))]


@program
def an_object_in_place_of_a_dtype_handles_the_call(s: Side) -> Any:
    log: list[Any] = []

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> int:
        log.append([s.name(func), s.show(types)])
        return 4

    kind = s.duck("Kind", handler)
    return [s.f.sum(s.tensor([1.0]), dtype=kind()), s.tensor([1.0, 2.0]).sum(dtype=kind()), log]


@program
def asking_whether_anything_that_is_no_sequence_has_a_handler_is_a_type_error(s: Side) -> Any:
    cast = Cast(s)
    values = [*cast.values().values(), 1, None]
    return [s.outcome(lambda: s.has(object())), [s.has((one,)) for one in values], s.has(()), s.has([1, values[1]])]


@program
def results_have_the_class_of_the_deepest_subclass_and_unrelated_ones_are_refused(s: Side) -> Any:
    first = type("First", (s.Tensor,), {})
    deeper = type("Deeper", (first,), {})
    other = type("Other", (s.Tensor,), {})
    made = [s.tensor([5.0]), *(s.new(kind, [6.0]) for kind in (first, deeper, other))]
    sums = [s.outcome(operator.add, a, b) for a in made for b in made]
    return [sums, [s.outcome(operator.getitem, a, 0) for a in made], [s.outcome(s.f.stack, [a, a]) for a in made]]


@program
def a_tensor_of_another_class_is_a_view(s: Side) -> Any:
    kind = type("Kind", (s.Tensor,), {})
    seen = []
    for grad in (False, True):
        x = s.tensor([1.0, 2.0], requires_grad=grad)
        y = s.as_subclass(x, kind)
        seen.append([s.base(y) is x, s.came_from(y), y.requires_grad, y.is_leaf, s.came_from(y + y), type(y).__name__])
        with s.no_grad():
            z = s.as_subclass(x, kind)
            seen.append([s.came_from(z), z.requires_grad, s.base(z) is x])
            z.mul_(2)
        seen.append([s.numbers(x), s.version(x), s.version(y), s.numbers(y)])
    y.mul_(y) if not grad else None
    s.backward((y * y).sum())
    return [seen, s.numbers(x.grad)]


@program
def a_write_to_a_tensor_of_another_class_is_seen_by_its_base(s: Side) -> Any:
    kind = type("Kind", (s.Tensor,), {})
    leaf = s.tensor([1.0, 2.0], requires_grad=True)
    x = leaf * 3
    y = s.as_subclass(x, kind)
    y.mul_(2)
    seen = [s.came_from(x), s.came_from(y), s.numbers(x), s.version(x), s.version(y)]
    s.backward(x.sum())
    return [seen, s.numbers(leaf.grad)]


@program
def an_operator_whose_handler_declines_is_left_to_the_other_operand(s: Side) -> Any:
    """Reflected operators in Python are functions of their own, which handlers can tell."""
    log: list[Any] = []

    def only(wanted: str) -> Any:
        def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            log.append([cls.__name__, s.name(func)])
            return wanted if s.name(func) == wanted else NotImplemented

        return handler

    nothing = s.kind("Nothing", only(""))
    seen = []
    for name, wanted in (
        ("sub", "Tensor.__rsub__"),
        ("truediv", "Tensor.__rtruediv__"),
        ("matmul", "Tensor.__rmatmul__"),
    ):
        kind = s.kind("Reflected", only(wanted))
        one, other = s.new(nothing, [1.0]), s.new(kind, [2.0])
        function = getattr(operator, name)
        seen += [s.outcome(function, a, other) for a in (one, s.tensor([3.0]), 2.0)]
        seen.append(s.outcome(function, one, one))
    return [seen, log]


@program
def the_function_that_a_handler_gets_for_an_operator_is_its_method(s: Side) -> Any:
    log: list[Any] = []

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        log.append([s.name(func), s.show(types), len(args), sorted(kwargs)])
        return 7

    one, x = s.new(s.kind("Kind", handler), [1.0]), s.tensor([2.0])
    names = ("add", "sub", "mul", "truediv", "matmul", "lt", "le", "gt", "ge", "eq", "ne", "iadd", "isub", "imul")
    for name in names:
        function = getattr(operator, name)
        for pair in ((one, 1.0), (1.0, one), (one, one), (x, one)):
            log.append([name, s.outcome(function, *pair)])
    for run in (
        lambda: -one,
        lambda: one[0],
        lambda: x[one],
        lambda: operator.setitem(one, 0, 1.0),
        lambda: operator.setitem(x, 0, one),
        lambda: len(one),
        lambda: int(one),
        lambda: operator.index(one),
        lambda: 1.0 in one,
        lambda: float(one),
        lambda: bool(one),
        lambda: one.backward(),
        lambda: one.item(),
        lambda: one.numpy(),
        lambda: one.tolist(),
        lambda: one.detach(),
        lambda: one.clone(),
        lambda: one.unique(),
        lambda: one.lu(),
        lambda: one.sum(dtype=s.float64),
        lambda: hash(one) is not None,
        lambda: type(s.as_subclass(one, s.Tensor)).__name__,
    ):
        log.append(s.outcome(run))
    return log


@program
def objects_in_lists_of_numbers_handle_the_call(s: Side) -> Any:
    log: list[Any] = []

    def handler(name: str, answer: Any) -> Any:
        def run(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            log.append([name, s.name(func), s.show(types), len(args)])
            return answer

        return run

    one, high = s.duck("One", handler("one", 1))(), s.duck("High", handler("high", NotImplemented))()
    x = s.tensor([[1.0, 2.0], [3.0, 4.0]])
    seen = []
    for run in (
        lambda: x.view([one, 1]),
        lambda: x.view([1, one]),
        lambda: x.view([1, 2, one]),
        lambda: x.view([high, one]),
        lambda: x.view([one, one]),
        lambda: x.view([high, high]),
        lambda: s.f.sum(x, [0, one]),
        lambda: s.f.stack([x, one]),
        lambda: s.f.stack([one, high]),
        lambda: s.f.stack([one, x], dim=one),
        lambda: x.view([4]),
        lambda: s.tensor([3.0]).view([]),
        lambda: s.f.tensordot(x, x, dims=[[0, 1], [0, 1]]),
        lambda: s.f.add(1, one),
        lambda: s.f.add(x, one, alpha=2),
        lambda: s.f.empty([one]),
        lambda: s.f.empty([2], dtype=one),
    ):
        seen.append(s.outcome(run))
    seen[-2:] = [one if one == 1 else "a tensor" for one in seen[-2:]]
    return [seen, log]


@program
def a_handler_may_take_what_a_function_in_python_would_refuse_and_others_are_checked_first(s: Side) -> Any:
    """A class of many tensors that generalizes functions; those of operators read the other arguments first."""
    many = s.duck("Many", lambda cls, func, types, args, kwargs: [s.name(func), len(args), s.show(kwargs)])()
    x = s.tensor([[1.0, 2.0], [3.0, 4.0]])
    calls: list[Callable[[], Any]] = [
        lambda: s.f.tensordot(many, x, dims="all"),
        lambda: s.f.unique(many, dim=(0, 1)),
        lambda: s.f.broadcast_tensors(many, "a", 3),
        lambda: s.f.select(many, (0, 1), (2, 3)),
        lambda: s.f.select(many, 0, many),
        lambda: s.f.mm(many, 1.0),
        lambda: s.f.sum(many, "a"),
        lambda: s.f.stack([many, 1]),
        lambda: s.f.stack([many, x], "a"),
        lambda: s.f.neg(many, many),
        lambda: s.f.neg(many, other=1),
        lambda: s.f.add(many, x, alpha="a"),
        lambda: s.f.add(many),
        lambda: s.f.add(many, 3, alpha=many),
        lambda: s.f.add(many, 3, gamma=many),
        lambda: s.f.lt(many, 3),
        lambda: s.f.lt(x, many),
        lambda: x.select(many, "a"),
        lambda: x + "a",
        lambda: s.new(s.kind("Kind", lambda *args: 1), [1.0]) @ 1.0,
    ]
    plain = [s.outcome(call) for call in calls]
    with s.mode(lambda mode, func, types, args, kwargs: "mode"):
        return [
            plain,
            [s.outcome(call) for call in calls[:-1]],
            s.outcome(lambda: x.neg(3)),
            s.outcome(lambda: x.neg()),
        ]


@program
def an_object_deep_in_an_index_handles_getitem_and_setitem(s: Side) -> Any:
    log: list[Any] = []

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        log.append([s.name(func), s.show(types), len(args), sorted(kwargs)])
        return -1

    duck, kind = s.duck("Duck", handler)(), s.new(s.kind("Kind", handler), [1.0])
    x = s.tensor([5.0])
    seen: list[Any] = []
    for one in (duck, kind):
        for index in (one, (5, one), (0, (one, 1)), [one, one]):
            seen.append(s.outcome(operator.getitem, x, index))
        seen.append(s.outcome(operator.setitem, x, 0, one))
        seen.append(s.outcome(operator.setitem, x, one, 1))
        seen.append(s.outcome(operator.setitem, x, (5, one), 1))
    return [seen, log, s.numbers(x)]


@program
def every_function_and_method_that_both_have_is_handled(s: Side) -> Any:
    """The test that PyTorch generates for each of its functions."""
    log: list[Any] = []

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        log.append([s.name(func), s.show(types)])
        return -1

    duck, kind = s.duck("Duck", handler)(), s.new(s.kind("Kind", handler), [1.0])
    seen = []
    for name, args in FUNCTIONS.items():
        given = [duck if one is ... else [duck, duck] if one is list else one for one in args]
        seen.append([name, s.outcome(getattr(s.f, name), *given)])
    for name, args in METHODS.items():
        given = [kind if one is ... else one for one in args]
        seen.append([name, s.outcome(getattr(kind, name), *given)])
    return [seen, log]


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "mm", "matmul"), (..., ...)),
    **dict.fromkeys(
        ("neg", "sin", "cos", "exp", "relu", "sum", "clone", "detach", "t", "ones_like", "zeros_like"), (...,)
    ),
    **{"select": (..., 0, 0), "unsqueeze": (..., 0), "squeeze": (..., 0), "permute": (..., [0]), "stack": (list,)},
    **{"unique": (...,), "tensordot": (..., ...), "broadcast_tensors": (..., ...)},
}
METHODS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "mm", "matmul"), (...,)),
    **dict.fromkeys(("add_", "sub_", "mul_", "copy_"), (...,)),
    **dict.fromkeys(("neg", "sin", "cos", "exp", "relu", "sum", "clone", "detach", "t", "unique", "normal_"), ()),
    **{"select": (0, 0), "unsqueeze": (0,), "squeeze": (0,), "permute": ([0],), "expand": ([1],), "view": ([1],)},
    **{"unbind": (), "item": (), "numpy": (), "tolist": (), "new_empty_strided": ([1], [1])},
}


@program
def a_container_that_unwraps_itself_works_with_composed_functions(s: Side) -> Any:
    """A class that is no tensor, goes on with what it holds, and wraps what comes out; in lists, too."""
    used: list[Any] = []

    def unwrapped(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)([unwrapped(one) for one in value])
        return value.data if isinstance(value, held) else value

    def wrapped(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)([wrapped(one) for one in value])
        return held.of(value) if isinstance(value, s.Tensor) else value

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        used.append(s.name(func))
        return wrapped(func(*unwrapped(args), **{name: unwrapped(one) for name, one in kwargs.items()}))

    held = s.duck("Held", handler)

    def of(data: Any) -> Any:
        made = held()
        made.data = data
        return made

    held.of = staticmethod(of)
    a, b = of(s.tensor([[1.0, 2.0], [3.0, 4.0]])), of(s.tensor([1.0, 10.0]))
    results = [
        s.f.tensordot(a, b, dims=1),
        s.f.tensordot(a, a, dims=[[0], [1]]),
        *s.f.broadcast_tensors(a, b),
        *s.f.broadcast_tensors(a, s.tensor(5.0)),
        s.f.stack([b, b]),
        s.f.mm(a, a),
        s.f.unique(b),
        *s.f.unique(b, return_inverse=True, return_counts=True),
    ]
    return [[type(one).__name__ for one in results], [s.numbers(one.data) for one in results], used]


@program
def composed_functions_compute_what_they_say(s: Side) -> Any:
    a = s.tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[0.0, 1.0, 0.0], [2.0, 2.0, 1.0]]], requires_grad=True)
    b = s.tensor([[1.0, 0.0], [2.0, 3.0], [1.0, 1.0]], requires_grad=True)
    c = s.tensor([3.0, 1.0, 3.0, 2.0])
    results = [
        s.f.tensordot(a, b, dims=1),
        s.f.tensordot(a, b, dims=([2, 1], [0, 1])),
        s.f.tensordot(a, a, dims=3),
        s.f.tensordot(b, b, dims=0),
    ]
    loss = s.f.sum(results[0])
    for one in results[1:]:
        loss = loss + s.f.sum(one * one)
    s.backward(loss)
    refused = [
        s.outcome(lambda: s.f.tensordot(a, b, dims=2)),
        s.outcome(lambda: s.f.tensordot(a, b, dims=-1)),
        s.outcome(lambda: s.f.broadcast_tensors(a, c)),
    ]
    unique = [s.f.unique(c), *s.f.unique(c, return_inverse=True), *s.f.unique(c, return_counts=True)]
    more = s.f.unique(b.detach(), dim=0, return_inverse=True)
    shown = [*results, *unique, *more]
    return [[[s.numbers(one), s.came_from(one)] for one in shown], s.numbers(a.grad), s.numbers(b.grad), refused]


@program
def a_named_tuple_of_a_function_in_python_keeps_its_class(s: Side) -> Any:
    """As the results of `torch.max`, whose class a default handler leaves."""
    Pair = namedtuple("Pair", ("first", "second"))
    kind = type("Kind", (s.Tensor,), {})

    def pair_of(x: Any) -> Any:
        return Pair(x, x)

    both = s.overridable(lambda x: (x,))(pair_of)
    x = s.tensor([1.0])
    return [
        type(both(x)).__name__,
        type(both(x).first).__name__,
        s.outcome(lambda: both(s.new(kind, [1.0])).first is None),
    ]


@program
def a_method_that_makes_a_tensor_keeps_the_class(s: Side) -> Any:
    kind = type("Kind", (s.Tensor,), {})
    x = s.new(kind, [1.0, 2.0])
    return [
        type(one).__name__ for one in (x.new_empty_strided([1], [1]), s.f.ones_like(x), x.clone(), x[0], x.view([2, 1]))
    ]


@program
def a_decorated_function_is_handled(s: Side) -> Any:
    class Handled:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            return [func.__name__, s.show(types), len(args), s.show(kwargs)]

    def implementation(a: Any, b: Any = None) -> Any:
        return "implementation"

    function = s.overridable(lambda a, b=None: (a, b))(implementation)
    one = Handled()
    return [function(1), function(one), function(1, one), function(1, b=one), function(s.tensor([1.0]), one)]


@program
def iteration_gives_tensors_of_the_class(s: Side) -> Any:
    kind = type("Kind", (s.Tensor,), {})
    x = s.new(kind, [5.0, 6.0, 7.0])
    called: list[Any] = []

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        called.append(s.name(func))
        return s.Tensor.__dict__.get("none", s.Tensor.__torch_function__.__func__)(cls, func, types, args, kwargs)

    counted = s.new(s.kind("Counted", handler), [1.0, 2.0])
    return [
        [s.show(one) for one in x],
        [s.show(one) for one in counted],
        called,
        s.outcome(lambda: [*s.new(kind, 1.0)]),
        s.outcome(lambda: len(s.new(kind, 1.0))),
    ]


@program
def a_class_that_wants_no_handler_does_not_keep_others_from_theirs(s: Side) -> Any:
    off = type("Off", (s.Tensor,), {"__torch_function__": s.disabled})
    duck = s.duck("Duck", lambda cls, func, types, args, kwargs: [s.name(func), s.show(types)])()
    one = s.as_subclass(s.tensor([[1.0]]), off)
    return [
        s.f.add(one, duck),
        s.f.add(duck, one),
        s.f.tensordot(one, duck),
        s.outcome(lambda: s.f.add(one, one)),
        s.outcome(lambda: type(one + s.tensor([1.0])).__name__),
    ]


@program
def the_name_of_a_function_leads_back_to_it(s: Side) -> Any:
    found: list[Any] = []

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        where: Any = s.f
        for part in s.name(func).split("."):
            where = getattr(where, part)
        found.append([s.name(func), where is func or s.name(where) == s.name(func)])

    one = s.new(s.kind("Kind", handler), [1.0])
    for name in ("add", "mm", "sum", "neg", "unique", "tensordot"):
        getattr(s.f, name)(*(one,) * (2 if name in ("add", "mm", "tensordot") else 1))
    for name in ("add", "mul_", "detach", "__len__"):
        getattr(one, name)(*(one,) * (1 if name in ("add", "mul_") else 0))
    return found


@program
def a_handler_that_is_an_instance_method_is_warned_of_and_others_are_not(s: Side) -> Any:
    answer = "answer"

    class Plain:
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return answer

    class OfClass:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return answer

    class Static:
        @staticmethod
        def __torch_function__(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return answer

    class PlainTensor(s.Tensor):  # type: ignore[misc, name-defined]  # a class that is known at run time
        __torch_function__ = Plain.__torch_function__

    cast, x = Cast(s), s.tensor([1.0])
    made = [Plain(), OfClass(), Static(), s.new(PlainTensor, [1.0]), s.new(type("Default", (s.Tensor,), {}), [1.0])]
    calls: list[Callable[[Any], Any]] = [
        lambda one: s.f.add(x, one),
        lambda one: s.f.tensordot(x, one, dims=1),
        lambda one: x[one] if not isinstance(one, s.Tensor) else None,
        cast.halve,
    ]
    return [[s.warned(s.outcome, call, one) for call in calls] for one in made]


# -- function modes


def _noting(s: Side, log: list[Any], name: str = "mode") -> Any:
    def handler(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        log.append([name, s.name(func), s.show(types), len(args), sorted(kwargs)])
        return func(*args, **kwargs)

    return s.mode(handler)


@program
def a_function_mode_handles_functions_methods_factories_and_functions_in_python(s: Side) -> Any:
    cast, x, sub = Cast(s), s.tensor([1.0]), s.new(Cast(s).Sub, [[1.0]])
    with s.mode(lambda mode, func, types, args, kwargs: [s.name(func), s.show(types)]):
        return [
            s.f.randn([3]),
            s.f.empty([2]),
            s.f.tensor([1]),
            s.f.add(x, x),
            x + x,
            x[0],
            s.f.broadcast_tensors(None, [2]),
            cast.halve(x),
            s.f.neg(sub),
            s.f.mm(sub, sub),
            cast.halve(sub),
            operator.setitem(x, 0, 1.0),
        ]


@program
def a_function_mode_that_declines_leaves_a_call_to_the_arguments(s: Side) -> Any:
    cast = Cast(s)
    sub, x = s.new(cast.Sub, [[1.0]]), s.tensor([[1.0]])
    with s.mode(lambda mode, func, types, args, kwargs: NotImplemented):
        calls: list[Callable[[], Any]] = [
            lambda: s.f.sum(sub),
            lambda: s.f.mm(sub, sub),
            lambda: cast.halve(sub),
            lambda: s.f.mul(sub, sub),
            lambda: s.f.mul(x, x),
            lambda: cast.nobody(x, sub),
        ]
        return [s.outcome(call) for call in calls]


@program
def function_modes_are_left_whatever_happens_inside(s: Side) -> Any:
    def fail(*args: Any) -> Any:
        raise ProgramError("wanted")

    mode = s.mode(fail)

    def inside() -> Any:
        with mode:
            return s.f.empty([2])

    return [s.outcome(inside), len(s.function_modes()), s.outcome(inside), s.outcome(lambda: s.f.neg(s.tensor([1.0])))]


@program
def function_modes_nest_and_the_same_one_twice_is_called_twice(s: Side) -> Any:
    log: list[Any] = []
    one, other = _noting(s, log, "one"), _noting(s, log, "other")
    x, cast = s.tensor([1.0]), Cast(s)
    with one, other:
        s.f.neg(x)
        cast.halve(x)
    with one, one:
        s.f.neg(x)
    with one:
        with other:
            pass
        with other:
            s.f.neg(x)
    return log


@program
def a_function_mode_needs_no_constructor_of_its_base(s: Side) -> Any:
    class Mode(s.FunctionMode):  # type: ignore[misc, name-defined]
        def __init__(self, text: str) -> None:
            self.text = text

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self.text

    x = s.tensor([1.0])
    with Mode("outer"), Mode("inner"):
        return s.f.neg(x)


@program
def a_function_mode_whose_handler_is_a_class_method_is_refused(s: Side) -> Any:
    class Mode(s.FunctionMode):  # type: ignore[misc, name-defined]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return 3

    x = s.tensor([1.0])

    def inside(call: Callable[[], Any]) -> Any:
        with Mode():
            return call()

    return [
        s.outcome(inside, call) for call in (lambda: x + x, lambda: s.f.neg(x), lambda: x[0], lambda: Cast(s).halve(x))
    ]


@program
def a_function_mode_may_be_entered_again_after_those_around_it_are_gone(s: Side) -> Any:
    log: list[Any] = []
    one, other = _noting(s, log, "one"), _noting(s, log, "other")
    with one, other:
        pass
    with other:
        s.f.neg(s.tensor([1.0]))
    return [log, len(s.function_modes())]


@program
def the_function_modes_of_a_thread_can_be_seen(s: Side) -> Any:
    one, other = _noting(s, []), _noting(s, [])
    seen = [s.function_modes() == ()]
    with one:
        seen.append(s.function_modes() == (one,))
        with other:
            seen.append(s.function_modes() == (one, other))
        seen.append(s.function_modes()[-1] is one)
    return [seen, s.function_modes() == ()]


@program
def a_function_mode_enters_itself_to_see_what_its_handler_calls(s: Side) -> Any:
    log: list[Any] = []

    def handler(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        log.append(s.name(func))
        if func is s.f.sub:
            with mode:
                return s.f.add(args[0], args[1], alpha=-1)
        return func(*args, **kwargs)

    with s.mode(handler):
        result = s.f.sub(s.tensor([3.0]), s.tensor([1.0]))
    return [log, s.show(result)]


@program
def indexing_and_comparing_come_to_a_function_mode(s: Side) -> Any:
    log: list[Any] = []
    x, at = s.tensor([1.0, 2.0]), s.tensor([0])
    with _noting(s, log):
        results = [x[0], x < 1, x / 2, 1 - x, -x, x == x, int(at), len(x)]
    return [log, [s.show(one) for one in results]]


@program
def the_types_of_a_method_that_comes_to_a_mode_are_those_with_handlers_or_that_of_a_lone_self(s: Side) -> Any:
    log: list[Any] = []
    x = s.tensor([1.0])
    with _noting(s, log):
        for name, args in METHODS.items():
            given = [x if one is ... else one for one in args]
            s.outcome(getattr(x, name), *given)
        for call in (bool, int, float, complex, len, lambda x: -x, lambda x: x + x, lambda x: x[0], lambda x: x < 1):
            s.outcome(call, x)
    return log


@program
def a_default_handler_runs_below_and_the_mode_sees_its_call_again(s: Side) -> Any:
    log: list[Any] = []
    kind = type("Kind", (s.Tensor,), {})

    def handler(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        log.append([s.name(func), s.show(types)])
        return NotImplemented if any(one is not s.Tensor for one in types) else func(*args, **kwargs)

    one, cast = s.new(kind, [1.0]), Cast(s)
    with s.mode(handler):
        results = [s.f.neg(one), cast.halve(one), one[0]]
    return [[type(result).__name__ for result in results], log]


@program
def handlers_are_switched_off_with_or_without_modes_and_on_again(s: Side) -> Any:
    kind = type("Kind", (s.Tensor,), {})
    log: list[Any] = []
    one = s.new(kind, [1.0])
    cast = Cast(s)
    seen = []

    def look() -> list[Any]:
        log.clear()
        with _noting(s, log):
            names = [type(call(one)).__name__ for call in (s.f.sum, s.f.neg, cast.halve)]
        return [names, type(s.f.sum(one)).__name__, len(log), s.enabled(), s.all_disabled(), s.has((one,))]

    guards = {"": None, "all": s.disable, "subclass": s.disable_subclass, "on": s.enable}
    for outer in guards:
        for middle in guards:
            for inner in guards:
                with ExitStack() as stack:
                    for name in (outer, middle, inner):
                        if name:
                            stack.enter_context(guards[name]())
                    seen.append([outer, middle, inner, look()])
    seen.append(look())
    return seen


@program
def a_tensor_with_a_handler_is_hashed_by_itself(s: Side) -> Any:
    full = s.tensor([[1.0, 0.0], [0.0, 1.0]])

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return func(*[full if isinstance(one, cls) else one for one in args], **kwargs)

    kind = s.kind("Kind", handler)
    one, other = s.new(kind, [1.0]), s.new(kind, [1.0])
    gc.collect()
    return [len({one, other}), len({one, one}), s.show(one + 1), one in {one: 1}]


@program
def a_function_that_is_called_again_from_its_handler_skips_it_once(s: Side) -> Any:
    log: list[Any] = []
    cast = Cast(s)

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        log.append([s.name(func), s.show(types)])
        result = s.redispatch(func, types, args, kwargs)
        return result if isinstance(result, cls) or not isinstance(result, s.Tensor) else s.make_subclass(cls, result)

    kind = s.kind("Kind", handler)
    x, y, z = (s.new(kind, [float(n)]) for n in (1, 2, 3))
    results = [cast.halve(x), cast.combine(x, y), cast.combine(x, y, z), s.f.neg(x)]
    log.append("done")
    with s.disable():
        return [results[0] is x, [s.show(one) for one in results], log]


@program
def a_mode_that_calls_a_function_again_sees_what_it_calls_when_it_enters_itself(s: Side) -> Any:
    cast = Cast(s)
    x, y, z = s.tensor([1.0]), s.tensor([2.0]), s.tensor([3.0])
    seen = []
    for enters in (False, True):
        log: list[Any] = []

        def handler(
            mode: Any, func: Any, types: Any, args: Any, kwargs: Any, log: Any = log, enters: Any = enters
        ) -> Any:
            log.append(s.name(func))
            with mode if enters else s.nothing():
                return s.redispatch(func, types, args, kwargs)

        with s.mode(handler):
            result = cast.combine(x, y, z)
        seen.append([log, s.show(result)])
    return seen


def _numbers(s: Side, name: str, *args: Any) -> Any:
    return s.numbers_of(getattr(s.f, name)(*args))


@program
def calling_a_function_again_gives_what_the_function_gives(s: Side) -> Any:
    kind = s.kind("Kind", lambda cls, func, types, args, kwargs: s.redispatch(func, types, args, kwargs))
    plain, held = s.tensor([[1.0, 2.0], [3.0, 4.0]]), s.new(kind, [[1.0, 2.0], [3.0, 4.0]])
    seen = []
    for name in FUNCTIONS:
        if FUNCTIONS[name] == (...,) or FUNCTIONS[name] == (..., ...):
            count = len(FUNCTIONS[name])
            results = [s.outcome(_numbers, s, name, *(v,) * count) for v in (plain, held)]
            seen.append([name, results[0] == results[1], results[0]])
    return seen
