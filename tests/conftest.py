"""What all tests here share: the default registry does not depend on the PyTorch that is installed."""

from __future__ import annotations

import pytest

from dispatchlab.registries import builds

INSTALLED = "2.13.0+cpu"
"""The version that stands for the installed one where a registry is chosen; the tests' own process only."""


@pytest.fixture(autouse=True)
def _the_default_registry_is_that_of_2_13(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "installed_torch", lambda: INSTALLED)
