"""Libraries with the names of torch.library, and the rules that they have of their own."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import pytest

from dispatchlab.engine.dispatcher import Dispatcher, OverrideWarning
from dispatchlab.engine.kernel import boxed, dispatch, dispatch_autograd, fallthrough, unboxed
from dispatchlab.engine.library import Library
from dispatchlab.engine.lowering import LoweredRegistration
from dispatchlab.errors import ErrorKind, ParseError, RegistrationError
from dispatchlab.model.keys import FORMER_KEYS, DispatchKey
from dispatchlab.model.registration import Block, BlockKind, Fallback, Impl
from dispatchlab.model.schema_parser import parse_name, parse_schema
from tests.engine_shorthand import FOO, K, state

HERE = __file__


def kernel(*args: object) -> object:
    return args[0]


def typed_kernel(x: "Tensor") -> "Tensor":  # type: ignore[name-defined]  # noqa: F821, UP037 - read by its name
    return x


def kind(error: pytest.ExceptionInfo[RegistrationError]) -> ErrorKind:
    return error.value.kind


def test_a_library_reads_as_torch_library_does() -> None:
    dispatcher = Dispatcher()
    library = Library("test", "DEF", dispatcher=dispatcher, debug="lib.py:1")
    library.define("foo(Tensor x) -> Tensor", tags=["pointwise"])
    handle = library.impl("foo", kernel, "CPU")
    library.impl("test::foo", fallthrough, "AutogradCPU", debug="skip")
    assert dispatcher.dump("test::foo") == (
        "name: test::foo\nschema: test::foo(Tensor x) -> Tensor\ndebug: lib.py:1\nalias analysis kind: FROM_SCHEMA\n"
        "CPU: lib.py:1 :: (none) [ boxed ]\nAutogradCPU: skip :: (none) [ fallthrough boxed ]\n"
    )
    handle.release()
    assert "CPU: lib.py:1" not in dispatcher.dump("test::foo")
    assert len(library.handles) == 3
    library.release()
    library.release()
    assert [*dispatcher.operators(), *dispatcher.namespaces(), *library.handles] == []


def test_a_library_prints_where_it_was_called_and_the_function_so_that_kernels_can_be_told_apart() -> None:
    dispatcher = Dispatcher("strict")
    library = Library("test", "FRAGMENT", dispatcher=dispatcher)
    begin = test_a_library_prints_where_it_was_called_and_the_function_so_that_kernels_can_be_told_apart
    opened = begin.__code__.co_firstlineno + 2
    library.impl("foo", kernel, "CPU")
    library.impl("foo", lambda x: x, "CUDA")
    library.define("foo(Tensor x) -> Tensor")
    shown = dispatcher.dump(FOO)
    assert f"CPU: registered at {HERE}:{opened + 3} (kernel) :: (none) [ boxed ]\n" in shown
    assert f"CUDA: registered at {HERE}:{opened + 4} ({begin.__name__}.<locals>.<lambda>) :: (none)" in shown
    assert f"debug: registered at {HERE}:{opened + 5}\n" in shown
    with pytest.warns(OverrideWarning, match=rf":{opened + 11} \(boxed\) replaces .*:{opened + 3} \(kernel\)"):
        library.impl("foo", boxed, "CPU")
    view = dispatcher.explain(FOO)
    assert view is not None
    location = view.kernels[0].location
    assert location is not None
    assert (location.file, location.line) == (HERE, opened + 11)


def test_the_alias_kind_follows_from_the_form_of_the_def() -> None:
    forms: list[tuple[Any, dict[str, Any], str]] = [
        ("foo(Tensor x) -> Tensor", {}, "FROM_SCHEMA"),
        ("foo(Tensor x) -> Tensor", {"alias_analysis": "PURE_FUNCTION"}, "PURE_FUNCTION"),
        (parse_schema("test::foo(Tensor x) -> Tensor"), {}, "CONSERVATIVE (default)"),
        ("foo", {"function": unboxed(typed_kernel)}, "CONSERVATIVE"),
        ("foo(Tensor x) -> Tensor", {"function": dispatch("CPU", kernel)}, "FROM_SCHEMA"),
    ]
    seen = 0
    for schema, options, expected in forms:
        dispatcher = Dispatcher()
        with Library("test", "FRAGMENT", dispatcher=dispatcher) as library:
            library.define(schema, **options)
            assert f"\nalias analysis kind: {expected}\n" in dispatcher.dump(FOO)
            seen += 1
    assert seen == 5


def test_a_def_with_a_function_registers_it_at_its_key() -> None:
    dispatcher = Dispatcher()
    with Library("test", "FRAGMENT", dispatcher=dispatcher) as library:
        library.define("foo", dispatch("cuda", unboxed(typed_kernel)))
        library.define("bar(Tensor x) -> Tensor", boxed(kernel).debug("mine"))
        assert str(dispatcher.find_schema("test::foo")) == "test::foo(Tensor _0) -> Tensor _0"
        assert "\nCUDA: " in dispatcher.dump("test::foo")
        assert "\nCompositeImplicitAutograd[alias]: mine :: (none) [ boxed ]\n" in dispatcher.dump("test::bar")


def test_the_key_of_a_library_is_the_key_of_every_kernel_in_it() -> None:
    dispatcher = Dispatcher()
    with Library("test", "IMPL", "CPU", dispatcher=dispatcher) as library:
        library.impl("a", kernel)
        library.impl("b", kernel, "CPU")
        library.impl("c", kernel, "Undefined")
        with pytest.raises(RegistrationError) as caught:
            library.impl("d", kernel, "CUDA")
        assert kind(caught) is ErrorKind.KEY_MISMATCH
        with pytest.raises(RegistrationError):
            library.impl("e", dispatch_autograd(kernel))
        assert [dispatcher.dump(name).splitlines()[2].split(":")[0] for name in dispatcher.operators()] == ["CPU"] * 3


def test_what_cannot_be_read_is_a_parse_error_with_its_kind() -> None:
    dispatcher = Dispatcher()
    library = Library("test", "FRAGMENT", dispatcher=dispatcher)
    attempts: list[tuple[Any, ErrorKind]] = [
        (lambda: library.define("foo.default(Tensor x) -> Tensor"), ErrorKind.ILLEGAL_OVERLOAD),
        (lambda: library.define("foo.__x(Tensor x) -> Tensor"), ErrorKind.ILLEGAL_OVERLOAD),
        (lambda: library.impl("foo(Tensor x) -> Tensor", kernel, "CPU"), ErrorKind.NOT_A_NAME),
        (lambda: library.define("foo(Tensor x ->"), ErrorKind.OTHER),
        (lambda: library.define("foo"), ErrorKind.NOT_A_SCHEMA),
        (lambda: library.define("foo(t x) -> t"), ErrorKind.OTHER),
    ]
    kinds = []
    for attempt, expected in attempts:
        with pytest.raises(ParseError) as caught:
            attempt()
        kinds.append((caught.value.kind, expected))
    assert [found for found, _ in kinds] == [expected for _, expected in kinds]
    assert dispatcher.operators() == ()


def test_a_def_with_a_kernel_has_the_text_of_the_library_and_may_have_type_variables() -> None:
    dispatcher = Dispatcher()
    with Library("test", "DEF", dispatcher=dispatcher, debug="a.cpp:3") as library:
        library.define("foo(t x) -> t", boxed(lambda x: x).debug("fn"))
        assert dispatcher.dump("test::foo").splitlines()[1:3] == ["schema: test::foo(t x) -> t", "debug: a.cpp:3"]
        assert "CompositeImplicitAutograd[alias]: fn :: " in dispatcher.dump("test::foo")


def test_kernels_may_be_registered_in_the_namespace_prim_alone() -> None:
    with Library("prim", "IMPL", dispatcher=Dispatcher()) as library:
        library.impl("foo", kernel, "CPU")


def test_errors_name_the_nearest_right_word() -> None:
    dispatcher = Dispatcher()
    library = Library("test", "FRAGMENT", dispatcher=dispatcher)
    texts = []
    attempts: list[Any] = [
        lambda: library.impl("foo", kernel, "AutogradCpu"),
        lambda: Library("test", "FRAGMNT", dispatcher=dispatcher),
        lambda: library.define("foo() -> ()", alias_analysis="PURE_FUNC"),
        lambda: library.impl("foo", 7, "CPU"),  # type: ignore[arg-type]
        lambda: Library("prim", "DEF", dispatcher=dispatcher),
    ]
    for attempt in attempts:
        with pytest.raises(RegistrationError) as caught:
            attempt()
        texts.append(str(caught.value))
    assert texts == [
        "unknown_key: 'AutogradCpu' is not a dispatch key; did you mean AutogradCPU?",
        "unknown_block_kind: 'FRAGMNT' is not a valid kind of library: expected one of DEF, FRAGMENT, IMPL; did you "
        "mean FRAGMENT?",
        "unknown_alias_kind: 'PURE_FUNC' is not a valid alias kind: expected one of CONSERVATIVE, "
        "FROM_SCHEMA, PURE_FUNCTION, "
        "INTERNAL_SPECIAL_CASE; did you mean PURE_FUNCTION?",
        "other: a kernel is a function, and this is 7: pass something that can be called, or fallthrough",
        "other: the namespace prim is reserved for the operators of TorchScript: choose another",
    ]


def test_the_42_keys_that_pytorch_cannot_parse_are_refused_by_a_library_of_its_model_alone() -> None:
    refused_by = Counter[str]()
    for semantics in ("strict", "torch-2.13"):
        dispatcher = Dispatcher(semantics)
        for key in {*K} - {*FORMER_KEYS}:
            for how in ("impl", "fallback", "library"):
                with Library("_" if how == "fallback" else "test", "IMPL", dispatcher=dispatcher) as library:
                    try:
                        match how:
                            case "impl":
                                library.impl("foo", kernel, key.name)
                            case "fallback":
                                library.fallback(kernel, key)
                            case _:
                                Library("test", "IMPL", key, dispatcher=dispatcher)
                    except RegistrationError as error:
                        refused_by[f"{semantics} {how}"] += "does not parse its name" in str(error)
            if key is not K.Undefined:  # C++ names every key, and so does a registration as a value
                dispatcher.register(Impl(parse_name("test::foo"), key)).release()
                dispatcher.register(Block("test", BlockKind.IMPL, (Impl(parse_name("foo")),), key)).release()
        assert dispatcher.operators() == ()
    assert refused_by == Counter({"torch-2.13 impl": 42, "torch-2.13 fallback": 42, "torch-2.13 library": 42})
    with pytest.raises(RegistrationError) as caught:
        Library("test", "IMPL", "QuantizedHIP", dispatcher=dispatcher)
    assert str(caught.value) == (
        "unknown_key: torch-2.13 has QuantizedHIP and does not parse its name, so torch.library cannot name it: "
        "register an Impl or a Fallback, as C++ does"
    )


def test_a_key_that_cannot_be_named_is_refused_before_a_name_that_cannot_be_read() -> None:
    for semantics in ("torch-2.7", "torch-2.13"):
        library = Library("test", "DEF", dispatcher=Dispatcher(semantics))
        with pytest.raises(RegistrationError) as caught:
            library.impl("f.__a", lambda x: x, "NestedTensorMAIA")
        assert kind(caught) is ErrorKind.UNKNOWN_KEY
        with pytest.raises(ParseError) as unread:
            library.impl("f.__a", lambda x: x, "CPU")
        assert unread.value.kind is ErrorKind.ILLEGAL_OVERLOAD


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13", "pr35061"])
@pytest.mark.parametrize("key", FORMER_KEYS)
def test_a_key_that_pytorch_has_no_more_is_refused(semantics: str, key: DispatchKey) -> None:
    dispatcher = Dispatcher(semantics)
    with pytest.raises(RegistrationError) as caught:
        dispatcher.register(Impl(FOO, key))
    assert kind(caught) is ErrorKind.UNKNOWN_KEY
    with pytest.raises(RegistrationError) as caught:
        dispatcher.register(Fallback(key))
    assert kind(caught) is ErrorKind.UNKNOWN_KEY


def test_a_def_with_a_refused_kernel_leaves_the_def_in_pytorch_only() -> None:
    left = {}
    for semantics in ("strict", "torch-2.13"):
        dispatcher = Dispatcher(semantics)
        library = Library("test", "FRAGMENT", dispatcher=dispatcher)
        with pytest.raises(RegistrationError) as caught:
            library.define("foo(Tensor x, Tensor y) -> Tensor", unboxed(typed_kernel))
        assert kind(caught) is ErrorKind.SCHEMA_MISMATCH
        left[semantics] = (str(dispatcher.find_schema(FOO)), len(library.handles))
        library.release()
        assert dispatcher.find_op(FOO) is None
    assert left == {"strict": ("None", 0), "torch-2.13": ("test::foo(Tensor x, Tensor y) -> Tensor", 1)}


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
def test_a_def_with_a_kernel_lives_as_long_as_its_library(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    before = state(dispatcher)
    library = Library("test", "FRAGMENT", dispatcher=dispatcher)
    library.define("foo", dispatch("CPU", unboxed(typed_kernel)))
    gc.collect()
    assert dispatcher.def_and_impl_count(FOO) == 2
    library.release()
    assert state(dispatcher) == before


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
def test_the_handle_of_a_def_with_a_kernel_releases_both(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    library = Library("test", "FRAGMENT", dispatcher=dispatcher)
    before = state(dispatcher)
    library.define("bar", dispatch("CPU", unboxed(typed_kernel))).release()
    assert dispatcher.operators() == ()
    assert state(dispatcher) == before


def test_a_fallback_at_an_alias_key_is_one_for_each_of_its_keys() -> None:
    left = {}
    nested = "CompositeImplicitAutogradNestedTensor"
    for semantics in ("strict", "torch-2.13"):
        dispatcher = Dispatcher(semantics)
        before = state(dispatcher)
        everywhere = Library("_", "IMPL", dispatcher=dispatcher)
        handle = everywhere.fallback(kernel, nested, debug="all")
        kernels = Library("test", "IMPL", dispatcher=dispatcher)
        kernels.impl("foo", kernel, "CPU")
        assert dispatcher.dump_table(FOO).count(" all [backend fallback]\n") == 17
        handle.release()
        assert dispatcher.dump_table(FOO).count(" all [backend fallback]\n") == 0
        kernels.release()
        assert state(dispatcher) == before
        blocker = Library("_", "IMPL", dispatcher=dispatcher)
        blocker.fallback(kernel, K.NestedTensorXLA, debug="mine") if semantics == "strict" else blocker.fallback(
            kernel, "NestedTensorCUDA", debug="mine"
        )
        with pytest.raises(RegistrationError) as caught:
            everywhere.fallback(kernel, nested, debug="all")
        assert caught.value.kind is ErrorKind.DUPLICATE_FALLBACK
        assert {name: caught.value.facts[name] for name in ("debug", "other_debug")} == {
            "debug": "all",
            "other_debug": "mine",
        }
        kernels.impl("foo", kernel, "CPU")
        left[semantics] = [
            line for line in dispatcher.dump_table(FOO).splitlines() if line.endswith("all [backend fallback]")
        ]
        kernels.release()
        everywhere.release()
        blocker.release()
        assert state(dispatcher) == before
    assert left == {"strict": [], "torch-2.13": ["NestedTensorCPU: all [backend fallback]"]}


def test_a_forgotten_library_releases_its_registrations_first_one_first(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = Dispatcher()
    before = state(dispatcher)
    left: list[list[str]] = []
    release = Dispatcher._release

    def noting(self: Dispatcher, made: LoweredRegistration) -> None:
        release(self, made)
        left.append([f"{name} {dispatcher.def_and_impl_count(name)}" for name in map(str, dispatcher.operators())])

    monkeypatch.setattr(Dispatcher, "_release", noting)
    library: Library | None = Library("test", "DEF", dispatcher=dispatcher)
    assert library is not None
    for name in ("b", "foo", "a"):
        library.define(f"{name}(Tensor x) -> Tensor")
    library.impl("foo", kernel, "CPU")
    library = None
    gc.collect()
    every = ["test::a 1", "test::b 1", "test::foo 2"]
    assert left == [every, ["test::a 1", "test::foo 2"], ["test::a 1", "test::foo 1"], ["test::foo 1"], []]
    assert state(dispatcher) == before


def test_the_end_of_a_with_block_releases_a_library() -> None:
    dispatcher = Dispatcher()
    before = state(dispatcher)
    with Library("test", "DEF", dispatcher=dispatcher) as library:
        library.define("foo(Tensor x) -> Tensor")
        assert dispatcher.find_schema(FOO) is not None
    assert state(dispatcher) == before


def test_a_second_kernel_of_a_key_warns_of_the_override() -> None:
    dispatcher = Dispatcher("strict")
    library = Library("test", "IMPL", "CPU", dispatcher=dispatcher)
    library.impl("foo", kernel, debug="old")
    with pytest.warns(OverrideWarning, match="new replaces old"):
        library.impl("foo", kernel, debug="new")


def test_a_library_names_itself() -> None:
    dispatcher = Dispatcher()
    opened = [Library("_", "IMPL", "CPU", dispatcher=dispatcher), Library("test", "DEF", dispatcher=dispatcher)]
    assert [repr(library) for library in opened] == ["<Library _ IMPL CPU>", "<Library test DEF>"]
