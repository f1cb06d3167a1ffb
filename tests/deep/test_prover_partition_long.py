"""The long tests of tests/test_prover_partition.py, which the quick tier leaves out."""

from __future__ import annotations

import pytest

from dispatchlab.prover import partition
from dispatchlab.prover.result import Verdict
from tests.engine_shorthand import TYPED, K, impl
from tests.test_prover_partition import HISTORIES, explored, walk
from tests.toy_engines import toy
from tests.toy_operators import MultiOperatorEngine


def test_many_parts_are_explored_one_by_one() -> None:
    operators = 50
    found = walk(MultiOperatorEngine((toy(6),) * operators, fallbacks=2))
    assert found.verdict is Verdict.ORDER_INDEPENDENT
    assert (found.components, found.registrations) == (operators, operators * 4 + 2)
    assert (found.sets, found.states, found.edges) == (operators * 64, operators * 64, operators * 384)


def test_a_small_graph_whose_sets_have_many_states_is_left_for_its_neighbourhoods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = explored("torch-2.13", HISTORIES)
    assert (plain.verdict, plain.sets, plain.neighbourhoods) == (Verdict.ORDER_INDEPENDENT, 64, 0)
    assert plain.states > 4 * plain.sets
    monkeypatch.setattr(partition, "MOST_EDGES", 1_000)
    found = explored("torch-2.13", HISTORIES)
    assert (found.verdict, found.conflicts, found.never_accepted) == (plain.verdict, (), ())
    assert found.neighbourhoods > 1
    assert explored("torch-2.13", HISTORIES, "graph") == plain
    broken = [*HISTORIES[1:], impl(None, "math", TYPED), impl(K.NestedTensorCPU, "nested", TYPED)]
    found = explored("torch-2.13", broken)
    assert found.counterexample is not None
    assert found.counterexample == explored("torch-2.13", broken, "graph").counterexample
