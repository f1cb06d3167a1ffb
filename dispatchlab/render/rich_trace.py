"""Recorded calls for a terminal: each below the call that made it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from dispatchlab.call.trace import TracedCall, TracedEvent, TracedThread
from dispatchlab.render.explain import set_text
from dispatchlab.render.page import Page, words
from dispatchlab.render.styles import AUTOGRAD, BAD, KERNEL, QUIET, REASON_STYLES, TITLE, WARNING
from dispatchlab.render.trace import detail_lines, guard_line, kernel_line

_STEP = 2


def print_trace(console: Console, threads: Sequence[TracedThread], *, sets: bool = False) -> None:
    """Print each thread with its calls.

    Args:
        console: where to.
        threads: what was recorded.
        sets: show where the set of each call comes from.
    """
    page = Page(console)
    for number, thread in enumerate(threads):
        if number:
            page.blank()
        page.line(f"thread {thread.name}", TITLE)
        _print_steps(page, thread.steps, _STEP, sets=sets)


def _print_steps(page: Page, steps: Sequence[TracedEvent], indent: int, *, sets: bool) -> None:
    for step in steps:
        if isinstance(step, TracedCall):
            page.flow(_title(step), indent=indent + 2 * _STEP, first=page.margin(indent))
            for line in detail_lines(step) if sets else _short(step):
                page.line(line, BAD if line.startswith("raised") else QUIET, indent=indent + _STEP)
        else:
            page.line(guard_line(step), WARNING, indent=indent)
        _print_steps(page, step.steps, indent + _STEP, sets=sets)


def _title(call: TracedCall) -> list[Text]:
    style = AUTOGRAD if call.kernel is None else REASON_STYLES.get(call.kernel.reason, KERNEL)
    return [
        *words(f"{call.kind} {call.operator}"),
        Text(str(call.keys.highest()), BAD if call.error else f"bold {style}"),
        *words(f"of {set_text(call.keys)}", QUIET),
    ]


def _short(call: TracedCall) -> list[str]:
    kernel = "no kernel" if call.kernel is None else kernel_line(call.kernel)
    raised = [] if call.error is None else [f"raised {call.error}"]
    return [kernel, *raised, *([f"note: {call.note}"] if call.note else [])]
