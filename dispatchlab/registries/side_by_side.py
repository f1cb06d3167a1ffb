"""Two registries side by side: operators, kernels and entries, each as the first has it and as the second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any, TypeAlias, TypeVar

from dispatchlab.model.keys import DispatchKey
from dispatchlab.registries.model import Recorded, RecordedKernel, RecordedOperator

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Pair: TypeAlias = tuple[RecordedOperator | None, RecordedOperator | None]
"""An operator in the first registry and in the second; None where it is not."""

Reduced: TypeAlias = Callable[[Pair], Pair]
"""What to compare of an operator that differs, on either side."""

_FEW = 20  # one part in so many is read one by one, and more as a whole


def operators_of(recorded: Recorded, names: Collection[str] | None) -> dict[str, RecordedOperator]:
    """Return operators of a registry by name: the operators with these names, or all.

    Raises:
        RegistryFileError: the registry is in a file that is damaged.
    """
    if names is not None and len(names) < len(recorded.names) // _FEW:
        some = ((name, recorded.operator(name)) for name in sorted(names))
        return {name: operator for name, operator in some if operator is not None}
    wanted = None if names is None else frozenset(names)
    named = ((str(operator.name), operator) for operator in recorded)
    return {name: operator for name, operator in named if wanted is None or name in wanted}


def leave_out(
    before: dict[str, RecordedOperator], after: dict[str, RecordedOperator], reduced: Reduced | None
) -> tuple[str, ...]:
    """Take ignored parts out of both sides; return the changed operators, sorted."""
    if reduced is None:
        return ()
    left_out = []
    for name, old, new in side_by_side(before, after):
        if old == new or (kept := reduced((old, new))) == (old, new):
            continue
        left_out.append(name)
        for side, operator in zip((before, after), kept, strict=True):
            if operator is None:
                side.pop(name, None)
            else:
                side[name] = operator
    return tuple(left_out)


def kernels_by_key(operator: RecordedOperator) -> dict[DispatchKey, tuple[RecordedKernel, ...]]:
    """Return the kernels of an operator by key; the active kernel of each key is first."""
    return {key: tuple(kernels) for key, kernels in groupby(operator.kernels, lambda kernel: kernel.key)}


def side_by_side(
    before: Mapping[K, V], after: Mapping[K, V], order: Callable[[K], Any] | None = None
) -> Iterator[tuple[K, V | None, V | None]]:
    """Return the items of both sides, sorted: the key, the value in the first and the value in the second."""
    for key in sorted(before.keys() | after.keys(), key=order):  # type: ignore[type-var,arg-type]  # keys have an order
        yield key, before.get(key), after.get(key)


def paired(
    before: Sequence[V], after: Sequence[V], identity: Callable[[V], Hashable]
) -> tuple[list[tuple[V, V]], list[tuple[V | None, V | None]]]:
    """Return the items that both sides have, and pairs of the others that correspond.

    Args:
        before: the first side, in order.
        after: the second.
        identity: returns the identity by which items are compared.
    """
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for at in reversed(range(len(after))):
        places[identity(after[at])].append(at)
    same: list[tuple[V, V]] = []
    gone, taken = [], set()
    for old in before:
        if left := places.get(identity(old)):
            taken.add(left[-1])
            same.append((old, after[left.pop()]))
        else:
            gone.append(old)
    fresh = [new for at, new in enumerate(after) if at not in taken]
    return same, [*zip_longest(gone, fresh)]
