"""Every walk finds of registrations of Python what every sequence in fresh sandboxes shows, on many scenarios."""

from __future__ import annotations

import pytest
from hypothesis import given

from dispatchlab.model.registration import Registration
from tests.effort import examples
from tests.python_orders import check, scenarios

pytestmark = pytest.mark.filterwarnings("ignore::dispatchlab.OverrideWarning")


@given(scenarios(most=4))
@examples(400)
def test_every_walk_finds_what_every_sequence_shows(registrations: tuple[Registration, ...]) -> None:
    assert check(registrations, longest=5) >= 2
