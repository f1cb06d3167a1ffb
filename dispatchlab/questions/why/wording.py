"""Pieces of sentences that several causes share."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches

from dispatchlab.model.failure import Failure, OperatorFacts


def listed(names: Iterable[str], *, most: int = 6, word: str = "and") -> str:
    """Return names as prose: `A, B and C`."""
    kept = list(names)
    if len(kept) > most:
        kept = [*kept[:most], f"{len(kept) - most} more"]
    if len(kept) < 2:
        return "".join(kept)
    return f"{', '.join(kept[:-1])} {word} {kept[-1]}"


def kernels_of(facts: OperatorFacts, failure: Failure) -> str:
    """Return the keys of an operator's kernels with their lines."""
    lines = {event.detail: str(event.at) for event in failure.registrations(facts.name) if event.kind == "impl"}
    shown = []
    for key, site in facts.kernels.items():
        at = lines.get(key) or short_site(site)
        shown.append(f"{key} ({at})" if at else key)
    return listed(shown)


def short_site(site: str) -> str:
    """Return a debug text without what leads to PyTorch's own folder."""
    text = site.removeprefix("registered at ").strip()
    for marker in ("site-packages/", "/pytorch/aten/", "/pytorch/"):
        if marker in text:
            text = text.rpartition(marker)[2]
    return text.removeprefix(os.getcwd() + os.sep)


def line_of_definition(facts: OperatorFacts | None, failure: Failure) -> str:
    """Return `, defined at FILE:LINE`, or nothing where the line is not known."""
    if facts is None:
        return ""
    at = next((str(e.at) for e in failure.registrations(facts.name) if e.kind in ("define", "custom_op") and e.at), "")
    return f", defined at {at or short_site(facts.site)}" if at or facts.site else ""


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the name that is most alike; empty when none is."""
    return next(iter(get_close_matches(name, names, n=1, cutoff=0.75)), "")


def arguments_of(schema: str) -> list[tuple[str, str]]:
    """Return the type and name of each argument of a schema text."""
    inside = schema.partition("(")[2].rpartition(") ->")[0]
    found, depth, start = [], 0, 0
    for index, letter in enumerate(f"{inside},"):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and not depth:
            part = inside[start:index].strip().partition("=")[0]
            start = index + 1
            if part and part != "*":
                kind, _, name = part.rpartition(" ")
                found.append((kind, name))
    return found


def tensors_of(schema: str) -> list[str]:
    """Return the names of the arguments that are tensors or lists of tensors."""
    return [name for kind, name in arguments_of(schema) if kind.startswith("Tensor")]


def signature_of(schema: str) -> str:
    """Return the parameters of a Python function that takes what a schema has, with the defaults."""
    inside = schema.partition("(")[2].rpartition(") ->")[0]
    only = f" {inside.partition('*, ')[2]}" if "*, " in inside else ""
    parts: list[str] = []
    for _, name in arguments_of(schema):
        if "*" not in parts and re.search(rf"\s{name}\b", only):
            parts.append("*")
        default = re.search(rf"\s{name}=(\[[^\]]*\]|\"[^\"]*\"|[^,]+)", f" {inside}")
        parts.append(f"{name}={_python(default[1].strip())}" if default else name)
    return ", ".join(parts)


def _python(default: str) -> str:
    """Return a default as Python has it: schemas print `1.` and `1.0000000000000001e-05`."""
    try:
        return repr(float(default)) if "." in default or "e-" in default else default
    except ValueError:
        return default


def nth_argument(call: str, index: int) -> str:
    """Return the source of a positional argument of a call; empty where the call has none there."""
    with suppress(SyntaxError, ValueError):
        tree = ast.parse(call.strip(), mode="eval").body
        if isinstance(tree, ast.Call) and index < len(tree.args):
            return ast.get_source_segment(call.strip(), tree.args[index]) or ""
    return ""


def gradients_of(schema: str) -> str:
    """Return what a backward returns: a gradient for each tensor, None for what is no tensor."""
    positional = schema.partition(") ->")[0].partition("*, ")[0].rstrip(", ")
    return ", ".join(
        f"[grad_{name}, ...]" if "[]" in kind else f"grad_{name}" if kind.startswith("Tensor") else "None"
        for kind, name in arguments_of(f"{positional}) ->")
    )


def parameters_of(schema: str) -> str:
    """Return the names of a schema's arguments, as a Python function takes them."""
    return ", ".join(name for _, name in arguments_of(schema))


def needed_arguments(declaration: str) -> str:
    """Return the arguments without a default, as a call gives them."""
    positional, _, keywords = declaration.partition("*, ")
    inside = declaration.partition("(")[2]
    names = [name for _, name in arguments_of(declaration) if f" {name}=" not in inside]
    return ", ".join(f"{name}={name}" if keywords and f" {name}" not in positional else name for name in names)


def registered_lines(failure: Failure, name: str) -> tuple[str, ...]:
    """Return a line for each registration of an operator that was noted; what custom_op does inside is not one."""
    events = [event for event in failure.registrations(name) if event.at is not None]
    inside = {str(event.at) for event in events if event.kind == "custom_op"}
    return tuple(
        f"{event.at}: {event.kind} {event.subject}" + (f" at {event.detail}" if event.kind == "impl" else "")
        for event in events
        if event.kind not in ("define", "impl") or str(event.at) not in inside
    )[:6]


def in_kernel(failure: Failure, name: str) -> bool:
    """Return whether a function that the program registered for an operator is on the stack."""
    kernels = {(e.at.file, e.at.function) for e in failure.of("function") if e.subject == name and e.at}
    return any((frame.file, frame.function) in kernels for frame in failure.frames)


def in_fake(failure: Failure) -> bool:
    """Return whether a fake kernel is on the stack."""
    calls = (name for name in failure.stack if not name.endswith("fake_impl.register"))
    return any("fake_impl" in name or "abstract" in name for name in calls)


def failing_fake(failure: Failure) -> OperatorFacts | None:
    """Return the operator in whose fake kernel the user's innermost line is."""
    at, best, line = failure.at, None, 0
    if at is None or not in_fake(failure):
        return None
    for event in failure.of("custom_op", "define", "register_fake"):
        facts = failure.registry.operator(event.subject)
        file, _, first = short_site(facts.fake).rpartition(":") if facts is not None else ("", "", "")
        if file == at.file and first.isdigit() and line < int(first) <= at.line:
            best, line = facts, int(first)
    return best


def under_dtensor(failure: Failure) -> bool:
    """Return whether DTensor is on the stack."""
    return any(name.startswith("torch.distributed.tensor") for name in failure.stack)


def under_vmap(failure: Failure) -> bool:
    """Return whether vmap is on the stack."""
    return any("vmap" in name for name in failure.stack) or "vmap" in failure.text


def could_not_run(failure: Failure) -> tuple[str, str]:
    """Return the operator that has no kernel, and the key; empty for another failure."""
    found = failure.search(r"Could not run '([\w:.]+)' with arguments from the '(\w+)' backend")
    return ("", "") if found is None else (found[1], key_of(found[2], failure.device))


def key_of(backend: str, device: str) -> str:
    """Return a key; PyTorch prints the name that a package gave the backend in its place."""
    return f"{backend.removesuffix(device)}PrivateUse1" if device and backend.endswith(device) else backend


def latest_kernel(failure: Failure, name: str, *, first: bool = False) -> str:
    """Return ` at FILE:LINE` of the latest kernel of an operator, or of the first."""
    impls = [event for event in failure.registrations(name) if event.kind == "impl" and event.at]
    return f" at {impls[0 if first else -1].at}" if impls else ""
