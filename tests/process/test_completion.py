"""What the completion of a shell offers: each key press starts the command."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dispatchlab.cli import main
from dispatchlab.commands.completion import typed_words
from dispatchlab.model.profile import semantics_names
from dispatchlab.records.file import bundled_names
from tests.scenario_texts import OVERLOADS

ROOT = Path(__file__).parents[2]


def completed(folder: Path, *words: str) -> list[str]:
    """What bash is offered after `words`, of which the last is being typed."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "_DISPATCHLAB_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("dispatchlab", *words)),
        "COMP_CWORD": str(len(words)),
    }
    script = "from dispatchlab.cli import main\nmain(prog_name='dispatchlab')"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def test_operators_keys_semantics_and_scenarios_are_completed(tmp_path: Path) -> None:
    (tmp_path / "overloads.yaml").write_text(OVERLOADS)
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "deep.yml").write_text("")
    assert completed(tmp_path, "du") == ["dump"]
    assert completed(tmp_path, "dump", "--from", "overloads.yaml", "test::b") == [
        "test::bar.one",
        "test::baz.one",
        "test::baz.two",
    ]
    assert completed(tmp_path, "dump", "--from", "nothing.yaml", "te") == []
    assert completed(tmp_path, "dump", "foo", "--key", "AutogradP") == [
        "AutogradPrivateUse1",
        "AutogradPrivateUse2",
        "AutogradPrivateUse3",
    ]
    assert completed(tmp_path, "permute", "--semantics", "t") == sorted(
        name for name in ("torch", *semantics_names()) if name.startswith("t")
    )
    assert completed(tmp_path, "permute", "o") == ["overloads.yaml"]
    assert completed(tmp_path, "dump", "foo", "--from", "more") == ["more/"]
    assert completed(tmp_path, "dump", "foo", "--from", "more/d") == ["more/deep.yml"]


def test_operators_of_registries_and_the_registries_are_completed(tmp_path: Path) -> None:
    (tmp_path / "mine.dlreg").write_bytes(b"")
    assert completed(tmp_path, "dump", "aten::add.T") == ["aten::add.Tensor"]
    assert completed(tmp_path, "explain", "--from", "torch-2.13", "aten::addmm_") == ["aten::addmm_"]
    assert len(completed(tmp_path, "certify", "--operator", "aten::")) > 3_000
    assert completed(tmp_path, "dump", "--from", "mine.dlreg", "aten::add") == []
    assert completed(tmp_path, "diff", "") == ["live", "mine.dlreg", *sorted(bundled_names())]
    assert completed(tmp_path, "lint", "--against", "to") == sorted(bundled_names())
    assert completed(tmp_path, "coverage", "--key", "PrivateUse1") == ["PrivateUse1"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("dispatchlab du", ["dump"]),
        ("dispatchlab dump aten::add.T", ["add.Tensor"]),
        ("dispatchlab dump --from torch-2.13 aten::addmm_", ["addmm_"]),
        ("dispatchlab permute --semantics ", sorted(("torch", *semantics_names()))),
        ("dispatchlab dump aten::add.Tensor --key AutogradCP", ["AutogradCPU"]),
    ],
)
def test_bash_replaces_what_stands_after_the_last_colon(tmp_path: Path, line: str, wanted: list[str]) -> None:
    program = tmp_path / "dispatchlab"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dispatchlab "$@"\n')
    program.chmod(0o755)
    asks = (
        f"{CliRunner().invoke(main, ['completion', 'bash']).stdout}\n"
        f"COMP_WORDBREAKS=' :='; COMP_LINE='{line}'; COMP_POINT={len(line)}; COMPREPLY=()\n"
        f"_dispatchlab_completion '{program}'\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(["bash", "-c", asks], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (result.stdout.splitlines(), result.stderr) == (wanted, "")


HOSTILE = (
    *("$(touch RUN)", "`touch RUN`", "a;touch RUN", "a&touch RUN", "a|touch RUN", "a b", "~root", "a'b", 'a"b', "a,b"),
    *("a:b", "a=b", "é", "<(touch RUN)", "{x,touch RUN}", "!!", "a\\b", "#a", "*", "[a]", "%s"),
)
"""Names of folders that shells would run, expand or split."""
UNTYPED = ("a\nplain,$(touch RUN)", "\x1b]0;RUN\x07", "a\u202eb", "-n", "--allow-import")
"""Names that are never offered."""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_is_offered_words_that_mean_the_names_and_nothing_else(tmp_path: Path) -> None:
    names = tmp_path / "names"
    for name in (*HOSTILE, *UNTYPED):
        (names / name).mkdir(parents=True)
    program = _program(tmp_path)
    asks = (
        f"{CliRunner().invoke(main, ['completion', 'bash']).stdout}\n"
        "compopt() { :; }; COMP_WORDBREAKS=$' \\t\\n\"\\'><=;|&(:'; COMP_LINE='dispatchlab permute '; COMP_POINT=20\n"
        f"COMPREPLY=(); _dispatchlab_completion '{program}'\n"
        'for each in "${COMPREPLY[@]}"; do eval "words=($each)"; printf "%s\\n" "${#words[@]} ${words[0]}"; done\n'
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(["bash", "-c", asks], cwd=names, env=env, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert sorted(result.stdout.splitlines()) == sorted(f"1 {name}/" for name in HOSTILE)
    assert not list(tmp_path.rglob("RUN"))


def test_a_word_is_read_without_its_quotes_and_nothing_in_it_is_expanded() -> None:
    assert typed_words(r"x permute \$\(touch\ X", " :(") == (("x", "permute", "$(touch X"), False, 0)
    assert typed_words("x 'a b' \"c $d\" ", "") == (("x", "a b", "c $d", ""), False, 0)
    assert typed_words("x 'a b", "") == (("x", "a b"), True, 0)
    assert typed_words(r"x aten::a\:b", ":") == (("x", "aten::a:b"), False, 6)
    assert typed_words("x a\\", "") == (("x", "a"), False, 0)


def _program(folder: Path) -> Path:
    """A program `dispatchlab` that completes, and otherwise writes down its arguments."""
    program = folder / "programs" / "dispatchlab"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
if [ -z "$_DISPATCHLAB_COMPLETE" ] && [ "$1" != completion ]; then
    printf '%s\\n' "$@" END >> '{folder}/arguments'
else
    exec '{sys.executable}' -m dispatchlab "$@"
fi
"""
    )
    program.chmod(0o755)
    return program


STARTS = {
    "bash": (("--norc", "--noprofile", "-i"), 'eval "$(dispatchlab completion bash)"'),
    "zsh": (("-f", "-i"), 'autoload -U compinit; compinit -u -D; eval "$(dispatchlab completion zsh)"'),
    "fish": (("--no-config", "-i"), "dispatchlab completion fish | source"),
}


class _Terminal:
    """A shell on a terminal of its own, into which keys are typed."""

    def __init__(self, folder: Path, shell: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{folder / 'programs'}:{os.environ['PATH']}"}
        env |= {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "TERM": "xterm"}
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.execvpe(shell, (shell, *STARTS[shell][0]), env)

    def type(self, keys: str) -> None:
        """Type keys, and wait until the shell has answered and is quiet."""
        os.write(self._terminal, keys.encode())
        wait = 10.0
        while select.select([self._terminal], [], [], wait)[0]:
            os.read(self._terminal, 65536)
            wait = 0.3

    def close(self) -> None:
        """End the shell."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)


@pytest.mark.parametrize("shell", STARTS)
def test_tab_and_enter_hand_over_the_name_and_run_nothing(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    _program(tmp_path)
    typed = [name for name in HOSTILE if name not in ("*", "é") and (shell != "fish" or name[0] != "~")]
    for number, name in enumerate(typed):
        (tmp_path / str(number) / name).mkdir(parents=True)
    terminal = _Terminal(tmp_path, shell)
    try:
        terminal.type(f"{STARTS[shell][1]}\n")
        for number in range(len(typed)):
            terminal.type(f"cd '{tmp_path}/{number}'\n")
            terminal.type("dispatchlab permute \t")
            terminal.type("\n")
    finally:
        terminal.close()
    assert not list(tmp_path.rglob("RUN"))
    given = (tmp_path / "arguments").read_text().split("END\n")[:-1]
    assert given == [f"permute\n{name}/\n" for name in typed]
