"""Every walk finds of registrations of Python what every sequence in fresh sandboxes shows, and what a model says."""

from __future__ import annotations

import pytest
from hypothesis import given

from dispatchlab.model import python_layer
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.lifetimes import Lifetimes
from dispatchlab.model.python_layer import PYTHON_REGISTRIES, REGISTRY_NAMED, PythonRule, Second
from dispatchlab.model.registration import PythonImpl, Registration
from dispatchlab.prover.result import Verdict
from tests.effort import examples
from tests.python_orders import HOW, NOT_EXPLORED, check, defines, keeps, scenarios, walked

pytestmark = pytest.mark.filterwarnings("ignore::dispatchlab.OverrideWarning")


@given(scenarios(most=3))
@examples(160)
def test_every_walk_finds_what_every_sequence_shows(registrations: tuple[Registration, ...]) -> None:
    assert check(registrations, longest=4) >= 2


@given(scenarios(most=6))
@examples(100)
def test_the_default_walk_agrees_with_the_walk_through_every_state(registrations: tuple[Registration, ...]) -> None:
    auto, graph = walked(registrations, "auto"), walked(registrations, "graph")
    assert auto.verdict is graph.verdict
    assert {one.members for one in auto.conflicts} == {one.members for one in graph.conflicts}
    assert auto.never_accepted == graph.never_accepted


PLANTED = {
    "a lowering that is refused": ("inductor_lowerings", PythonRule(Second.REFUSED)),
    "a decomposition that is replaced": ("decompositions", PythonRule(Second.REPLACES)),
    "a lowering that changes nothing": ("inductor_lowerings", PythonRule(Second.SAME)),
    "a decomposition that outlives its operator": ("decompositions", PythonRule(Second.REFUSED, by_object=False)),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_wrong_rule_is_caught(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, rule = PLANTED[what]
    made: list[Registration] = [defines("my::one"), *(keeps(registry, "my::one", name) for name in "pq")]
    check(distinguished(made), longest=4)
    monkeypatch.setitem(python_layer.REGISTRY_NAMED, registry, REGISTRY_NAMED[registry]._replace(rule=rule))
    with pytest.raises(AssertionError):
        check(distinguished(made), longest=4)


def test_an_entry_that_stays_in_force_without_its_def_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    made = distinguished([defines("my::one"), keeps("inductor_lowerings", "my::one", "p")])
    check(made, longest=4)
    whole = Lifetimes.of(made)
    assert (whole.permanent, dict(whole.ends)) == (0b10, {0: 0b10})
    forgetful = classmethod(lambda cls, some: Lifetimes(whole.permanent))
    monkeypatch.setattr(Lifetimes, "of", forgetful)
    with pytest.raises(AssertionError):
        check(made, longest=4)


def test_a_release_that_pytorch_does_not_have_is_never_tried() -> None:
    made = distinguished([keeps("inductor_lowerings", "aten::there", "p"), defines("my::one")])
    for walk in ("auto", "graph", "orders", "sample"):
        found = walked(made, walk)
        assert (found.counterexample, found.conflicts) == (None, ())
    assert walked(made, "graph").sets == 4
    assert walked(made, "graph").edges == 6  # eight without those that nothing takes back


def test_each_registry_has_a_rule_or_is_not_explored() -> None:
    assert {one.name for one in PYTHON_REGISTRIES if one.rule is None} == NOT_EXPLORED
    assert {one.name for one in PYTHON_REGISTRIES if one.rule is not None} == set(HOW)


def test_two_lines_of_one_slot_stand_in_the_counterexample() -> None:
    found = walked(distinguished([keeps("jagged", "aten::there", "p"), keeps("jagged", "aten::there", "q")]), "auto")
    assert found.counterexample is not None
    assert "-jagged: q:f, registered at q.py:1\n" in found.counterexample.diff
    assert "+jagged: p:f, registered at p.py:1\n" in found.counterexample.diff
    assert found.counterexample.why == ("several registrations write jagged of aten::there in Python: the newest wins",)


def test_very_many_single_entries_are_parts_of_their_own() -> None:
    made = [keeps("inductor_lowerings", f"aten::there{number}", "p") for number in range(200)]
    found = walked(tuple(made), "auto")
    assert (found.verdict, found.components, found.classes) == (Verdict.ORDER_INDEPENDENT, 200, 1)
    assert all(isinstance(one, PythonImpl) for one in made)
