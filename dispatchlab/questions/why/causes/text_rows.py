"""Texts of `text_rows.toml`: causes that a message decides alone, and what others say once they know."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final

from dispatchlab.model.failure import Failure, Fix, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import failing_fake, line_of_definition, under_dtensor

_HANDLERS: Final = ("__torch_function__", "__torch_dispatch__")


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "text_rows.toml").read_text(encoding="utf-8"))


def register_rows(family: str) -> None:
    """Make the rows of a family causes, in their order."""
    for code, entry in _table()[family].items():
        known = cause(code, entry["title"], wrong=entry["wrong"], dispatcher=entry.get("dispatcher", True))
        known(partial(_recognise, entry["row"]))


def say(text: str, /, *, evidence: tuple[str, ...] = (), **words: object) -> Explanation:
    """Return a text with its words, and its fixes."""
    entry = _table()["say"][text]
    fixes = tuple(_fix(fix.format(**words)) for fix in entry["fix"])
    return Explanation(entry["says"].format(**words), fixes, evidence)


def _recognise(rows: list[dict[str, Any]], failure: Failure) -> Explanation | None:
    for row in rows:
        found = failure.search(row["pattern"])
        if found is not None and _applies(row.get("when", ""), failure):
            words = [found[0].strip(), *((group or "").strip() for group in found.groups())]
            shown = _words(failure, next((group for group in words[1:] if group), ""))
            fixes = tuple(_fix(text.format(*words, **shown)) for text in row["fix"])
            return Explanation(row["says"].format(*words, **shown), fixes)
    return None


def _words(failure: Failure, group: str) -> dict[str, str]:
    """Return what a text may name besides the groups of its pattern, the first of which may be an operator."""
    at, name = failure.at, operator_name(group)
    facts = failure.registry.operator(name) if name else None
    fake = failing_fake(failure)
    lines = " ".join(frame.text for frame in failure.frames)
    defined = dict.fromkeys(event.subject for event in failure.of("custom_op", "define"))
    own = re.match(r"([\w.\[\]]+?)(?:\.\w+(?:\(|$)|\[)", failure.call)
    return {
        "at": f" at {at}: `{at.text}`" if at else "",
        "near": f" ({at}: `{at.text}`)" if at and at.text else "",
        "call": failure.call or "the call",
        "called": next((n for n in defined if re.search(rf"\b{n.partition('::')[2]}\b", lines)), "an operator"),
        "own": own[1] if own else "x",
        "op": name or group,
        "dotted": name.replace("::", "."),
        "defined": line_of_definition(facts, failure),
        "schema": facts.schema.partition("::")[2] if facts else "name(...) -> ...",
        "fake": fake.name if fake else "",
    }


def _applies(when: str, failure: Failure) -> bool:
    """Return whether the state fits a row: under vmap, in a handler of an override or in a fake, or after a warning."""
    if when.startswith("source "):
        return when.removeprefix("source ") in failure.source
    if when == "fake":
        return failing_fake(failure) is not None
    if when == "dtensor":
        return under_dtensor(failure)
    if when == "extension":
        found = failure.search(r"trace the builtin `(\w+)\.")
        return found is not None and found[1] not in sys.stdlib_module_names
    if when == "vmap":
        return under_vmap(failure)
    if when == "handler":
        return bool(failure.frames) and failure.frames[-1].function in _HANDLERS
    return any(when in event.detail for event in failure.of("warning")) if when else True


def under_vmap(failure: Failure) -> bool:
    """Return whether vmap is on the stack."""
    return any("vmap" in name for name in failure.stack) or "vmap" in failure.text


def _fix(text: str) -> Fix:
    """Return a fix.

    `wrap: <>.float()` is put around tensors, `word: OLD -> NEW` changes the call, `code: X` is run, and
    `within CONTEXT: X` enters a context: these are tried.
    `needs WHAT: X` is not.
    """
    kind, _, rest = text.partition(": ")
    if kind == "wrap":
        shown, _, note = rest.partition("  # ")
        return Fix(text=shown.replace("<>", "x") + (f"  # {note}" if note else ""), wrap=shown.replace("<>", "{}"))
    if kind == "word":
        old, new = rest.split(" -> ")
        return Fix(text=f"x{new}...)", old=old, new=new)
    if context := re.fullmatch(r"within (.+)", kind):
        code = f"import {context[1].rpartition('.')[0]}\n(within := {context[1]}).__enter__()"
        return Fix(text=f"with {context[1]}: {rest}", code=code)
    if kind == "code":
        return Fix(text=rest, code=rest.partition("  # ")[0])
    if needs := re.fullmatch(r"needs (.+)", kind):
        return Fix(text=rest, needs=needs[1])
    return Fix(text=text)
