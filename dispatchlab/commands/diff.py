"""`dispatchlab diff`: what came, went and changed between two registries, scenarios or the running PyTorch.

As JSON, one object on one line; a field is never renamed or dropped within a version:

    version           1
    before, after     {source, torch, operators}
    compared, tables  how many operators and how many of their tables were compared
    changes           [{subject, kind, operator, key, before, after}]; subject: operator | schema | def | alias kind |
                      tags | kernel | row | fallback; kind: came | went | changed; null where there is nothing to say
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispatchlab.analysis.sources import LIVE, ImportOfRecordError, recorded_from
from dispatchlab.commands.output import Format, chosen_format, note, out
from dispatchlab.render.formatting import JSON_VERSION

if TYPE_CHECKING:
    from dispatchlab.registry.compare import RegistryDiff
    from dispatchlab.registry.model import Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryDiffRequest:
    """What was asked for; each field is an option of the command.

    Args:
        before: the first source: `live`, the name of a bundled registry, a file, or a scenario.
        after: the second.
        imports: modules to import into a `live` side; into the second when both are `live`.
        tables: compare the rows of computed tables too.
        places: debug texts count.
        exit_code: end with 1 when anything differs.
    """

    before: str
    after: str
    imports: tuple[str, ...] = ()
    semantics: str | None = None
    tables: bool = True
    places: bool = True
    exit_code: bool = False
    format: Format | None = None


def diff_registries(request: RegistryDiffRequest) -> int:
    """Compare two sources and tell what differs.

    Returns:
        0; with `exit_code`, 1 when anything differs.

    Raises:
        DispatchLabError: a source cannot be used.
    """
    from dispatchlab.registry.compare import compare

    before, after = _sides(request)
    tables = None
    if request.tables:
        from dispatchlab.analysis.replay_on_lab import bench

        semantics = request.semantics or "strict"
        benches = (bench(before, semantics=semantics), bench(after, semantics=semantics))
        tables = (benches[0].dispatcher.dump_table, benches[1].dispatcher.dump_table)
    found = compare(before, after, tables=tables, places=request.places)
    if chosen_format(request.format) == "json":
        out(_json(request, before, after, found))
    else:
        from dispatchlab.registry.compare import diff_text

        out(diff_text(found, request.before, request.after))
    return found.exit_code if request.exit_code else 0


def _sides(request: RegistryDiffRequest) -> tuple[Recorded, Recorded]:
    """Both sources; `live` on both sides is recorded once without the imports and then with them."""
    if request.imports and LIVE not in (request.before, request.after):
        raise ImportOfRecordError(request.imports)
    into_first = request.imports if request.after != LIVE else ()
    before = recorded_from(
        request.before, imports=into_first if request.before == LIVE else (), semantics=request.semantics, report=note
    )
    after = recorded_from(
        request.after,
        imports=request.imports if request.after == LIVE else (),
        semantics=request.semantics,
        report=note,
    )
    return before, after


def _json(request: RegistryDiffRequest, before: Recorded, after: Recorded, found: RegistryDiff) -> str:
    value = {
        "version": JSON_VERSION,
        "before": {"source": request.before, "torch": before.torch, "operators": len(before.names)},
        "after": {"source": request.after, "torch": after.torch, "operators": len(after.names)},
        "compared": found.compared,
        "tables": found.tables,
        "changes": [
            {
                "subject": str(change.subject),
                "kind": str(change.kind),
                "operator": change.operator,
                "key": None if change.key is None else str(change.key),
                "before": change.before,
                "after": change.after,
            }
            for change in found.changes
        ],
    }
    return json.dumps(value, ensure_ascii=False) + "\n"
