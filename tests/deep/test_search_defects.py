"""The search over small scenarios, done again: what it found is what the page says."""

from __future__ import annotations

import os

from dispatchlab.model.profile import bundled_profiles
from tools.search_defects import CHANGES, changes, every_combination, text


def test_the_search_finds_what_the_page_says() -> None:
    tried = list(every_combination())
    assert len(set(tried)) == len(tried) > 3000
    found = text(*changes(tried, bundled_profiles()), len(tried))
    if os.environ.get("EXPECTTEST_ACCEPT"):
        CHANGES.write_text(found, encoding="utf-8", newline="\n")
    assert CHANGES.read_text(encoding="utf-8") == found
