"""Interactive sessions on the installed PyTorch show what a fresh sandbox shows, and survive the end of its worker."""

from __future__ import annotations

import asyncio
import random
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dispatchlab.prover.run_sequence import SandboxSession, run
from dispatchlab.questions.explore.session import InteractiveSession, SessionError
from dispatchlab.questions.explore.session_subject import Catalogue, runner_for, subject_of_scenario
from dispatchlab.registries.file import open_named
from dispatchlab.scenario import load_scenario, parse_scenario
from tests.test_session import random_action, shown

pytest.importorskip("torch", reason="PyTorch is not installed")

from dispatchlab.live.worker.engine import LiveEngine

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def engine() -> Iterator[LiveEngine]:
    with LiveEngine() as made:
        yield made


def test_a_session_of_200_random_actions_shows_at_every_step_what_a_fresh_sandbox_shows(engine: LiveEngine) -> None:
    subject = subject_of_scenario(
        parse_scenario((ROOT / "dispatchlab" / "questions" / "setup" / "demo.yaml").read_text("utf-8"))
    )
    names, count = subject.operators, len(subject.registrations)
    runner = runner_for(subject, engine)
    session = InteractiveSession(runner, count, names)
    chance, longest = random.Random(3), 0
    for _ in range(200):
        random_action(session, chance, count)
        longest = max(longest, len(session.sequence))
        active, _, seen = shown(session.moment, names)
        runner.close()  # fallbacks are of the whole process: one sandbox at a time
        with engine.sandbox() as sandbox:
            fresh = SandboxSession(sandbox, subject.registrations, names)
            refused = [refusal for _, refusal in run(fresh, session.sequence)]
            snapshots, violations = fresh.look()
        assert (snapshots, violations) == (tuple(one for one, _ in seen), tuple(v for _, some in seen for v in some))
        assert refused == list(session.moment.refusals)
        assert len(active) <= count
    assert longest > 8


def test_the_state_graph_around_shows_what_does_not_commute_on_pytorch(engine: LiveEngine) -> None:
    scenario = load_scenario(str(ROOT / "dispatchlab" / "questions" / "setup" / "demo.yaml"))
    subject = subject_of_scenario(scenario)
    session = InteractiveSession(runner_for(subject, engine), 3, subject.operators, start=subject.start)
    around = session.around(subject.operators[0], range(3))
    assert [(one.step, one.against) for one in around.neighbours] == [(~0, ()), (~1, (~2,)), (~2, (~1,))]


def test_an_operator_of_the_registry_has_the_table_of_the_lab_with_stand_ins_for_its_kernels(
    engine: LiveEngine,
) -> None:
    catalogue = Catalogue(open_named("torch-2.13-cpu"), "torch-2.13-cpu")
    for name in ("aten::add.Tensor", "aten::linear", "aten::conv2d.padding", "aten::_foreach_add.Scalar"):
        subject = catalogue.subject(name)
        lab, live = (
            InteractiveSession(runner_for(subject, each), len(subject.registrations), subject.operators)
            for each in (None, engine)
        )
        for index in (*subject.start, 0, len(subject.start) - 1):
            lab.toggle(index)
            live.toggle(index)
            assert lab.moment.seen(subject.operators[0]).snapshot.table == (
                live.moment.seen(subject.operators[0]).snapshot.table
            )


def test_the_end_of_the_worker_is_a_sentence_and_the_session_goes_on(engine: LiveEngine) -> None:
    from dispatchlab.prover.protocol import EngineCrashed

    subject = subject_of_scenario(
        parse_scenario((ROOT / "dispatchlab" / "questions" / "setup" / "demo.yaml").read_text("utf-8"))
    )
    session = InteractiveSession(runner_for(subject, engine), 3, subject.operators, start=(0,))
    engine.worker.end()
    with pytest.raises(EngineCrashed):
        session.toggle(1)
    assert [*session.sequence] == [0]
    session.toggle(1)
    assert [*session.sequence] == [0, 1]
    assert session.moment.active == {0, 1}


def test_what_stands_on_a_registry_is_refused_on_pytorch(engine: LiveEngine, tmp_path: Path) -> None:
    (tmp_path / "over.yaml").write_text(
        "{claim: A., registry: torch-2.13-cpu, registrations: [{impl: aten::mul.Tensor, dispatch: CPU}]}",
        encoding="utf-8",
    )
    subject = subject_of_scenario(load_scenario(str(tmp_path / "over.yaml")))
    assert subject.ground
    with pytest.raises(SessionError, match="stands on a registry"):
        runner_for(subject, engine)


FALLBACK = """\
claim: A.
registrations:
  - def: foo(Tensor x) -> Tensor
  - fallback: fallthrough
    dispatch: Lazy
"""


def test_one_sandbox_is_left_before_another_opens_so_that_fallbacks_do_not_meet(tmp_path: Path) -> None:
    pytest.importorskip("textual", reason="the application needs textual: pip install 'dispatchlab[explore]'")
    from dispatchlab.questions.explore.open import Asked, make_app
    from tests.deep.test_explorer_app import lines, press, settled

    (tmp_path / "fallback.yaml").write_text(FALLBACK, encoding="utf-8")

    async def main() -> None:
        with ExitStack() as resources:
            app = make_app(Asked(what=str(tmp_path / "fallback.yaml"), engine="torch"), resources)
            async with app.run_test(size=(80, 24)) as pilot:
                await settled(app, pilot)
                for _ in range(2):
                    assert [line[0] for line in lines(app, "#registrations")] == ["●", "●"]
                    await press(app, pilot, "1", "1")
                    app.open_subject(app.subject)
                    await settled(app, pilot)
                assert app.session.moment.refused == ()

    asyncio.run(main())


def test_the_application_runs_on_pytorch() -> None:
    pytest.importorskip("textual", reason="the application needs textual: pip install 'dispatchlab[explore]'")
    from dispatchlab.questions.explore.open import Asked, make_app
    from tests.deep.test_explorer_app import press, screen, settled, shown

    async def main() -> None:
        with ExitStack() as resources:
            app = make_app(Asked(engine="torch"), resources)
            async with app.run_test(size=(120, 34)) as pilot:
                await settled(app, pilot)
                assert "PyTorch, torch-2." in screen(app)
                await press(app, pilot, "1")
                assert "-1 changed 34 rows" in shown(app, "#table")
                await press(app, pilot, "u", "c", "space")
                assert shown(app, "#check-text").startswith("order-dependent")
                await press(app, pilot, *["right"] * 3)
                assert "34 rows differ" in shown(app, "#check-text")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(main())
