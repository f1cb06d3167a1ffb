"""Wrong results without an exception of PyTorch: events before an assertion of the program failed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dispatchlab.model.failure import Event, Failure
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.wording import listed


def _asserted(failure: Failure) -> bool:
    return bool(failure.kinds & {"AssertionError", "ValueError", "SystemExit"})


@looks_for("WHY421")
def undeclared_write(words: Words) -> Mapping[str, object] | None:
    """Recognise an operator that wrote an argument which its schema does not name."""
    failure = words.failure
    noted = next((event for event in failure.of("wrote undeclared") if event.detail), None)
    if noted is None or not _asserted(failure):
        return None
    facts, names = failure.registry.operator(noted.subject), noted.detail.split(", ")
    marked = facts.schema.partition("::")[2] if facts else "f(Tensor x) -> ()"
    for letter, name in zip("abcdefgh", names, strict=False):
        marked = re.sub(rf"\bTensor(\[\]|\?)? {name}\b", rf"Tensor({letter}!)\1 {name}", marked)
    return saw(
        op=noted.subject,
        wrote=listed(names),
        quoted="".join(f'"{name}", ' for name in names).rstrip(),
        returns_it=any(event.subject == noted.subject for event in failure.of("returned alias")),
        marked=marked,
    )


@looks_for("WHY721")
def stale_cache(words: Words) -> Mapping[str, object]:
    """Find the custom operators whose schema changed in the program."""
    failure = words.failure
    schemas: dict[str, set[str]] = {}
    for event in failure.of("custom_op"):
        schemas.setdefault(event.subject, set()).add(event.detail)
    return saw(changed=listed([name for name, texts in schemas.items() if len(texts) > 1] or schemas))


@looks_for("WHY822")
def replaced_kernel(words: Words) -> Mapping[str, object] | None:
    """Recognise that a second kernel of the program replaced the first one for an operator and key."""
    failure = words.failure
    first: dict[tuple[str, str], Event] = {}
    for event in failure.of("impl", "custom_op") if _asserted(failure) else ():
        key = "" if event.kind == "custom_op" else event.detail
        before = first.setdefault((event.subject, key), event)
        if event.at is not None and before.at is not None and str(before.at) != str(event.at):
            return saw(op=event.subject, key=key, first_at=before.at, later_at=event.at)
    return None
