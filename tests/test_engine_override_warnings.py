"""Warnings of overrides: a kernel that replaces another one is reported, with both of them named."""

from __future__ import annotations

import warnings

import pytest

from dispatchlab.engine.dispatcher import Dispatcher, OverrideWarning
from dispatchlab.engine.library import Library
from dispatchlab.model.registration import BlockKind
from tests.engine_shorthand import FALLTHROUGH, FOO, K, block, define, impl, state


def warnings_of(semantics: str, *registrations: tuple[K | None, str]) -> list[str]:
    dispatcher = Dispatcher(semantics)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        handles = [dispatcher.register(impl(key, debug)) for key, debug in registrations]
    assert len(handles) == len(registrations)
    assert all(warning.category is OverrideWarning for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("semantics", ["strict", "pr35061"])
def test_each_override_is_reported_with_what_it_overrides(semantics: str) -> None:
    assert warnings_of(
        semantics, (K.CPU, "a"), (K.CUDA, "b"), (K.CPU, "c"), (K.CPU, ""), (K.Meta, "d"), (K.Meta, "e")
    ) == [
        "the CPU kernel of test::foo is overridden: c replaces a",
        "the CPU kernel of test::foo is overridden: (no debug text) replaces c",
        "the Meta kernel of test::foo is overridden: e replaces d",
    ]


def test_kernels_without_a_key_override_those_of_their_bucket() -> None:
    assert warnings_of("strict", (None, "a"), (K.CompositeImplicitAutograd, "b")) == [
        "the CompositeImplicitAutograd kernel of test::foo is overridden: b replaces a"
    ]
    assert warnings_of("pr35061", (None, "a"), (None, "b")) == [
        "the catchall kernel of test::foo is overridden: b replaces a"
    ]


def test_pytorch_warns_once_in_a_process_of_overrides_but_at_meta_and_mtia(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Dispatcher, "_warned_of_override", False)
    of_cpp = ((K.Meta, "a"), (K.Meta, "b"), (K.MTIA, "c"), (K.MTIA, "d"), (K.CPU, "e"), (K.CPU, "f"), (K.CPU, "g"))
    first = "the CPU kernel of test::foo is overridden: f replaces e"
    assert warnings_of("torch-2.13", *of_cpp) == [first]
    assert warnings_of("torch-2.13", *of_cpp) == []
    assert len(warnings_of("strict", *of_cpp)) == 4


def test_overrides_within_one_block_are_warned_of() -> None:
    dispatcher = Dispatcher("strict")
    inside = [impl(K.CPU, debug) for debug in "abc"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        handle = dispatcher.register(block(BlockKind.IMPL, *inside))
    assert [str(warning.message).partition(": ")[2] for warning in caught] == [
        "b replaces a",
        "c replaces b",
    ]
    assert not handle.is_released


def test_a_fallthrough_that_overrides_a_kernel_is_warned_of() -> None:
    dispatcher = Dispatcher("strict")
    one = dispatcher.register(impl(K.CPU, "a"))
    with pytest.warns(OverrideWarning, match="b replaces a"):
        two = dispatcher.register(impl(K.CPU, "b", FALLTHROUGH))
    three = dispatcher.register(define())
    assert [handle.is_released for handle in (one, two, three)] == [False] * 3


def test_the_warning_points_at_the_line_that_registers() -> None:
    dispatcher = Dispatcher("strict")
    library = Library("test", "IMPL", "CPU", dispatcher=dispatcher)
    library.impl("foo", print)
    with pytest.warns(OverrideWarning) as caught:
        library.impl("foo", print)
    assert caught[0].filename == __file__
    assert caught[0].lineno == test_the_warning_points_at_the_line_that_registers.__code__.co_firstlineno + 5


def test_a_warning_that_is_made_an_error_refuses_the_kernel() -> None:
    dispatcher = Dispatcher("strict")
    handle = dispatcher.register(impl(K.CPU, "a"))
    before = state(dispatcher)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OverrideWarning) as caught:
            dispatcher.register(impl(K.CPU, "b"))
    assert str(caught.value).endswith("b replaces a")
    assert state(dispatcher) == before  # at once, although the error keeps every frame alive
    assert dispatcher.def_and_impl_count(FOO) == 1
    handle.release()
