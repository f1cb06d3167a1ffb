"""What Python registers in one PyTorch and not in another: entries that came, went, or have another function in force.

Lines that moved are counted, as for kernels. Only what both layers can know is compared: a registry that one of them
has not read, has not found, or whose module was not imported there says nothing of what was registered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from dispatchlab._short_repr import WordEnum
from dispatchlab.model.python_layer import (
    NOTHING,
    PYTHON_REGISTRIES,
    REGISTRY_NAMED,
    PythonLayer,
    PythonRegistration,
    unread_registries,
)
from dispatchlab.records.side_by_side import paired, side_by_side


class Known(WordEnum):
    """What a layer knows of a registry."""

    READ = "read"
    NOT_RECORDED = "not in this recording"
    NOT_FOUND = "not found"
    NOT_IMPORTED = "not imported"


class PythonChangeKind(WordEnum):
    """How an entry differs."""

    REMOVED = "removed"
    ADDED = "added"
    CHANGED = "changed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """What is in force for an entry.

    Args:
        function: `module:qualified name`.
        site: its line or that of the call that registered it; empty when neither is known.
    """

    function: str
    site: str


@dataclass(frozen=True, slots=True)
class PythonChange:
    """An entry that differs.

    Args:
        kind: how it differs.
        registry: the name of the registry.
        operator: the operator.
        key: what it is kept by besides; empty where there is one entry an operator.
        before: what is in force in the first; null when there is nothing.
        after: what is in force in the second; null when there is nothing.
    """

    kind: PythonChangeKind
    registry: str
    operator: str
    key: str
    before: PythonFunction | None
    after: PythonFunction | None


@dataclass(frozen=True, slots=True)
class RegistryDifference:
    """How two layers differ in one registry.

    Args:
        registry: its name.
        before: what the first layer knows of it: `read`, `not in this recording`, `not found`, `not imported`.
        after: what the second does.
        removed: how many entries only the first has.
        added: how many entries only the second has.
        changed: how many have another function in force.
        moved: how many have the same function of the same owner at another line.
        not_compared: how many entries one side has of which the other can say nothing.
    """

    registry: str
    before: Known
    after: Known
    removed: int = 0
    added: int = 0
    changed: int = 0
    moved: int = 0
    not_compared: int = 0

    @property
    def is_compared(self) -> bool:
        """Whether both layers know what it has."""
        return self.before is self.after is Known.READ


@dataclass(frozen=True, slots=True)
class PythonDiff:
    """How two Python layers differ.

    Args:
        before: whether the first source has a record of what Python registers.
        after: whether the second has.
        registries: every registry, in the order in which they are shown; none when a source has no record.
        changes: the entries that differ, by registry and operator.
        notes: what is left out, a sentence each.
    """

    before: bool
    after: bool
    registries: tuple[RegistryDifference, ...] = ()
    changes: tuple[PythonChange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no entry differs, moved ones not counted, in what could be compared."""
        return not self.changes


class PythonSide(NamedTuple):
    """One of two layers.

    Args:
        layer: the layer.
        unread: the registries that were not read when it was recorded.
        left_out: the operators of which nothing is known that calls of torch.library keep.
    """

    layer: PythonLayer
    unread: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()

    def known(self, registry: str) -> Known:
        """What it knows of a registry."""
        if registry in self.layer.missing:
            return Known.NOT_FOUND
        needs = REGISTRY_NAMED[registry].needs
        if needs and needs in self.layer.not_imported:
            return Known.NOT_IMPORTED
        return Known.NOT_RECORDED if registry in self.unread else Known.READ

    @property
    def absent(self) -> frozenset[str]:
        """The modules that were not imported for it, of those that fill registries."""
        read = {registry.needs for registry in PYTHON_REGISTRIES if registry.name not in self.unread}
        unread = {registry.needs for registry in PYTHON_REGISTRIES if registry.name in self.unread} - read
        return frozenset((*self.layer.not_imported, *unread)) - {""}


def python_side(layer: PythonLayer) -> PythonSide:
    """A layer, with what it has not read."""
    return PythonSide(layer, unread_registries(layer))


def compare_python(
    before: PythonSide,
    after: PythonSide,
    *,
    operators: Collection[str] | None = None,
) -> PythonDiff:
    """How two layers differ.

    Args:
        before: the first.
        after: the second.
        operators: compare these alone; all when left out.
    """
    sides = _in_force(before, operators), _in_force(after, operators)
    names = [registry.name for registry in PYTHON_REGISTRIES]
    known = {name: (before.known(name), after.known(name)) for name in names}
    absent = before.absent, after.absent
    left_out = before.left_out | after.left_out
    counts: Counter[tuple[str, PythonChangeKind]] = Counter()
    uncompared: Counter[str] = Counter()
    changes: list[PythonChange] = []
    for (registry, operator, key), olds, news in side_by_side(*sides, lambda slot: (_PLACE[slot[0]], *slot[1:])):
        same, others = paired(olds or (), news or (), lambda entry: entry.function)
        for old, new in (*same, *others):
            if known[registry] != (Known.READ, Known.READ) or _is_unknown(old, new, absent):
                uncompared[registry] += 1
                continue
            if any(entry is not None and is_left_by_call(entry, left_out) for entry in (old, new)):
                continue
            kind = _kind(old, new)
            if kind is None:
                continue
            counts[registry, kind] += 1
            if kind is not PythonChangeKind.MOVED:
                changes.append(PythonChange(kind, registry, operator, key, _function(old), _function(new)))
    registries = tuple(
        RegistryDifference(
            name,
            *sides_know,
            removed=counts[name, PythonChangeKind.REMOVED],
            added=counts[name, PythonChangeKind.ADDED],
            changed=counts[name, PythonChangeKind.CHANGED],
            moved=counts[name, PythonChangeKind.MOVED],
            not_compared=uncompared[name],
        )
        for name, sides_know in known.items()
    )
    return PythonDiff(before=True, after=True, registries=registries, changes=tuple(changes))


_PLACE = {registry.name: at for at, registry in enumerate(PYTHON_REGISTRIES)}
_OF_TORCH_LIBRARY = ("torch.library:", "torch._library.")
_PYTORCH = frozenset(("torch", "functorch", "torchgen"))


def is_left_by_call(entry: PythonRegistration, called: Collection[str]) -> bool:
    """Whether a call of torch.library left this, which a record has as a registration by itself.

    Args:
        entry: the entry.
        called: the operators for which functions of torch.library were called.
    """
    if entry.operator not in called or entry.key.startswith("torch_dispatch"):
        return False
    if entry.function.startswith(_OF_TORCH_LIBRARY):  # `register_autocast` puts such a kernel into `py_kernels`
        return True
    return entry.registry == "custom_ops" or (entry.registry == "torch_library" and entry.key == "fake")


def _in_force(
    side: PythonSide, operators: Collection[str] | None
) -> dict[tuple[str, str, str], list[PythonRegistration]]:
    """What is in force, by where it is kept."""
    entries: Iterable[PythonRegistration] = side.layer
    if operators is not None:
        entries = (entry for name in sorted(operators) for entry in side.layer.of(name))
    in_force: dict[tuple[str, str, str], list[PythonRegistration]] = {}
    for entry in entries:
        if entry.active and entry.key != NOTHING:
            in_force.setdefault(entry.slot, []).append(entry)
    return in_force


def _is_unknown(
    old: PythonRegistration | None, new: PythonRegistration | None, absent: tuple[frozenset[str], frozenset[str]]
) -> bool:
    """Whether an import brought what differs that the other side did not make."""
    if old is not None and new is not None and old.function == new.function:
        return False
    return (old is not None and old.needs in absent[1]) or (new is not None and new.needs in absent[0])


def _kind(old: PythonRegistration | None, new: PythonRegistration | None) -> PythonChangeKind | None:
    if new is None:
        return PythonChangeKind.REMOVED
    if old is None:
        return PythonChangeKind.ADDED
    owners = _owner(old.site), _owner(new.site)
    by_factory = "<locals>" in old.function  # its site is the factory's or the call's, by whether calls were watched
    if old.function != new.function or (not by_factory and "" not in owners and owners[0] != owners[1]):
        return PythonChangeKind.CHANGED
    return PythonChangeKind.MOVED if old.site != new.site else None


def _owner(site: str) -> str:
    """The package of a site, one name for all of PyTorch; empty when it is not known."""
    folder = site.partition("/")[0] if "/" in site else ""
    return "torch" if folder in _PYTORCH else folder


def _function(entry: PythonRegistration | None) -> PythonFunction | None:
    return None if entry is None else PythonFunction(entry.function, entry.site)
