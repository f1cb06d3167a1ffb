"""Journals: what was kept comes back, what was torn is cut off, and what is somebody else's is refused."""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from dispatchlab.errors import ErrorKind
from dispatchlab.files.file_kinds import OtherFileError, OverwriteError
from dispatchlab.files.journal import Journal, JournalInUseError, OtherRunError
from dispatchlab.model.snapshot import Refusal

RUN: Mapping[str, str] = {"the command": "permute", "--seed": "1"}
REFUSAL = Refusal(ErrorKind.DUPLICATE_DEF, (("operator", "test::foo"),), "twice")


def test_what_was_kept_comes_back_in_order(tmp_path: Path) -> None:
    file = tmp_path / "run.ck"
    with Journal(file, RUN) as journal:
        assert journal.records("a") == []
        assert journal.add("a", REFUSAL)
        assert journal.add("b", (1, frozenset({2})))
        assert journal.add("a", "second")
    with Journal(file, RUN) as journal:
        assert (journal.records("a"), journal.records("b")) == ([REFUSAL, "second"], [(1, frozenset({2}))])


def test_a_file_that_was_cut_at_any_byte_has_the_records_before_and_takes_more(tmp_path: Path) -> None:
    file = tmp_path / "run.ck"
    with Journal(file, RUN) as journal:
        sizes = [file.stat().st_size]
        for number in range(3):
            journal.add("a", number)
            sizes.append(file.stat().st_size)
    whole = file.read_bytes()
    for cut in range(sizes[0], len(whole) + 1):
        file.write_bytes(whole[:cut])
        known = sum(size <= cut for size in sizes[1:])
        with Journal(file, RUN) as journal:
            assert journal.records("a") == [0, 1, 2][:known]
            journal.add("a", "more")
        with Journal(file, RUN) as journal:
            assert journal.records("a") == [*[0, 1, 2][:known], "more"]


def test_a_byte_that_changed_ends_the_records_there(tmp_path: Path) -> None:
    file = tmp_path / "run.ck"
    with Journal(file, RUN) as journal:
        before = file.stat().st_size
        journal.add("a", 0)
        journal.add("a", 1)
    whole = bytearray(file.read_bytes())
    whole[before + 10] ^= 1
    file.write_bytes(whole)
    with Journal(file, RUN) as journal:
        assert journal.records("a") == []


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({**RUN, "--seed": "2"}, "--seed was 1 and is 2; name another file, or remove this one to begin anew"),
        ({"the command": "permute"}, "--seed was 1 and is not given;"),
        ({**RUN, "--walk": "sample"}, "--walk was not given and is sample;"),
        ({**RUN, "the command": "certify"}, "the command was permute and is certify;"),
    ],
)
def test_a_journal_of_another_run_is_refused_and_stays(tmp_path: Path, run: dict[str, str], message: str) -> None:
    file = tmp_path / "run.ck"
    with Journal(file, RUN) as journal:
        journal.add("a", 0)
    content = file.read_bytes()
    with pytest.raises(OtherRunError) as caught:
        Journal(file, run)
    assert f"is the checkpoint of another run: {message}" in str(caught.value)
    assert file.read_bytes() == content


def test_digests_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "run.ck"
    Journal(file, {"a.yaml": "0" * 64}).close()
    with pytest.raises(OtherRunError, match=r"a\.yaml has changed since; name another file"):
        Journal(file, {"a.yaml": "1" * 64})


def test_another_file_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(OverwriteError):
        Journal(file, RUN)
    scenario = tmp_path / "a.yaml"
    scenario.write_text("claim: c\nregistrations: []\n")
    with pytest.raises(OtherFileError, match="expected a checkpoint but found a scenario"):
        Journal(scenario, RUN)
    assert (file.read_text(), scenario.read_text()) == ("mine", "claim: c\nregistrations: []\n")


def test_one_process_has_it_open_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with Journal(tmp_path / "run.ck", RUN), pytest.raises(JournalInUseError, match="is in use: another process goes"):
        Journal(tmp_path / "run.ck", RUN)


class _Command:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch owned",)


def test_a_file_from_somebody_else_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "run.ck"
    with Journal(file, RUN) as journal:
        assert not journal.add("a", _Command())
        data = zlib.compress(pickle.dumps(("a", _Command())))
    with file.open("ab") as stream:
        stream.write(len(data).to_bytes(4, "little") + zlib.crc32(data).to_bytes(4, "little") + data)
    with Journal(file, RUN) as journal:
        assert journal.records("a") == []
    assert not (tmp_path / "owned").exists()


def test_functions_of_this_package_are_not_made_either(tmp_path: Path) -> None:
    from dispatchlab.files.atomic_write import write_file

    with Journal(tmp_path / "run.ck", RUN) as journal:
        assert not journal.add("a", write_file)
        assert not journal.add("a", object())
