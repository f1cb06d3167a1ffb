"""The long tests of tests/test_engine_coded_states.py, which the quick tier leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.engine import coded_states, introspection, lab_space
from dispatchlab.engine.coded_states import CodedSpace
from dispatchlab.engine.lab_space import LabSpace
from dispatchlab.engine.semantics import SEMANTICS, Semantics
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.prover.graph_walk import explore_graph
from dispatchlab.prover.limits import Watch
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.protocol import StateSpace
from dispatchlab.prover.walk_options import WalkOptions
from dispatchlab.scenario.load import load_scenario
from tests.effort import examples
from tests.engine_shorthand import ALL_SEMANTICS, BAR, FOO
from tests.test_engine_coded_states import LOOKED_AT, MIXES, NEEDED, ROOT, SEVERAL, _steps, disagreement
from tests.test_engine_properties import registration_lists


@pytest.mark.parametrize("semantics", ALL_SEMANTICS)
@examples(150)
@given(registration_lists, st.lists(st.integers(0, 59), min_size=20, max_size=60))
def test_integers_and_values_take_the_same_steps(semantics: str, given: list[Registration], steps: list[int]) -> None:
    space = CodedSpace(given, [FOO, BAR], SEMANTICS[semantics])
    assert disagreement(space, len(given), steps) is None


@pytest.mark.parametrize("semantics", ALL_SEMANTICS)
def test_what_is_made_of_several_primitives_is_taken_one_by_one(
    semantics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coded_states, "_MOST_TOGETHER", 2)
    count = len(SEVERAL)
    space = CodedSpace(SEVERAL, [FOO, BAR], SEMANTICS[semantics])
    assert disagreement(space, count, list(_steps(count, 1_500))) is None
    split = [transition for transition in (*space._registers, *space._releases) if transition.is_split]
    assert len(split) > 3
    assert any(len(part.known) > 1 for transition in split for part in transition.parts)
    ours, theirs = CodedSpace(SEVERAL, [FOO, BAR], SEMANTICS[semantics]), space.plain
    found, wanted = (replace(explore_graph(one, count), elapsed_s=0.0) for one in (ours, theirs))
    assert found == wanted


def test_every_scenario_explores_alike() -> None:
    explored = 0
    for file in sorted(ROOT.rglob("*.yaml")):
        scenario = load_scenario(file)
        semantics = SEMANTICS[scenario.semantics or "strict"]
        found = []
        for make in (CodedSpace, LabSpace):
            space: StateSpace[Any] = make(scenario.registrations, scenario.operators, semantics)
            watch = Watch(WalkOptions(max_states=200))
            result = explore_graph(space, len(scenario.registrations), order=scenario.order, watch=watch)
            found.append(replace(result, elapsed_s=0.0))
        assert found[0] == found[1], file
        explored += found[0].edges
    assert explored > 5_000


def mixes(space: CodedSpace) -> tuple[list[int], list[int]]:
    """States in which all invariants hold, and mixes of them; of `LOOKED_AT`.

    A mix has every part from one good state or another: nothing in it is new but what stands beside what.
    """
    plain, random = space.plain, SplitMix64(2)
    good: set[int] = set()
    state, mask = space.empty(), 0
    for _ in range(600):  # not always the shortest way, so that no part gets more bits afterwards
        index = random.below(len(LOOKED_AT))
        if mask >> index & 1:
            state, mask = space.release(state, index), mask ^ 1 << index
        else:
            state, refusal = space.register(state, index)
            mask |= 0 if refusal else 1 << index
        good |= set() if plain.violations(space.decoded(state)) else {state}
    several, mixed = sorted(good), []
    for _ in range(MIXES):
        donors = [several[random.below(len(several))] for _ in range(2)]
        code = sum(donors[random.chance(20)] & part.mask for part in _parts(space))
        mixed.append(space._code(space.decoded(code)))  # which counts its kernels
    space._renew()
    return several, mixed


def overlooked(semantics: str, without: Callable[[CodedSpace], Any] | None = None) -> tuple[int, str | None]:
    """How many mixes of good states broke an invariant, and what was overlooked in the first where something was."""
    space = CodedSpace(LOOKED_AT, [FOO], SEMANTICS[semantics])
    good, mixed = mixes(space)
    if without is not None:
        masks, left_out = space._looked_at_masks(), without(space).mask
        assert left_out
        space._looked_at = [(mask & ~left_out, set()) for mask in masks]
    assert not any(space.violations(state) for state in good)
    broken = 0
    for state in mixed:
        wanted = space.plain.violations(space.decoded(state))
        broken += bool(wanted)
        if space.violations(state) != wanted:
            return broken, wanted[0].rule
    return broken, None


def _parts(space: CodedSpace) -> list[Any]:
    operator = space.operator(str(FOO))
    atoms = [part for _, part in operator.atoms]
    return [
        *operator.fields[:-1],  # all but the overloads that are tried earlier, of which there are none
        operator.kinds,
        operator.strange,
        *operator.kernels.values(),
        *atoms,
        *(part for part in space._others.values() if part.mask),
    ]


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13", "pr35061"])
def test_no_broken_invariant_is_overlooked_where_every_part_was_seen_in_order(semantics: str) -> None:
    broken, missed = overlooked(semantics)
    assert missed is None
    assert 300 < broken < MIXES


@pytest.mark.parametrize("what", NEEDED)
def test_every_part_that_an_invariant_reads_is_needed(what: str) -> None:
    semantics, left_out, rule = NEEDED[what]
    assert overlooked(semantics, left_out)[1] == rule


def seen_alike(semantics: str, *, most: int = 200) -> bool:
    """Whether states and mixes of them are observed as they are."""
    space = CodedSpace(LOOKED_AT, [FOO, BAR], SEMANTICS[semantics])
    good, mixed = mixes(space)
    states = [*good[:most], *mixed[:most]]
    return all(space.observe(state) == space.plain.observe(space.decoded(state)) for state in states)


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13", "pr35061"])
def test_what_is_seen_of_a_state_is_its_own(semantics: str) -> None:
    assert seen_alike(semantics)


@pytest.mark.parametrize("left_out", ["name", "stored", "kernels", "slots"])
def test_every_field_that_is_shown_is_needed(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mask_of = coded_states._Operator.mask_of

    def forgetful(self: Any, field: str) -> int:
        fields = {"kernels": ("kernels", "present")}.get(left_out, (left_out,))
        return 0 if field in fields else mask_of(self, field)

    monkeypatch.setattr(coded_states._Operator, "mask_of", forgetful)
    assert not seen_alike("strict")


def test_a_snapshot_that_shows_more_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = introspection.snapshot

    def more(how: Callable[[Any], object]) -> Callable[..., Snapshot]:
        def snapshot(state: Any, name: OperatorName, semantics: Semantics) -> Snapshot:
            entry = introspection.operator_in(state, name)
            seen = shown(state, name, semantics)
            return seen if entry is None else replace(seen, dump=seen.dump + f"{how(entry)}")

        return snapshot

    ways: list[Callable[[Any], object]] = [
        lambda entry: entry.signatures,
        lambda entry: entry.def_and_impl_count,
        lambda entry: sorted(map(str, entry[7])),
        lambda entry: [*entry][6],
        lambda entry: entry._replace(names=()).signatures,
    ]
    for how in ways:
        for module in (coded_states, lab_space):
            monkeypatch.setattr(module, "snapshot", more(how))
        assert seen_alike("torch-2.13", most=50)
