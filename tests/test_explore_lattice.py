"""Whether the lattice of sets has all sets, all edges and the multiplicity of hidden state."""

from __future__ import annotations

import pytest

from dispatchlab.explore.lattice import LatticeTooLargeError, SetEdge, SetNode, lattice, sets_along
from tests.toy_engines import Exclusion, Planted, toy


def test_all_sets_and_all_registrations_are_there() -> None:
    drawn = lattice(toy(4), 4)
    assert (len(drawn.nodes), len(drawn.edges)) == (16, 32)
    assert [node.members for node in drawn.nodes[:6]] == [(), (0,), (1,), (2,), (3,), (0, 1)]
    assert {node.states for node in drawn.nodes} == {1}


def test_refusals_lead_back_to_where_they_were_tried() -> None:
    drawn = lattice(toy(2, exclusions=(Exclusion(0b11),)), 2)
    assert [node.members for node in drawn.nodes] == [(), (0,), (1,)]
    assert drawn.edges[2:] == (
        SetEdge((0,), 1, (0,), "duplicate_def"),
        SetEdge((1,), 0, (1,), "duplicate_def"),
    )


def test_hidden_state_is_counted_and_an_order_is_kept() -> None:
    drawn = lattice(toy(2, Planted("is haunted", 1, 0, "nothing")), 2)
    assert drawn.nodes == (SetNode((), 2), SetNode((0,), 2), SetNode((1,), 2), SetNode((0, 1), 2))
    assert len(lattice(toy(2), 2, order=(0, 1)).edges) == 3


def test_what_nobody_can_look_at_is_refused() -> None:
    with pytest.raises(LatticeTooLargeError, match="there are more than 100 states, too many to draw"):
        lattice(toy(10), 10, most_states=100)


def test_the_sets_along_a_word_know_of_refusals_and_end_at_a_failed_release() -> None:
    assert sets_along(toy(3, exclusions=(Exclusion(0b11),)), (0, 1, 2, ~0, 1)) == ((), (0,), (0,), (0, 2), (2,), (1, 2))
    jammed = toy(1, Planted("counts", 0, 0, "jams", modulo=3))
    assert sets_along(jammed, (0, ~0)) == ((), (0,))
