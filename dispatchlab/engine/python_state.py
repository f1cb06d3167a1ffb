"""What Python keeps for one operator in registries of its own, as a part of the state of a dispatcher.

Whatever registers in Python writes here, under the name of the registry and a key of its own, as the readers of the
running PyTorch name both (`dispatchlab/live/bridge/registry_tables.py`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class PythonEntry(Protocol):
    """Something that was registered; an object that is equal to itself alone."""

    @property
    def debug(self) -> str:
        """Where it comes from, as a snapshot shows it."""

    @property
    def by_object(self) -> bool:
        """Whether it belongs to the `OpOverload`, and is lost when the operator is defined anew."""


class PythonKey(NamedTuple):
    """Under what an entry is kept.

    Args:
        registry: the registry, such as `torch_library`; one that begins with `_` is part of the state and never shown.
        key: the key in it, such as `fake`; empty where the operator is the whole key.
    """

    registry: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.registry} {self.key}" if self.key else self.registry

    @property
    def is_shown(self) -> bool:
        """Whether a snapshot shows it."""
        return not self.registry.startswith("_")


class PythonState(NamedTuple):
    """The entries of one operator, by key; those of one key newest first, and the newest is in force."""

    entries: tuple[tuple[PythonKey, tuple[PythonEntry, ...]], ...] = ()

    def at(self, key: PythonKey) -> tuple[PythonEntry, ...]:
        """What is registered under a key, newest first."""
        return dict(self.entries).get(key, ())

    def put(self, key: PythonKey, registered: tuple[PythonEntry, ...]) -> PythonState:
        """With other entries under a key."""
        found = dict(self.entries)
        if registered:
            found[key] = registered
        else:
            found.pop(key, None)
        return PythonState(tuple(sorted(found.items(), key=lambda item: item[0])))

    def without_overload(self) -> PythonState:
        """Without what belongs to the `OpOverload`: its operator is defined no more."""
        left = ((key, tuple(one for one in registered if not one.by_object)) for key, registered in self.entries)
        return PythonState(tuple((key, registered) for key, registered in left if registered))

    @property
    def text(self) -> str:
        """What a snapshot shows, a line for each entry."""
        lines = [
            f"{key}{' (inactive)' if at else ''}: {entry.debug or '(no debug text)'}\n"
            for key, registered in self.entries
            if key.is_shown
            for at, entry in enumerate(registered)
        ]
        return "".join(lines)


NOTHING_IN_PYTHON = PythonState()
