"""No command passes by accident: a verdict over nothing is refused, and so is a number that makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab.call import Device
from dispatchlab.cli import COMMANDS, main
from dispatchlab.errors import CallError
from dispatchlab.records.debug_text import file_in, sites_in
from dispatchlab.records.model import Registry, registry_of
from tests.command_line import run
from tests.registry_cases import BAR, FALLBACKS, SMALL, save_registry

EMPTY = registry_of("2.13.0", ())
ONLY_FALLBACKS = registry_of("2.13.0", (), FALLBACKS)
SCENARIO = "claim: A.\nregistrations:\n- def: foo(Tensor x) -> Tensor\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with registries, a scenario and nothing, as the current one."""
    monkeypatch.chdir(tmp_path)
    registries: dict[str, Registry] = {"empty": EMPTY, "fallbacks": ONLY_FALLBACKS, "small": SMALL}
    for name, registry in registries.items():
        save_registry(registry, tmp_path / f"{name}.dlreg")
    (tmp_path / "a.yaml").write_text(SCENARIO)
    (tmp_path / "other.yaml").write_text(f"{SCENARIO}operators: [test::bar]\n")
    (tmp_path / "refused.yaml").write_text("claim: A.\nregistrations:\n- {def: foo, kernel: boxed, debug: a}\n")
    (tmp_path / "none.yaml").write_text("claim: A.\nregistrations: []\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["permute", ""], "expected a value but found an empty text"),
        (["permute", "folder"], "there is no scenario below this folder"),
        (["permute", "a.yaml", "folder"], "there is no scenario below this folder"),
        (["permute", "none.yaml"], "expected at least one registration but found an empty list"),
        (["permute", "other.yaml"], "there is nothing to explore: what is observed is test::bar"),
        (["permute", "*.yaml"], "there is no such file"),
        (["certify", "empty.dlreg"], "empty.dlreg has no operator to certify"),
        (["certify", "fallbacks.dlreg"], "fallbacks.dlreg has no operator to certify"),
        (["certify", "small.dlreg", "--operator", "zz*"], "no operator in this registry matches zz*"),
        (["certify", "none.yaml"], "expected at least one registration but found an empty list"),
        (["certify", "refused.yaml"], "refused.yaml has no operator to certify"),
        (["lint", "empty.dlreg"], "empty.dlreg: there is nothing to check: it has no operator"),
        (["lint", "fallbacks.dlreg"], "fallbacks.dlreg: there is nothing to check: it has no operator"),
        (["lint", "small.dlreg", "empty.dlreg"], "empty.dlreg: there is nothing to check: it has no operator"),
        (["lint", "refused.yaml"], "refused.yaml: there is nothing to check: it has no operator"),
        (
            ["lint", "small.dlreg", "--select", "DL007"],
            "there is nothing to check: DL007 def-not-kept cannot run: it compares two moments, and a record is one: "
            "name the other with --against",
        ),
        (["lint", "small.dlreg", "--select", ","], "there is no rule ''"),
        (["lint", "small.dlreg", "--ignore", ",DL001"], "there is no rule ''"),
        (["lint", "small.dlreg", "--select", "DL001", "--ignore", "DL001"], "skips every rule that is selected"),
        (["lint", "small.dlreg", "--operator", "zz*"], "no operator in this registry matches zz*"),
        (["coverage", "empty.dlreg", "--key", "CPU"], "empty.dlreg has no operator, so there is nothing to report"),
        (["coverage", "small.dlreg", "--key", "CPU", "--operator", "zz"], "there is no operator zz"),
        (["diff", "empty.dlreg", "empty.dlreg"], "empty.dlreg has no operator, so there is nothing to report"),
        (["diff", "small.dlreg", "small.dlreg", "--operator", "zz"], "there is no operator zz"),
        (["dump", "zz*", "--from", "small.dlreg"], "no operator in small.dlreg matches zz*"),
        (["codegen", "none.yaml"], "found a scenario"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_nothing_to_check_is_bad_input(arguments: list[str], error: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, error in result.stderr) == (2, True), result.output


def test_what_came_and_went_is_something_to_check() -> None:
    assert run("lint", "empty.dlreg", "--against", "small.dlreg").exit_code == 1
    assert run("diff", "empty.dlreg", "fallbacks.dlreg", "--exit-code").exit_code == 1
    assert run("lint", "small.dlreg", "--against", "small.dlreg").exit_code == 0
    assert run("lint", "small.dlreg", "--select", "DL001,").exit_code == 1


def test_a_recording_without_anything_of_its_own_is_not_certified(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatchlab.records.builds.bundled_for", lambda torch: "bundled")
    monkeypatch.setattr("dispatchlab.sources.find_sources.open_named", lambda name: SMALL)
    result = run("certify", "small.dlreg", "--jobs", "1")
    assert result.exit_code == 2
    assert result.stderr == (
        "small.dlreg has no operator to certify: each is as in bundled, or as PyTorch made it for itself when a part "
        "of it was first used; certify them all with --all\n"
    )
    monkeypatch.undo()
    assert run("certify", str(folder / "small.dlreg"), "--jobs", "1", "--all").exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        *(["permute", "a.yaml", "--jobs", value] for value in ("0", "-1", "1.5", "nan", "1025", "9" * 5_000)),
        *(["permute", "a.yaml", "--max-states", value] for value in ("0", "-1", "nan")),
        *(["permute", "a.yaml", "--walk", "sample", "--samples", value] for value in ("0", "-1", "inf")),
        *(["permute", "a.yaml", "--timeout", value] for value in ("0", "-1", "nan", "inf", "-inf")),
        *(["permute", "a.yaml", "--seed", value] for value in ("x", "1.5", "nan", str(2**64), str(-(2**63) - 1))),
        *(["permute", "a.yaml", "--engine", "torch", "--passes", value] for value in ("0", "-1")),
        ["permute", "a.yaml", "--samples", "5"],
        ["permute", "a.yaml", "--import-timeout", "5"],
        *(["certify", "small.dlreg", "--jobs", value] for value in ("0", "-1", "1025")),
        *(["imports", "a", "b", "--samples", value] for value in ("0", "-1", "5")),
        *(["imports", "a", "b", "--seed", value] for value in ("x", str(2**64), "5")),
        *(["imports", "a", "--import-timeout", value] for value in ("0", "nan", "inf")),
        *(["explain", "test::foo", "--from", "small.dlreg", "--arg", f"cuda:{value}"] for value in ("-1", "128", "٣")),
        ["explain", "test::foo", "--from", "small.dlreg", "--arg", "cuda:" + "9" * 5_000],
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_a_number_that_makes_no_sense_is_bad_input(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_every_number_of_a_command_line_has_bounds() -> None:
    seen = 0
    for name in COMMANDS:
        with main.make_context("dispatchlab", [name], resilient_parsing=True) as context:
            command = main.get_command(context, name)
        assert command is not None
        for param in command.params:
            if param.type.name in ("integer", "float"):
                raise AssertionError(f"{name} {param.name} takes any number")
            seen += param.type.name in ("integer range", "float range", "seed")
    assert seen >= 18


def test_the_line_of_a_debug_text_is_a_number_of_nine_digits() -> None:
    assert list(sites_in("registered at a.py:999999999 via b.py:7")) == [("a.py", 999_999_999), ("b.py", 7)]
    for line in ("9" * 5_000, "1234567890", "٣"):
        assert list(sites_in(f"a.py:{line}")) == []
        assert file_in(f"a.py:{line}") == f"a.py:{line}"
    Path("long.yaml").write_text(f"{SCENARIO}- {{impl: foo, dispatch: CPU, debug: 'a.py:{'9' * 5_000}'}}\n")
    for format in ("text", "sarif", "json"):
        assert run("lint", "long.yaml", "--format", format).exit_code == 1


def test_the_number_of_a_device_is_one_that_pytorch_has() -> None:
    assert Device.parse("cuda:127").index == 127
    for text in ("cuda:128", "cuda:01", "cuda:٣", "cuda:", "cuda:" + "9" * 5_000):
        with pytest.raises(CallError, match="is not a device"):
            Device.parse(text)


def test_a_source_that_is_not_there_is_found_before_the_others_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr("dispatchlab.sources.find_sources.recorded_from", lambda source, **_: read.append(source))
    monkeypatch.setattr("dispatchlab.questions.lint.run.recorded_from", lambda source, **_: read.append(source))
    for arguments in (
        ["lint", "small.dlreg", "missing.dlreg"],
        ["lint", "small.dlreg", "--against", "missing.dlreg"],
        ["lint", "live", "a.yaml", "missing.yaml"],
        ["diff", "live", "missing.dlreg"],
    ):
        result = run(*arguments)
        assert (result.exit_code, "missing" in result.stderr, read) == (2, True, [])
    assert BAR in tuple(SMALL)
