"""`dispatchlab explore` as a process: in a terminal, on a page in a browser, and where neither is there."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.test_cli_process import COMMAND, environment, imported_by, run

pty = pytest.importorskip("pty", reason="terminals of POSIX are needed")
pytest.importorskip("textual", reason="the application needs textual: pip install 'dispatchlab[explore]'")

DEMO = Path(__file__).parents[2] / "dispatchlab" / "questions" / "setup" / "demo.yaml"
BUSY_S = 60


class Terminal:
    """A command in a terminal of 80 columns and 24 rows."""

    def __init__(self, folder: Path, *arguments: str, **extra: str) -> None:
        import fcntl
        import struct
        import termios

        self._end, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        variables = environment(TERM="xterm-256color", COLUMNS="80", LINES="24", **extra)
        self.process = subprocess.Popen(
            [*COMMAND, "explore", *arguments],
            cwd=folder,
            env=variables,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)
        self.seen = ""

    def wait_for(self, text: str) -> None:
        """Read until a text is drawn."""
        end = time.monotonic() + BUSY_S
        while text not in self.seen:
            assert time.monotonic() < end, self.seen[-3000:]
            assert self._read() or self.process.poll() is None, self.seen[-3000:]

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._end, keys.encode())

    def close(self) -> None:
        """Let go of the terminal."""
        os.close(self._end)

    def ended(self) -> int:
        """The exit code, once all that was drawn is read."""
        end = time.monotonic() + BUSY_S
        while self.process.poll() is None:
            assert time.monotonic() < end
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def _read(self) -> bool:
        """Read what is there; whether there was something."""
        if not select.select([self._end], [], [], 0.1)[0]:
            return False
        try:
            text = os.read(self._end, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.seen += text.decode(errors="replace")
        return bool(text)


@contextmanager
def terminal(folder: Path, *arguments: str, **extra: str) -> Iterator[Terminal]:
    """A command in a terminal, ended whatever happens."""
    made = Terminal(folder, *arguments, **extra)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        made.close()


def test_it_opens_in_a_terminal_and_quits(tmp_path: Path) -> None:
    with terminal(tmp_path) as opened:
        opened.wait_for("CompositeImplicitAutograd")
        opened.press("1")
        opened.wait_for("changed 34 rows")
        opened.press("q")
        assert opened.ended() == 0
    assert "\x1b[?1049l" in opened.seen  # the screen of before is back


def test_without_colours_it_draws_none(tmp_path: Path) -> None:
    with terminal(tmp_path, NO_COLOR="1", COLORTERM="truecolor") as opened:
        opened.wait_for("CompositeImplicitAutograd")
        opened.press("q")
        assert opened.ended() == 0
    colours = set(re.findall(r"\x1b\[[0-9;]*?38;2;(\d+);(\d+);(\d+)", opened.seen))
    assert colours
    assert all(red == green == blue for red, green, blue in colours)  # shades of grey


@pytest.mark.parametrize(("by", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("after", ["CompositeImplicitAutograd", "order-dependent"])
def test_it_ends_with_a_signal_and_leaves_the_terminal_as_it_was(
    tmp_path: Path, by: signal.Signals, code: int, after: str
) -> None:
    with terminal(tmp_path) as opened:
        opened.wait_for(after)
        opened.press("1u1u1u")
        opened.process.send_signal(by)
        assert opened.ended() == code
    assert "\x1b[?1049l" in opened.seen
    assert "Traceback" not in opened.seen


def test_an_error_that_nobody_expected_is_exit_70_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'explore' in sys.argv:\n"
        "    from dispatchlab.questions.explore.app import ExplorerApp\n"
        "    ExplorerApp.action_light = lambda self: 1 / 0\n",
        encoding="utf-8",
    )
    path = os.pathsep.join((str(tmp_path), environment()["PYTHONPATH"]))
    with terminal(tmp_path, PYTHONPATH=path, TMPDIR=str(tmp_path)) as opened:
        opened.wait_for("CompositeImplicitAutograd")
        opened.press("l")
        assert opened.ended() == 70
    assert "\x1b[?1049l" in opened.seen
    after = opened.seen.rpartition("\x1b[?1049l")[2]
    assert "ZeroDivisionError" in after
    assert "this is a defect of dispatchlab, not a verdict" in after


def test_without_a_terminal_it_says_what_to_do(tmp_path: Path) -> None:
    result = run(tmp_path, "explore")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "explore needs a terminal, but standard input, output or error is not a terminal: use `dispatchlab dump` "
        "for output that can be piped\n"
    )


def test_without_textual_it_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import sys, importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'textual' else find(name, *more)\n"
        "from dispatchlab.cli import main\nmain(['explore'])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr == "explore needs textual, which is not installed: pip install 'dispatchlab[explore]'\n"


@pytest.mark.parametrize("arguments", [["explore", "--help"], ["dump", "aten::add.Tensor"], ["permute", str(DEMO)]])
def test_nothing_else_imports_the_application(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "demo.yaml").write_bytes(DEMO.read_bytes())
    assert imported_by(tmp_path, *arguments) & {"textual"} == set()
