"""Transactional cells that hold the state of a dispatcher; a change is kept or dropped as a whole.

A dispatcher's state is a mapping from cells to immutable values: the text of an operator's name to its entry,
`FALLBACKS` to the backend fallbacks, and a `LibraryCell` to the library that claims its namespace. Everything that a
registration reads or writes goes through a `Transaction`, which therefore knows its footprint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from dispatchlab.engine.fallbacks import NO_FALLBACKS, Fallbacks
from dispatchlab.engine.operator_entry import OperatorEntry


class LibraryCell(NamedTuple):
    """The cell of a namespace's DEF library; its value is the library's claim."""

    namespace: str


class _FallbacksCell:
    __slots__ = ()

    def __repr__(self) -> str:
        return "FALLBACKS"


FALLBACKS = _FallbacksCell()
"""The cell of all backend fallbacks."""

Cell: TypeAlias = str | LibraryCell | _FallbacksCell
State: TypeAlias = Mapping[Cell, object]


class Transaction:
    """Changes to a state that has not changed yet.

    Args:
        base: the state; only read.
        touched: collects every cell that is read or written.
    """

    __slots__ = ("base", "changes", "touched")

    def __init__(self, base: State, touched: set[Cell]) -> None:
        self.base = base
        self.changes: dict[Cell, object] = {}
        self.touched = touched

    def get(self, cell: Cell) -> object | None:
        """The value of a cell with the changes so far; None when it is empty."""
        self.touched.add(cell)
        return self.changes[cell] if cell in self.changes else self.base.get(cell)

    def put(self, cell: Cell, value: object | None) -> None:
        """Change a cell; None empties it."""
        self.touched.add(cell)
        self.changes[cell] = value

    def operator(self, name: str) -> OperatorEntry | None:
        """The entry of an operator, if it has one."""
        return self.get(name)  # type: ignore[return-value]  # the value of a name is an entry

    def fallbacks(self) -> Fallbacks:
        """The backend fallbacks."""
        return self.get(FALLBACKS) or NO_FALLBACKS  # type: ignore[return-value]  # likewise

    def operators(self) -> Iterator[OperatorEntry]:
        """Every operator there is, in no promised order; all of them count as read."""
        for cell in [*self.base, *(cell for cell in self.changes if cell not in self.base)]:
            if isinstance(cell, str):
                entry = self.operator(cell)
                if entry is not None:
                    yield entry

    def applied(self) -> dict[Cell, object]:
        """The state with the changes, as a new mapping without empty cells."""
        state = dict(self.base)
        for cell, value in self.changes.items():
            if value is None:
                state.pop(cell, None)
            else:
                state[cell] = value
        return state
