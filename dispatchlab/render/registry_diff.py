"""Differences between two registries as JSON; `registry.compare` has them as text.

One object on one line; a field is never renamed or dropped within a version:

    version           see JSON_VERSION
    before, after     {source, torch, operators}
    compared, tables  how many operators and how many of their tables were compared
    changes           [{subject, kind, operator, key, before, after}]; subject: operator | schema | def | alias kind |
                      tags | kernel | row | fallback; kind: came | went | changed; null where there is nothing to say
"""

from __future__ import annotations

import json

from dispatchlab.analysis.sources import SourceComparison
from dispatchlab.render.formatting import JSON_VERSION


def diff_json(found: SourceComparison, before: str, after: str) -> str:
    """All changes, one line.

    Args:
        found: the comparison.
        before: what to call the first registry.
        after: what to call the second.
    """
    value = {
        "version": JSON_VERSION,
        "before": {"source": before, "torch": found.before.torch, "operators": len(found.before.names)},
        "after": {"source": after, "torch": found.after.torch, "operators": len(found.after.names)},
        "compared": found.diff.compared,
        "tables": found.diff.tables,
        "changes": [
            {
                "subject": str(change.subject),
                "kind": str(change.kind),
                "operator": change.operator,
                "key": None if change.key is None else str(change.key),
                "before": change.before,
                "after": change.after,
            }
            for change in found.diff.changes
        ],
    }
    return json.dumps(value, ensure_ascii=False) + "\n"
