"""The plain text of operators: the dump with its table, and the steps that were refused on the way there."""

from __future__ import annotations

from collections.abc import Collection

from dispatchlab.model.dump_format import parse_table, row_text
from dispatchlab.model.sequence import Step, format_sequence
from dispatchlab.model.snapshot import Refusal, Snapshot


def operator_text(snapshot: Snapshot, *, keys: Collection[str] = ()) -> str:
    """The dump of an operator, an empty line, and its table.

    Args:
        snapshot: the operator.
        keys: the rows of the table that are shown; all of them when there are none.
    """
    return f"{snapshot.dump}\n{only_rows(snapshot.table, keys)}"


def only_rows(table: str, keys: Collection[str]) -> str:
    """The rows of a table that are about `keys`; all of them when there are none."""
    if not keys:
        return table
    return "".join(row_text(key, str(entry)) for key, entry in parse_table(table).items() if key.name in keys)


def refused_step_text(step: Step, registration: str, refusal: Refusal) -> str:
    """A line about a step that the dispatcher refused.

    Args:
        step: the step.
        registration: what it registers or releases, in words.
        refusal: why it was refused.
    """
    verb = "could not be released" if step < 0 else "was refused"
    return f"{format_sequence((step,))} {registration} {verb}: {refusal.kind}: {refusal.message}"
