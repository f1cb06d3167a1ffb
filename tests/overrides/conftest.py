"""A lab whose tensors may handle calls, and the check that a test leaves its thread as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dispatchlab.lab import Lab
from dispatchlab.lab.overrides import PythonDispatch
from tests.overrides.wrappers import state


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab()
    with PythonDispatch(made.dispatcher):
        yield made


@pytest.fixture(autouse=True)
def _state_is_left_as_it_was() -> Iterator[None]:
    before = state()
    yield
    assert state() == before
