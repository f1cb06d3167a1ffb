"""The application through textual's pilot: what keys and the mouse do is what the session has, and what is drawn."""

from __future__ import annotations

import asyncio
import os
import random
import re
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.model.sequence import StepSequence
from dispatchlab.prover.run_sequence import SandboxSession, run
from dispatchlab.scenario import load_scenario
from tests.hostile_texts import EVIL, raw_characters, write_hostile_files

pytest.importorskip("textual", reason="the application needs textual: pip install 'dispatchlab[explore]'")

from textual.pilot import Pilot
from textual.widgets import ContentSwitcher, Input, OptionList, Static

from dispatchlab.questions.explore.app import ExplorerApp
from dispatchlab.questions.explore.open import make_app
from dispatchlab.questions.explore.panes import HELP, HelpScreen, RegistrationList, SequenceList, TextPane

ROOT = Path(__file__).parents[2]
EXPECT = ROOT / "tests" / "data" / "explore"
PICTURE = ROOT / "docs" / "explore.svg"

Play = Callable[[ExplorerApp, Pilot[Any]], Awaitable[None]]


@pytest.fixture(autouse=True)
def _notes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep notes for as long as a slow machine needs."""
    monkeypatch.setattr(ExplorerApp, "NOTIFICATION_TIMEOUT", 3600)


def play(script: Play, *, what: str | None = None, size: tuple[int, int] = (120, 34), **asked: Any) -> None:
    """Run the application and let a script press its keys."""

    async def main() -> None:
        app = make_app(what, **asked)
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            await script(app, pilot)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overridden kernels, in the thread that checks every order
        asyncio.run(main())


async def settled(app: ExplorerApp, pilot: Pilot[Any]) -> None:
    """Wait for what runs beside the keys."""
    await app.workers.wait_for_complete()
    await pilot.pause()


async def press(app: ExplorerApp, pilot: Pilot[Any], *keys: str) -> None:
    """Press keys, and wait until all is drawn."""
    await pilot.press(*keys)
    await settled(app, pilot)


def lines(app: ExplorerApp, selector: str) -> list[str]:
    """The lines of a list."""
    return [str(option.prompt) for option in app.screen.query_one(selector, OptionList).options]


def shown(app: ExplorerApp, selector: str) -> str:
    """The text of a pane."""
    return app.query_one(selector, TextPane).text


def screen(app: ExplorerApp) -> str:
    """What is on the screen, as text."""
    width, height = app.size
    rows = app.screen._compositor.render_strips()
    return "".join(f"{row.text.rstrip()}\n" for row in rows[:height] if width)


def steps(app: ExplorerApp) -> StepSequence:
    """The sequence of the session."""
    return app.session.sequence


def shows_help(app: ExplorerApp) -> bool:
    """Whether the help is on top."""
    return isinstance(app.screen, HelpScreen)


def notes(app: ExplorerApp) -> list[str]:
    """What was notified."""
    return [note.message for note in app._notifications]


# -- registering and releasing


def test_a_press_registers_and_releases_and_marks_what_changed() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        assert steps(app) == (0, 1, 2)
        assert [line[:3] for line in lines(app, "#registrations")] == ["● 0", "● 1", "● 2"]
        await press(app, pilot, "down", "space")
        assert steps(app) == (0, 1, 2, ~1)
        assert lines(app, "#registrations")[1].startswith("○ 1 CompositeImplicitAutograd")
        assert "-1 changed 34 rows" in shown(app, "#table")
        assert "▸ " in shown(app, "#table")
        await press(app, pilot, "enter")
        await press(app, pilot, "1")
        assert steps(app) == (0, 1, 2, ~1, 1, ~1)
        assert lines(app, "#sequence")[-1].startswith("-1 CompositeImplicitAutograd")

    play(script)


def test_a_click_registers_and_releases() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        assert await pilot.click(RegistrationList, offset=(5, 3))
        await settled(app, pilot)
        assert steps(app) == (0, 1, 2, ~2)
        assert await pilot.click(RegistrationList, offset=(5, 3))
        await settled(app, pilot)
        assert steps(app) == (0, 1, 2, ~2, 2)

    play(script)


def test_undo_and_redo_draw_what_was_there() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "2")
        changed = lines(app, "#registrations")
        await press(app, pilot, "u")
        assert steps(app) == (0, 1, 2)
        await press(app, pilot, "y")
        assert steps(app) == (0, 1, 2, ~2)
        assert lines(app, "#registrations") == changed
        await press(app, pilot, "u", "u")
        assert notes(app) == ["nothing to undo"]

    play(script)


def test_steps_are_moved_removed_and_gone_back_to() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        app.query_one(SequenceList).focus()
        await press(app, pilot, "K")
        assert steps(app) == (0, 2, 1)
        await press(app, pilot, "shift+down")
        assert steps(app) == (0, 1, 2)
        await press(app, pilot, "up", "x")
        assert steps(app) == (0, 2)
        await press(app, pilot, "u", "home", "enter")
        assert steps(app) == (0,)
        assert app.session.action == "back to step 1"
        await press(app, pilot, "0", "end", "K")
        assert steps(app) == (0, ~0)
        assert notes(app) == ["step -0 cannot be run: at the start, 0 is not registered"]

    play(script)


def test_200_random_keys_show_at_every_step_what_a_fresh_engine_shows() -> None:
    scenario = load_scenario(str(ROOT / "dispatchlab" / "questions" / "setup" / "demo.yaml"))
    (name,) = scenario.operators

    def fresh(sequence: tuple[int, ...]) -> str:
        dispatcher = Dispatcher.for_scenario(scenario.semantics or "strict")
        session = SandboxSession(dispatcher, scenario.registrations, scenario.operators)
        for _ in run(session, sequence):
            pass
        snapshot = dispatcher.snapshot(name)
        return f"{snapshot.dump}\n{snapshot.table}" if snapshot.exists else f"nothing is registered for {name}"

    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        chance = random.Random(7)
        await press(app, pilot, "d")
        longest = 0
        for _ in range(200):
            await pilot.press(chance.choice(("0", "1", "2", "0", "1", "2", "u", "u", "y", "y", "y")))
            longest = max(longest, len(steps(app)))
            assert shown(app, "#table") == fresh(steps(app))
        assert longest > 10

    play(script, size=(40, 12))


# -- the panes


def test_a_question_mark_is_typed_into_a_call_and_f1_shows_the_help() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        assert "? Help" in screen(app)
        await press(app, pilot, "e", "question_mark")
        assert not shows_help(app)
        assert app.query_one(Input).value == "?"
        assert screen(app).rstrip().endswith("f1 Help")
        await press(app, pilot, "f1")
        assert shows_help(app)

    play(script)


def test_a_call_of_an_operator_without_a_def_names_the_registration_to_press() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "c", "enter", "e")
        assert steps(app) == (1, 2)
        assert shown(app, "#explanation") == "demo::scale has no def, so a call raises; registration 0 defines it"
        await press(app, pilot, "escape", "0")
        assert "1. call -> " in shown(app, "#explanation")

    play(script)


def test_an_operator_that_nothing_defines_has_no_registration_to_press(tmp_path: Path) -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "c", "e")
        assert shown(app, "#check-text").startswith("order-independent")
        assert shown(app, "#explanation") == "a::foo has no def, so a call raises"

    path = tmp_path / "kernels.yaml"
    path.write_text("{claim: A., registrations: [{impl: 'a::foo', dispatch: CPU}, {impl: 'a::foo', dispatch: CUDA}]}")
    play(script, what=str(path))


def test_the_neighbours_show_what_changes_and_can_be_gone_to() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        assert "one of 2 states of this set" in str(app.query_one("#around-head", Static).content)
        assert [line[:10] for line in lines(app, "#neighbours")] == ["─▸ -0  0 r", "─▸ -1  34 ", "─▸ -2  70 "]
        await press(app, pilot, "a", "down", "enter")
        assert steps(app) == (0, 1, 2, ~1)
        assert lines(app, "#neighbours")[1].startswith("─▸ +1  0 rows")

    play(script)


def test_a_typed_call_is_explained_at_each_key_and_after_each_step() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "e")
        assert "1. call -> AutogradCPU" in shown(app, "#explanation")
        await press(app, pilot, *"cuda")
        assert "1. call -> AutogradCUDA" in shown(app, "#explanation")
        await press(app, pilot, "x")
        assert "cudax" in shown(app, "#explanation")
        await press(app, pilot, "backspace", "escape", "1")
        assert steps(app) == (0, 1, 2, ~1)
        assert "VariableFallbackKernel.cpp" in shown(app, "#explanation")
        await press(app, pilot, "0", "2")
        assert "demo::scale" in shown(app, "#explanation")
        assert "call ->" not in shown(app, "#explanation")

    play(script)


def test_a_counterexample_is_shown_and_taken_over() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "c")
        assert app.report is not None
        text = shown(app, "#check-text")
        assert text.startswith("order-dependent")
        assert "\none order\n  +2 Composite" in text
        assert "\nthe other order\n  +1 Composite" in text
        assert "\ncause: " in text
        await press(app, pilot, "enter")
        counterexample = app.report.exploration.counterexample
        assert counterexample is not None
        assert steps(app) == counterexample.actual_sequence

    play(script)


def test_a_scenario_whose_order_has_no_effect_is_proved_beside_the_session() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "c")
        assert shown(app, "#check-text").startswith("order-independent")
        assert app.query_one("#check-load").display is False

    play(script, what=str(sorted((ROOT / "scenarios" / "basics").glob("*.yaml"))[0]))


def test_operators_are_shown_in_turn() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        first = app.operator
        assert f"{first}, 1 of {len(app.subject.operators)}" in screen(app)
        await press(app, pilot, "o")
        assert app.operator == app.subject.operators[1]

    several = next(
        path for path in (ROOT / "scenarios").glob("*/*.yaml") if len(load_scenario(str(path)).operators) > 1
    )
    play(script, what=str(several))


# -- what comes on top


def test_every_key_of_the_help_is_there() -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "question_mark")
        assert shows_help(app)
        assert "press one to register it, again to release" in screen(app)
        await press(app, pilot, "escape")
        assert not shows_help(app)
        named = {key for line in HELP.splitlines() for key in re.split("[,;] ", re.split(r"\s{2,}", line.strip())[0])}
        named |= set(re.findall(r"^[A-Z]+ +(\w);", HELP, re.MULTILINE))
        keys = {one.binding.key_display or one.binding.key for one in app.active_bindings.values()}
        single = {key for key in keys if len(key) == 1 and not key.isdigit()}
        assert len(single) > 10
        assert single - named == set()

    play(script)


# -- what is drawn


@pytest.mark.parametrize("size", [(120, 34), (80, 24), (48, 16), (20, 8)])
def test_every_pane_can_be_seen_in_every_terminal(size: tuple[int, int]) -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        for key, selector in zip("rtaec", ("#registrations", "#table", "#around", "#explain", "#check"), strict=True):
            await press(app, pilot, key)
            pane = app.query_one(selector)
            assert pane.region.width >= min(18, size[0] - 2), selector
            assert pane.region.height >= 3
            assert app.screen.can_view_partial(pane)
            assert app.focused is not None
            await press(app, pilot, "escape")
        assert app.query_one("#side", ContentSwitcher).current == "check"

    play(script, size=size)


def test_names_of_strangers_are_text(tmp_path: Path) -> None:
    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        for keys in ("d", "d", "1", "a", "c", "e", "cpu", "escape"):
            await press(app, pilot, *([keys] if keys == "escape" else keys))
            assert raw_characters(screen(app)) == set()
            assert "\x1b" not in app.export_screenshot()
        assert all("[red]" in line and "\\x1b" in line for line in lines(app, "#registrations"))
        assert all("[red]" in line and "\\x1b" in line for line in lines(app, "#sequence"))

    async def operator(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        for key in ("d", "d", "1", "e", "escape"):
            await press(app, pilot, key)
            assert raw_characters(screen(app)) == set()
        assert raw_characters("".join(notes(app))) == set()
        assert "other backend fallbacks than" in "".join(notes(app))

    assert "[red]" in EVIL
    files = write_hostile_files(tmp_path)
    play(script, what=files["scenario"], size=(200, 40))
    play(operator, what="test::foo", source=files["registry"], size=(120, 30))


SCREENS = {
    "first": ((120, 34), ()),
    "released": ((120, 34), ("1",)),
    "small": ((80, 24), ()),
    "check": ((80, 24), ("c",)),
    "help": ((80, 40), ("question_mark",)),
}


@pytest.mark.parametrize("name", SCREENS)
def test_the_screen_is_that_of_the_golden_file(name: str) -> None:
    size, keys = SCREENS[name]
    found: list[str] = []

    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, *keys)
        found.append(screen(app))

    play(script, size=size)
    golden(EXPECT / f"{name}.txt", found[0])


def golden(path: Path, text: str) -> None:
    """Compare with a golden file, or write it when that is asked for."""
    if os.environ.get("EXPECTTEST_ACCEPT"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_the_picture_of_the_docs_shows_the_application() -> None:
    found: list[str] = []

    async def script(app: ExplorerApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "1", "a")
        found.append(app.export_screenshot(title="dispatchlab explore"))

    play(script, size=(120, 34))
    picture = re.sub(r"@font-face \{.*?\}\s*", "", found[0], flags=re.DOTALL)  # fonts of another host
    picture = re.sub(r"terminal-[0-9]+", "terminal", picture)
    if os.environ.get("EXPECTTEST_ACCEPT"):
        PICTURE.write_text(picture, encoding="utf-8")
    kept = PICTURE.read_text(encoding="utf-8")
    assert re.findall(r">([^<>]+)</text>", picture) == re.findall(r">([^<>]+)</text>", kept)
    assert "http" not in kept.replace("http://www.w3.org/", "").replace("https://www.textualize.io", "")


def test_no_golden_screen_is_left_over() -> None:
    assert sorted(path.stem for path in EXPECT.glob("*.txt")) == sorted(SCREENS)
