"""Why a call runs its kernel, as a tree for people who look before they read. Says what render/explain_text.py says."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from dispatchlab.call.explanation import CallExplanation, Hop
from dispatchlab.render.explain_text import (
    argument_text,
    kernel_lines,
    left_out_text,
    set_text,
    thread_set_text,
    thread_sets,
)
from dispatchlab.render.rich_view import plain

_KERNEL_STYLES = {"kernel:": "green", "nothing": "bold red", "the": "bold red"}


def print_explanation(console: Console, found: CallExplanation) -> None:
    """Print an explanation as a tree: the arguments, the thread, and a branch for each hop."""
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
    tree.add(plain(found.end, "italic"))
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
