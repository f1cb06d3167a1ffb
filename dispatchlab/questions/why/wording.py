"""Pieces of sentences that several causes share."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches

from dispatchlab.model.failure import Event, Failure, Position


def listed(names: Iterable[str], *, most: int = 6, word: str = "and") -> str:
    """Return names as prose: `A, B and C`."""
    kept = list(names)
    if len(kept) > most:
        kept = [*kept[:most], f"{len(kept) - most} more"]
    if len(kept) < 2:
        return "".join(kept)
    return f"{', '.join(kept[:-1])} {word} {kept[-1]}"


def short_site(site: str) -> str:
    """Return a debug text without the path to PyTorch's own folder."""
    text = site.removeprefix("registered at ").strip()
    for marker in ("site-packages/", "/pytorch/aten/", "/pytorch/"):
        if marker in text:
            text = text.rpartition(marker)[2]
    return text.removeprefix(os.getcwd() + os.sep)


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the most similar name; empty if no name is similar."""
    return next(iter(get_close_matches(name, names, n=1, cutoff=0.75)), "")


def _argument_texts(schema: str) -> list[str]:
    inside = schema.partition("(")[2].rpartition(") ->")[0]
    return re.split(r",\s*(?![^\[(]*[\])])", inside)  # a comma in brackets is part of a type or a default


def arguments_of(schema: str) -> list[tuple[str, str]]:
    """Return the type and name of each argument of a schema text."""
    parts = (text.partition("=")[0].rpartition(" ") for text in _argument_texts(schema))
    return [(kind, name) for kind, _, name in parts if name not in ("", "*")]


def signature_of(schema: str) -> str:
    """Return the parameters of a Python function for a schema, with the defaults."""
    parts = (text.partition("=") for text in _argument_texts(schema))
    names = ((declared.rpartition(" ")[2], _python(default)) for declared, _, default in parts)
    return ", ".join(f"{name}={default}" if default else name for name, default in names)


def _python(default: str) -> str:
    """Return a default in Python syntax: schemas print `1.` and `1.0000000000000001e-05`."""
    with suppress(ValueError):
        return repr(float(default)) if "." in default or "e-" in default else default
    return default


def nth_argument(call: str, index: int) -> str:
    """Return the source of a positional argument of a call; empty if there is no such argument."""
    with suppress(SyntaxError, ValueError):
        tree = ast.parse(call.strip(), mode="eval").body
        if isinstance(tree, ast.Call) and index < len(tree.args):
            return ast.get_source_segment(call.strip(), tree.args[index]) or ""
    return ""


def inputs_of(schema: str) -> dict[str, str]:
    """Return the expression that is each argument in `setup_context`."""
    keywords = schema.partition("*, ")[2]
    of_keyword = {name: f'keyword_only_inputs["{name}"]' for _, name in arguments_of(f"({keywords}")}
    return {name: f"inputs[{at}]" for at, (_, name) in enumerate(arguments_of(schema))} | of_keyword


def gradients_of(schema: str) -> str:
    """Return the results of a backward: a gradient for each tensor, and None for other arguments."""
    positional = schema.partition(") ->")[0].partition("*, ")[0].rstrip(", ")
    return ", ".join(
        f"[grad_{name}, ...]" if "[]" in kind else f"grad_{name}" if kind.startswith("Tensor") else "None"
        for kind, name in arguments_of(f"{positional}) ->")
    )


def needed_arguments(declaration: str) -> str:
    """Return the arguments without a default, as a call passes them."""
    positional, _, keywords = declaration.partition("*, ")
    inside = declaration.partition("(")[2]
    names = [name for _, name in arguments_of(declaration) if f" {name}=" not in inside]
    return ", ".join(f"{name}={name}" if keywords and f" {name}" not in positional else name for name in names)


def function_of(failure: Failure, frame: Position | None) -> Event | None:
    """Return the registered function of the program that a frame is in, the innermost."""
    lines: dict[int, Event] = {}
    for event in failure.of("function") if frame is not None else ():
        at = event.at
        if frame and at and (at.file, at.function) == (frame.file, frame.function) and at.line <= frame.line:
            lines.setdefault(at.line, event)
    return lines[max(lines)] if lines else None
