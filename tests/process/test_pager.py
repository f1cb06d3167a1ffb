"""Long output on a terminal goes to a pager, and nothing else does; whatever becomes of the pager, exit codes stay."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenario_texts import FIVE, TWICE
from tests.terminals import run_on_terminal

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")

ROOT = Path(__file__).parents[2]
LONG = ("dump", "foo", "--from", "five.yaml", "--all")
VIOLATED = ("permute", "violated.yaml")
_KEPT = {
    name: value for name, value in os.environ.items() if name not in ("PAGER", "LESS", "DISPATCHLAB_PAGER", "LINES")
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with scenarios, and a pager that keeps what it is given."""
    (tmp_path / "five.yaml").write_text(FIVE)
    (tmp_path / "violated.yaml").write_text(TWICE.replace("expect: order-dependent\n", ""))
    keep = tmp_path / "keep"
    keep.write_text('#!/bin/sh\ncat > paged.txt\necho "LESS=$LESS" > less.txt\n')
    keep.chmod(0o755)
    return tmp_path


def on_terminal(folder: Path, *arguments: str, keys: str = "", when: str = "", **variables: str) -> tuple[int, str]:
    """The exit code of a command on a terminal that someone types at, and what the terminal shows.

    Args:
        folder: where it runs.
        arguments: those of the command.
        keys: what is typed, once `when` is shown.
        when: see `keys`.
        variables: of the environment.
    """
    env = {**_KEPT, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **variables}
    return run_on_terminal(folder, arguments, env, keys=keys, when=when)


def test_long_output_goes_to_the_pager_of_dispatchlab_and_exit_codes_stay(folder: Path) -> None:
    pagers = {"DISPATCHLAB_PAGER": "./keep", "PAGER": "false"}
    code, shown = on_terminal(folder, *VIOLATED, **pagers)
    assert (code, shown) == (1, "")
    assert "order-dependent" in (folder / "paged.txt").read_text()
    assert (folder / "less.txt").read_text() == "LESS=FRX\n"
    code, shown = on_terminal(folder, *LONG, PAGER="./keep", LESS="S")
    assert (code, shown) == (0, "")
    paged = (folder / "paged.txt").read_text()
    assert "test::foo" in paged
    assert "\x1b[" in paged, "a pager shows colours"
    assert "\x1b]8" not in paged, "a pager that is not less shows no links"
    assert (folder / "less.txt").read_text() == "LESS=S\n"


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (("--no-pager", *LONG), {"DISPATCHLAB_PAGER": "./keep"}),
        ((*LONG, "--no-pager"), {"DISPATCHLAB_PAGER": "./keep"}),
        (LONG, {"DISPATCHLAB_PAGER": "", "PAGER": "./keep"}),
        (LONG, {"DISPATCHLAB_PAGER": "cat"}),
        (LONG, {"PAGER": "./keep", "LINES": "999"}),
        (LONG, {"TERM": "dumb"}),
        (("dump", "foo", "--from", "five.yaml", "--format", "json"), {"PAGER": "./keep"}),
    ],
)
def test_what_is_short_or_asked_to_be_printed_is_printed(
    folder: Path, arguments: tuple[str, ...], variables: dict[str, str]
) -> None:
    code, shown = on_terminal(folder, *arguments, **variables)
    assert code == 0
    assert "test::foo" in shown
    assert not (folder / "paged.txt").exists()


def test_a_pipe_is_never_paged(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dispatchlab", *LONG, "--format", "rich"],
        cwd=folder,
        env={**_KEPT, "PYTHONPATH": str(ROOT), "PAGER": "./keep", "LINES": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "test::foo" in done.stdout
    assert not (folder / "paged.txt").exists()


@pytest.mark.parametrize("pager", ["true", "head -n 1", "exit 3", "kill -9 $$"])
def test_a_pager_that_ends_early_is_no_error(folder: Path, pager: str) -> None:
    code, shown = on_terminal(folder, *VIOLATED, DISPATCHLAB_PAGER=pager)
    assert code == 1
    assert "Traceback" not in shown
    assert "rror" not in shown


def test_a_pager_that_does_not_exist_loses_nothing(folder: Path) -> None:
    code, shown = on_terminal(folder, *VIOLATED, DISPATCHLAB_PAGER="no-such-pager")
    assert code == 1
    assert "order-dependent" in shown
    assert "Traceback" not in shown


def test_ctrl_c_is_the_pagers(folder: Path) -> None:
    patient = "trap 'echo caught; exit' INT; echo waiting; while :; do sleep 0.1; done"
    code, shown = on_terminal(folder, *VIOLATED, keys="\x03", when="waiting", DISPATCHLAB_PAGER=patient)
    assert code == 1
    assert "caught" in shown
    assert "Traceback" not in shown
    assert "interrupted" not in shown


@pytest.mark.skipif(shutil.which("less") is None, reason="there is no less here")
def test_less_shows_the_first_screen_and_q_ends_it(folder: Path) -> None:
    code, shown = on_terminal(folder, *VIOLATED, keys="q", when=":")
    assert code == 1
    assert "order-dependent" in shown
    assert "Traceback" not in shown
