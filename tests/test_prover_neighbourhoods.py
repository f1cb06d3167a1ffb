"""Neighbourhoods prove and find what the walk of everything does; each check of theirs is needed."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from dispatchlab.engine.lab_engine import LabEngine, LabSpace
from dispatchlab.engine.semantics import semantics_named
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import (
    Def,
    Impl,
    Kernel,
    KernelForm,
    Registration,
)
from dispatchlab.model.schema_parser import parse_name, parse_schema
from dispatchlab.prover import neighbourhoods
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import Interrupted, WalkOptions
from dispatchlab.prover.partition import explore_forkable
from dispatchlab.prover.result import Exploration, Flaw, Verdict
from tests.declaring_engines import (
    OPERATORS,
    Cell,
    Coupling,
    DeclaringEngine,
    DeclaringSpace,
    Memory,
    random_engine,
    shortest_failure,
)
from tests.toy_engines import FOO as TOY_FOO
from tests.toy_engines import ForkableToyEngine, toy

FOO = parse_name("test::foo")
DEF = Def(parse_schema("test::foo(Tensor x) -> Tensor"))
_first_neighbourhoods = neighbourhoods._neighbourhoods

CHECKS: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "function": ((neighbourhoods.Knowledge, "_compare", lambda *_: None),),
    "outcome": ((neighbourhoods.Knowledge, "outcome", lambda *_: None),),
    "traces": ((neighbourhoods.Knowledge, "refused", lambda *_: None),),
    "declared": ((neighbourhoods.Knowledge, "_check_declared", lambda *_: None),),
    "missing": ((neighbourhoods.Knowledge, "missing", lambda _: iter(())),),
    "able": ((neighbourhoods, "_accepted_alone", lambda _, deciders: (1 << len(deciders)) - 1),),
    "hidden": ((neighbourhoods.Knowledge, "_check_hidden", lambda *_: None),),
    "refusing": ((neighbourhoods, "_who_write_though_refused", lambda *_: 0),),
    "outliving": ((neighbourhoods, "_with_what_outlives", lambda together, *_: together),),
    "all": ((neighbourhoods.Knowledge, "check_all_visited", lambda _: None),),
    "roles": ((neighbourhoods, "_neighbourhoods", lambda *one: iter([next(_first_neighbourhoods(*one))])),),
    "observed": (
        (neighbourhoods.Knowledge, "observed", lambda *_: None),
        (neighbourhoods.NeighbourhoodProof, "_looks_as_direct", lambda *_: True),
    ),
    "near": ((neighbourhoods, "NEAR_EDGES", 0),),
    "far": ((neighbourhoods.NeighbourhoodProof, "_look_far", lambda proof: proof.knowledge.check_all_visited()),),
}


def without(*checks: str) -> ExitStack:
    """With these checks switched off."""
    stack = ExitStack()
    for check in checks:
        for target, name, value in CHECKS[check]:
            stack.enter_context(mock.patch.object(target, name, value))
    return stack


def in_pairs() -> ExitStack:
    """With every two of a list in a neighbourhood of their own."""
    stack = ExitStack()
    stack.enter_context(mock.patch.object(neighbourhoods, "_SHORT_LIST", 1))
    stack.enter_context(mock.patch.object(neighbourhoods, "_TAKEN_AT_ONCE", 1))
    return stack


def reduced(engine: DeclaringEngine, order: Chains) -> Exploration:
    return explore_forkable(engine, engine.registrations, OPERATORS, order=order, least=0)


def is_proved(found: Exploration) -> bool:
    return found.verdict is Verdict.ORDER_INDEPENDENT and found.neighbourhoods > 0


def at_keys(count: int, semantics: str = "strict") -> list[Registration]:
    """A def and kernels at so many keys."""
    known = semantics_named(semantics).keys
    keys = [key for key in DispatchKey if key in known and key is not DispatchKey.Undefined]
    return [DEF, *(Impl(FOO, key, debug=f"fn_{key}") for key in keys[: count - 1])]


# --- the same findings


@pytest.mark.parametrize("refusals", [False, True])
@pytest.mark.parametrize("seeds", [range(at, at + 15) for at in range(0, 30, 15)], ids=lambda seeds: f"{seeds[0]}-")
def test_engines_that_declare_all_are_judged_as_by_every_sequence(seeds: range, *, refusals: bool) -> None:
    for seed in seeds:
        engine, order = random_engine(seed, secrets=False, refusals=refusals)
        truth = shortest_failure(engine.whole, order, longest=8)
        with without("near"), in_pairs():
            found = reduced(engine, order)
        assert found.neighbourhoods, f"seed {seed}"
        assert (found.verdict is Verdict.ORDER_INDEPENDENT) is (truth is None), f"seed {seed}"
        if truth is not None:
            example = found.counterexample
            assert example is not None
            longest = max(len(example.expected_sequence), len(example.actual_sequence))
            assert longest == truth.length, f"seed {seed}"


@pytest.mark.parametrize("seeds", [range(at, at + 15) for at in range(0, 30, 15)], ids=lambda seeds: f"{seeds[0]}-")
def test_engines_that_keep_a_coupling_to_themselves_are_judged_as_by_every_sequence(seeds: range) -> None:
    for seed in seeds:
        engine, order = random_engine(seed, secrets=True)
        truth = shortest_failure(engine.whole, order, longest=8)
        found = reduced(engine, order)
        assert (found.verdict is Verdict.ORDER_INDEPENDENT) is (truth is None), f"seed {seed}"


# --- what is proved


def test_twenty_kernels_of_one_operator_are_proved_in_neighbourhoods() -> None:
    found = explore(LabEngine("strict"), at_keys(20), [FOO])
    assert (found.verdict, found.reductions, found.never_accepted) == (
        Verdict.ORDER_INDEPENDENT,
        ("neighbourhoods",),
        (),
    )
    assert found.neighbourhoods > 10
    assert found.edges < 20_000


@pytest.mark.parametrize("moment", ["_visit", "_look_far"])
def test_an_interrupt_between_two_walks_keeps_what_was_covered(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **_more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(neighbourhoods.NeighbourhoodProof, moment, interrupted)
    with pytest.raises(Interrupted) as caught:
        explore(LabEngine("strict"), at_keys(20), [FOO])
    assert caught.value.exploration.verdict is Verdict.INCOMPLETE
    assert caught.value.exploration.notes == ("interrupted",)
    assert caught.value.exploration.edges > 0


def test_the_walk_of_everything_can_be_asked_for() -> None:
    found = explore(LabEngine("strict"), at_keys(6), [FOO], WalkOptions(walk="graph"))
    assert (found.reductions, found.neighbourhoods, found.sets) == ((), 0, 64)


def test_a_slot_that_is_not_refreshed_is_found_with_the_shortest_sequences_among_many_kernels() -> None:
    names = ("CPU", "CUDA", "XLA", "Meta", "AutogradCPU", "SparseCPU", "CompositeImplicitAutograd", "Functionalize")
    few: list[Registration] = [DEF, *(Impl(FOO, DispatchKey[name], debug=name) for name in names)]
    plain = explore(LabEngine("torch-2.13"), few, [FOO], WalkOptions(walk="graph"))
    keys = [key for key in at_keys(50, "torch-2.13") if isinstance(key, Impl) and str(key.key) not in names]
    with without("near"):
        found = explore(LabEngine("torch-2.13"), [*few, *keys], [FOO])
    for each in (plain, found):
        assert each.verdict is Verdict.ORDER_DEPENDENT
        assert each.counterexample is not None
        assert len(each.counterexample.actual_sequence) == 2
        assert "not refreshed" in each.counterexample.why[0]


def test_an_order_among_kernels_of_one_key_is_kept() -> None:
    first = at_keys(18)
    again = [replace(one, debug=f"again_{one.key}") for one in first[3:7] if isinstance(one, Impl)]
    order = [(3 + at, 18 + at) for at in range(4)]
    assert (
        explore_forkable(LabEngine("strict"), [*first, *again], [FOO], order=order).verdict is Verdict.ORDER_INDEPENDENT
    )
    free = explore_forkable(LabEngine("strict"), [*first, *again], [FOO])
    assert free.counterexample is not None
    assert len(free.counterexample.actual_sequence) == 2


def test_a_signature_that_outlives_its_kernel_is_found_among_many_kernels_of_a_torch_model() -> None:
    signed = [
        Impl(FOO, key, Kernel(KernelForm.UNBOXED, signature=f"int ({at})"), f"signed_{at}")
        for at, key in enumerate((DispatchKey.Meta, DispatchKey.XLA))
    ]
    keys = [one for one in at_keys(20, "torch-2.13") if one == DEF or one not in signed]
    with without("near"):
        found = explore(LabEngine("torch-2.13"), [*keys, *signed], [FOO])
    assert found.counterexample is not None
    assert found.counterexample.flaw is Flaw.OUTCOME
    assert len(found.counterexample.actual_sequence) == 4
    assert "is still held" in found.counterexample.why[0]


def test_conflicts_and_what_is_never_accepted_have_the_numbers_of_the_scenario() -> None:
    twice = Def(parse_schema("test::foo(Tensor y) -> Tensor"), debug="twice")
    many = Def(parse_schema(f"test::foo({', '.join(f'Tensor x{at}' for at in range(70))}) -> Tensor"), debug="many")
    found = explore(LabEngine("strict"), [*at_keys(16), twice, many], [FOO])
    assert found.neighbourhoods
    assert [(one.members, one.kind) for one in found.conflicts] == [
        ((17,), "too_many_arguments"),
        ((0, 16), "duplicate_def"),
    ]
    assert found.never_accepted == (17,)


# --- where nothing is reduced, and why


def reasons(found: Exploration) -> tuple[str, ...]:
    assert found.neighbourhoods == 0
    return tuple(note.removeprefix("explored without neighbourhoods: ") for note in found.notes)


def test_an_engine_that_declares_nothing_is_walked_as_a_whole() -> None:
    engine = ForkableToyEngine(toy(11))
    found = explore(engine, engine.registrations, [TOY_FOO])
    assert found.sets == 1 << 11
    assert reasons(found) == ("the engine does not declare what its state depends on",)


def test_semantics_that_do_not_declare_their_groups_are_walked_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LabSpace, "dependences", lambda _: "nobody knows")
    assert "nobody knows" in reasons(explore(LabEngine("strict"), at_keys(20), [FOO], WalkOptions(max_states=100)))


# --- each check is needed

_NEAR_AND_FAR = ("near", "far")
NEEDED = (
    ("function", 150, _NEAR_AND_FAR),
    ("declared", 717, _NEAR_AND_FAR),
    ("all", 91, (*_NEAR_AND_FAR, "function")),
    ("roles", 80, _NEAR_AND_FAR),
    ("outcome", 48, ("near",)),
    ("observed", 86, ("near",)),
    ("far", 1, ("near",)),
    ("near", 86, ("observed",)),
)


@pytest.mark.parametrize(("check", "seed", "off"), NEEDED, ids=[one[0] for one in NEEDED])
def test_a_violation_is_missed_without_the_check(check: str, seed: int, off: tuple[str, ...]) -> None:
    engine, order = random_engine(seed, secrets=True)
    assert shortest_failure(engine.whole, order, longest=8) is not None
    with without(*off):
        assert not is_proved(reduced(engine, order))
    with without(*off, check):
        assert is_proved(reduced(engine, order))


def planted(*cells: Cell, count: int, **more: Any) -> DeclaringEngine:
    """An engine with an exclusion of the first two registrations, unless others are said."""
    more = {"holders": (0, 0), "exclusions": (0b11,)} | more
    return DeclaringEngine(DeclaringSpace(count, cells, indices=tuple(range(count)), **more))


def test_a_trace_that_only_a_later_step_shows_is_missed_without_the_check_of_traces() -> None:
    """The refusal leaves a number behind that is in no variable. It shows when the third registration comes next, and
    nothing else is in force: after more steps than are walked near, and after steps that no other sequence takes."""
    cells = [Cell(0, (1 << index,), (0, 1)) for index in range(20)]
    engine = planted(*cells, count=20, couplings=(Coupling("remembers", 0, by=1, partner=2),))
    found = reduced(engine, ())
    assert found.counterexample is not None
    assert len(found.counterexample.actual_sequence) == 4
    assert "a refusal leaves something behind" in found.notes[0]
    with without("traces"):
        assert is_proved(reduced(engine, ()))


def test_what_a_refusal_writes_is_missed_when_nobody_is_refused_in_the_neighbourhood() -> None:
    """The operator of the cell needs somebody who keeps it alive, and the refusal somebody who refuses."""
    spoilt = Cell(0, (0b100,), (0, 1), by_refusal=0b10, spoilt=True)
    engine = planted(spoilt, Cell(1, (0b11,), (0, 1)), count=4, holders=(0b1100, 0))
    truth = shortest_failure(engine.whole, (), longest=8)
    assert truth is not None
    with without("near", "far"):
        example = reduced(engine, ()).counterexample
        assert example is not None
        assert max(len(example.expected_sequence), len(example.actual_sequence)) == truth.length
    with without("near", "far", "refusing"):
        assert is_proved(reduced(engine, ()))


def test_registrations_that_exclude_each_other_are_no_reason_to_skip_a_combination() -> None:
    """The last registration does not write the cell, which shows when two others are in force. Of each two that can
    be, only the second and the fourth can be together."""
    cell = Cell(0, (0b00011, 0b01100, 0b10000), (0, 0, 0, 0, 0, 0, 0, 1), lazy=0b10000)
    engine = planted(cell, count=5, exclusions=(0b00101, 0b00110, 0b01001))
    truth = shortest_failure(engine.whole, (), longest=8)
    assert truth is not None
    with without("near", "far"):
        example = reduced(engine, ()).counterexample
        assert example is not None
        assert max(len(example.expected_sequence), len(example.actual_sequence)) == truth.length
    with without("near", "far", "missing"):
        assert is_proved(reduced(engine, ()))


def test_a_registration_that_is_never_accepted_keeps_nothing_alive() -> None:
    """The cell is not written on release, which shows where the operator lives on."""
    cell = Cell(0, (0b010,), (0, 1), lazy_on_release=0b010)
    engine = planted(cell, count=3, holders=(0b111, 0), exclusions=(), never=0b001)
    assert shortest_failure(engine.whole, (), longest=8) is not None
    with without("near", "far"):
        assert not is_proved(reduced(engine, ()))
    with without("near", "far", "able"):
        assert is_proved(reduced(engine, ()))


@pytest.mark.parametrize("seed", [48, 469])
def test_what_outlives_its_registration_is_missed_without_somebody_who_keeps_it_alive(seed: int) -> None:
    engine, order = random_engine(seed, secrets=False, refusals=True)
    truth = shortest_failure(engine.whole, order, longest=8)
    assert truth is not None
    with without("near", "far"):
        example = reduced(engine, order).counterexample
        assert example is not None
        assert max(len(example.expected_sequence), len(example.actual_sequence)) == truth.length
    with without("near", "far", "outliving"):
        assert is_proved(reduced(engine, order))


def test_a_hidden_variable_that_others_write_is_missed_without_the_check_of_hidden_ones() -> None:
    """The fourth registration makes it forgotten that a kernel had another signature."""
    memory = Memory(0, (0b10000, 0b100000), secret=0b1000)
    engine = planted(Cell(1, (0b100,), (0, 1)), count=6, holders=(0b110000, 0), memories=(memory,))
    with without("near", "outcome"):
        assert not is_proved(reduced(engine, ()))
    with without("near", "outcome", "hidden"):
        assert is_proved(reduced(engine, ()))


def test_a_precedence_with_other_groups_than_it_declares_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table forgets that a backend's kernel takes the composite one away from its autograd slot."""
    plain = semantics_named("strict").precedence.plain
    groups = plain.groups
    assert groups is not None
    composite = {slot: keys[:2] for slot, keys in groups.items()}
    monkeypatch.setitem(plain.__dict__, "groups", composite)
    keys = (DispatchKey.CPU, DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd, DispatchKey.CUDA)
    some: list[Registration] = [DEF, *(Impl(FOO, key, debug=str(key)) for key in keys)]
    found = explore_forkable(LabEngine("strict"), some, [FOO], least=0)
    assert found.neighbourhoods == 0
    assert "depends on more than the engine declares" in found.notes[0]


def kernels_of_one_key(count: int) -> list[Registration]:
    return [Impl(FOO, DispatchKey.CPU, Kernel(), f"fn_{number}") for number in range(count)]


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
def test_of_very_many_kernels_of_one_key_two_show_that_order_matters() -> None:
    found = explore(LabEngine("strict"), kernels_of_one_key(1_000), [FOO])
    assert (found.verdict, found.neighbourhoods) == (Verdict.ORDER_DEPENDENT, 1)
    assert found.counterexample is not None
    first, second = found.counterexample.expected_sequence
    assert found.counterexample.actual_sequence == (second, first)
    assert found.edges < 2_000


def test_of_very_many_kernels_of_one_key_the_first_are_explored_and_the_report_says_so() -> None:
    count = 450
    with mock.patch.object(neighbourhoods, "_FIRST", 20):
        found = explore(LabEngine("strict"), kernels_of_one_key(count), [FOO], order=[range(count)])
    assert (found.verdict, found.neighbourhoods) == (Verdict.INCOMPLETE, 20)
    assert found.notes == ("stopped after 20 of 25,200 neighbourhoods, which showed no difference",)
