"""Recorded calls as trees, with rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from dispatchlab.call.trace import TracedCall, TracedEvent, TracedThread
from dispatchlab.render.explain import (
    set_text,
)
from dispatchlab.render.rich_view import plain
from dispatchlab.render.trace import detail_lines, guard_line, kernel_line


def print_trace(console: Console, threads: Sequence[TracedThread], *, sets: bool = False) -> None:
    """Print a tree for each thread.

    Args:
        console: where to.
        threads: what was recorded.
        sets: show where the set of each call comes from.
    """
    for thread in threads:
        tree = Tree(plain(f"thread {thread.name}", "bold"), guide_style="dim")
        _add_call(tree, thread.steps, sets=sets)
        console.print(tree)


def _add_call(tree: Tree, steps: Sequence[TracedEvent], *, sets: bool) -> None:
    for step in steps:
        if isinstance(step, TracedCall):
            branch = tree.add(_title(step))
            for line in detail_lines(step) if sets else _short(step):
                branch.add(plain(line, "red" if line.startswith("raised") else "dim"))
            _add_call(branch, step.steps, sets=sets)
        else:
            _add_call(tree.add(plain(guard_line(step), "yellow")), step.steps, sets=sets)


def _title(call: TracedCall) -> Text:
    title = plain(f"{call.kind} {call.operator} ")
    title.append(str(call.keys.highest()), "bold red" if call.error else "bold cyan")
    title.append(f" of {set_text(call.keys)}", "dim")
    return title


def _short(call: TracedCall) -> list[str]:
    kernel = "no kernel" if call.kernel is None else kernel_line(call.kernel)
    return [kernel] if call.error is None else [kernel, f"raised {call.error}"]
