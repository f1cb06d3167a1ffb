"""Journals: what was kept comes back, what was changed is cut off, and what is of another run is refused."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from dispatchlab.errors import ErrorKind
from dispatchlab.files.atomic_write import WriteError
from dispatchlab.files.file_kinds import JOURNAL_MAGIC, OtherFileError, OverwriteError
from dispatchlab.files.journal import Journal, JournalInUseError, OtherRunError
from dispatchlab.model.snapshot import Refusal

RUN: Mapping[str, str] = {"the command": "permute", "--seed": "1"}
REFUSAL = Refusal(ErrorKind.DUPLICATE_DEF, (("operator", "test::foo"),), "twice")


def test_what_was_kept_comes_back_in_order(tmp_path: Path) -> None:
    file = tmp_path / "run.ck"
    with Journal(file, RUN) as journal:
        assert journal.records("a", object) == []
        assert journal.add("a", REFUSAL)
        assert journal.add("b", (1, frozenset({2})))
        assert journal.add("a", "second")
    with Journal(file, RUN) as journal:
        assert (journal.records("a", object), journal.records("b", object)) == (
            [REFUSAL, "second"],
            [(1, frozenset({2}))],
        )


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
            assert journal.records("a", object) == [0, 1, 2][:known]
            journal.add("a", "more")
        with Journal(file, RUN) as journal:
            assert journal.records("a", object) == [*[0, 1, 2][:known], "more"]


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
        assert journal.records("a", object) == []


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


def _records(file: Path) -> list[bytes]:
    """The records of a journal, behind its magic bytes."""
    data, records = file.read_bytes().removeprefix(JOURNAL_MAGIC), []
    while data:
        size = 36 + int.from_bytes(data[:4], "little")
        records.append(data[:size])
        data = data[size:]
    return records


def test_records_that_are_moved_doubled_or_taken_out_end_what_is_read(tmp_path: Path) -> None:
    file = tmp_path / "run.ck"
    with Journal(file, RUN) as journal:
        for number in range(4):
            journal.add("a", number)
    run, *rest = _records(file)
    for order, known in (((1, 0, 2, 3), 0), ((0, 2, 3), 1), ((0, 1, 1, 2, 3), 2), ((0, 1, 3, 2), 2), ((1, 2, 3), 0)):
        file.write_bytes(JOURNAL_MAGIC + run + b"".join(rest[number] for number in order))
        with Journal(file, RUN) as journal:
            assert journal.records("a", int) == list(range(known))


def test_records_of_another_journal_end_what_is_read(tmp_path: Path) -> None:
    one, other = tmp_path / "one.ck", tmp_path / "other.ck"
    for file, run in ((one, RUN), (other, {**RUN, "a.yaml": "0"})):
        with Journal(file, run) as journal:
            journal.add("a", "of " + file.name)
    one.write_bytes(JOURNAL_MAGIC + _records(one)[0] + _records(other)[1])
    with Journal(one, RUN) as journal:
        assert journal.records("a", object) == []


def test_what_is_no_plain_data_is_not_written(tmp_path: Path) -> None:
    with Journal(tmp_path / "run.ck", RUN) as journal:
        size = (tmp_path / "run.ck").stat().st_size
        assert not journal.add("a", test_digests_are_not_shown)
        assert not journal.add("a", object())
    assert (tmp_path / "run.ck").stat().st_size == size


def test_a_record_of_another_type_ends_what_is_known(tmp_path: Path) -> None:
    with Journal(tmp_path / "run.ck", RUN) as journal:
        for value in ((1, 2), (3, 4), "a", (5, 6)):
            journal.add("a", value)
        assert journal.records("a", tuple[int, int]) == [(1, 2), (3, 4)]


def test_a_journal_of_many_small_bombs_is_read_up_to_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "run.ck"
    Journal(file, RUN).close()
    (last,) = (record[4:36] for record in _records(file))
    bomb = zlib.compress(b"[" + b"0," * 300_000 + b'"a",["tuple",0,1],["tuple",300000,300001]]', 9)
    with file.open("ab") as stream:
        for _ in range(100):
            last = sha256(last + bomb).digest()
            stream.write(len(bomb).to_bytes(4, "little") + last + bomb)
    with Journal(file, RUN) as journal:
        assert 0 < len(journal.records("a", object)) < 10


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk")
def test_a_full_disk_is_said_once_and_closing_says_no_more(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run.ck", RUN)
    with open("/dev/full", "wb") as full, journal:
        os.dup2(full.fileno(), journal._file.fileno())
        with pytest.raises(WriteError, match="could not be written: No space left on device"):
            journal.add("a", 1)
