"""The command as a process: what it imports, how it ends, and how it looks on a terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenario_texts import FIVE, TWICE, many

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "dispatchlab")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with scenarios."""
    for name, text in {"five": FIVE, "twice": TWICE, "many": many(24), "more": many(23)}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def environment(**extra: str) -> dict[str, str]:
    """The environment, without what would change colours."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return {**kept, "PYTHONPATH": str(ROOT), **extra}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=120
    )


def imported_by(folder: Path, *arguments: str) -> set[str]:
    """The top-level packages that a command imports."""
    script = (
        "import sys\nfrom dispatchlab.cli import main\n"
        f"try:\n    main({list(arguments)!r})\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('IMPORTED', *sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment(), capture_output=True, text=True, check=True
    )
    return set(result.stdout.splitlines()[-1].split()[1:])


HEAVY = {"numpy", "rich", "yaml", "torch", "multiprocessing", "concurrent", "asyncio", "json"}


@pytest.mark.parametrize("arguments", [["--help"], ["permute", "--help"], ["dump", "--help"], ["--version"]])
def test_help_imports_click_and_nothing_heavy(folder: Path, arguments: list[str]) -> None:
    found = imported_by(folder, *arguments)
    assert "click" in found
    assert found & HEAVY == set()


def test_help_imports_no_command(folder: Path) -> None:
    script = "import sys\nfrom dispatchlab.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
    script += "print('IMPORTED', *sorted(name for name in sys.modules if name.startswith('dispatchlab')))\n"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment(), capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1].split()[1:] == [
        *("dispatchlab", "dispatchlab._lazy", "dispatchlab.cli", "dispatchlab.commands", "dispatchlab.commands.help"),
        *("dispatchlab.commands.output", "dispatchlab.commands.overview", "dispatchlab.errors", "dispatchlab.escape"),
    ]


def test_a_small_scenario_takes_few_modules(folder: Path) -> None:
    script = "import sys\nfrom dispatchlab.cli import main\ntry:\n    main(['permute', 'five.yaml'])\n"
    script += "except SystemExit:\n    pass\nprint(sum(name.startswith('dispatchlab') for name in sys.modules))\n"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment(), capture_output=True, text=True, check=True
    )
    assert int(result.stdout.splitlines()[-1]) <= 79


def test_text_imports_neither_rich_nor_numpy(folder: Path) -> None:
    light = imported_by(folder, "dump", "foo", "--from", "five.yaml")
    assert light & {"numpy", "rich", "torch", "multiprocessing"} == set()
    assert imported_by(folder, "permute", "five.yaml") & {"numpy", "rich", "torch"} == set()
    assert "rich" in imported_by(folder, "dump", "foo", "--from", "five.yaml", "--format", "rich")


def test_a_report_and_a_picture_are_imported_by_those_who_ask_for_them(folder: Path) -> None:
    for arguments in (
        ["permute", "five.yaml"],
        ["check", "five.yaml"],
        ["permute", "five.yaml", "--operator", "*"],
        ["diff", "five.yaml", "five.yaml"],
        ["coverage", "five.yaml", "--key", "CPU"],
    ):
        script = f"import sys\nfrom dispatchlab.cli import main\ntry:\n    main({arguments!r})\n"
        script += "except SystemExit:\n    pass\nprint('IMPORTED', *sorted(sys.modules))\n"
        result = subprocess.run(
            [sys.executable, "-c", script], cwd=folder, env=environment(), capture_output=True, text=True, check=True
        )
        found = set(result.stdout.splitlines()[-1].split()[1:])
        drawing = {
            name
            for name in found
            if name.startswith(("dispatchlab.views.html", "dispatchlab.questions.order.state_picture"))
        }
        assert drawing == set(), arguments
        assert found & {"html", "html.entities", "jinja2"} == set(), arguments


@pytest.mark.parametrize("line", ["--help", "dump foo --from five.yaml", "permute five.yaml", "dump aten::relu"])
def test_a_pipe_imports_nothing_that_is_for_people_who_look(folder: Path, line: str) -> None:
    script = f"import sys\nfrom dispatchlab.cli import main\ntry:\n    main({line.split()!r})\n"
    script += "except SystemExit:\n    pass\nprint('IMPORTED', *sorted(sys.modules))\n"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment(), capture_output=True, text=True, check=True
    )
    found = result.stdout.splitlines()[-1].split()[1:]
    looks: tuple[str, ...]
    looks = ("rich", "textual", "webbrowser", "html", "dispatchlab.commands.pager", "dispatchlab.questions.explore")
    looks += (
        "dispatchlab.views.console",
        "dispatchlab.views.terminal",
        "dispatchlab.views.html",
        "dispatchlab.views.styles",
    )
    assert [name for name in found if name.startswith(looks)] == []
    assert "dispatchlab.commands.output" in found


def test_ctrl_c_prints_what_was_covered_and_exits_with_130(folder: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "permute", "many.yaml", "more.yaml", "--walk", "graph", "--details"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        started: set[str] = set()
        for line in process.stderr:
            under_way = re.match(r"(\S+): (?!1 )[\d,]+ sets", line)
            if under_way:
                started.add(under_way[1])
            if started:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    reports = re.findall(r"^(\S+): incomplete \(model: strict, an idealised dispatcher\)", out, re.MULTILINE)
    assert set(reports) >= started
    sets = re.findall("sets: (.*)", out)
    assert sets
    assert all(int(one.replace(",", "")) > 1 for one in sets)
    assert "2 scenarios: 0 as expected" in out


def test_a_closed_pipe_is_no_traceback(folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [*COMMAND, "permute", "twice.yaml", "five.yaml"],
        cwd=folder,
        env=environment(),
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (141, "")


def test_what_is_to_be_saved_is_saved_when_nobody_reads(folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*COMMAND, "permute", "twice.yaml", "--save", "found.yaml"]
    code = subprocess.run(command, cwd=folder, env=environment(), stdout=write, check=False).returncode
    os.close(write)
    assert code == 141
    assert "expect: order-dependent\n" in (folder / "found.yaml").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
def test_a_counterexample_that_does_not_fit_on_the_disk_leaves_the_report_whole(folder: Path) -> None:
    saved = run(folder, "permute", "twice.yaml", "--report", "/dev/full")
    assert (saved.returncode, saved.stderr) == (2, "/dev/full could not be written: No space left on device\n")
    assert "order-dependent (model: strict, an idealised dispatcher), as expected" in saved.stdout


def test_output_that_does_not_fit_on_the_disk_ends_with_74(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        printed = subprocess.run(
            [*COMMAND, "permute", "twice.yaml"],
            cwd=folder,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (printed.returncode, printed.stderr) == (
        74,
        "the output could not be written: No space left on device\n",
    )


def test_a_stream_that_cannot_say_a_character_spells_it_out(folder: Path) -> None:
    (folder / "accent.yaml").write_text(TWICE.replace("newest", "n\u00e9west"), encoding="utf-8")
    result = subprocess.run(
        [*COMMAND, "permute", "accent.yaml"],
        cwd=folder,
        env=environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "the n\\xe9west is used" in result.stdout


def on_terminal(folder: Path, *arguments: str, **extra: str) -> str:
    """What a command shows on a terminal of 60 columns."""
    master, slave = pty.openpty()
    env = environment(TERM="xterm-256color", COLUMNS="60", **extra)
    process = subprocess.Popen([*COMMAND, *arguments], cwd=folder, env=env, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    while True:
        try:
            more = os.read(master, 65_536)
        except OSError:
            break
        if not more:
            break
        shown += more
    process.wait(timeout=120)
    os.close(master)
    return shown.decode()


def plain(text: str) -> list[str]:
    """The lines without colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines()


def test_a_terminal_gets_colours_and_lines_that_fit(folder: Path) -> None:
    report, operator = (
        on_terminal(folder, "permute", "twice.yaml"),
        on_terminal(folder, "dump", "foo", "--from", "five.yaml"),
    )
    for text in (report, operator):
        assert re.search(r"\x1b\[[0-9;]*[13]m", text)
        assert max(map(len, plain(text))) <= 60
    assert plain(report)[0] == "twice.yaml: order-dependent (model: strict, an idealised"
    assert any(line.startswith("cause: ") for line in plain(report))
    assert "Kernels of test::foo (4)" in operator


@pytest.mark.parametrize("how", ["option", "variable"])
def test_no_color_is_honoured(folder: Path, how: str) -> None:
    if how == "option":
        shown = on_terminal(folder, "--no-color", "permute", "twice.yaml")
    else:
        shown = on_terminal(folder, "permute", "twice.yaml", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*(3[0-9]|4[0-9])m", shown)
    assert "twice.yaml: order-dependent" in shown


def test_progress_is_drawn_on_a_terminal_and_removed(folder: Path) -> None:
    shown = on_terminal(folder, "permute", "many.yaml", "--walk", "graph", "--timeout", "1.5")
    assert "edges/s" in shown
    shown = " ".join(line.strip() for line in plain(shown))
    assert "incomplete (model: strict, an idealised dispatcher), NOT as expected" in shown
