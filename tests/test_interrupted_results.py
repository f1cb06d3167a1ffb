"""A result that was found comes out whole, also when Ctrl-C or SIGTERM comes while it is drawn and written."""

from __future__ import annotations

import re
import signal
import sys
import time
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dispatchlab.cli import main
from dispatchlab.commands import interrupts
from tests.scenario_texts import FIVE, TWICE

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the signals are those of POSIX")

COMMANDS = (
    ("permute", "twice.yaml"),
    ("certify", "twice.yaml", "--jobs", "1"),
    ("lint", "twice.yaml"),
    ("diff", "twice.yaml", "five.yaml"),
    ("coverage", "twice.yaml", "--key", "CPU"),
    ("dump", "test::foo", "--from", "twice.yaml"),
    ("explain", "aten::relu", "--arg", "cpu", "--from", "torch-2.13"),
    ("trace", "program.py", "--sets"),
)
WRITE, DRAW = "click.testing._NamedTextIOWrapper.write", "dispatchlab.views.console.console"
_TIME = re.compile(r"[\d.,]+ m?s\b")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twice.yaml").write_text(TWICE)
    (tmp_path / "five.yaml").write_text(FIVE)
    (tmp_path / "program.py").write_text(
        "from dispatchlab import Dispatcher, Library, operator\n"
        'library = Library("test", "DEF", dispatcher=(dispatcher := Dispatcher()))\n'
        'library.define("foo(int x) -> int", lambda x: x)\n'
        'operator(dispatcher, "test::foo")(1)\n'
    )


def run(*arguments: str, drawn: bool = False) -> Result:
    return CliRunner().invoke(main, arguments, env={"FORCE_COLOR": "1" if drawn else "0", "NO_COLOR": None})


def _without_times(text: str) -> str:
    return " ".join(_TIME.sub("", text).split())


def interrupt_at(place: str, *signals: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have these signals come at the next call of a function, or in the middle of the next text on standard output.

    Returns:
        Those that came.
    """
    came: list[int] = []

    def interrupt() -> None:
        if not came:
            came.extend(signals)
            for each in signals:
                signal.raise_signal(each)

    def half(stream: TextIOWrapper, text: str) -> int:
        TextIOWrapper.write(stream, text[: len(text) // 2])
        if stream.name == "<stdout>":
            interrupt()
        TextIOWrapper.write(stream, text[len(text) // 2 :])
        return len(text)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        interrupt()
        return was(*arguments, **options)

    if place == WRITE:
        monkeypatch.setattr(place, half, raising=False)
    else:
        module, _, name = place.rpartition(".")
        was = getattr(import_module(module), name)
        monkeypatch.setattr(place, interrupted)
    return came


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("place", [WRITE, DRAW])
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_result_comes_out_whole_and_the_exit_code_is_that_of_the_interrupt(
    arguments: tuple[str, ...], how: int, code: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(*arguments, drawn=place == DRAW)
    assert whole.exit_code in (0, 1)
    came = interrupt_at(place, how, monkeypatch=monkeypatch)
    found = run(*arguments, drawn=place == DRAW)
    assert came == [how]
    assert found.exit_code == code
    assert _without_times(found.stdout) == _without_times(whole.stdout) != ""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("place", [WRITE, "dispatchlab.questions.certify.blocks.certification_view"])
def test_what_was_certified_before_an_interrupt_outlives_another_one(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dispatchlab.questions.certify.certify_registry._certify", interrupted)
    assert interrupt_at(place, signal.SIGINT, monkeypatch=monkeypatch) == []
    found = run("certify", "twice.yaml", "--jobs", "1", "--format", "json", "--report", "page.html")
    assert found.exit_code == 130
    assert '"interrupted": true' in found.stdout
    assert found.stdout.endswith("}\n")
    assert Path("page.html").read_text(encoding="utf-8").rstrip().endswith("</html>")


@pytest.mark.usefixtures("folder")
def test_the_second_interrupt_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(DRAW, signal.SIGTERM, signal.SIGINT, monkeypatch=monkeypatch)
    found = run("lint", "twice.yaml", drawn=True)
    assert (found.exit_code, found.stdout) == (143, "")


def _sleep_uninterrupted() -> None:
    with interrupts.results_come_first():
        signal.raise_signal(signal.SIGINT)
        time.sleep(600)


def test_an_interrupt_waits_for_no_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_WAIT_S", 0.05)
    with pytest.raises(KeyboardInterrupt):
        _sleep_uninterrupted()
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def _end_uninterrupted() -> None:
    with interrupts.results_come_first(), interrupts.results_come_first():
        signal.raise_signal(signal.SIGINT)
        raise SystemExit(0)


def test_an_interrupt_wins_over_the_end_of_a_command() -> None:
    with pytest.raises(KeyboardInterrupt):
        _end_uninterrupted()


@pytest.mark.parametrize("kind", [ImportError, SyntaxError, RuntimeError])
def test_what_python_makes_of_an_interrupt_is_one(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # for the details of an unexpected error

    def interrupted(context: object, name: str) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise kind("such as: Error calling __set_name__") from (error if kind is RuntimeError else None)

    with monkeypatch.context() as patch:
        patch.setattr(main, "get_command", interrupted)
        found = run("schema")
        assert (found.exit_code, found.output) == (130, "")

    def wrong(context: object, name: str) -> None:
        raise kind("of another cause")

    monkeypatch.setattr(main, "get_command", wrong)
    assert run("schema").exit_code == 70
