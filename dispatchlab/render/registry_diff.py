"""Differences between two registries as JSON; `registry.compare` has them as text.

One object on one line; a field is never renamed or dropped within a version:

    version           see JSON_VERSION
    before, after     {source, torch, operators}
    compared, tables  how many operators and how many of their tables were compared
    changes           [{subject, kind, operator, key, before, after}]; subject: operator | schema | def | alias kind |
                      tags | kernel | row | fallback; kind: came | went | changed; null where there is nothing to say
"""

from __future__ import annotations

from dispatchlab.analysis.sources import SourceComparison
from dispatchlab.render.as_json import json_text


def diff_json(found: SourceComparison, before: str, after: str) -> str:
    """All changes, one line.

    Args:
        found: the comparison.
        before: what to call the first registry.
        after: what to call the second.
    """
    value = {
        "before": {"source": before, "torch": found.before.torch, "operators": len(found.before.names)},
        "after": {"source": after, "torch": found.after.torch, "operators": len(found.after.names)},
        "compared": found.diff.compared,
        "tables": found.diff.tables,
        "changes": found.diff.changes,
    }
    return json_text(value)
