"""How what two sequences lead to differs, as unified diffs with a title for each section that differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import unified_diff

from dispatchlab.model.snapshot import TABLES, Refusal, Snapshot, Violation


def difference(
    expected: Sequence[Snapshot],
    actual: Sequence[Snapshot],
    *,
    expected_broken: Sequence[Violation] = (),
    actual_broken: Sequence[Violation] = (),
) -> str:
    """The sections of two observations that differ; empty when nothing does.

    Args:
        expected: one snapshot for each operator under observation.
        actual: the same operators, seen after the other sequence.
        expected_broken: the invariants that do not hold where `expected` was seen.
        actual_broken: those that do not hold where `actual` was seen.
    """
    parts: list[str] = []
    for before, after in zip(expected, actual, strict=True):
        if before == after:
            continue
        for (title, old), (_, new) in zip(before.sections(), after.sections(), strict=True):
            # The rows of a table show their key, so that those around them would only be in the way.
            parts += _section(f"{before.operator}, {title}", old, new, context=0 if title in TABLES else 3)
    parts += _section("invariants", _invariants(expected_broken), _invariants(actual_broken))
    return "".join(parts)


def outcome_difference(expected: str, actual: str) -> str:
    """The diff of two outcomes, given as `outcome_text` writes them; empty when they are alike."""
    return "".join(_section("outcome", expected, actual))


def outcome_text(step: int, refusal: Refusal | None) -> str:
    """What came of a step, in lines that can be compared."""
    if refusal is None:
        return f"{'-' if step < 0 else '+'}{~step if step < 0 else step} accepted\n"
    facts = "".join(f"  {name}: {value}\n" for name, value in refusal.facts)
    verb = f"-{~step} failed" if step < 0 else f"+{step} refused"
    return f"{verb}: {refusal.kind}\n{refusal.message}\n{facts}"


def _invariants(broken: Sequence[Violation]) -> str:
    return "".join(f"{violation}\n" for violation in broken) or "all hold\n"


def _section(title: str, old: str, new: str, *, context: int = 3) -> Iterator[str]:
    titles = f"expected: {title}", f"actual: {title}"
    lines = unified_diff(old.splitlines(), new.splitlines(), *titles, lineterm="", n=context)
    return (f"{line}\n" for line in lines)
