"""The long tests of tests/test_views_widths.py, which the quick tier leaves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from rich.cells import cell_len
from rich.console import Console

from dispatchlab.questions.explain.blocks import explanation_view
from dispatchlab.questions.explain.explain_operator import explain_operator
from dispatchlab.questions.order.blocks import report_view
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.scenario import parse_scenario
from tests.scenario_texts import TWICE
from tests.test_views_widths import TORCH, WIDTHS, check_words, drawn, is_whole, known_words, most_kernels, words_of


@pytest.mark.parametrize("width", WIDTHS)
def test_no_word_of_the_operators_with_the_most_kernels_is_broken(width: int) -> None:
    check_words(most_kernels(), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("terminal", [False, True])
def test_reports_and_explanations_fit_and_break_no_word(
    width: int,
    terminal: bool,  # noqa: FBT001  a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    report = run_scenario(parse_scenario(TWICE), RunOptions()).report
    explained = explain_operator("aten::add.Tensor", ("cuda requires_grad", "cuda"), source=TORCH)
    views = most_kernels()[:2]
    draws: Sequence[Callable[[Console], None]] = (
        lambda target: report_view(report, snapshots=[("after +0 +1", views)], torch="2.13.0").draw(target),
        explanation_view(explained).draw,
    )
    wide = known_words(*(drawn(draw, 400, terminal=terminal) for draw in draws))
    wide |= set().union(*map(words_of, views))
    for draw in draws:
        text = drawn(draw, width, terminal=terminal)
        assert max(map(cell_len, text.splitlines())) <= width
        for word in text.split():
            if len(word) > 12 and not set(word) & set("╭╮╰╯─│"):
                assert is_whole(word, wide), word
