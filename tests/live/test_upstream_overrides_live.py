"""Programs about overrides, wrappers, modes and registrations, on the lab and on the running PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tests.live.override_programs import PROGRAMS
from tests.live.override_sides import sides


def _run(program: Any, side: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        return program(side)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_here_what_it_does_on_torch(name: str) -> None:
    ours, theirs = sides()
    found, expected = _run(PROGRAMS[name], ours), _run(PROGRAMS[name], theirs)
    assert found == expected
    assert expected
