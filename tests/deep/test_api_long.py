"""The long tests of tests/test_api.py, which the quick tier leaves out."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.test_api import PACKAGES, ROOT, examples, run


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_examples_of_what_packages_export_print_what_they_show(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    found = [test for name in package.__all__ for test in examples(package, name)]
    assert sum(map(run, found)) >= len(found) > 0
