"""Views for people and programs: rich, JSON, pictures and progress."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from math import factorial
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.model.names import OperatorName
from dispatchlab.model.operator_view import OperatorView, view_of
from dispatchlab.prover.limits import Progress
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.dump.operator_blocks import operator_blocks, operator_json
from dispatchlab.questions.order.blocks import report_view
from dispatchlab.scenario import parse_scenario
from dispatchlab.views.as_json import json_text
from dispatchlab.views.console import console
from dispatchlab.views.progress import BarDisplay, LineDisplay, progress_text
from dispatchlab.views.terminal import draw as draw_blocks
from tests.scenario_texts import COMPOSITES, FIVE
from tests.test_views_text import DEPENDENT, INDEPENDENT

FOO = OperatorName("test", "foo")
BOXES = re.compile("[\u2500-\u257f]")
ESCAPE = "\x1b"


class Terminal(io.StringIO):
    """A stream that says it is one."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Yes."""
        return True


def shown(*, stream: io.StringIO, width: int, color: bool, draw: Callable[[Console], None]) -> str:
    """What a view prints."""
    target = console(stream, color=color)
    target.width = width
    draw(target)
    return stream.getvalue()


def dispatcher(text: str) -> tuple[Dispatcher, list[object]]:
    """A dispatcher with a scenario in force, and what holds it there."""
    scenario = parse_scenario(text)
    made = Dispatcher.for_scenario(scenario.semantics or "strict")
    return made, [made.register(registration) for registration in scenario.registrations]


@pytest.mark.parametrize("width", [60, 100])
def test_a_report_fits_the_terminal_and_begins_with_its_verdict(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = shown(stream=Terminal(), width=width, color=True, draw=lambda target: report_view(DEPENDENT).draw(target))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert ": order-dependent (model: strict, an idealised dispatcher), NOT as expected: order-independent" in " ".join(
        " ".join(lines[:3]).split()
    )
    assert ESCAPE in text
    printed = " ".join(lines)
    assert "cause: a and b both set the CPU kernel of test::foo; the later one wins" in " ".join(printed.split())
    (parted,) = [line for line in lines if line.startswith("> ")]
    assert "+1 impl" in parted
    assert "> +2 impl" in parted, "the two sequences are beside each other, marked where they part"


def test_a_pipe_gets_neither_colours_nor_box_characters() -> None:
    text = shown(stream=io.StringIO(), width=80, color=True, draw=lambda target: report_view(DEPENDENT).draw(target))
    assert (ESCAPE in text, BOXES.search(text)) == (False, None)
    assert "order-dependent" in text


def test_colours_can_be_refused_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    text = shown(stream=Terminal(), width=80, color=False, draw=lambda target: report_view(DEPENDENT).draw(target))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", text)


def test_a_claim_cannot_colour_the_terminal() -> None:
    report = replace(INDEPENDENT, claim="\x1b[31mred\x07 [bold]x[/bold]", scenario="[red]\x1b]0;title\x07")
    text = shown(stream=io.StringIO(), width=100, color=True, draw=lambda target: report_view(report).draw(target))
    assert ESCAPE not in text
    assert "\x07" not in text
    assert "\\x1b[31mred\\x07 [bold]x[/bold]" in text


def operator_text(view: OperatorView, *, everything: bool = False, keys: Collection[str] = ()) -> str:
    """What a terminal shows of an operator, its white space as blanks."""
    blocks = tuple(operator_blocks(view, everything=everything, keys=keys))
    draw: Callable[[Console], None] = lambda target: draw_blocks(target, blocks, whole=everything)  # noqa: E731
    return " ".join(shown(stream=io.StringIO(), width=200, color=False, draw=draw).split())


def test_an_operator_shows_reasons_losers_and_stale_slots() -> None:
    made, held = dispatcher(COMPOSITES)
    view = made.explain(FOO)
    assert view is not None
    text = operator_text(view)
    assert "Stale slots (" in text
    assert "every NestedTensor backend, AutogradHIP, AutogradIPU" in text
    assert "since CompositeExplicitAutograd has a kernel, at" in text
    assert "stale: calls of every NestedTensor backend, AutogradOther, every Autograd backend" in text
    assert "default backend kernel of Undefined, every backend" in text
    assert "invariant broken" not in text, "stale slots are said once"
    rows = operator_text(view, everything=True)
    assert "math kernel of CompositeImplicitAutograd fn_implicit (CompositeExplicitAutograd has a kernel)" in rows
    assert "STALE, calls use fn_implicit [math kernel]" in rows
    assert len(held) == 2
    refreshed, registered = dispatcher(COMPOSITES.replace("torch-2.13", "strict"))
    explained = refreshed.explain(FOO)
    assert explained is not None
    assert "fn_implicit runs for no key beaten by" in operator_text(explained)
    assert len(registered) == 2


def test_rows_can_be_limited_to_keys() -> None:
    made, held = dispatcher(FIVE)
    view = made.explain(FOO)
    assert view is not None
    text = operator_text(view, keys=["CPU"])
    assert "Kernels of test::foo" not in text
    assert "CPU kernel fn_cpu math kernel of CompositeImplicitAutograd" in text
    assert ("CUDA" in text, len(held)) == (False, 5)


def test_a_view_made_from_texts_agrees_with_the_engine() -> None:
    made, held = dispatcher(COMPOSITES)
    explained, read = made.explain(FOO), view_of(made.snapshot(FOO), made.violations(FOO))
    assert explained is not None
    assert (read.name, read.schema, read.violations) == (explained.name, explained.schema, explained.violations)
    assert read.kernels == tuple(replace(kernel, location=None) for kernel in explained.kernels)
    by_key = {row.key: row for row in read.table}
    assert set(by_key) == {row.key for row in explained.table}
    for row in explained.table:
        other = by_key[row.key]
        assert (other.text, other.debug, other.reason, other.fallthrough, other.stale) == (
            row.text,
            row.debug,
            row.reason,
            row.fallthrough,
            row.stale,
        )
    assert sum(row.stale is not None for row in read.table) == 34
    assert len(held) == 2


# -- JSON


def test_a_report_as_json_has_all_documented_fields() -> None:
    line = report_view(DEPENDENT).json()
    value = json.loads(line)
    assert line.count("\n") == 1
    assert {name: value[name] for name in ("version", "verdict", "expected", "as_expected", "orders", "seed")} == {
        "version": 5,
        "verdict": "order-dependent",
        "expected": "order-independent",
        "as_expected": False,
        "orders": "36",
        "seed": 7,
    }
    wanted = [
        "scenario",
        "engine",
        "semantics",
        "registrations",
        "sets",
        "states",
        "edges",
        "elapsed_s",
        "conflicts",
        "never_accepted",
    ]
    assert [name for name in wanted if name not in value] == []
    assert value["counterexample"] == {
        "flaw": "non-commuting",
        "expected_sequence": "+1 +2",
        "actual_sequence": "+2 +1",
        "diff": "--- one\n+++ other\n-a\n+b\n",
        "why": ["the newest wins"],
    }


def test_orders_of_a_thousand_registrations_are_a_string_of_all_their_digits() -> None:
    orders = factorial(1_200) ** 2
    value = json.loads(
        report_view(replace(INDEPENDENT, exploration=replace(INDEPENDENT.exploration, orders=orders))).json()
    )
    text = value["orders"]
    assert len(text) == 6_352
    assert int(text[:1_000]) == orders // 10**5_352
    assert int(text[-1_000:]) == orders % 10**1_000


def test_an_operator_as_json_says_what_lost_and_what_is_stale() -> None:
    made, held = dispatcher(COMPOSITES)
    view = made.explain(FOO)
    assert view is not None
    operator: dict[str, Any] = json.loads(json_text(operator_json(made.snapshot(FOO), view, ["AutogradHIP", "CPU"])))
    rows = {row["key"]: row for row in operator["table"]}
    assert set(rows) == {"AutogradHIP", "CPU"}
    assert (rows["AutogradHIP"]["text"], rows["AutogradHIP"]["stale"]) == ("", "fn_implicit [math kernel]")
    assert [beaten["debug"] for beaten in rows["CPU"]["beaten"]] == ["fn_implicit"]
    assert operator["table_text"] == "CPU: fn_explicit [default backend kernel]\n"
    assert [violation["rule"] for violation in operator["violations"]] == ["stale slot"]
    assert len(held) == 2


# -- progress


def test_progress_says_how_much_is_done_of_how_much() -> None:
    half = Progress(sets=1_024, states=2_048, edges=500_000, total_edges=1_000_000, elapsed_s=4.0)
    assert progress_text(half) == "1,024 sets, 500,000 of 1,000,000 edges (50 %), 125,000 edges/s, 4 s left"
    first = Progress(sets=2, states=2, edges=9_999, total_edges=1_000_000, elapsed_s=1.0)
    assert progress_text(first) == "2 sets, 9,999 of 1,000,000 edges (0 %), 9,999 edges/s"
    assert progress_text(replace(half, total_edges=None)) == "1,024 sets, 500,000 edges, 125,000 edges/s"
    assert progress_text(replace(half, total_edges=3, elapsed_s=0.0)) == "1,024 sets, 500,000 edges, 0 edges/s"


def test_lines_come_once_a_second_for_each_scenario() -> None:
    stream, now = io.StringIO(), iter([0.0, 0.1, 0.5, 1.0, 1.5])
    display = LineDisplay(stream, clock=lambda: next(now))
    progress = Progress(1, 1, 1, 10, 1.0)
    for name in ("a", "b", "a", "a", "b"):
        display.update(name, progress)
    assert [line.split(":")[0] for line in stream.getvalue().splitlines()] == ["a", "b", "a", "b"]


def test_a_bar_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    with BarDisplay(stream, color=False) as display:
        display.update("one.yaml", Progress(3, 3, 30, 100, 1.0))
        display.update("two.yaml", Progress(3, 3, 30, None, 1.0))
        display.finish("one.yaml")
    text = stream.getvalue()
    assert "30 of 100 edges (30 %)" in re.sub(r"\s+", " ", text)
    assert text.rstrip("\r\n").endswith(("\x1b[2K", "\x1b[?25h"))


def test_every_verdict_is_shown() -> None:
    for verdict in Verdict:
        report = replace(INDEPENDENT, exploration=replace(INDEPENDENT.exploration, verdict=verdict))
        draw: Callable[[Console], None] = lambda target, report=report: report_view(report).draw(target)  # type: ignore[misc]  # noqa: E731
        text = shown(stream=io.StringIO(), width=80, color=False, draw=draw)
        assert str(verdict) in text
