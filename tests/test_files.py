"""Files are written whole or not at all, over no file of somebody else's, and read up to a limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dispatchlab.files import (
    FileKind,
    OverwriteError,
    ReadError,
    WriteError,
    check_output,
    marked,
    read_file,
    write_file,
    write_folder,
)


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")
    file.chmod(0o640)
    write_file(file, "new")
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_write_that_fails_leaves_the_old_content_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(WriteError, match=r"a\.txt could not be written: No space left on device"):
        write_file(file, "new")
    assert (file.read_text(), os.listdir(tmp_path)) == ("old", ["a.txt"])


def test_a_link_keeps_leading_where_it_leads(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_file(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_folder_is_refused_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(WriteError, match="not a regular file"):
        write_folder(tmp_path, {"a": "1", "b": "2"})
    assert not (tmp_path / "a").exists()


def test_what_dispatchlab_did_not_write_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("<p>mine</p>")
    with pytest.raises(OverwriteError, match="did not write it: write a report to keep to another file"):
        check_output(file, FileKind.PAGE)
    write_file(file, marked("<!DOCTYPE html>\n", FileKind.PAGE))
    check_output(file, FileKind.PAGE)


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(ReadError, match="the file is larger than 1 MiB, the limit for tests"):
        read_file(file, limit=2**20, what="tests")


def test_a_device_is_refused() -> None:
    with pytest.raises(ReadError, match="it is a device"):
        read_file("/dev/zero", limit=2**20, what="tests")
