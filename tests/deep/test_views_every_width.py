"""No word is broken of the 400 operators that have the most kernels, at every width that a terminal has."""

from __future__ import annotations

import pytest

from tests.effort import some
from tests.test_views_widths import check_command, check_words, most_kernels


@pytest.mark.parametrize("width", some([60, 61, 66, 72, 79, 80, 90, 100, 110, 120, 132, 150, 161, 200]))
def test_no_word_is_broken_at_any_width(width: int) -> None:
    check_words(most_kernels(400), width)


@pytest.mark.parametrize(
    "command",
    [
        "permute scenarios/defects/stale_nested_torch.yaml --semantics torch-2.13 --operator *",
        "permute torch-2.13-cpu --operator aten::add.*",
        "check torch-2.13-cpu",
        "diff torch-2.12 torch-2.15",
    ],
)
def test_no_long_command_breaks_a_word(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_command(command, monkeypatch)
