"""Sequences over registrations: reading, writing, and what is wrong with a bad one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.errors import ParseError
from dispatchlab.model.sequence import StepSequence, format_sequence, parse_sequence
from tests.effort import examples


@examples(100)
@given(st.permutations(range(6)), st.integers(0, 6), st.integers(0, 6))
def test_a_sequence_reads_back(order: list[int], registered: int, released: int) -> None:
    sequence: StepSequence = (*order[:registered], *(~index for index in order[: min(registered, released)]))
    assert parse_sequence(format_sequence(sequence) if sequence else "", count=6) == sequence


def test_a_refused_registration_can_be_tried_again() -> None:
    assert parse_sequence("+0 +1 +2 +1", count=3) == (0, 1, 2, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("+0 x1", "expected a step such as +0 or -0 but found 'x1'\n  +0 x1\n     ^^"),
        ("+0 +7", "expected a registration from 0 to 2 but found '+7'\n  +0 +7\n     ^^"),
        ("+0 -1", "expected the release of something registered here (1 is not) but found '-1'\n  +0 -1\n     ^^"),
        ("-0", "expected the release of something registered here (0 is not) but found '-0'\n  -0\n  ^^"),
        ("+" + "9" * 12, f"expected a step such as +0 or -0 but found '+{'9' * 12}'\n  +{'9' * 12}\n  {'^' * 13}"),
    ],
)
def test_a_bad_step_is_refused_with_its_column(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_sequence(text, count=3)
    assert str(caught.value) == message
