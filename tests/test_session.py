"""An interactive session shows at every step what a fresh engine shows that takes the sequence from its start."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.semantics import Semantics
from dispatchlab.errors import UnknownOperatorError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import StepSequence, format_sequence, parse_sequence
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.result import Expectation
from dispatchlab.prover.run_sequence import SandboxSession, run
from dispatchlab.questions.explore.session import (
    History,
    InteractiveSession,
    Moment,
    Runner,
    SandboxRunner,
    SessionError,
    StoppedError,
)
from dispatchlab.questions.explore.session_subject import (
    Catalogue,
    Subject,
    runner_for,
    saved_scenario,
    subject_of_scenario,
)
from dispatchlab.registries.file import open_named
from dispatchlab.scenario import Scenario, load_scenario, parse_scenario
from dispatchlab.scenario.scenario import operators_named_by
from tests.hostile_texts import write_hostile_files
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


@pytest.mark.parametrize("seed", SEEDS)
def test_an_engine_that_moves_on_shows_the_same_as_one_whose_states_are_values(seed: int) -> None:
    subject, semantics = random_subject(seed)
    names, count = subject.operators, len(subject.registrations)
    moving = SandboxRunner(LabEngine(semantics), subject.registrations, names)
    runners: tuple[Runner, ...] = runner_for(subject, None), moving
    sessions = [InteractiveSession(runner, count, names) for runner in runners]
    chances = [random.Random(seed) for _ in sessions]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(40):
            assert len({random_action(*pair, count) for pair in zip(sessions, chances, strict=True)}) == 1
            one, other = (shown(session.moment, names) for session in sessions)
            assert one == other
        moving.close()


# -- the state graph around


def test_the_states_of_a_set_are_counted_and_the_ways_to_the_others_shown() -> None:
    subject = subject_of_scenario(load_scenario(str(ROOT / "dispatchlab" / "questions" / "setup" / "demo.yaml")))
    session = InteractiveSession(runner_for(subject, None), 3, subject.operators, start=subject.start)
    around = session.around(subject.operators[0], range(3))
    assert (around.active, around.states, around.others) == ((0, 1, 2), 2, ((0, 2, 1),))
    assert [(one.step, one.changed, one.against) for one in around.neighbours] == [
        (~0, 0, ()),
        (~1, 34, (~2,)),
        (~2, 70, (~1,)),
    ]
    session.load((0, 2, 1), "the other order")
    assert session.around(subject.operators[0], range(3)).others == ((0, 1, 2),)


def test_looking_around_stops_when_nobody_wants_it() -> None:
    subject, _ = random_subject(1)
    session = InteractiveSession(runner_for(subject, None), len(subject.registrations), subject.operators)
    with pytest.raises(StoppedError):
        session.around(subject.operators[0], range(len(subject.registrations)), cancelled=lambda: True)


# -- actions


def _session(text: str) -> InteractiveSession:
    subject = subject_of_scenario(parse_scenario(text))
    return InteractiveSession(runner_for(subject, None), len(subject.registrations), subject.operators)


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
    catalogue = Catalogue(open_named("torch-2.13-cpu"), "torch-2.13-cpu")
    subject = catalogue.subject("aten::add.Tensor")
    session = InteractiveSession(
        runner_for(subject, None), len(subject.registrations), subject.operators, start=subject.start
    )
    recorded = open_named("torch-2.13-cpu").operator("aten::add.Tensor")
    assert recorded is not None
    dump = session.moment.seen(subject.operators[0]).snapshot.dump
    assert all(kernel.debug in dump for kernel in recorded.kernels)
    around = session.around(subject.operators[0], subject.concerning(subject.operators[0]))
    twice = [one.step for one in around.neighbours if one.against]
    assert [str(subject.registrations[~step].key) for step in twice] == ["Meta", "Meta"]  # type: ignore[union-attr]
    for index in range(len(subject.registrations)):
        session.toggle(index)
    assert not session.moment.seen(subject.operators[0]).snapshot.exists


def test_a_search_finds_names_that_hold_every_word_and_the_nearest_first() -> None:
    catalogue = Catalogue(open_named("torch-2.13-cpu"), "torch-2.13-cpu")
    assert catalogue.search("") == catalogue.names
    found = catalogue.search("Add tensor")
    assert found[0] == "aten::add.Tensor"
    assert set(found) == {name for name in catalogue.names if "add" in name.lower() and "tensor" in name.lower()}
    assert catalogue.search("aten::add.Tensor")[0] == "aten::add.Tensor"
    assert catalogue.search("no such operator") == ()
    with pytest.raises(UnknownOperatorError):
        catalogue.named("aten::no_such")


def test_a_registry_with_the_fallbacks_of_its_pytorch_needs_no_note() -> None:
    for name in ("torch-2.13-cpu", "torch-2.13", "torch-2.6"):
        assert Catalogue(open_named(name), name).subject("aten::add.Tensor").notes == ()
    other = Catalogue(open_named("torch-2.13-cpu"), "torch-2.13-cpu", "strict").subject("aten::add.Tensor")
    assert other.notes == (
        "torch-2.13-cpu has other backend fallbacks than strict, which a check and a saved scenario have",
    )


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


# -- saved


FILES = sorted(
    str(path) for folder in ("basics", "order", "defects") for path in ROOT.glob(f"scenarios/{folder}/*.yaml")
)


@pytest.mark.parametrize("path", FILES[::7])
def test_a_saved_sequence_leads_to_the_same_dumps(path: str) -> None:
    subject, seed = subject_of_scenario(load_scenario(path)), len(path)
    count = len(subject.registrations)
    session = InteractiveSession(runner_for(subject, None), count, subject.operators)
    chance = random.Random(seed)
    for _ in range(15):
        random_action(session, chance, count)
    if not session.sequence:
        session.toggle(0)
    text, sequence = saved_scenario(subject, session.sequence, path="saved.yaml")
    again = subject_of_scenario(parse_scenario(text))
    written = text.splitlines()[0].split("'")[1]
    assert parse_sequence(written, count=len(again.registrations)) == sequence
    assert (
        fresh(again.semantics, again.scenario.registrations, again.operators, sequence)[2]
        == fresh(subject.semantics, subject.scenario.registrations, again.operators, session.sequence)[2]
    )
    assert (
        again.operators
        == tuple(name for name in subject.operators if name in operators_named_by(again.scenario.registrations))
        or again.operators == subject.operators
    )


def test_a_saved_scenario_expects_what_exploring_it_shows() -> None:
    demo = subject_of_scenario(load_scenario(str(ROOT / "dispatchlab" / "questions" / "setup" / "demo.yaml")))
    assert parse_scenario(saved_scenario(demo, (0, 1, 2))[0]).expect is Expectation.ORDER_DEPENDENT
    assert parse_scenario(saved_scenario(demo, (0, 1))[0]).expect is Expectation.ORDER_INDEPENDENT
    twice = subject_of_scenario(parse_scenario(THREE))
    assert parse_scenario(saved_scenario(twice, (0, 2))[0]).expect is Expectation.REFUSED


def test_an_empty_sequence_is_not_saved() -> None:
    subject, _ = random_subject(1)
    with pytest.raises(SessionError, match=r"^there is nothing to save: the sequence is empty$"):
        saved_scenario(subject, ())


def test_a_hostile_scenario_is_saved_and_read_again(tmp_path: Path) -> None:
    scenario = load_scenario(write_hostile_files(tmp_path)["scenario"])
    text, _ = saved_scenario(subject_of_scenario(scenario), (0, 1), path=str(tmp_path / "x\nregistrations: [].yaml"))
    assert parse_scenario(text).registrations == scenario.registrations[:2]
