"""The long tests of tests/test_atomic_write.py, which the quick tier leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab.files.atomic_write import write_file, write_folder
from tests.test_atomic_write import interrupted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an open file is closed by nobody
@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_an_interrupt_before_any_instruction_leaves_nothing_beside_the_files(tmp_path: Path, names: list[str]) -> None:
    def write() -> None:
        if names == ["a"]:
            write_file(tmp_path / "a", "new")
        else:
            write_folder(tmp_path, dict.fromkeys(names, "new"))

    at = 0
    for name in names:
        (tmp_path / name).write_text("old")
    write()  # what is imported at first is imported now
    while interrupted(write, at):
        assert sorted(path.name for path in tmp_path.iterdir()) == names
        assert {path.read_text() for path in tmp_path.iterdir()} <= {"old", "new"}
        at += 1
    assert at > 200
