"""Programs about registrations, wrappers and modes of `__torch_dispatch__`, each for the lab and for PyTorch.

They ask what PyTorch's test_python_dispatch.py asks, in other words and of what the lab has, too. Where that uses an
operator that the lab lacks, they define one of the same form.
"""

from __future__ import annotations

import gc
import operator
import pickle
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tests.live.override_sides import ProgramError, Side

Program = Callable[[Side], Any]
PROGRAMS: dict[str, Program] = {}
GENERIC = ("TESTING_ONLY_GenericMode", "TESTING_ONLY_GenericWrapper")


def program(run: Program) -> Program:
    """One of the programs, by its name."""
    PROGRAMS[run.__name__] = run
    return run


def _noting(s: Side, log: list[Any], name: str = "mode") -> Any:
    def handler(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        log.append([name, s.op_name(func), s.show(types), s.show(args), sorted(kwargs)])
        return func(*args, **kwargs)

    return s.dispatch_mode(handler)


# -- registrations


@program
def an_operator_is_called_with_a_stack(s: Side) -> Any:
    x = s.tensor([1.0, 2.0])
    return [s.show(s.call_boxed("aten::neg", x)), s.show(s.call_boxed("aten::add.Tensor", x, x))]


@program
def a_fallback_runs_for_every_operator_whose_key_is_included(s: Side) -> Any:
    log: list[Any] = []
    keys = s.key_set(GENERIC[0])

    def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
        with s.force(s.included() | keys, s.excluded() | keys):
            log.append([s.op_name(op), s.show(args), sorted(kwargs)])
            return s.tensor([9.0])

    x = s.tensor([1.0])
    with s.library("_", "IMPL") as library:
        s.fallback(library, fallback, GENERIC[0])
        with s.include(keys):
            results = [s.op("aten::neg")(x), s.op("aten::add.Tensor")(x, x, alpha=2), s.op("aten::mul.Tensor")(x, x)]
        results.append(s.op("aten::neg")(x))
    return [[s.show(one) for one in results], log]


@program
def a_fallback_with_the_key_set_redispatches_below_itself(s: Side) -> Any:
    log: list[Any] = []
    keys = s.key_set(*GENERIC)

    def first(keyset: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        log.append("first")
        if "second" in log:
            with s.force(s.included() | keys, s.excluded() | keys):
                return op(*args, **kwargs)
        return op.redispatch(s.without(keyset, GENERIC[0]), *args, **kwargs)

    def second(op: Any, *args: Any, **kwargs: Any) -> Any:
        log.append("second")
        return s.op("aten::sub.Tensor")(*args)

    x, y = s.tensor([5.0]), s.tensor([2.0])
    with s.library("_", "IMPL") as library:
        s.fallback(library, first, GENERIC[0], with_keyset=True)
        s.fallback(library, second, GENERIC[1])
        with s.include(keys):
            result = s.op("aten::add.Tensor")(x, y)
    return [s.show(result), log]


@program
def a_fallback_that_falls_through_leaves_calls_to_the_next_key(s: Side) -> Any:
    log: list[Any] = []
    keys = s.key_set(*GENERIC)

    def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
        log.append(s.op_name(op))
        with s.force(s.included() | keys, s.excluded() | keys):
            return op(*args, **kwargs)

    x = s.tensor([5.0])
    with s.library("_", "IMPL") as library:
        s.fallback(library, s.fallthrough, GENERIC[0])
        s.fallback(library, fallback, GENERIC[1])
        with s.include(keys):
            result = s.op("aten::add.Tensor")(x, x)
    return [s.show(result), log]


@program
def a_meta_kernel_runs_when_meta_is_included_and_the_backend_falls_through(s: Side) -> Any:
    log: list[str] = []

    def meta(x: Any) -> Any:
        log.append("meta")
        return x

    with s.library("lab_meta_programs", "DEF") as library:
        library.define("total(Tensor self) -> Tensor")
        library.impl("total", s.fallthrough, "CPU")
        library.impl("total", meta, "Meta")
        with s.include(s.key_set("Meta")):
            s.op("lab_meta_programs::total")(s.tensor([1.0]))
    return log


@program
def guards_of_keys_put_back_what_they_found(s: Side) -> Any:
    seen = []
    for name in ("Meta", "CUDA", "CPU", "AutogradCPU", GENERIC[0]):
        keys = s.key_set(name)
        before = s.included(), s.excluded()
        with s.include(keys):
            inside = s.included() == before[0] | keys
        with s.exclude(keys):
            outside = s.excluded() == before[1] | keys
        seen.append([name, inside, outside, (s.included(), s.excluded()) == before])
    return seen


@program
def key_sets_are_compared_by_value_and_pickled(s: Side) -> Any:
    one, same, other = s.key_set("AutogradCPU"), s.key_set("AutogradCPU"), s.key_set("CPU")
    return [one == same, one != same, one != other, pickle.loads(pickle.dumps(one)) == one, one | other == other | one]


@program
def libraries_override_kernels_apart_and_releasing_one_leaves_the_other(s: Side) -> Any:
    x = s.tensor([1.0, 2.0])
    neg, mul = s.op("aten::neg"), s.op("aten::mul.Tensor")
    nine, eight = s.tensor([9.0]), s.tensor([8.0])
    seen = []
    with s.library("aten", "IMPL") as second:
        with s.library("aten", "IMPL") as first:
            first.impl("neg", lambda self: nine, "CPU")
            second.impl("mul.Tensor", lambda self, other: eight, "CPU")
            seen.append([s.show(neg(x)), s.show(mul(x, x))])
        seen.append([s.show(neg(x)), s.show(mul(x, x))])
    seen.append([s.show(neg(x)), s.show(mul(x, x))])

    def another_namespace() -> None:
        with s.library("lab_other_programs", "DEF") as third:
            third.define("neg(Tensor self) -> Tensor")
            third.impl("aten::neg", lambda self: nine, "CPU")

    return [seen, s.outcome(another_namespace), s.show(neg(x))]


@program
def a_kernel_that_cannot_be_called_is_a_type_error(s: Side) -> Any:
    def register(kernel: Any) -> Any:
        with s.library("aten", "IMPL") as library:
            library.impl("neg", kernel, "CPU")

    kernels: tuple[Any, ...] = ([], 3, "text", None)
    return [s.outcome(register, kernel) for kernel in kernels]


@program
def a_library_that_nobody_holds_takes_its_registrations_along(s: Side) -> Any:
    library = s.held_library("lab_held_programs", "DEF")
    library.define("first(Tensor x) -> Tensor")
    library.impl("first", lambda x: x, "CPU")
    call = s.op("lab_held_programs::first")
    seen = [s.show(call(s.tensor([1.0]))), s.has_operator("lab_held_programs::first")]
    del library, call
    s.forget("lab_held_programs")
    gc.collect()
    again = s.held_library("lab_held_programs", "DEF")
    seen += [
        s.has_operator("lab_held_programs::first"),
        s.outcome(again.define, "first(Tensor x) -> Tensor") != "refused",
    ]
    return seen


@program
def a_schema_may_name_the_namespace_of_its_library(s: Side) -> Any:
    with s.library("lab_named_programs", "DEF") as library:
        library.define("lab_named_programs::first(Tensor x) -> Tensor")
        library.impl("lab_named_programs::first", lambda x: x, "CPU")
        seen = [s.show(s.op("lab_named_programs::first")(s.tensor([1.0])))]
        seen.append(s.outcome(library.define, "lab_elsewhere::second(Tensor x) -> Tensor"))
        s.mend(library)
    return [seen, s.has_operator("lab_named_programs::first")]


@program
def a_kernel_of_an_operator_is_overridden_until_its_library_is_released(s: Side) -> Any:
    x = s.tensor([1.0, 2.0])
    run: list[str] = []

    def kernel(self: Any, *, dtype: Any = None) -> Any:
        run.append("ours")
        return x

    with s.library("aten", "IMPL") as library:
        library.impl("aten::sum", kernel, "CPU")
        during = s.show(s.op("aten::sum")(x))
    return [during, s.show(s.op("aten::sum")(x)), run]


@program
def a_library_of_one_key_refuses_others(s: Side) -> Any:
    x = s.tensor([3.0])
    with s.library("aten", "IMPL", "CPU") as library:
        seen = [s.outcome(library.impl, "neg", lambda self: x, "AutogradCPU")]
        library.impl("aten::neg", lambda self: x)
        return [seen, s.show(s.op("aten::neg")(s.tensor([1.0])))]


@program
def a_new_namespace_has_operators_of_its_own_and_kernels_of_others(s: Side) -> Any:
    x = s.tensor([1.0, 2.0])
    seen = []
    with s.library("lab_new_programs", "DEF") as library:
        library.define("total(Tensor self) -> Tensor")
        library.impl("total", lambda self: self, "CPU")
        call = s.op("lab_new_programs::total")
        seen.append(s.show(call(x)))
        with s.library("lab_new_programs", "IMPL") as other:
            other.impl("total", lambda self: s.tensor([7.0]), "AutogradCPU")
            seen.append(s.show(call(x)))
        seen.append(s.show(call(x)))
    return seen


@program
def fragments_extend_a_namespace_that_is_there_or_is_not(s: Side) -> Any:
    x = s.tensor([1.0])
    seen = []
    with s.library("lab_part_programs", "FRAGMENT") as first:
        first.define("one(Tensor self) -> Tensor")
        first.impl("one", lambda self: self, "CPU")
        seen.append(s.show(s.op("lab_part_programs::one")(x)))
        with s.library("lab_part_programs", "DEF") as owner:
            owner.define("two(Tensor self) -> Tensor")
            with s.library("lab_part_programs", "FRAGMENT") as second:
                second.define("three(Tensor self) -> Tensor")
                second.impl("three", lambda self: self, "CPU")
                second.impl("two", lambda self: self, "CPU")
                seen += [s.show(s.op(f"lab_part_programs::{name}")(x)) for name in ("one", "two", "three")]
            seen += [s.has_operator(f"lab_part_programs::{name}") for name in ("one", "two", "three")]
    return seen


@program
def libraries_of_an_unknown_kind_or_a_reserved_namespace_are_refused(s: Side) -> Any:
    def made(*args: str) -> Any:
        with s.library(*args):
            return "made"

    return [
        s.outcome(made, *args) for args in (("lab_x", "BLA"), ("prim", "DEF"), ("prim", "FRAGMENT"), ("prim", "IMPL"))
    ]


@program
def a_namespace_that_is_claimed_twice_is_refused_and_the_first_stays(s: Side) -> Any:
    first = s.held_library("lab_twice_programs", "DEF")
    first.define("one(Tensor self) -> Tensor")
    text = ""
    try:
        s.held_library("lab_twice_programs", "DEF")
    except Exception as error:
        text = str(error)
    seen = [text != "", text.count(".py:") == 2, s.has_operator("lab_twice_programs::one")]
    s.release(first)
    return [seen, s.has_operator("lab_twice_programs::one")]


@program
def a_key_whose_kernel_falls_through_is_skipped_for_that_operator_alone(s: Side) -> Any:
    log: list[str] = []

    def kernel(name: str) -> Any:
        def run(x: Any) -> Any:
            log.append(name)
            return x

        return run

    keys = s.key_set("AutocastCPU")
    with s.library("lab_skip_programs", "DEF") as library, s.library("lab_skip_programs", "IMPL") as more:
        for name in ("one", "two"):
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, kernel(f"{name} cpu"), "CPU")
            library.impl(name, kernel(f"{name} autocast"), "AutocastCPU") if name == "two" else None
        with s.force(s.included() | keys, s.without(s.excluded(), "AutocastCPU")):
            s.op("lab_skip_programs::two")(s.tensor([1.0]))
            more.impl("one", s.fallthrough, "AutocastCPU")
            s.op("lab_skip_programs::one")(s.tensor([1.0]))
    return log


# -- wrappers


@program
def a_wrapper_sees_below_autograd_and_saved_tensors_are_wrappers(s: Side) -> Any:
    log: list[Any] = []
    kind = s.logging(log)
    x = kind(s.tensor([3.0]), requires_grad=True)
    y = s.op("aten::mul.Tensor")(x, x)
    log.append("backward")
    s.backward(y, kind(s.tensor([1.0])))
    return [log[: log.index("backward") + 4], s.show(x.grad), s.came_from(y)]


@program
def an_out_argument_comes_by_name(s: Side) -> Any:
    log: list[Any] = []
    kind = s.logging(log)

    def kernel(x: Any, *, out: Any) -> Any:
        s.op("aten::copy_")(out, x)
        return out

    with s.library("lab_out_programs", "DEF") as library:
        library.define("f.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
        library.impl("f.out", kernel, "CPU")
        x, y = kind(s.tensor([1.0])), kind(s.tensor([0.0]))
        s.op("lab_out_programs::f.out")(x, out=y)
    return [log, s.show(y.elem)]


@program
def arguments_that_equal_their_default_are_left_out(s: Side) -> Any:
    log: list[Any] = []
    kind = s.logging(log)
    schema = "f(Tensor self, bool second=True, *, Scalar beta=1, Scalar alpha=1, bool third=True) -> Tensor"
    with s.library("lab_default_programs", "DEF") as library:
        library.define(schema)
        library.impl("f", lambda self, second=True, *, beta=1, alpha=1, third=True: self.clone(), "CPU")
        call, x = s.op("lab_default_programs::f"), kind(s.tensor([1.0]))
        call(x)
        call(x, beta=1)
        call(x, beta=2)
        call(x, alpha=2)
        call(x, beta=2, alpha=2)
        call(x, False)  # noqa: FBT003 - by position is meant
        call(x, third=False)
        call(x, False, third=False)  # noqa: FBT003
        call(x, True, third=True)  # noqa: FBT003
    return log


@program
def dtypes_and_memory_formats_are_values_of_their_types(s: Side) -> Any:
    found: list[Any] = []

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found.append(
            [s.op_name(func), [[name, type(one).__name__.lower(), s.show(one)] for name, one in kwargs.items()]]
        )
        return cls(func(*s.inner(args), **kwargs))

    x = s.wrapper("Kind", handler)(s.tensor([[1.0, 2.0]]))
    s.op("aten::sum")(x, dtype=s.float64)
    s.op("aten::_to_copy")(x, dtype=s.float64)
    s.op("aten::clone")(x, memory_format=s.contiguous)
    return [[name, [[one, kind.replace("_", ""), shown] for one, kind, shown in named]] for name, named in found]


@program
def a_list_of_optional_tensors_is_searched_for_wrappers(s: Side) -> Any:
    log: list[Any] = []
    kind = s.logging(log)
    with s.library("lab_optional_programs", "DEF") as library:
        library.define("f(Tensor?[] self) -> Tensor")
        library.impl("f", lambda self: s.tensor([1.0]), "CPU")
        library.define("put(Tensor self, Tensor?[] indices, Tensor values) -> Tensor")
        library.impl("put", lambda self, indices, values: self, "CPU")
        results = [
            s.op("lab_optional_programs::f")([None, kind(s.tensor([2.0]))]),
            s.op("lab_optional_programs::put")(s.tensor([1.0]), [kind(s.tensor([0.0]))], s.tensor([3.0])),
        ]
    return [log, [s.show(one) for one in results]]


@program
def a_handler_may_return_a_list_or_a_tuple_for_a_list(s: Side) -> Any:
    seen = []
    with s.library("lab_list_programs", "DEF") as library:
        library.define("halves(Tensor self) -> Tensor[]")
        library.impl("halves", lambda self: [self, self], "CPU")
        for kind in (list, tuple):

            def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any, kind: Any = kind) -> Any:
                return kind(func(*s.inner(args)))

            result = s.op("lab_list_programs::halves")(s.wrapper("Kind", handler)(s.tensor([1.0])))
            seen.append(s.show(list(result)))
    return seen


@program
def a_handler_that_returns_no_tensor_is_refused(s: Side) -> Any:
    x = s.wrapper("Kind", lambda *args: "text")(s.tensor([1.0]))
    return [s.outcome(s.op(name), x) for name in ("aten::neg", "aten::detach")]


@program
def several_values_come_out_of_a_handler_as_a_list_or_as_a_tuple(s: Side) -> Any:
    one = s.tensor([1.0])
    seen = []
    with s.library("lab_count_programs", "DEF") as library:
        library.define("two(Tensor self) -> (Tensor, Tensor)")
        library.impl("two", lambda self: (self, self), "CPU")
        for answer in ((one,) * 2, [one] * 2):
            with s.dispatch_mode(lambda mode, func, types, args, kwargs, answer=answer: answer):
                seen.append(s.outcome(s.op("lab_count_programs::two"), one))
    return seen


@program
def detach_of_a_wrapper_is_one_call(s: Side) -> Any:
    log: list[Any] = []
    x = s.logging(log)(s.tensor([3.0]), requires_grad=True)
    s.op("aten::detach")(x)
    return log


@program
def a_wrapper_takes_no_memory(s: Side) -> Any:
    kind = s.wrapper("Kind", lambda *args: NotImplemented)
    made = s.make_wrapper(kind, (1_000_000, 1_000_000))
    return [list(made.shape), s.stride(made), made.requires_grad]


@program
def a_wrapper_has_the_shape_and_the_strides_of_what_it_is_made_like(s: Side) -> Any:
    kind = s.wrapper("Kind", lambda cls, func, types, args, kwargs: cls(func(*s.inner(args), **kwargs)))
    whole = s.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    seen = []
    for x in (
        whole,
        s.op("aten::t")(whole),
        s.op("aten::select.int")(whole, 1, 1),
        s.op("aten::expand")(whole, [2, 2, 3]),
    ):
        made = kind(x)
        seen.append([list(made.shape), s.stride(made), s.stride(made) == s.stride(x)])
        column = s.op("aten::select.int")(made, 0, 0)
        seen.append(
            [list(column.shape), s.stride(column), s.stride(column) == s.stride(s.op("aten::select.int")(x, 0, 0))]
        )
    return seen


@program
def writes_to_what_shares_the_memory_of_a_wrapper_are_counted(s: Side) -> Any:
    log: list[Any] = []
    x = s.logging(log)(s.tensor([1.0]))
    seen = [s.version(x)]
    other = s.op("aten::detach")(x)
    s.op("aten::add_.Tensor")(other, s.tensor([2.0]))
    seen += [s.version(x), s.version(other)]
    s.op("aten::add_.Tensor")(x, s.tensor([2.0]))
    return [*seen, s.version(x), s.version(other), s.show(x.elem)]


@program
def the_handler_of_the_subclass_is_called(s: Side) -> Any:
    def failing(name: str) -> Any:
        def handler(*args: Any) -> Any:
            raise ProgramError(name)

        return handler

    first = s.wrapper("First", failing("first"))
    second = s.wrapper("Second", failing("second"), first)
    other = s.wrapper("Other", failing("other"))
    x = s.tensor([1.0])
    made = [x, first(x), second(x), other(x)]
    return [s.outcome(s.op("aten::add.Tensor"), one, two) for one in made for two in made]


@program
def a_wrapper_prints_as_its_class_says(s: Side) -> Any:
    kind = s.wrapper("Kind", lambda *args: NotImplemented)
    kind.__repr__ = lambda self: f"Kind({s.numbers(self.elem)})"
    x = kind(s.tensor([1.0]))
    return [repr(x), f"{x!r}", [x].__repr__()]


@program
def a_class_without_a_handler_makes_no_wrapper_and_one_with_a_handler_no_other_class(s: Side) -> Any:
    plain = type("Plain", (s.Tensor,), {})
    log: list[Any] = []
    kind = s.logging(log)
    x = kind(s.tensor([1.0]))
    return [s.outcome(s.make_wrapper, plain, (2, 2)), s.outcome(s.as_subclass, x, plain), len(log)]


@program
def a_handler_answers_for_methods_and_functions_that_make_tensors(s: Side) -> Any:
    kind = s.wrapper("Kind", lambda cls, func, types, args, kwargs: cls(s.tensor([3.0])))
    x = kind(s.tensor([2.0]))
    calls = [("aten::ones_like",), ("aten::zeros_like",), ("aten::new_empty_strided", [1], [1]), ("aten::_to_copy",)]
    return [s.show(s.op(name)(x, *args)) for name, *args in calls]


@program
def a_wrapper_is_built_with_extra_keys(s: Side) -> Any:
    kind = s.wrapper("Kind", lambda *args: NotImplemented)
    names = (
        "NestedTensor",
        "Conjugate",
        "Negative",
        "ZeroTensor",
        "Functionalize",
        "CUDA",
        "Sparse",
        "Python",
        *GENERIC,
    )
    x = s.tensor([1.0])
    plain = s.keys(s.with_keys(kind, x))
    return [[name, sorted(s.keys(s.with_keys(kind, x, name)) - plain)] for name in names]


@program
def a_wrapper_has_the_keys_of_python_and_a_plain_tensor_has_not(s: Side) -> Any:
    kind = s.wrapper("Kind", lambda *args: NotImplemented)
    x = s.tensor([1.0])
    return [sorted(s.keys(kind(x)) - s.keys(x)), sorted(s.keys(x) - s.keys(kind(x))), "Python" in s.keys(x)]


@program
def the_default_handler_goes_on_below_the_wrapper(s: Side) -> Any:
    log: list[Any] = []
    side = s

    class Kind(s.Tensor):  # type: ignore[misc, name-defined]  # a class that is known at run time
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            log.append([side.op_name(func), [one.requires_grad for one in args if side.is_tensor(one)]])
            result = super().__torch_dispatch__(func, types, list(args), kwargs)
            log.append([type(result).__name__, result.requires_grad, side.came_from(result)])
            return result

    made = [s.make_subclass(Kind, s.tensor([n, 2.0]), requires_grad=grad) for n, grad in ((1.0, False), (3.0, True))]
    with s.disable():
        calls = [s.op("aten::add.Tensor")(made[0], made[0]), s.op("aten::neg")(made[0]), s.op("aten::neg")(made[1])]
        calls.append(s.op("aten::mul.Tensor")(made[0], made[1]))
    return [[[s.numbers_of(one), one.requires_grad, s.came_from(one)] for one in calls], log]


@program
def a_tensor_of_integers_can_have_a_class(s: Side) -> Any:
    kind = type("Kind", (s.Tensor,), {})
    return s.show(s.new(kind, [1, 2]))


@program
def an_object_with_a_handler_in_a_list_of_indices_is_asked(s: Side) -> Any:
    log: list[Any] = []

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> None:
        log.append([s.name(func), s.show(types)])

    kind = s.kind("Kind", handler)
    x, index = s.tensor([1.0, 2.0]), s.new(kind, [0.0])
    return [s.outcome(operator.getitem, x, [index, index]), log]


@program
def a_handler_of_operators_may_be_an_instance_method_without_a_warning(s: Side) -> Any:
    of_class = s.wrapper("OfClass", lambda cls, func, types, args, kwargs: args[0].elem)
    plain = type(
        "Plain", (of_class,), {"__torch_dispatch__": lambda self, func, types, args=(), kwargs=None: args[0].elem}
    )
    static = type(
        "Static", (of_class,), {"__torch_dispatch__": staticmethod(lambda func, types, args, kwargs: args[0].elem)}
    )
    neg = s.op("aten::neg")
    kinds = (of_class, plain, static)
    results = [s.outcome(neg, kind(s.tensor([1.0]))) for kind in kinds]
    return [results, [s.warned(s.outcome, neg, kind(s.tensor([1.0]))) for kind in kinds]]


@program
def nothing_for_a_tensor_may_be_returned_by_a_handler(s: Side) -> Any:
    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = func(*s.inner(args), **kwargs)
        return None if "add" in s.op_name(func) else cls(result)

    x = s.wrapper("Kind", handler)(s.tensor([1.0]))
    return [s.outcome(s.op("aten::mul.Tensor"), x, x), s.outcome(s.op("aten::add.Tensor"), x, x)]


@program
def what_is_wrapped_may_need_gradients_of_its_own(s: Side) -> Any:
    log: list[Any] = []
    inner = s.tensor([1.0, 2.0], requires_grad=True)
    x = s.logging(log, reentrant=True)(inner)
    out = s.op("aten::add.Tensor")(x, s.tensor([2.0, 2.0]))
    seen = [out.requires_grad, s.came_from(out), out.elem.requires_grad, s.came_from(out.elem)]
    refused = s.outcome(lambda: s.backward(s.op("aten::sum")(out)))
    s.backward(s.op("aten::sum")(out.elem))
    return [seen, refused, x.grad is None, s.numbers(inner.grad), log]


@program
def a_reentrant_handler_inside_of_a_mode_returns_what_is_wrapped(s: Side) -> Any:
    log: list[Any] = []

    def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        with s.reentrant():
            return func(args[0].elem)

    x = s.wrapper("Kind", handler)(s.tensor([1.0]))
    with _noting(s, log):
        result = s.op("aten::clone")(x)
    return [s.show(result), log]


@program
def a_kernel_between_autograd_and_python_may_call_operators_of_the_wrapper(s: Side) -> Any:
    """What the fallback of Conjugate does; the second call of a handler finds the state of the first."""
    log: list[Any] = []
    kind = s.logging(log)
    keys = s.key_set("Conjugate")

    def kernel(keyset: Any, x: Any) -> Any:
        copied = s.op("aten::clone")(x)
        return s.op("lab_between_programs::f").redispatch(s.without(keyset, "Conjugate"), copied)

    with s.library("lab_between_programs", "DEF") as library:
        library.define("f(Tensor self) -> Tensor")
        library.impl("f", lambda x: s.op("aten::neg")(x), "CPU")
        library.impl("f", kernel, "Conjugate", with_keyset=True)
        x = kind(s.tensor([1.0]))
        s.op("lab_between_programs::f").redispatch(s.with_python(keys), x)
    return [[name, count] for name, count, *_ in log]


@program
def a_tensor_with_a_handler_has_no_elements_of_its_own_to_read(s: Side) -> Any:
    x = s.logging([])(s.tensor([2.0, 3.0]))
    with s.disable():
        return [s.outcome(read, x) in ("TypeError", "refused") for read in (s.Tensor.numpy, s.Tensor.tolist)]


# -- modes


@program
def a_mode_may_be_held_by_nothing_but_its_block(s: Side) -> Any:
    log: list[Any] = []
    mode, x = _noting(s, log), s.tensor([1.0])
    weak = weakref.ref(mode)
    mode.__enter__()
    del mode
    gc.collect()
    s.op("aten::neg")(x)
    held = weak()
    assert held is not None
    held.__exit__(None, None, None)
    return [log, len(s.modes())]


@program
def a_mode_sees_factories_and_tensors_that_have_no_handler(s: Side) -> Any:
    log: list[Any] = []
    x, y = s.tensor([1.0]), s.tensor([2.0])
    with _noting(s, log):
        s.op("aten::empty.memory_format")([2])
        s.op("aten::add.Tensor")(x, y)
    return log


@program
def modes_nest_and_the_same_one_twice_is_called_twice(s: Side) -> Any:
    log: list[Any] = []
    one, other, x = _noting(s, log, "one"), _noting(s, log, "other"), s.tensor([1.0])
    with one, other:
        s.op("aten::neg")(x)
    with one, one:
        s.op("aten::empty.memory_format")([])
    with other:
        s.op("aten::neg")(x)
    return log


@program
def modes_come_before_wrappers_of_whatever_class(s: Side) -> Any:
    def failing(name: str) -> Any:
        def handler(*args: Any) -> Any:
            raise ProgramError(name)

        return handler

    def with_mode(name: str) -> Any:
        def handler(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            with s.dispatch_mode(failing(f"mode of {name}")):
                return func(*args, **kwargs)

        return handler

    first = s.wrapper("First", with_mode("first"))
    second = s.wrapper("Second", with_mode("second"), first)
    x = s.tensor([1.0])
    made = [x, first(x), second(x)]
    add = s.op("aten::add.Tensor")
    seen = [s.outcome(add, one, two) for one in made for two in made[1:]]
    for name in ("outer", "inner"):
        with s.dispatch_mode(failing(name)):
            seen += [s.outcome(add, one, two) for one in made for two in made]
    return seen


@program
def a_tensor_of_another_class_can_be_made_inside_of_a_mode(s: Side) -> Any:
    log: list[Any] = []
    kind, x = type("Kind", (s.Tensor,), {}), s.tensor([1.0])
    with _noting(s, log):
        made = s.make_subclass(kind, x)
        viewed = s.as_subclass(x, kind)
    return [s.show(made), s.show(viewed), [name for _, name, *_ in log if name != "aten::detach"]]


@program
def nothing_is_seen_where_handlers_are_switched_off(s: Side) -> Any:
    log: list[Any] = []
    x = s.tensor([1.0])
    with _noting(s, log):
        s.op("aten::neg")(x)
        with s.no_dispatch():
            s.op("aten::neg")(x)
            s.op("aten::empty.memory_format")([2])
        s.op("aten::sin")(x)
    return log


@program
def every_tensor_that_autograd_hands_on_was_made_in_the_mode(s: Side) -> Any:
    seen: list[Any] = []
    strange: list[str] = []

    def handler(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        for one in args:
            if s.is_tensor(one) and not any(one is known for known in seen):
                strange.append(s.op_name(func))
        result = func(*args, **kwargs)
        seen.append(result)
        return result

    x = s.tensor([1.0, 2.0], requires_grad=True)
    seen.append(x)
    with s.dispatch_mode(handler):
        loss = s.op("aten::sum")(s.op("aten::mul.Tensor")(x, x))
        s.backward(loss)
    return [len(strange), s.numbers(x.grad), len(seen) > 4]


@program
def a_mode_goes_on_after_an_error_in_its_block(s: Side) -> Any:
    kind = s.wrapper("Kind", lambda *args: NotImplemented)

    def handler(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if s.op_name(func) == "aten::neg":
            raise ProgramError("neg")
        return kind(s.tensor([0.0])) if s.op_name(func) == "aten::sin" else func(*args, **kwargs)

    x = s.tensor([1.0])
    with s.dispatch_mode(handler):
        return [s.outcome(s.op("aten::neg"), x), s.outcome(s.op("aten::sin"), x), len(s.modes())]


@program
def a_mode_needs_no_constructor_of_its_base(s: Side) -> Any:
    class Mode(s.DispatchMode):  # type: ignore[misc, name-defined]
        def __init__(self, text: str) -> None:
            self.text = text

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise ProgramError(self.text)

    def inside(*modes: Any) -> Any:
        with ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode)
            return s.op("aten::empty.memory_format")([2])

    made = Mode("made before")
    return [
        s.outcome(inside, Mode("one"), Mode("two")),
        s.outcome(inside, made),
        s.outcome(inside, made),
        len(s.modes()),
    ]


@program
def a_mode_may_wrap_what_comes_out_for_the_modes_around_it(s: Side) -> Any:
    log: list[Any] = []

    def unexpected(*args: Any) -> Any:
        raise ProgramError("the wrapper was asked")

    kind = s.wrapper("Kind", unexpected)

    def handler(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        log.append(["wraps", s.op_name(func), s.show(types)])
        result = func(*s.inner(args), **kwargs)
        return kind(result) if s.is_tensor(result) else result

    x = s.tensor([4.0])
    results = []
    for inner in (False, True):
        with s.dispatch_mode(handler), _noting(s, log) if inner else s.nothing():
            y = s.op("aten::add.Tensor")(x, x)
            results += [y, s.op("aten::mul.Tensor")(y, y)]
    return [[s.show(one) for one in results], log]


@program
def a_mode_that_declines_leaves_a_call_to_the_wrapper_and_sees_what_it_calls(s: Side) -> Any:
    log: list[Any] = []

    def polite(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        log.append([s.op_name(func), s.show(types)])
        return NotImplemented if types else func(*args, **kwargs)

    x = s.logging(log)(s.tensor([1.0, 2.0]))
    with s.dispatch_mode(polite):
        s.op("aten::sin")(x)
    with s.dispatch_mode(polite), s.dispatch_mode(polite):
        result = s.op("aten::sin")(x)
    return [s.show(result), log, s.outcome(_all_decline, s)]


def _all_decline(s: Side) -> Any:
    with s.dispatch_mode(lambda *args: NotImplemented):
        return s.op("aten::sin")(s.tensor([1.0]))


@program
def a_mode_whose_handler_is_a_class_method_is_refused(s: Side) -> Any:
    class Mode(s.DispatchMode):  # type: ignore[misc, name-defined]
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args)

    x = s.tensor([5.0])

    def inside() -> Any:
        with Mode():
            return s.op("aten::add.Tensor")(x, x)

    return [s.outcome(inside), len(s.modes()), s.outcome(s.op("aten::neg"), x)]


@program
def the_modes_of_a_thread_can_be_seen(s: Side) -> Any:
    one, other = _noting(s, []), _noting(s, [])
    seen = [s.modes() == ()]
    with one:
        seen.append(s.modes() == (one,))
        with other:
            seen.append(s.modes() == (one, other))
    with one, other:
        seen.append(s.modes()[-1] is other)
    return [seen, s.modes() == ()]


@program
def modes_are_compared_by_identity(s: Side) -> Any:
    kinds = [type("Mode", (base,), {}) for base in (s.DispatchMode, s.FunctionMode)]
    seen = []
    for kind, opened in zip(kinds, (s.modes, s.function_modes), strict=True):
        one, other = kind(), kind()
        for group in ((one, one, one), (one, other), (one, other, one)):
            with ExitStack() as stack:
                for mode in group:
                    stack.enter_context(mode)
                found = opened()
            seen.append([one == other, [mode is found[0] for mode in found], len(set(map(id, found)))])
    return seen


@program
def modes_of_some_machinery_can_be_left_out(s: Side) -> Any:
    infra = type("Infra", (s.DispatchMode,), {"is_infra_mode": classmethod(lambda cls: True)})
    plain = type("Plain", (s.DispatchMode,), {})
    seen = []

    def look() -> None:
        seen.append([s.in_mode(), s.in_mode(infra=False)])

    look()
    with infra():
        look()
        with plain():
            look()
            with infra():
                look()
        look()
    look()
    return seen


@program
def a_view_of_the_same_shape_is_a_tensor_of_its_own(s: Side) -> Any:
    found: list[bool] = []

    def handler(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        found.append(result is not args[0])
        return result

    x = s.tensor([1.0, 2.0])
    with s.dispatch_mode(handler):
        for name, *args in (("view", [2]), ("alias",), ("expand", [2]), ("permute", [0]), ("detach",)):
            s.op(f"aten::{name}")(x, *args)
    return found


@program
def a_number_beyond_64_bits_with_sign_reaches_a_mode(s: Side) -> Any:
    found: list[Any] = []
    with s.library("lab_number_programs", "DEF") as library:
        library.define("f(Tensor self, Scalar number) -> Tensor")
        library.impl("f", lambda self, number: self, "CPU")

        def handler(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            found.append(args[1])
            return func(*args, **kwargs)

        x = s.tensor([1.0])
        with s.dispatch_mode(handler):
            for number in (3, 2**40, 2**63 - 1, 2**63 + 1, 1.5):
                s.outcome(s.op("lab_number_programs::f"), x, number)
    return found
