"""The long tests of tests/test_file_kinds.py, which the quick tier leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab.files.file_kinds import content_of
from tests import test_file_kinds
from tests.command_line import run
from tests.scenario_texts import TWICE
from tests.test_file_kinds import TAKERS, WRITTEN, _registry

folder = test_file_kinds.folder


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_file_that_was_written_is_recognised_by_its_content(name: str) -> None:
    kind, write = WRITTEN[name]
    write(name)
    found = content_of(name)
    assert found is not None
    assert (found.kind, found.is_written) == (kind, True)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("taker", sorted(TAKERS))
def test_a_file_of_another_kind_is_refused_with_what_it_is_and_what_to_do_with_it(taker: str) -> None:
    command, kinds = TAKERS[taker]
    refused = 0
    for name in ("found.yaml", "golden.yaml", "registry.yaml", "baseline.yaml", "report.yaml", "found.scenario.yaml"):
        kind, write = WRITTEN[name]
        if kind in kinds:
            continue
        write(name)
        result = run(*[name if word == "FILE" else word for word in command])
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        assert f"but found {kind.label}" in result.stderr
        assert "Traceback" not in result.stderr
        refused += 1
    assert refused >= 4


def test_a_scenario_and_a_registry_are_known_under_any_name(folder: Path) -> None:
    (folder / "scenario.txt").write_text(TWICE)
    _registry("registry")
    for command in (["dump", "foo", "--from"], ["lint", "--select", "DL001"], ["certify"]):
        assert run(*command, "scenario.txt").exit_code in (0, 1)
    assert run("dump", "aten::relu", "--from", "registry").exit_code == 0
    assert run("lint", "registry", "--select", "DL001").exit_code == 0
