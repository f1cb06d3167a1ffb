"""What a sandbox remembers of an operator: what it showed with which registrations in force, and what it did last."""

from __future__ import annotations

from dispatchlab.live.memory import SlotView
from dispatchlab.live.naming import Table
from dispatchlab.model.names import OperatorName
from dispatchlab.model.snapshot import Snapshot, Violation


class Looked:
    """What was seen of an operator with one dump and one table, in any sandbox of an engine."""

    __slots__ = ("checked", "snapshot", "table")

    def __init__(self, snapshot: Snapshot, table: Table) -> None:
        self.snapshot, self.table = snapshot, table
        self.checked = False


class Known:
    """The dump and the table of an active set in this sandbox, and what was seen then."""

    __slots__ = ("dump", "looked", "snapshot", "table", "template", "visits")

    def __init__(self, dump: str, table: str, looked: Looked) -> None:
        self.dump, self.table, self.looked = dump, table, looked
        self.snapshot, self.template = looked.snapshot, looked.table.template
        self.visits = 0


class Watched:
    """An operator that is registered or looked at.

    Args:
        name: its name, as the user has it.
        raw: the name that it has in PyTorch.
    """

    __slots__ = ("alive", "known", "last", "name", "raw", "raw_text", "slots", "stale", "version")

    def __init__(self, name: OperatorName, raw: OperatorName) -> None:
        self.name, self.raw, self.raw_text = name, raw, str(raw)
        self.alive = 0
        self.known: dict[int, Known] = {}
        self.slots: SlotView | None = None
        self.last: Known | None = None
        self.stale: tuple[Snapshot, Violation] | None = None
        self.version = -1
