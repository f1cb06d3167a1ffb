"""The page of the versions has a row for each version that was measured, with its figures."""

from __future__ import annotations

import json

from dispatchlab.model.profile import bundled_profile, bundled_profiles
from tests.histories.file import file_of
from tools.add_version import FIGURES, PAGE, page_text


def test_the_page_is_made_of_the_figures() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_text()


def test_the_figures_are_those_of_the_bundled_profiles() -> None:
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in FIGURES.glob("*.json")}
    assert found.keys() == {*bundled_profiles()}
    for name, figures in found.items():
        profile = bundled_profile(name)
        assert (figures["keys"], figures["slots"], figures["fallbacks"]) == (
            *(len(profile.keys), len(profile.runtime)),
            len(profile.fallbacks),
        )
        if file_of(name).exists():
            assert (figures["histories"]["histories"], figures["histories"]["slots"]) == (2000, "memory")
            assert figures["histories"]["differences"] == 0
