"""Every command on hostile files: no raw control character in any output or file, and every format is read back."""

from __future__ import annotations

import ast
import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from dispatchlab import load_scenario
from dispatchlab.escape import bash_word, json_document, one_line, output_of_imports, printable
from tests.command_line import run
from tests.hostile_texts import EVIL, NAME, OTHER_COMMANDS, TEXT_COMMANDS, raw_characters, words_of, write_hostile_files


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The hostile files, by kind."""
    folder = tmp_path_factory.mktemp("hostile")
    return {**write_hostile_files(folder), "folder": str(folder / f"folder {NAME}"), "name": NAME}


@pytest.mark.parametrize("format", ["text", "json", "rich", "markdown"])
@pytest.mark.parametrize("command", TEXT_COMMANDS)
def test_a_command_prints_no_control_characters(
    command: str, format: str, hostile: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    name, *rest = words_of(command, hostile)
    if format == "markdown" and name == "dump":
        pytest.skip("dump has no Markdown")
    options = () if name == NAME else ("--format", format)
    result = run(name, *options, *rest)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert raw_characters(result.output) == set()
    assert result.output
    if format == "json" and options and result.stdout:
        assert result.stdout.isascii()
        for line in result.stdout.splitlines() if name == "permute" else [result.stdout]:
            json.loads(line)


@pytest.mark.parametrize("command", OTHER_COMMANDS)
def test_a_command_without_formats_prints_none_either(
    command: str, hostile: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*words_of(command, hostile))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert raw_characters(result.output) == set()
    assert result.output


def test_files_that_commands_write_are_read_back_and_have_no_control_characters(
    hostile: dict[str, str], tmp_path: Path
) -> None:
    scenario = hostile["scenario"]
    for ending in ("py", "yaml"):
        file = tmp_path / f"{NAME}.{ending}"
        run("permute", scenario, "--save", str(file))
        text = file.read_text(encoding="utf-8")
        assert raw_characters(text) == set()
        if ending == "py":
            ast.parse(text)
        else:
            again = run("permute", str(file))
            assert (again.exit_code, raw_characters(again.output)) == (0, set())
    for ending in ("svg", "dot"):
        file = tmp_path / f"{NAME}.{ending}"
        run("permute", scenario, "--graph", str(file))
        assert raw_characters(file.read_text(encoding="utf-8")) == set()
        if ending == "svg":
            assert not ET.parse(file).findall(".//{*}script")
    sarif = run("lint", hostile["registry"], "--format", "sarif").stdout
    assert (raw_characters(sarif), json.loads(sarif)["version"]) == (set(), "2.1.0")
    baseline = tmp_path / f"{NAME}.json"
    run("lint", hostile["registry"], "--write-baseline", str(baseline))
    assert raw_characters(baseline.read_text(encoding="utf-8")) == set()
    assert json.loads(baseline.read_text(encoding="utf-8"))["findings"]
    assert run("lint", hostile["registry"], "--baseline", str(baseline)).exit_code == 0
    generated = tmp_path / NAME
    assert run("codegen", hostile["native"], "-o", str(generated)).exit_code == 0
    for file in generated.iterdir():
        text = file.read_text(encoding="utf-8")
        assert raw_characters(text) == set()
        if file.suffix == ".py":
            ast.parse(text)
        else:
            load_scenario(file)


def test_each_destination_has_its_escapes() -> None:
    assert printable("a\x1b\x9b\u202e\x7f\udcff é\n") == "a\\x1b\\x9b\\u202e\\x7f\\udcff é\n"
    assert one_line("a\nb\r") == "a\\nb\\r"
    assert json.loads(json_document({"é": EVIL})) == {"é": EVIL}
    assert json_document(EVIL).isascii()
    assert json_document(EVIL).isprintable()
    assert [bash_word(text) for text in ("aten::add.out", "~a", "$(b c)", "é'")] == [
        *("aten::add.out", "\\~a", "\\$\\(b\\ c\\)", "é\\'"),
    ]


_LOUD = r"""
import sys, warnings
print("printed \x1b]0;title\x07")
print("to stderr \u202e", file=sys.stderr)
sys.stdout.writelines(["lines \x9b31m\n"])
with warnings.catch_warnings():
    warnings.simplefilter("always")
    warnings.warn("warned \x1b[31m")
assert (sys.stdout.encoding, sys.stdout.isatty()) == (sys.stderr.encoding, False)

def kernel(*arguments):
    return arguments
"""


def test_where_standard_error_is_closed_nothing_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with output_of_imports():
        print("nowhere")  # noqa: T201
        assert sys.stdout is None
    assert sys.stdout is not None
