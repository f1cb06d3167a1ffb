"""Every command on hostile files, on a real terminal: it is never given a control character that is not a drawing's."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile_texts import (
    EVIL,
    LIVE_COMMANDS,
    NAME,
    OTHER_COMMANDS,
    TEXT_COMMANDS,
    raw_characters,
    words_of,
    write_hostile_files,
)
from tests.terminals import run_on_terminal

ROOT = Path(__file__).parents[2]
HAS_TORCH = importlib.util.find_spec("torch") is not None


def on_terminal(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a command, and what its terminal is given by both of its streams."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", "TERM": "xterm", "COLUMNS": "100", "PYTHONUTF8": "1"}
    env["DISPATCHLAB_PAGER"] = ""
    return run_on_terminal(folder, arguments, env)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The hostile files, by kind."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile_package.py").write_text(
        "import torch\n"
        "code = 'def register(library):\\n    library.define(\"foo(Tensor x) -> Tensor\")'\n"
        f"exec(compile(code, {NAME!r}, 'exec'))\n"
        "library = torch.library.Library('hostile', 'DEF')\nregister(library)\n"
        f"def kernel(x): return x\nkernel.__qualname__ = kernel.__name__ = {EVIL!r}\n"
        "library.impl('foo', kernel, 'CPU')\n",
        encoding="utf-8",
    )
    return {**write_hostile_files(folder), "folder": str(folder / f"folder {NAME}"), "name": NAME, "at": str(folder)}


@pytest.mark.parametrize("command", [*TEXT_COMMANDS, *OTHER_COMMANDS, *LIVE_COMMANDS])
def test_a_terminal_is_given_no_control_characters(command: str, hostile: dict[str, str]) -> None:
    if command in LIVE_COMMANDS and not HAS_TORCH:
        pytest.skip("there is no PyTorch")
    code, text = on_terminal(Path(hostile["at"]), *words_of(command, hostile))
    assert text.strip()
    assert "Traceback" not in text
    assert code in (0, 1, 2, 3, 5)
    assert raw_characters(text) == set()


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-", ">&- 2>&-", ">&- 2>&- <&-", "2>/dev/full", ">/dev/full"])
@pytest.mark.parametrize(("command", "code"), [("--help", 0), ("dump --version", 0), ("permute", 2), ("schema", 0)])
def test_a_stream_may_be_closed_or_full(command: str, code: int, redirection: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = f"'{sys.executable}' -m dispatchlab {command} {redirection}"
    result = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, check=False)
    unread = code == 0 and redirection.startswith(">")
    assert result.returncode == (74 if unread else code)
    assert ("the output could not be written" in result.stderr) == (unread and "2>" not in redirection)
    assert "Traceback" not in result.stderr
