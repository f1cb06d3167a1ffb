"""No word is broken of the 400 operators that have the most kernels, at every width that a terminal has."""

from __future__ import annotations

import pytest

from tests.test_render_widths import check_words, most_kernels


@pytest.mark.parametrize("width", [60, 61, 66, 72, 79, 80, 90, 100, 110, 120, 132, 150, 161, 200])
def test_no_word_is_broken_at_any_width(width: int) -> None:
    check_words(most_kernels(400), width)
