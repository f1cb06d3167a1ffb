"""An interactive session shows at every step what a fresh engine shows that takes the sequence from its start."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.semantics import Semantics
from dispatchlab.errors import UnknownOperatorError
from dispatchlab.model.names import AmbiguousOperatorError, OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.run_sequence import SandboxSession, run
from dispatchlab.questions.explore.session import (
    History,
    InteractiveSession,
    Moment,
    SessionError,
    StoppedError,
)
from dispatchlab.questions.explore.session_subject import Subject, runner_for, subject_of_operator, subject_of_scenario
from dispatchlab.registries.file import open_named
from dispatchlab.scenario import Scenario, load_scenario, parse_scenario
from tests.random_scenarios import random_scenario

ROOT = Path(__file__).parents[1]
ACTIONS = 200
SEEDS = range(6)

Fresh = tuple[frozenset[int], list[Refusal | None], list[tuple[Snapshot, tuple[Violation, ...]]]]


def fresh(
    semantics: Semantics, registrations: tuple[Registration, ...], names: tuple[OperatorName, ...], steps: StepSequence
) -> Fresh:
    """What a dispatcher that has just been made shows after a sequence."""
    dispatcher = Dispatcher.for_scenario(semantics)
    refusals: list[Refusal | None] = []
    active: set[int] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = SandboxSession(dispatcher, registrations, names)
        for step, refusal in run(session, steps):
            refusals.append(refusal)
            if step < 0:
                active.discard(~step)
            elif refusal is None:
                active.add(step)
        return frozenset(active), refusals, [(dispatcher.snapshot(one), dispatcher.violations(one)) for one in names]


def shown(moment: Moment, names: tuple[OperatorName, ...]) -> Fresh:
    """The same of a moment of a session."""
    seen = [(moment.seen(name).snapshot, moment.seen(name).violations) for name in names]
    return moment.active, list(moment.refusals), seen


def random_action(session: InteractiveSession, chance: random.Random, count: int) -> str:
    """Do anything that a user can do; the name of the action, empty when it was refused."""
    length = len(session.sequence)
    action, one, other = chance.choice("tttttturrmxc"), chance.randrange(count), chance.randrange(max(1, length))
    before = session.sequence, session.history, session.moment
    try:
        match action:
            case "t":
                session.toggle(one)
            case "u":
                session.undo()
            case "r":
                session.redo()
            case "m":
                session.move(chance.randrange(max(1, length)), other)
            case "x":
                session.remove(other)
            case "c":
                session.cut(max(0, length - chance.randrange(3)))
    except SessionError:
        assert (session.sequence, session.history, session.moment) == before
        return ""
    return action


def random_subject(seed: int) -> tuple[Subject, str]:
    semantics, registrations, names, order = random_scenario(seed)
    scenario = Scenario("A claim.", registrations, names, semantics=semantics, order=order)
    return subject_of_scenario(scenario), semantics


# -- the state graph around


def test_the_states_of_a_set_are_counted_and_the_ways_to_the_others_shown() -> None:
    subject = subject_of_scenario(load_scenario(str(ROOT / "dispatchlab" / "questions" / "setup" / "demo.yaml")))
    session = InteractiveSession(runner_for(subject), 3, subject.operators, start=subject.start)
    around = session.around(subject.operators[0], range(3))
    assert (around.active, around.states, around.others) == ((0, 1, 2), 2, ((0, 2, 1),))
    assert [(one.step, one.changed) for one in around.neighbours] == [(~0, 0), (~1, 34), (~2, 70)]
    session.load((0, 2, 1), "the other order")
    assert session.around(subject.operators[0], range(3)).others == ((0, 1, 2),)


def test_looking_around_stops_when_nobody_wants_it() -> None:
    subject, _ = random_subject(1)
    session = InteractiveSession(runner_for(subject), len(subject.registrations), subject.operators)
    with pytest.raises(StoppedError):
        session.around(subject.operators[0], range(len(subject.registrations)), cancelled=lambda: True)


# -- actions


def _session(text: str) -> InteractiveSession:
    subject = subject_of_scenario(parse_scenario(text))
    return InteractiveSession(runner_for(subject), len(subject.registrations), subject.operators)


THREE = (
    "{claim: A., registrations: [{def: foo(Tensor x) -> Tensor}, {impl: foo, dispatch: CPU, debug: a}, "
    "{def: foo(Tensor y) -> Tensor}]}"
)


def test_what_cannot_be_done_is_a_sentence_and_changes_nothing() -> None:
    session = _session(THREE)
    with pytest.raises(SessionError, match=r"^nothing to undo$"):
        session.undo()
    with pytest.raises(SessionError, match=r"^nothing to redo$"):
        session.redo()
    with pytest.raises(SessionError, match=r"^there is no registration 3: they are 0 to 2$"):
        session.toggle(3)
    session.toggle(0)
    session.toggle(0)
    with pytest.raises(SessionError, match=r"^step -0 cannot be run: at the start, 0 is not registered$"):
        session.move(1, 0)
    assert session.sequence == (0, ~0)


def test_a_refused_registration_stays_in_the_sequence_and_can_be_tried_again() -> None:
    session = _session(THREE)
    session.toggle(0)
    session.toggle(2)
    assert [(step, refusal.kind) for step, refusal in session.moment.refused] == [(2, "duplicate_def")]
    assert session.next_step(2) == 2
    session.toggle(0)
    session.toggle(2)
    assert session.sequence == (0, 2, ~0, 2)
    assert session.moment.active == {2}


def test_a_registration_is_taken_out_together_with_its_release() -> None:
    session = _session(THREE)
    for index in (0, 1, 1, 0):
        session.toggle(index)
    session.remove(1)
    assert (session.sequence, session.action) == ((0, ~0), "removed +1")
    session.undo()
    assert format_sequence(session.sequence) == "+0 +1 -1 -0"


def test_undo_and_redo_walk_through_all_that_was_done_and_a_new_step_forgets_what_was_undone() -> None:
    history = History().changed_to((0,)).changed_to((0, 1)).changed_to((1, 0))
    assert history.undone().undone().present == (0,)
    assert history.undone().undone().redone().redone() == history
    assert history.undone().changed_to((0, 2)).redone().present == (0, 2)
    assert History().undone() == History().redone() == History()
    assert history.changed_to((1, 0)) == history


# -- subjects


def test_every_registration_of_an_operator_can_be_released_and_the_dump_is_that_of_the_registry() -> None:
    subject = subject_of_operator(open_named("torch-2.13-cpu"), "aten::add.Tensor", source="torch-2.13-cpu")
    session = InteractiveSession(
        runner_for(subject), len(subject.registrations), subject.operators, start=subject.start
    )
    recorded = open_named("torch-2.13-cpu").operator("aten::add.Tensor")
    assert recorded is not None
    dump = session.moment.seen(subject.operators[0]).snapshot.dump
    assert all(kernel.debug in dump for kernel in recorded.kernels)
    assert len(session.around(subject.operators[0], subject.concerning(subject.operators[0])).neighbours) == len(
        subject.registrations
    )
    for index in range(len(subject.registrations)):
        session.toggle(index)
    assert not session.moment.seen(subject.operators[0]).snapshot.exists


def test_a_registry_with_the_fallbacks_of_its_pytorch_needs_no_note() -> None:
    for name in ("torch-2.13-cpu", "torch-2.13", "torch-2.6"):
        assert subject_of_operator(open_named(name), "aten::add.Tensor", source=name).notes == ()
    recorded = open_named("torch-2.13-cpu")
    other = subject_of_operator(recorded, "aten::add.Tensor", source="torch-2.13-cpu", semantics="strict")
    assert other.notes == ("torch-2.13-cpu has other backend fallbacks than strict, which a check has",)


def test_one_operator_is_named() -> None:
    recorded = open_named("torch-2.13-cpu")
    with pytest.raises(UnknownOperatorError):
        subject_of_operator(recorded, "aten::no_such", source="torch-2.13-cpu")
    with pytest.raises(AmbiguousOperatorError, match=r"^aten::add has \d+ overloads: name one of aten::add\."):
        subject_of_operator(recorded, "aten::add", source="torch-2.13-cpu")
    with pytest.raises(
        SessionError, match=r"^'aten::add\*' is a glob, but the application shows one operator: give its name$"
    ):
        subject_of_operator(recorded, "aten::add*", source="torch-2.13-cpu")


def test_only_what_an_operator_can_depend_on_concerns_it() -> None:
    text = (
        "{claim: A., registrations: [{def: foo(Tensor x) -> Tensor}, {def: bar() -> ()}, "
        "{fallback: boxed, dispatch: CPU}]}"
    )
    subject = subject_of_scenario(parse_scenario(text))
    foo, bar = subject.operators
    assert (subject.concerning(foo), subject.concerning(bar)) == ((0, 2), (1, 2))


def test_a_scenario_that_names_no_operator_is_refused() -> None:
    with pytest.raises(
        SessionError, match=r"^<text>: there is nothing to explore: it registers nothing about an operator$"
    ):
        subject_of_scenario(parse_scenario("{claim: A., registrations: [{claim: test}]}"))
