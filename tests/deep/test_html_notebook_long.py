"""The long tests of tests/test_html_notebook.py, which the quick tier leaves out."""

from __future__ import annotations

from dispatchlab import diff
from tests.test_html_notebook import Reader


def test_a_comparison_shows_its_summary_and_details() -> None:
    found = diff("torch-2.12", "torch-2.15")
    shown = Reader(found._repr_html_())
    assert "Removed operators (128)" in shown.text
    assert "and 108 more" in shown.text
    assert "12 changed, 7 of them break callers" in shown.text
    assert len(found._repr_html_()) < 60_000
