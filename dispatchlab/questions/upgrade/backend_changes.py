"""What an upgrade means for one backend: which operators find another kernel at its keys, or none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dispatchlab.model.keys import AUTOCAST_KEY_OF_BACKEND, SLOT_OF_KEY, DispatchKey
from dispatchlab.questions.upgrade.operator_changes import (
    Cause,
    Find,
    OperatorChange,
    SharedChange,
    schema_change,
    shared_changes,
)
from dispatchlab.questions.upgrade.slot_models import Model, SlotDifference, Slots, kernel_bits
from dispatchlab.registries.backend_coverage import Way, runtime_key
from dispatchlab.registries.builds import backend_named, has_kernels_for, is_in_tree, no_answer
from dispatchlab.registries.model import Recorded, RecordedOperator
from dispatchlab.registries.side_by_side import operators_of


@dataclass(frozen=True, slots=True)
class BackendUpgrade:
    """What an upgrade means for one backend.

    Args:
        key: the key that was asked for.
        keys: the keys of the backend; that key alone when it is of no backend.
        changes: what calls with one of its keys found and find, for operators of both registries.
        removed: operators that are gone, with what the backend's plain key held.
        added: operators that are new, likewise; those that find nothing have to be implemented.
        schemas: the operators whose schema breaks callers, and so kernels that unpack arguments.
        notes: sentences on what could not be compared.
    """

    key: DispatchKey
    keys: tuple[DispatchKey, ...]
    changes: tuple[SharedChange, ...]
    removed: tuple[tuple[str, Find], ...]
    added: tuple[tuple[str, Find], ...]
    schemas: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes for the backend."""
        return not (self.changes or self.removed or self.added or self.schemas)


def keys_of_backend(key: DispatchKey) -> tuple[DispatchKey, ...]:
    """The runtime keys of a backend, when it is the key of its plain tensors; else the key alone."""
    backend = backend_named(key)
    if backend != key.name:
        return (key,)
    named = (each for each in SLOT_OF_KEY if backend_named(each) == backend)
    autocast = AUTOCAST_KEY_OF_BACKEND.get(backend)
    return tuple(dict.fromkeys((*named, *(() if autocast is None else (autocast,)))))


def backend_upgrade(
    before: Recorded,
    after: Recorded,
    models: tuple[Model, Model],
    key: str,
    *,
    operators: Collection[str] | None = None,
) -> BackendUpgrade:
    """What it means for a backend that one registry follows another.

    Args:
        before: the first registry.
        after: the second.
        models: the dispatchers that they are read under.
        key: the name of its key, or the name that a package gave PrivateUse1.
        operators: look at these alone; all when left out.

    Raises:
        UnknownKeyError: there is no such key.
        NoSlotError: the key has no slot.
    """
    found = runtime_key(key, privateuse1=after.privateuse1 or before.privateuse1)
    keys = keys_of_backend(found)
    slots = SlotDifference(models, (before.fallbacks, after.fallbacks))
    sides = [operators_of(side, operators) for side in (before, after)]
    both = sorted(sides[0].keys() & sides[1].keys())
    own = [
        OperatorChange(name, slots=tuple(replace(slot, keys=held) for slot, held in changes if held))
        for name in both
        for changes in [
            [(slot, tuple(key for key in slot.keys if key in keys)) for slot in slots(sides[0][name], sides[1][name])]
        ]
    ]
    return BackendUpgrade(
        found,
        keys,
        tuple(
            sorted(
                shared_changes(own, tuple(Cause)),
                key=lambda change: (_WORST_FIRST.index(change.after.way), -len(change.operators), change.keys[0]),
            )
        ),
        _held(sides[0], sides[1], slots.first, found),
        _held(sides[1], sides[0], slots.second, found),
        tuple(
            name
            for name in both
            if (old := sides[0][name].schema) != (new := sides[1][name].schema)
            and not schema_change(old, new).is_compatible
        ),
        tuple(_notes((before, after), found)),
    )


_WORST_FIRST = (Way.MISSING, Way.AMBIGUOUS, Way.FALLBACK, Way.COMPOSITE, Way.DIRECT)


def _held(
    side: dict[str, RecordedOperator], other: dict[str, RecordedOperator], slots: Slots, key: DispatchKey
) -> tuple[tuple[str, Find], ...]:
    """What calls find in operators of one side alone."""
    return tuple((name, slots.find(kernel_bits(side[name]), key)) for name in sorted(side.keys() - other.keys()))


def _notes(sides: Sequence[Recorded], key: DispatchKey) -> list[str]:
    backend = backend_named(key)
    return [
        no_answer(f"PyTorch {side.torch}", side.torch, backend)
        for side in sides
        if backend is not None and is_in_tree(backend) and not has_kernels_for(side.torch, side.imports, backend)
    ]
