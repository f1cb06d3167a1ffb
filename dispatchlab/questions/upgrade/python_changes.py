"""The registrations of Python on both sides of an upgrade, compared entry by entry."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dispatchlab.errors import RequestError
from dispatchlab.model.python_layer import PYTHON_REGISTRIES, PythonLayer, PythonRegistration
from dispatchlab.registries.file import python_layer_of
from dispatchlab.registries.model import Recorded


@dataclass(frozen=True, slots=True)
class PythonChange:
    """An entry of a registry that differs.

    Args:
        registry, operator, key: its position.
        before: the active entry on the first side; None without one.
        after: the active entry on the second side; None without one.
    """

    registry: str
    operator: str
    key: str
    before: PythonRegistration | None
    after: PythonRegistration | None

    @property
    def kind(self) -> str:
        """`removed`, `added` or `changed`."""
        return "added" if self.before is None else "removed" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class PythonDiff:
    """The differences of Python's registrations.

    Args:
        compared: the registries that were read on both sides.
        not_compared: the other registries, each with the reason.
        changes: the entries that differ, by operator.
    """

    compared: tuple[str, ...]
    not_compared: tuple[tuple[str, str], ...]
    changes: tuple[PythonChange, ...]


def python_side_of(source: str, recorded: Recorded) -> PythonLayer:
    """Return Python's registrations in a source.

    Raises:
        RequestError: the source has no record of it.
    """
    layer = python_layer_of(recorded)
    if layer is None:
        what = "has no record of what Python registers"
        raise RequestError(f"{source} {what}: name a bundled registry, a new recording, or live")
    return layer


def python_upgrade(before: PythonLayer, after: PythonLayer, *, operators: Collection[str] | None = None) -> PythonDiff:
    """Compare two layers by the active functions; a moved line is not a difference.

    Args:
        before: the first.
        after: the second one.
        operators: compare only these; default: all.
    """
    compared, left = [], []
    for registry in PYTHON_REGISTRIES:
        why = ", ".join(
            f"{text} {side}"
            for side, layer in (("before", before), ("after", after))
            if (text := _unread(registry.name, registry.needs, layer))
        )
        if why:
            left.append((registry.name, why))
        else:
            compared.append(registry.name)
    first, second = (
        {one.slot: one for one in rows if one.active and one.registry in compared}
        for layer in (before, after)
        for rows in [layer if operators is None else [one for name in operators for one in layer.of(name)]]
    )
    changes = [
        PythonChange(*slot, first.get(slot), second.get(slot))
        for slot in sorted(first.keys() | second.keys(), key=lambda slot: (slot[1], slot[0], slot[2]))
        if _function(first.get(slot)) != _function(second.get(slot))
    ]
    return PythonDiff(tuple(compared), tuple(left), tuple(changes))


def _unread(name: str, needs: str, layer: PythonLayer) -> str:
    if name in layer.missing:
        return "not found"
    return "not imported" if needs in layer.not_imported else ""


def _function(one: PythonRegistration | None) -> str:
    return "" if one is None else one.function or one.site
