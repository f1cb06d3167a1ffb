"""Files are written as a whole or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from dispatchlab.files import atomic_write
from dispatchlab.files.atomic_write import WriteError, write_file, write_folder


def test_a_file_is_made_and_replaced_with_the_mode_of_any_new_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    before = os.umask(0o027)
    try:
        write_file(path, "é\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o600)
    write_file(path, b"\xff")
    assert path.read_bytes() == b"\xff"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one_and_the_file_at_its_end_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("before")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", "after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "after"


def test_a_device_is_written_into_and_stays_a_device(tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    write_file(tmp_path / "null", "nothing")
    write_file("/dev/null", "nothing")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert (tmp_path / "null").is_symlink()


def test_a_descriptor_is_written_through_behind_what_it_has_even_when_it_is_a_regular_file(tmp_path: Path) -> None:
    file = tmp_path / "output"
    with file.open("w") as stream:
        stream.write("printed\n")
        stream.flush()
        (tmp_path / "link").symlink_to(f"/dev/fd/{stream.fileno()}")
        before = file.stat().st_ino
        write_file(f"/dev/fd/{stream.fileno()}", "saved\n")
        write_file(tmp_path / "link", "again\n")
        stream.write("printed on\n")
    assert file.read_text() == "printed\nsaved\nagain\nprinted on\n"
    assert file.stat().st_ino == before


def test_a_folder_and_a_name_that_no_system_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="could not be written: Is a directory"):
        write_file(tmp_path, "x")
    with pytest.raises(WriteError, match=r"could not be written: .*null"):
        write_file(f"{tmp_path}/a\0b", "x")


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_file(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_file_that_cannot_be_replaced_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before")

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(WriteError) as caught:
        write_file(path, "after")
    assert str(caught.value) == f"{path} could not be written: No space left on device"
    assert (path.read_text(), list(tmp_path.iterdir())) == ("before", [path])


def test_a_folder_is_written_when_all_of_its_files_can_be(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    write_folder(folder, {"a": "1", "b": b"2"})
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "1", "b": "2"}
    with pytest.raises(WriteError, match="folder could not be written: "):
        write_folder(folder, {"a": "3", "b/such": "4"})
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "1", "b": "2"}


def test_links_in_a_folder_stay_and_what_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "real").write_text("before")
    (folder / "link").symlink_to("../real")
    os.mkfifo(folder / "pipe")
    (folder / "null").symlink_to("/dev/null")
    for name in ("pipe", "null"):
        with pytest.raises(WriteError, match=f"{name} is not a regular file"):
            write_folder(folder, {"link": "after", name: "x"})
    assert (tmp_path / "real").read_text() == "before"
    write_folder(folder, {"link": "after"})
    assert ((tmp_path / "real").read_text(), (folder / "link").is_symlink()) == ("after", True)
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)
    assert sorted(path.name for path in folder.iterdir()) == ["link", "null", "pipe"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "real"]


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive, dead = 11, 12
    monkeypatch.setattr("dispatchlab.processes.parent.is_alive", lambda pid: pid != dead)
    kept = [f".a.txt.{alive}.0", f".b.txt.{dead}.0", f".a.txt.{dead}.x", f"a.txt.{dead}.0"]
    for name in (*kept, f".a.txt.{dead}.0", f".a.txt.{dead}.17", f".a.txt.{dead}.1"):
        (tmp_path / name).write_text("half of i")
    with (tmp_path / f".a.txt.{dead}.1").open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)  # by a writer in another container, where the number is another process
        write_file(tmp_path / "a.txt", "all of it")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([*kept, f".a.txt.{dead}.1", "a.txt"])
    write_folder(tmp_path, {"a.txt": "all of it"})
    assert not (tmp_path / f".a.txt.{dead}.1").exists()


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_writer_removes_nothing_that_another_thread_writes_under_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_folder: bool
) -> None:
    moved, beside = Path.replace, tmp_path / f".a.{os.getpid()}.0"

    def move_and_lose_the_name(path: Path, target: Path) -> Path:
        found = moved(path, target)
        assert path == beside
        path.write_text("of another thread")
        return found

    monkeypatch.setattr(Path, "replace", move_and_lose_the_name)
    if in_folder:
        write_folder(tmp_path, {"a": "new"})
    else:
        write_file(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"
    assert beside.read_text() == "of another thread"


def interrupted(write: Callable[[], None], instruction: int) -> bool:
    """Whether the writing came to an instruction of its own of this number, and was interrupted before it."""
    seen = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename != atomic_write.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == instruction + 1:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 asks when tracing begins whether any frame wants instructions
    sys.settrace(trace)
    try:
        write()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
