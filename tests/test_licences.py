"""The page of licences names all that pyproject asks for, and its tool takes no licence for another."""

from __future__ import annotations

import re

import pytest
from packaging.utils import canonicalize_name

from tools.licences import OWN, PAGE, UnknownLicenceError, direct, licence

_IDENTIFIERS = {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT"}
_IDENTIFIERS |= {"MPL-2.0", "PSF-2.0", "Zlib", "LLVM-exception"}
_THREE = "Redistributions in binary form must reproduce. Neither the name of the\ncopyright holder nor"
_TWO = "Redistributions in binary form must reproduce the above copyright notice."


def _rows() -> dict[str, tuple[str, set[str]]]:
    """Of each distribution its licence, and what it comes with."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("|---|---|---|\n")
    rows = re.findall(r"^\| (\S+) \| (.+) \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) == table.count("\n")
    return {name: (text, set(re.findall(r"[\w-]+", extras))) for name, text, extras in rows}


def test_the_page_names_all_that_is_asked_for_and_the_extra_that_asks() -> None:
    rows, asked = _rows(), direct()
    assert set(asked) >= {"", "torch", "test", "cluster", "explore", "notebooks", "browser", "docs", "build", "dev"}
    for extra, requirements in asked.items():
        for each in requirements:
            _, extras = rows[canonicalize_name(each.name)]
            assert (extra or OWN) in extras, each.name
    assert {name for _, extras in rows.values() for name in extras} == {OWN, *asked} - {""}
    assert list(rows) == sorted(rows)


def test_each_licence_of_the_page_is_an_spdx_expression_of_licences_that_were_looked_at() -> None:
    for name, (text, _) in _rows().items():
        words = re.split(r" (?:AND|OR|WITH) ", text)
        assert set(words) <= _IDENTIFIERS, f"{name}: {text}: is it one that may come along?"


@pytest.mark.parametrize(
    ("metadata", "texts", "found"),
    [
        ({"License-Expression": ["MIT OR ISC"], "License": ["BSD"]}, [], "MIT OR ISC"),
        ({"License": ["Apache License, Version 2.0"]}, [], "Apache-2.0"),
        ({"License": ["BSD 3-Clause License\n\nCopyright"]}, [], "BSD-3-Clause"),
        ({"License": ["UNKNOWN"], "Classifier": ["License :: OSI Approved :: MIT License"]}, [], "MIT"),
        ({"Classifier": ["License :: OSI Approved :: BSD License"]}, ["x", _THREE], "BSD-3-Clause"),
        ({"Classifier": ["License :: OSI Approved :: BSD License"]}, [_TWO], "BSD-2-Clause"),
    ],
)
def test_a_licence_is_read_from_metadata_and_text(metadata: dict[str, list[str]], texts: list[str], found: str) -> None:
    assert licence("a", metadata, texts) == found


@pytest.mark.parametrize(
    "metadata", [{}, {"License": ["GPL-3.0"]}, {"License": ["BSD"]}, {"License": ["see the terms of MIT-like"]}]
)
def test_a_licence_that_is_not_told_is_an_error(metadata: dict[str, list[str]]) -> None:
    with pytest.raises(UnknownLicenceError, match="its metadata say"):
        licence("a", metadata, ["All rights reserved."])
