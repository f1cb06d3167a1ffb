"""Wrong results without an exception of PyTorch: an assertion of the program fails, and what was noted says why."""

from __future__ import annotations

import re

from dispatchlab.model.failure import Event, Failure, Fix, OperatorFacts
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import line_of_definition, listed


def _asserted(failure: Failure) -> bool:
    return bool(failure.kinds & {"AssertionError", "ValueError", "SystemExit"})


@cause("WHY421", "an argument that is written and not declared", wrong="register_fake: shapes are right")
def undeclared_write(failure: Failure) -> Explanation | None:
    """Recognise an operator that wrote an argument which its schema does not name."""
    noted = next((event for event in failure.of("wrote undeclared") if event.detail), None)
    if noted is None or not _asserted(failure):
        return None
    name = noted.subject
    facts = failure.registry.operator(name)
    names = noted.detail.split(", ")
    quoted = "".join(f'"{written}", ' for written in names).rstrip()
    returns_it = any(event.subject == name for event in failure.of("returned alias"))
    if facts and facts.custom_op:
        fix = f'@torch.library.custom_op("{name}", mutates_args=({quoted}))'
    else:
        fix = f'lib.define("{_marked(facts, names)}")'
    note = "  # and return nothing, or a new tensor" if returns_it else ""
    return Explanation(
        f"{name} mutates {listed(names)}, which {_declares(facts)}: compile drops or reorders the "
        f"write{line_of_definition(facts, failure)}",
        (Fix(text=fix + note),),
        (f"the call of {name} changed {listed(names)}",),
    )


def _marked(facts: OperatorFacts | None, names: list[str]) -> str:
    """Return a schema whose written arguments are marked."""
    schema = facts.schema.partition("::")[2] if facts else "f(Tensor x) -> ()"
    for letter, name in zip("abcdefgh", names, strict=False):
        schema = re.sub(rf"\bTensor(\[\]|\?)? {name}\b", rf"Tensor({letter}!)\1 {name}", schema)
    return schema


def _declares(facts: OperatorFacts | None) -> str:
    return "mutates_args does not name" if facts and facts.custom_op else "its schema does not mark with (a!)"


@cause("WHY721", "code that was compiled for another schema", wrong="another mutates_args: today's is right")
def stale_cache(failure: Failure) -> Explanation | None:
    """Recognise a result that is right once the caches of the compiler are off."""
    runs = failure.of("right without caches")
    if not runs:
        return None
    schemas: dict[str, set[str]] = {}
    for event in failure.of("custom_op"):
        schemas.setdefault(event.subject, set()).add(event.detail)
    changed = [name for name, texts in schemas.items() if len(texts) > 1] or list(schemas)
    named = f"{listed(changed)} changed its mutates_args or schema" if changed else "an operator changed"
    return Explanation(
        f"the compiled code comes from Inductor's cache and is stale: {named}, and the cache does not see that",
        (
            Fix(
                text="TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 once, or clear TORCHINDUCTOR_CACHE_DIR, or "
                "rename the operator"
            ),
        ),
        ("tried: with TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 the program ends well",),
    )


@cause("WHY822", "a kernel that a later one replaced", wrong="allow_override: it is on, and the later one wins")
def replaced_kernel(failure: Failure) -> Explanation | None:
    """Recognise two kernels of the program for one operator and key, of which the first is gone."""
    if not _asserted(failure):
        return None
    first: dict[tuple[str, str], Event] = {}
    for event in failure.of("impl", "custom_op"):
        before = first.setdefault((event.subject, event.kind if event.kind == "custom_op" else event.detail), event)
        if event.at is None or before.at is None or str(before.at) == str(event.at):
            continue
        what = "" if event.kind == "custom_op" else f" for {event.detail}"
        return Explanation(
            f"{event.subject} got a kernel{what} at {before.at} and another at {event.at}: the later one wins",
            (
                Fix(text="keep one of the two, or give the second operator another name"),
                Fix(text="lib.impl(NAME, kernel, KEY, allow_override=False)  # raises where there is a kernel"),
            ),
        )
    return None
