"""The long tests of tests/test_records_compare.py, which the quick tier leaves out."""

from __future__ import annotations

from dataclasses import replace

from dispatchlab.records.compare import change_lines, compare
from dispatchlab.records.file import open_bundled
from tests.registry_cases import SMALL


def test_equal_registries_do_not_differ() -> None:
    whole = open_bundled("torch-2.13-cpu")
    same = compare(whole, whole.load())
    assert (same.changes, same.compared) == ((), 3598)
    small = compare(SMALL, replace(SMALL, torch="other"))
    assert (small.changes, small.compared) == ((), 3)
    assert list(change_lines(small)) == []
