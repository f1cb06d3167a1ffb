"""A small share of the cases of `python -m tests.fuzz`, and the inputs that once ended in a traceback."""

from __future__ import annotations

import errno
import importlib
import os
import re
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from dispatchlab.cli import main
from dispatchlab.errors import DispatchLabError, ParseError
from dispatchlab.files import bounded_read, yaml_tree
from dispatchlab.files.baseline import BaselineError
from dispatchlab.files.bounded_read import ReadError, json_value, read_file
from dispatchlab.files.file_kinds import REGISTRY_MEMBER
from dispatchlab.files.yaml_tree import MOST_PROBLEMS, MOST_SHOWN
from dispatchlab.model import schema_parser
from dispatchlab.model.printed_schema import parse_printed
from dispatchlab.model.schema_parser import LONGEST_NAME, parse_schema, parse_schema_or_name
from dispatchlab.pytorch.introspection.readiness_captures import CaptureError, read_captures
from dispatchlab.questions.lint.baseline import load_baseline
from dispatchlab.records.file import is_registry_file, registry_bytes
from dispatchlab.scenario import ScenarioError, parse_scenario
from tests.command_line import run
from tests.fuzz import run as fuzz
from tests.fuzz.run import run as run_cases
from tests.fuzz.targets import TARGETS
from tests.registry_cases import SMALL, outcome, split
from tests.registry_cases import joined as archive_of

_SHARES = {"command_lines": 8, "scenarios": 20, "profiles": 8}


@pytest.mark.parametrize("target", TARGETS)
def test_a_share_of_the_fuzzed_cases_ends_as_documented(target: str) -> None:
    result = run_cases(target, 0, range(_SHARES.get(target, 60)))
    assert result.findings == []
    assert result.outcomes.total() == _SHARES.get(target, 60)


def test_cases_that_a_file_has_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(fuzz, "_KEPT_AT_ONCE", 20)
    whole = fuzz.run_kept("schemas", 3, range(50), log)
    assert whole.outcomes == run_cases("schemas", 3, range(50)).outcomes
    with log.open("a") as stream:
        stream.write('\n[["schemas", 3, 40')  # it was killed here
    with monkeypatch.context() as patch:
        patch.setattr(fuzz, "run", None)
        assert fuzz.run_kept("schemas", 3, range(50), log) == whole
    more = fuzz.run_kept("schemas", 3, range(70), log)
    assert more.outcomes == run_cases("schemas", 3, range(70)).outcomes


def test_the_fuzzed_replays_are_run() -> None:
    result = run_cases("replays", 1, range(300))
    assert result.findings == []
    assert result.outcomes["exit 0"] + result.outcomes["exit 1"] > 0


def test_cases_run_where_there_is_no_alarm_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "resource", None)
    for name in ("setitimer", "SIGPROF", "ITIMER_PROF"):
        monkeypatch.delattr(signal, name, raising=False)
    monkeypatch.delitem(sys.modules, "tests.fuzz.run")
    on_windows = importlib.import_module("tests.fuzz.run")
    on_windows.limit_memory()
    result = on_windows.run("schemas", 0, range(3))
    assert (result.findings, result.outcomes.total()) == ([], 3)
    assert str(result).startswith("schemas: 3 cases: ")


@pytest.mark.parametrize(
    "text",
    [
        "foo(int x=" + "9" * 5_000 + ") -> ()",
        "foo(int[" + "9" * 5_000 + "] x) -> ()",
        "foo(" * 3_000,
        "foo(" + "(" * 3_000,
        "foo(int" + "[]" * 900 + " x) -> ()",
        "foo(" + "Future(" * 200 + "int" + ")" * 200 + " x) -> ()",
        "foo(Device x='cuda:" + "9" * 5_000 + "') -> ()",
        "a" * 5_000,
        '"\\' * 200_000,
        "foo(" + "Dict(str, " * 500,
    ],
    ids=["int", "size", "parens", "tuples", "lists", "futures", "device", "name", "strings", "dicts"],
)
def test_a_schema_beyond_the_limits_is_a_short_error(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_schema_or_name(text)
    assert len(str(caught.value)) < 4_000


def test_a_printed_default_is_lexed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lexed: list[str] = []

    def counted(text: str) -> list[tuple[str, int]]:
        lexed.append(text)
        return joined(text)

    joined = schema_parser._joined_lines
    monkeypatch.setattr(schema_parser, "_joined_lines", counted)
    with pytest.raises(ParseError):
        parse_printed("test::foo(SymInt[3] x=[1" + "," * 3_000 + "], ]) -> ()")
    assert 0 < len(lexed) < 5


def test_what_is_within_the_limits_is_read() -> None:
    deep = "foo(" + "(" * 11 + "int[][][][]" + ")" * 11 + " x) -> ()"
    assert parse_schema(str(parse_schema(deep))) == parse_schema(deep)
    assert parse_schema("foo(int x=" + "0" * 5_000 + "7) -> ()") == parse_schema("foo(int x=7) -> ()")
    assert str(parse_schema_or_name("a" * LONGEST_NAME)) == "a" * LONGEST_NAME


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "nested too deep"),
        (b'{"version": ' + b"9" * 5_000 + b"}", "a number has too many digits"),
        (b" " * (8 * 2**20 + 1), "the file is larger than 8 MiB, the limit for baselines"),
        (b'{"version":\n  2, "findings": [}', "it is not JSON: Expecting value on line 2, column 19"),
        (b'{"version":\n  \xff', "found the byte 0xff, which is not text in UTF-8; save the file as UTF-8 on line 2"),
        (b'{"version": 2, "findings": ["' + b"a" * 5_000 + b'"]}', "expected a code, an operator, a key and files"),
    ],
    ids=["deep", "digits", "large", "syntax", "encoding", "long"],
)
def test_a_baseline_that_cannot_be_read_is_a_short_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_bytes(content)
    with pytest.raises(BaselineError) as caught:
        load_baseline(str(path))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_registry_with_a_kernel_or_fallback_at_undefined_is_damaged() -> None:
    members = split(registry_bytes(SMALL))
    row = next(row for row in members["cxx/rows-0.jsonl"] if len(row[0]) > 1)
    row[0][1][1] = "Undefined"
    assert "is wrong in a key" in str(outcome(archive_of(members)))
    members = split(registry_bytes(SMALL))
    members[REGISTRY_MEMBER]["registries"][0]["fallbacks"][0][0] = "Undefined"
    assert "is wrong in a key" in str(outcome(archive_of(members)))


@pytest.mark.parametrize("name", ["", "foo", "a::b c", "a::b\n", "a::\x1b]0;x\x07", "a::" + "b" * 5_000, "a::\ud800"])
def test_a_registry_with_an_impossible_name_is_damaged(name: str) -> None:
    members = split(registry_bytes(SMALL))
    members["cxx/names.json"]["names"][0] = name
    found = outcome(archive_of(members))
    assert ("half of a surrogate pair" if "\ud800" in name else "which no dispatcher can have") in str(found)
    assert len(str(found)) < 300


def test_many_problems_are_counted_and_not_listed() -> None:
    text = "claim: A sentence.\nregistrations:\n" + "- {impl: foo, dispatch: Nope, debug: x}\n" * 1_100
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, file="a.yaml")
    assert len(caught.value.problems) == MOST_PROBLEMS
    lines = str(caught.value).splitlines()
    assert len(lines) == MOST_SHOWN + 1
    assert lines[-1] == "and at least 950 more problems: fix these first"


def test_values_are_counted_while_a_file_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_tree, "MAX_NODES", 10)
    assert isinstance(yaml_tree.compose("[a, b, c, d, [], []]", "a.yaml"), yaml_tree.Listing)
    for text in ("[a, b, c, d, e, [], []]", "[[], [], [], [], []]"):
        with pytest.raises(
            yaml_tree.YamlError, match="found more than 10 values, the limit for a file; split the file"
        ):
            yaml_tree.compose(text, "a.yaml")


def test_no_near_name_is_looked_for_where_a_word_is_longer_than_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(word: str, *more: object, **named: object) -> list[str]:
        compared.append(len(word))
        return []

    monkeypatch.setattr("difflib.get_close_matches", counted)
    with pytest.raises(ScenarioError, match="is not a field of a scenario"):
        parse_scenario("claim: A.\n? " + "a" * 100_000 + "\n: 1\n", file="a.yaml")
    with pytest.raises(ScenarioError, match="is not a field of a scenario"):
        parse_scenario("claim: A.\nregistration: 1\n", file="a.yaml")
    assert set(compared) == {12}


# -- what may be read


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 2**20)
    assert len(read_file(path, limit=2**20, what="files")) == 2**20
    path.write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(ReadError, match="a: the file is larger than 1 MiB, the limit for files"):
        read_file(path, limit=2**20, what="files")
    with pytest.raises(ReadError, match="the file cannot be read: embedded null byte"):
        read_file("a\0b", limit=2**20, what="files")
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path, limit=2**20, what="files")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there are no devices")
def test_devices_are_refused_but_the_null_device() -> None:
    assert read_file("/dev/null", limit=2**20, what="files") == b""
    for device in ("/dev/zero", "/dev/random"):
        with pytest.raises(ReadError, match="it is a device, which may have no end: name a file or a pipe"):
            read_file(device, limit=2**20, what="files")
        assert not is_registry_file(device)
    result = run("lint", "--baseline", "/dev/zero")
    assert (result.exit_code, "it is a device" in result.stderr) == (2, True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
def test_a_pipe_is_read_to_its_end_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = b"claim: x\n" * 50_000
    for limit in (2**20, 2**10):
        writer = threading.Thread(target=_write, args=(pipe, content))
        writer.start()
        if limit > len(content):
            assert read_file(pipe, limit=limit, what="files") == content
        else:
            with pytest.raises(ReadError, match="the file is larger than"):
                read_file(pipe, limit=limit, what="files")
        writer.join()
    monkeypatch.setattr(bounded_read, "LONGEST_WAIT", 0.02)
    with pytest.raises(ReadError, match="nothing was written into this pipe for"):
        read_file(pipe, limit=2**20, what="files")
    assert not is_registry_file(pipe)


def _write(pipe: Path, content: bytes) -> None:
    with suppress(BrokenPipeError):
        pipe.write_bytes(content)


@pytest.mark.parametrize(
    "word", ["", "a" * 5_000, "foo(" * 3_000, "test::" + "a" * 5_000], ids=["empty", "a", "(", "::"]
)
@pytest.mark.parametrize(
    "arguments",
    [("codegen",), ("lint",), ("lint", "--baseline"), ("dump", "test::foo", "--from"), ("permute",)],
    ids=" ".join,
)
def test_a_word_that_names_nothing_is_bad_input(arguments: tuple[str, ...], word: str) -> None:
    result = run(*arguments, word)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_key_of_very_many_parts_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    many = ("a." * 5_000 + "a = 1", "[" + "a . " * 5_000 + "a]", "x = {" + '"a".' * 5_000 + "a = 1}")
    for text in (*many, "".join(f"[b{number}{'.a' * 500}]\n" for number in range(5))):
        path.write_text(text)
        with pytest.raises(ReadError, match="keys have too many parts, such as 1,000 in one: shorten them"):
            bounded_read.read_configuration(path)
    path.write_text("[a.b.c]\nd = '" + "1.2, " * 5_000 + "'\n")
    assert bounded_read.read_configuration(path).startswith(b"[a.b.c]")


def test_captured_inputs_with_a_header_of_very_many_values_are_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "calls.safetensors"
    for content in (b"[]," * 2**19, '"\u00e9",'.encode()):  # one such letter can make all of it wide
        header = b'{"a": [' + content + b"0]}"
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(CaptureError, match="its header has more than 1,048,576 values, or is not as it is written"):
            read_captures(str(path))


def test_json_that_is_no_text_has_a_line() -> None:
    assert json_value(b'\xef\xbb\xbf{"a": [1]}', "a.json") == {"a": [1]}
    with pytest.raises(ReadError, match=r"a\.json:2:3: found the byte 0xe9"):
        json_value(b'{\n "\xe9"}', "a.json")


# -- the last resort


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "summary"),
    [
        (RuntimeError("a\x1b]0;b\nc"), "RuntimeError (a\\x1b]0;b c)"),
        (RecursionError(), "RecursionError: "),
        (_Unprintable(), "_Unprintable: "),
        (OSError(5, "x" * 5_000), "OSError ([Errno 5] xxx"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), "UnicodeEncodeError ("),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_unexpected_error_is_exit_70_with_a_file_of_details(
    error: Exception, summary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("dispatchlab.scenario.load.json_schema", fail)
    monkeypatch.setattr("dispatchlab.scenario.json_schema", fail, raising=False)
    result = run("schema")
    assert result.exit_code == 70
    (details,) = tmp_path.iterdir()
    assert result.stderr.startswith(f"dispatchlab: unexpected {summary}")
    assert result.stderr.endswith(f"a defect of dispatchlab, not a verdict; the details are in {details}\n")
    assert result.stderr.count("\n") == 1
    assert "Traceback (most recent call last)" in details.read_text() or summary.startswith("_Unprintable")


def test_an_unexpected_error_outside_of_a_command_is_exit_70_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))

    def fail(*arguments: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(type(main), "get_command", fail)
    result = run("permute", "x")
    assert result.exit_code == 70
    assert "the details could not be written to a file:" in result.stderr
    assert 'raise KeyError("oops")' in result.stderr


def test_what_the_system_refuses_is_no_defect_and_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, words in (
        (OSError(errno.EMFILE, "Too many open files", "a\nb"), "Too many open files (a\\nb)"),
        (OSError(errno.EACCES, "Permission denied", "a"), "Permission denied (a)"),
        (RuntimeError("can't start new thread"), "another thread"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(type(main), "get_command", Mock(side_effect=error))
            result = run("schema")
        text = f"the system refused what this command needs: {words}; nothing was decided"
        assert (result.exit_code, result.stderr) == (74, f"dispatchlab: {text}\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = run("init")
    text = "the current folder is gone: change into one that is there"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"dispatchlab: {text}\n")


def test_a_name_that_is_too_long_for_the_system_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text(f'[project]\nname = "{"n" * 5_000}"\n')
    result = run("init")
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(r"dispatchlab: a name is too long for the system: \S{200}: shorten it\n", result.stderr)
    found = run_cases("settings", 31, [2111, 5504, 7588])  # names of packages, and of folders of scenarios
    assert (found.findings, found.outcomes["exit 2"]) == ([], 3)


def test_expected_errors_keep_their_exit_codes(tmp_path: Path) -> None:
    assert run("permute", str(tmp_path / "missing.yaml")).exit_code == 2
    assert run("nope").exit_code == 2
    assert run("dump", "--nope").exit_code == 2
    assert run("schema").exit_code == 0
    assert issubclass(ReadError, DispatchLabError)
