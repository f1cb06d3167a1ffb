"""Every kind of file that dispatchlab writes is recognised wherever a file is given; nothing else is written over."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dispatchlab.files.atomic_write import WriteError, write_file
from dispatchlab.files.file_kinds import FileKind, check_output, content_of, marked, recognised
from dispatchlab.records.file import open_bundled
from dispatchlab.records.model import Registry
from dispatchlab.scenario.load import load_scenario
from tests.command_line import run
from tests.registry_cases import save_registry
from tests.scenario_texts import COMPOSITES, FIVE, TWICE

NATIVE = "- func: twice(Tensor self) -> Tensor\n"

STRUCTURED = """\
- func: twice(Tensor self) -> Tensor
  structured_delegate: twice.out

- func: twice.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU: twice_out
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a scenario, in which commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twice.yaml").write_text(TWICE)
    return tmp_path


def _printed(*arguments: str) -> Callable[[str], None]:
    def write(path: str) -> None:
        Path(path).write_text(run(*arguments).stdout)

    return write


def _saved(*arguments: str) -> Callable[[str], None]:
    def write(path: str) -> None:
        assert run(*arguments, path).exit_code == 0

    return write


def _registry(path: str) -> None:
    relu = open_bundled("torch-2.13-cpu").operator("aten::relu")
    assert relu is not None
    save_registry(Registry("2.13.0", (relu,), ()), path)


def _golden(path: str) -> None:
    from dispatchlab.questions.order.golden import golden

    Path(path).write_text(golden(load_scenario("twice.yaml"))[1])


def _baseline(path: str) -> None:
    run("lint", "twice.yaml", "--write-baseline", path)


WRITTEN: dict[str, tuple[FileKind, Callable[[str], None]]] = {
    "found.scenario.yaml": (FileKind.SCENARIO, _saved("permute", "twice.yaml", "--save")),
    "found.scenario.yml": (FileKind.SCENARIO, _saved("permute", "twice.yaml", "--save")),
    "found.py": (FileKind.PROGRAM, _saved("permute", "twice.yaml", "--save")),
    "states.dot": (FileKind.STATE_GRAPH, _saved("permute", "twice.yaml", "--graph")),
    "permute.html": (FileKind.PAGE, _saved("permute", "twice.yaml", "--report")),
    "diff.html": (FileKind.PAGE, _saved("diff", "twice.yaml", "twice.yaml", "--report")),
    "registry.yaml": (FileKind.REGISTRY, _registry),
    "golden.yaml": (FileKind.GOLDEN, _golden),
    "baseline.yaml": (FileKind.BASELINE, _baseline),
    "certificate.yaml": (FileKind.CERTIFICATE, _printed("certify", "twice.yaml", "--format", "json")),
    "report.yaml": (FileKind.REPORT, _printed("permute", "twice.yaml")),
    "report.json.yaml": (FileKind.REPORT, _printed("permute", "twice.yaml", "--format", "json")),
    "dump.json.yaml": (FileKind.REPORT, _printed("dump", "foo", "--from", "twice.yaml", "--format", "json")),
    "lint.json.yaml": (FileKind.REPORT, _printed("lint", "twice.yaml", "--format", "json")),
    "lint.sarif.yaml": (FileKind.SARIF, _printed("lint", "twice.yaml", "--format", "sarif")),
    "schema.yaml": (FileKind.JSON_SCHEMA, _printed("schema")),
}
"""For each kind of file a command that writes it, under a name that does not give it away where the command allows."""


def _native(folder: Path) -> str:
    (folder / "native.yaml").write_text(STRUCTURED)
    return "native.yaml"


def test_generated_code_is_recognised(folder: Path) -> None:
    assert run("codegen", _native(folder), "-o", "out").exit_code == 0
    for path in (folder / "out").iterdir():
        found = content_of(path)
        assert found is not None
        assert (found.kind, found.is_written) == (
            FileKind.SCENARIO if path.suffix == ".yaml" else FileKind.GENERATED,
            True,
        )
    (scenario,) = (folder / "out").glob("*.yaml")
    assert run("permute", str(scenario)).exit_code == 0
    assert run("codegen", "native.yaml", "-o", "out").exit_code == 0
    scenario.write_text(TWICE)
    assert run("codegen", "native.yaml", "-o", "out").exit_code == 2


@pytest.mark.parametrize(
    ("content", "kind"),
    [(TWICE, FileKind.SCENARIO), (FIVE, FileKind.SCENARIO), (COMPOSITES.replace("\n", "\r\n"), FileKind.SCENARIO)],
)
def test_what_a_person_wrote_is_recognised_and_not_taken_for_written(content: str, kind: FileKind) -> None:
    found = recognised(content.encode())
    assert found is not None
    assert (found.kind, found.is_written) == (kind, False)


@pytest.mark.parametrize(
    "content", ["", "\n", "hello", NATIVE, "{}", "import os\n", "digraph states {}", "\x89PNG", "{\n"]
)
def test_what_dispatchlab_does_not_write_is_not_recognised(content: str) -> None:
    assert recognised(content.encode()) is None


TAKERS: dict[str, tuple[list[str], set[FileKind]]] = {
    "permute": (["permute", "FILE"], {FileKind.SCENARIO}),
    "dump": (["dump", "foo", "--from", "FILE"], {FileKind.SCENARIO, FileKind.REGISTRY}),
    "explain": (["explain", "foo", "--from", "FILE"], {FileKind.SCENARIO, FileKind.REGISTRY}),
    "coverage": (["coverage", "FILE", "--key", "CPU"], {FileKind.SCENARIO, FileKind.REGISTRY}),
    "certify": (["certify", "FILE"], {FileKind.SCENARIO, FileKind.REGISTRY}),
    "diff": (["diff", "FILE", "twice.yaml"], {FileKind.SCENARIO, FileKind.REGISTRY}),
    "diff, second": (["diff", "twice.yaml", "FILE"], {FileKind.SCENARIO, FileKind.REGISTRY}),
    "lint": (["lint", "FILE"], {FileKind.SCENARIO, FileKind.REGISTRY}),
    "lint --against": (["lint", "twice.yaml", "--against", "FILE"], {FileKind.SCENARIO, FileKind.REGISTRY}),
    "lint --baseline": (["lint", "twice.yaml", "--baseline", "FILE"], {FileKind.BASELINE}),
    "codegen": (["codegen", "FILE"], set()),
    "trace": (["trace", "FILE"], {FileKind.PROGRAM, FileKind.GENERATED}),
}
"""For each place where a file is given, a command line and the kinds that it takes."""


# -- what is written over


OVERWRITERS = {
    "--save program": (["permute", "twice.yaml", "--save", "FILE"], "found.py"),
    "--save scenario": (["permute", "twice.yaml", "--save", "FILE"], "found.scenario.yaml"),
    "--graph": (["permute", "twice.yaml", "--graph", "FILE"], "states.dot"),
    "--graph dot": (["permute", "twice.yaml", "--graph", "FILE"], "states.dot"),
    "--report permute": (["permute", "twice.yaml", "--report", "FILE"], "page.html"),
    "--report certify": (["certify", "twice.yaml", "--jobs", "1", "--report", "FILE"], "page.html"),
    "--report lint": (["lint", "twice.yaml", "--report", "FILE"], "page.html"),
    "--report diff": (["diff", "twice.yaml", "torch-2.13", "--operator", "test::foo", "--report", "FILE"], "page.html"),
    "--report coverage": (["coverage", "twice.yaml", "--key", "CPU", "--report", "FILE"], "page.html"),
    "--write-baseline": (["lint", "twice.yaml", "--write-baseline", "FILE"], "baseline.json"),
}


@pytest.mark.parametrize("option", sorted(OVERWRITERS))
def test_a_file_that_somebody_wrote_is_written_over_with_force_alone(folder: Path, option: str) -> None:
    command, name = OVERWRITERS[option]
    line = [name if word == "FILE" else word for word in command]
    for mine in ("my own\n", TWICE):
        (folder / name).write_text(mine)
        result = run(*line)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{name} " in result.stderr
        assert "dispatchlab did not write it" in result.stderr
        assert "--force" in result.stderr
        assert (folder / name).read_text() == mine
    assert f"wrote {name}: " in run(*line, "--force").stderr
    written = (folder / name).read_bytes()
    assert f"wrote {name}: " in run(*line).stderr  # dispatchlab wrote it, so it may write it again
    if not option.startswith("--report"):  # which say how long it took
        assert (folder / name).read_bytes() == written
    (folder / name).write_bytes(b"")
    assert f"wrote {name}: " in run(*line).stderr  # nothing is lost


def test_a_file_of_another_kind_is_not_written_over_either(folder: Path) -> None:
    _registry("found.yaml")
    result = run("permute", "twice.yaml", "--save", "found.yaml")
    assert (result.exit_code, result.stderr) == (
        2,
        "found.yaml is a recorded registry: write a scenario to another file, or write over this one with --force\n",
    )
    record = run("record", "json", "-o", "found.yaml")  # refused before anything is imported
    assert (record.exit_code, "found.yaml is a recorded registry" in record.stderr) == (2, True)
    (folder / "notes.dlreg").write_text("mine")
    everything = run("record", "--all", "-o", "notes.dlreg")
    assert (everything.exit_code, "notes.dlreg exists" in everything.stderr) == (2, True)


def test_generated_code_is_not_written_over_what_somebody_wrote(folder: Path) -> None:
    source = _native(folder)
    assert run("codegen", source, "-o", "out").exit_code == 0
    name = sorted(path.name for path in (folder / "out").glob("*.py"))[0]
    (folder / "out" / name).write_text("mine = 1\n")
    result = run("codegen", source, "-o", "out")
    assert (result.exit_code, f"{name} exists, and dispatchlab did not write it" in result.stderr) == (2, True)
    assert (folder / "out" / name).read_text() == "mine = 1\n"
    assert run("codegen", source, "-o", "out", "--force").exit_code == 0
    assert (folder / "out" / name).read_text() != "mine = 1\n"


def test_a_device_is_never_refused_and_stays_what_it_is(folder: Path) -> None:
    result = run("permute", "twice.yaml", "--graph", "states.dot", "--report", "/dev/null")
    assert result.exit_code == 0
    assert "wrote /dev/null: a report to keep\n" in result.stderr
    assert Path("/dev/null").is_char_device()


def test_a_marked_file_is_recognised_until_its_mark_is_removed(folder: Path) -> None:
    for kind, path in (
        (FileKind.SCENARIO, "a.yaml"),
        (FileKind.PROGRAM, "a.py"),
        (FileKind.STATE_GRAPH, "a.mmd"),
        (FileKind.STATE_GRAPH, "a.dot"),
    ):
        body = TWICE if kind is FileKind.SCENARIO else '"""A body."""\n'
        write_file(path, marked(body, kind, path))
        found = content_of(path)
        assert found is not None
        assert (found.kind, found.is_written) == (kind, True)
        Path(path).write_text(Path(path).read_text().partition("\n")[2])
        mine = content_of(path)
        assert mine is None or not mine.is_written


@pytest.mark.parametrize("force", [False, True])
def test_a_target_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path, *, force: bool) -> None:
    for target in (tmp_path, tmp_path / "nowhere" / "file", "nu\0ll"):
        with pytest.raises(WriteError, match="could not be written"):
            check_output(target, FileKind.BASELINE, force=force)
    check_output(tmp_path / "file", FileKind.BASELINE, force=force)
    check_output(os.devnull, FileKind.BASELINE, force=force)
