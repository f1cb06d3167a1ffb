"""Explanations and recorded calls as trees, with rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from dispatchlab.call.explain import CallExplanation, Hop
from dispatchlab.call.trace import TracedCall, TracedEvent, TracedThread
from dispatchlab.render.explain import (
    argument_text,
    kernel_lines,
    left_out_text,
    set_text,
    thread_set_text,
    thread_sets,
)
from dispatchlab.render.rich_view import plain
from dispatchlab.render.trace import detail_lines, guard_line, kernel_line

_KERNEL_STYLES = {"kernel:": "green", "nothing": "bold red", "the": "bold red"}


def print_explanation(console: Console, found: CallExplanation, *, no_answer: str = "") -> None:
    """Print an explanation as a tree: the arguments, the thread, and a branch for each hop; what is no answer first."""
    if no_answer:
        console.print(plain(no_answer, "bold yellow"))
    tree = Tree(plain(found.schema, "bold"), guide_style="dim")
    arguments = tree.add(Text("arguments"))
    for argument in found.arguments:
        arguments.add(plain(argument_text(argument)))
    if not found.arguments:
        arguments.add(plain("none that decides the dispatch", "dim"))
    thread = tree.add(Text("the thread"))
    for title, keys in thread_sets(found.thread):
        thread.add(plain(f"{title}: {thread_set_text(title, keys)}", "" if keys else "dim"))
    for hop in found.hops:
        _add(tree, hop)
    tree.add(plain(found.end, "italic" if found.known else "bold yellow"))
    console.print(tree)


def _add(tree: Tree, hop: Hop) -> None:
    title = Text(f"{hop.kind} -> ")
    title.append(str(hop.key), "bold red" if hop.refusal else "bold cyan")
    branch = tree.add(title)
    branch.add(plain(hop.why, "dim"))
    branch.add(plain(f"set: {set_text(hop.start)}"))
    for left in hop.left_out:
        branch.add(plain(f"left out: {left_out_text(left)}", "dim"))
    if hop.left_out:
        remains = Text("what remains: ")
        remains.append(set_text(hop.keys), "bold")
        branch.add(remains)
    for line in kernel_lines(hop):
        branch.add(plain(line, _KERNEL_STYLES.get(line.split(" ", 1)[0], "dim")))


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
