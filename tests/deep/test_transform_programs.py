"""Generated programs under two levels of transforms, against the running PyTorch; tests/live has a sample."""

from __future__ import annotations

from typing import Any

import pytest

from tests.effort import only_whole, share
from tests.live.transform_comparison import (
    ADD_RETURNS,
    MULTIPLIED,
    REFUSED_LATER,
    SCATTERED,
    STRIDED,
    UNDEFINED,
    compared,
    compared_keys,
    registrations,
)

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


def test_generated_programs_under_transforms_do_what_torchs_do() -> None:
    found = compared(torch, range(120, 120 + share(3_000)))
    assert found["equal"] + found["equal error"] >= share(2_800)
    assert found["equal"] >= share(1_900)
    named = {UNDEFINED, SCATTERED, STRIDED, MULTIPLIED, REFUSED_LATER, ADD_RETURNS}
    assert {*found} <= {"equal", "equal error", *named}
    assert sum(found[name] for name in (MULTIPLIED, REFUSED_LATER)) < 20
    assert found.total() == share(3_000)


@only_whole()
def test_kernels_of_a_custom_operator_see_the_keys_that_torchs_see() -> None:
    given = [*registrations()]
    equal, failed = compared_keys(torch, given, "seen")
    assert equal == len(given) * 49 == 1470
    assert 200 <= failed <= 300
