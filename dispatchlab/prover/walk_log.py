"""Walk log: what a graph walk has done so far, so that one that was ended can go on where it was.

See Note [Going on].
"""

# Note [Going on]
# ~~~~~~~~~~~~~~~
# A walk is deterministic, and each of its nodes is one step from an earlier one. So it is enough to keep how nodes
# were reached, how many of them were left behind with every edge tried, and who was refused: the states themselves are
# made again, a step for each, by the engine, and are compared as before, and every refusal is asked for again. What is
# not done again is the other edges of the nodes that were left behind, and the look at the invariants of each node. A
# record is written between two nodes and holds what is new since the last one. A scenario may take several walks; they
# come in the same order every time.

from __future__ import annotations

from collections.abc import Hashable
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.atomic_write import WriteError
from dispatchlab.model.snapshot import Refusal

_EVERY_S: Final = 2.0
_SHARE: Final = 20  # of the time may go into writing: one part in so many


class WalkRecord(NamedTuple):
    """What is new in a walk.

    Args:
        parents: for each new node the node before it, as eight bytes each.
        steps: the step from there, likewise.
        refused_steps: the new nodes that a refusal led to.
        refusals: active set, who was refused when coming last to it, and how.
        asymmetric: sets whose refusals have other facts when another member comes last.
        head: the node whose edges come next.
        length: the length of the sequences that are looked at.
        level_end: where the next length begins.
        edges: how many were tried.
        pending: see Note [Shortest sequences].
        touched: the state variables that were read or written so far.
    """

    parents: bytes
    steps: bytes
    refused_steps: tuple[int, ...]
    refusals: tuple[tuple[int, int, Refusal], ...]
    asymmetric: tuple[int, ...]
    head: int
    length: int
    level_end: int
    edges: int
    pending: int | None
    touched: frozenset[Hashable]


class Records(Protocol):
    """Where records are kept."""

    def records(self, name: str, kind: Any) -> list[Any]:
        """Every record of that name, oldest first, up to one that is not of this type."""

    def add(self, name: str, value: object) -> bool:
        """Keep a record; false when it cannot be kept."""


class NotTheSameWalkError(DispatchLabError):
    """The engine did something else than when the log was written."""

    template = (
        "the checkpoint cannot be continued: the engine does something else than it did when the checkpoint was "
        "written; remove the file to begin anew"
    )


class WalkLog:
    """The records of one walk after the other.

    Args:
        records: where they are kept.

    Attributes:
        trouble: why no more records are kept, when they cannot be written.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._walks = 0
        self._name = ""
        self._is_open = True
        self.trouble: WriteError | None = None
        self._next = perf_counter() + _EVERY_S

    def begin(self) -> list[WalkRecord]:
        """Begin with the next walk; what is known of it."""
        self._name = f"walk {self._walks}"
        self._walks += 1
        self._is_open = self.trouble is None
        return self._records.records(self._name, WalkRecord)

    def is_due(self) -> bool:
        """Whether it is time for a record."""
        return self._is_open and perf_counter() >= self._next

    def add(self, record: WalkRecord) -> None:
        """Keep a record; a walk of which one cannot be kept begins anew."""
        if not self._is_open:
            return
        started = perf_counter()
        try:
            self._is_open = self._records.add(self._name, record)
        except WriteError as error:  # the walk goes on all the same
            self._is_open, self.trouble = False, error
        now = perf_counter()
        self._next = now + max(_EVERY_S, _SHARE * (now - started))
