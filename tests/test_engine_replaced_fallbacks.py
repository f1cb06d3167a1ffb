"""Fallbacks that replace others, as PyTorch has them since 2.10 at AutogradPrivateUse1, and what `strict` does."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.engine.lab_engine import LabEngine, LabState
from dispatchlab.engine.semantics import SEMANTICS, semantics_of
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.operator_view import NEWER
from dispatchlab.model.profile import DEFAULTS, bundled_profile, bundled_profiles, profile_of, profile_value
from dispatchlab.model.registration import Block, BlockKind, Fallback, Registration
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Verdict
from tests.engine_shorthand import BAR, BOXED, FALLTHROUGH, FOO, K, define, impl

KEY = K.AutogradPrivateUse1
REPLACING = tuple(name for name in bundled_profiles() if bundled_profile(name).replaceable_fallbacks)
BUILTIN = "VariableFallbackKernel.cpp"


def fallback(debug: str, key: K = KEY) -> Fallback:
    return Fallback(key, BOXED, debug)


def row(dispatcher: Dispatcher) -> str:
    rows = [line for line in dispatcher.dump_table(FOO).splitlines() if line.startswith(f"{KEY}:")]
    assert dispatcher.dump_slots(FOO) == dispatcher.dump_table(FOO)  # every operator was refreshed
    return rows[0].partition(": ")[2].removesuffix(" [backend fallback]") if rows else ""


def with_foo(semantics: str) -> tuple[Dispatcher, RegistrationHandle]:
    dispatcher = Dispatcher(semantics)
    return dispatcher, dispatcher.register(define())


def test_pytorch_replaces_at_one_key_since_it_ships_a_fallback_there() -> None:
    assert [name for name in bundled_profiles() if str(KEY) in bundled_profile(name).fallbacks] == [*REPLACING]
    assert REPLACING[0] == "torch-2.10"
    assert len(REPLACING) >= 6
    assert {bundled_profile(name).replaceable_fallbacks for name in REPLACING} == {(str(KEY),)}
    assert DEFAULTS["replaceable_fallbacks"] == (str(KEY),)


@pytest.mark.parametrize("semantics", REPLACING)
def test_the_newest_takes_the_row_and_any_release_empties_it(semantics: str) -> None:
    dispatcher, _foo = with_foo(semantics)
    assert BUILTIN in row(dispatcher)
    first, second = dispatcher.register(fallback("first")), dispatcher.register(fallback("second"))
    assert row(dispatcher) == "second"
    first.release()
    assert row(dispatcher) == ""
    third = dispatcher.register(fallback("third"))
    assert row(dispatcher) == "third"
    second.release()  # which has not been in the row for a while
    assert row(dispatcher) == ""
    third.release()
    assert row(dispatcher) == ""


def test_the_row_after_every_sequence_is_what_its_last_step_leaves() -> None:
    for toggles in itertools.product(range(3), repeat=4):
        dispatcher, _foo = with_foo("torch-2.13")
        handles: dict[int, RegistrationHandle] = {}
        for index in toggles:
            if index in handles:
                handles.pop(index).release()
                assert row(dispatcher) == ""
            else:
                handles[index] = dispatcher.register(fallback(f"f{index}"))
                assert row(dispatcher) == f"f{index}"


def test_a_release_that_is_done_again_takes_nobodys_row() -> None:
    dispatcher, _foo = with_foo("torch-2.13")
    one = dispatcher.register(fallback("one"))
    undo = one._undo
    assert undo is not None
    one.release()
    _two = dispatcher.register(fallback("two"))
    undo()
    assert row(dispatcher) == "two"


def test_a_block_that_is_refused_empties_the_row_as_it_is_taken_back() -> None:
    refused = Block(None, BlockKind.IMPL, (fallback("mine"), fallback("second", K.CUDA), impl(operator=BAR)), debug="b")
    for semantics, left in (("torch-2.13", ""), ("strict", BUILTIN)):
        dispatcher, _foo = with_foo(semantics)
        _taken = dispatcher.register(fallback("taken", K.CUDA))
        with pytest.raises(RegistrationError) as caught:
            dispatcher.register(refused)
        assert caught.value.kind is ErrorKind.DUPLICATE_FALLBACK
        assert left in row(dispatcher)
        assert (row(dispatcher) == "") is (left == "")


def test_a_fallthrough_replaces_and_is_skipped_by_calls() -> None:
    dispatcher, _foo = with_foo("torch-2.13")
    _mine = dispatcher.register(Fallback(KEY, FALLTHROUGH, "skips"))
    assert row(dispatcher) == "fallthrough skips"


@pytest.mark.parametrize("semantics", ["torch-2.4", "torch-2.9"])
def test_an_older_pytorch_ships_none_there_and_refuses_a_second(semantics: str) -> None:
    dispatcher, _foo = with_foo(semantics)
    assert row(dispatcher) == ""
    first = dispatcher.register(fallback("first"))
    with pytest.raises(RegistrationError, match="first"):
        dispatcher.register(fallback("second"))
    first.release()
    assert row(dispatcher) == ""


@pytest.mark.parametrize("semantics", [*REPLACING, "strict"])
def test_every_other_key_refuses_a_second_one(semantics: str) -> None:
    for key in (K.AutogradCPU, K.XLA, K.AutogradPrivateUse2, K.PrivateUse1):
        dispatcher, _foo = with_foo(semantics)
        with pytest.raises(RegistrationError) as caught:
            _handles = [dispatcher.register(fallback(f"f{number}", key)) for number in range(2)]
        assert caught.value.kind is ErrorKind.DUPLICATE_FALLBACK


def test_strict_lets_one_stand_over_the_builtin_one_which_returns() -> None:
    dispatcher, _foo = with_foo("strict")
    builtin = row(dispatcher)
    assert BUILTIN in builtin
    mine = dispatcher.register(fallback("mine"))
    assert row(dispatcher) == "mine"
    view = dispatcher.explain(FOO)
    assert view is not None
    (shown,) = [each for each in view.table if each.key == str(KEY)]
    assert [(each.debug, each.why) for each in shown.beaten] == [(builtin, NEWER)]
    with pytest.raises(RegistrationError, match="mine"):
        dispatcher.register(fallback("theirs"))
    mine.release()
    assert row(dispatcher) == builtin
    theirs = dispatcher.register(fallback("theirs"))
    theirs.release()
    assert row(dispatcher) == builtin


# -- what explorations make of it


def verdict(registrations: Sequence[Registration], semantics: str) -> tuple[Verdict, tuple[str, ...]]:
    found = explore(LabEngine(semantics), registrations, (FOO, BAR))
    return found.verdict, () if found.counterexample is None else found.counterexample.why


LOST = (
    f"{KEY} has no fallback: a release restores no earlier fallback, not even PyTorch's own. "
    "The release of any fallback of this key empties the key"
)
NEWEST = (
    f"the registrations a and b both set the fallback of {KEY}. A later registration replaces an earlier registration"
)


def test_one_fallback_there_is_enough_to_be_order_dependent() -> None:
    assert verdict([fallback("mine"), define()], "torch-2.13") == (Verdict.ORDER_DEPENDENT, (LOST,))
    assert verdict([fallback("mine"), define()], "torch-2.9") == (Verdict.ORDER_INDEPENDENT, ())
    assert verdict([fallback("mine"), define()], "strict") == (Verdict.ORDER_INDEPENDENT, ())


def test_it_is_found_though_the_operators_are_explored_by_themselves() -> None:
    several: list[Registration] = [
        fallback("mine"),
        define(),
        define("test::bar(Tensor x) -> Tensor"),
        impl(K.CPU, "fn", operator=BAR),
    ]
    assert verdict(several, "torch-2.13") == (Verdict.ORDER_DEPENDENT, (LOST,))
    in_block: list[Registration] = [Block(None, BlockKind.IMPL, (fallback("mine"),), debug="b"), *several[1:]]
    assert verdict(in_block, "torch-2.13") == (Verdict.ORDER_DEPENDENT, (LOST,))


def test_two_of_them_in_two_orders_are_two_rows() -> None:
    space = LabEngine("torch-2.13").space([define(), fallback("a"), fallback("b")], (FOO,))

    def after(*indices: int) -> LabState:
        state = space.empty()
        for index in indices:
            state, refusal = space.register(state, index)
            assert refusal is None
        return state

    one, other = after(0, 1, 2), after(0, 2, 1)
    assert one != other
    assert space.observe(one) != space.observe(other)
    assert space.why(one, other) == (NEWEST,)


def test_where_an_operator_has_its_own_kernel_the_row_is_hidden_and_the_states_differ_all_the_same() -> None:
    space = LabEngine("torch-2.13").space([impl(KEY, "own"), fallback("a")], (FOO,))
    state, _ = space.register(space.empty(), 0)
    again, _ = space.register(state, 1)
    again = space.release(again, 1)
    assert space.observe(again) == space.observe(state)
    assert again != state


# -- the field of a profile


def test_a_profile_without_the_field_has_that_of_pytorch_2_13_where_it_has_the_key() -> None:
    value = profile_value(bundled_profile("torch-2.12"))
    del value["replaceable_fallbacks"]
    read = profile_of(value)
    assert read.replaceable_fallbacks == (str(KEY),)
    assert "replaceable_fallbacks" in read.not_probed
    assert semantics_of(read).replaceable_fallbacks == {KEY}
    assert SEMANTICS["torch-2.9"].replaceable_fallbacks == frozenset()
