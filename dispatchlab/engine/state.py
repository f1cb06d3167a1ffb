"""The state of a dispatcher as a mapping of state variables, and transactions that are kept or dropped as a whole.

The state variables have immutable values: an operator's name, as text, has its entry, `FALLBACKS` the backend
fallbacks, a `NamespaceVariable` the library that claims its namespace, and a `PythonVariable` what Python keeps for an
operator in registries of its own, under the name of the registry and a key, as the readers of the running PyTorch name
both (`dispatchlab/live/bridge/registry_tables.py`). Everything that a registration reads or writes goes through a
`Transaction`, which therefore knows its footprint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from dispatchlab.engine.fallbacks import NO_FALLBACKS, Fallbacks
from dispatchlab.engine.operator_entry import OperatorEntry


class PythonEntry(Protocol):
    """A registered entry; equal only to itself."""

    @property
    def debug(self) -> str:
        """The source of the entry, as a snapshot shows it."""

    @property
    def by_object(self) -> bool:
        """True when it belongs to the `OpOverload`, and is lost when the operator is defined anew."""


class PythonKey(NamedTuple):
    """The key under which an entry is kept.

    Args:
        registry: the registry, such as `torch_library`; a name with `_` at the beginning is never shown.
        key: the key in it, such as `fake`; empty if the operator is the whole key.
    """

    registry: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.registry} {self.key}" if self.key else self.registry

    @property
    def is_shown(self) -> bool:
        """True when a snapshot shows it."""
        return not self.registry.startswith("_")


class PythonState(NamedTuple):
    """The entries of one operator by key, newest first; the newest is in force."""

    entries: tuple[tuple[PythonKey, tuple[PythonEntry, ...]], ...] = ()

    def at(self, key: PythonKey) -> tuple[PythonEntry, ...]:
        """Return the registrations at a key, newest first."""
        return dict(self.entries).get(key, ())

    def put(self, key: PythonKey, registered: tuple[PythonEntry, ...]) -> PythonState:
        """Return the state with other entries under a key."""
        found = dict(self.entries)
        if registered:
            found[key] = registered
        else:
            found.pop(key, None)
        return PythonState(tuple(sorted(found.items(), key=lambda item: item[0])))

    def without_overload(self) -> PythonState:
        """Return the state without the entries of the `OpOverload`, whose operator is not defined any more."""
        left = ((key, tuple(one for one in registered if not one.by_object)) for key, registered in self.entries)
        return PythonState(tuple((key, registered) for key, registered in left if registered))

    @property
    def text(self) -> str:
        """The text of a snapshot, a line for each entry."""
        lines = [
            f"{key}{' (inactive)' if at else ''}: {entry.debug or '(no debug text)'}\n"
            for key, registered in self.entries
            if key.is_shown
            for at, entry in enumerate(registered)
        ]
        return "".join(lines)


NOTHING_IN_PYTHON = PythonState()


class NamespaceVariable(NamedTuple):
    """The variable of a namespace's DEF library; its value is the library's claim."""

    namespace: str


class PythonVariable(NamedTuple):
    """The variable for Python's entries of an operator; its value is a `PythonState`."""

    operator: str

    def __str__(self) -> str:
        return f"what Python keeps for {self.operator}"


class _FallbacksVariable:
    __slots__ = ()

    def __repr__(self) -> str:
        return "FALLBACKS"

    def __reduce__(self) -> str:
        return "FALLBACKS"  # there is one


FALLBACKS = _FallbacksVariable()
"""The variable of all backend fallbacks."""

StateVariable: TypeAlias = str | NamespaceVariable | PythonVariable | _FallbacksVariable
State: TypeAlias = Mapping[StateVariable, object]


D = TypeVar("D", bound=dict[StateVariable, object])


class Transaction:
    """Changes to a state that are not made yet.

    Args:
        base: the state; only read.
        touched: collects every variable that is read or written.
    """

    __slots__ = ("base", "changes", "touched")

    def __init__(self, base: State, touched: set[StateVariable]) -> None:
        self.base = base
        self.changes: dict[StateVariable, object] = {}
        self.touched = touched

    def get(self, variable: StateVariable) -> object | None:
        """Return the value of a variable with the changes so far; None if it is empty."""
        self.touched.add(variable)
        return self.changes[variable] if variable in self.changes else self.base.get(variable)

    def put(self, variable: StateVariable, value: object | None) -> None:
        """Change a variable; None empties it."""
        self.touched.add(variable)
        self.changes[variable] = value

    def operator(self, name: str) -> OperatorEntry | None:
        """Return the entry of an operator, if it has one."""
        return self.get(name)  # type: ignore[return-value]  # the value of a name is an entry

    def fallbacks(self) -> Fallbacks:
        """Return the backend fallbacks."""
        return self.get(FALLBACKS) or NO_FALLBACKS  # type: ignore[return-value]  # likewise

    def python(self, operator: str) -> PythonState:
        """Return Python's entries for an operator; footprints count them as a part of the operator."""
        self.touched.add(operator)
        variable = PythonVariable(operator)
        kept = self.changes[variable] if variable in self.changes else self.base.get(variable)
        return kept or NOTHING_IN_PYTHON  # type: ignore[return-value]  # likewise

    def put_python(self, operator: str, kept: PythonState) -> None:
        """Change Python's entries for an operator."""
        self.touched.add(operator)
        self.changes[PythonVariable(operator)] = kept if kept.entries else None

    def operators(self) -> Iterator[OperatorEntry]:
        """Return every operator, in no promised order; all of them count as read."""
        for variable in [*self.base, *(variable for variable in self.changes if variable not in self.base)]:
            if isinstance(variable, str):
                entry = self.operator(variable)
                if entry is not None:
                    yield entry

    def applied(self, kind: Callable[[State], D]) -> D:
        """Return the state with the changes, as a new mapping without empty variables."""
        state = kind(self.base)
        for variable, value in self.changes.items():
            if value is None:
                state.pop(variable, None)
            else:
                state[variable] = value
        return state
