"""The dispatch table of an operator grouped by kernel: the keys that run it and why, the lost keys, stale slots.

A pure function of an `OperatorView`, for every view that shows a table: `group_by_kernel`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dispatchlab.model.dump_format import CATCH_ALL, Provenance, aliases_of
from dispatchlab.model.operator_view import NEWER, Beaten, KernelRow, OperatorView, TableRow


@dataclass(frozen=True, slots=True)
class Served:
    """Keys whose calls run a kernel for one reason, in the order of the table."""

    reason: Provenance
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """Keys at which a kernel lost to another one for one reason.

    Args:
        why: the reason, as in `Beaten.why`.
        winner: why the winning kernel runs at these keys.
        keys: the keys, in the order of the table.
    """

    why: str
    winner: Provenance
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """A kernel with the rows of the table that it has, and the rows that it lost.

    Args:
        key: the key of its registration; for a backend fallback, its first key.
        debug: its debug text.
        registered: the kernel in the operator's registrations; None for a backend fallback.
        fallthrough: whether it is a fallthrough, so that calls skip its keys.
        served: the keys that run it, by reason.
        lost: the keys that it lost, by reason.
        stale: the keys whose calls run it, although their rows name another kernel.
    """

    key: str
    debug: str
    registered: KernelRow | None
    fallthrough: bool = False
    served: tuple[Served, ...] = ()
    lost: tuple[Lost, ...] = ()
    stale: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that run it."""
        return tuple(key for served in self.served for key in served.keys)

    @property
    def is_overridden(self) -> bool:
        """True when a newer kernel of its key hides it."""
        return self.registered is not None and not self.registered.active


@dataclass(frozen=True, slots=True)
class StaleSlots:
    """Slots that differ from the table: the expected entries (may be empty), and the entries that calls use."""

    expected: str
    actual: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupedTable:
    """The table of an operator by kernel. Every row is in one group, and a stale slot also in `stale`.

    Args:
        kernels: the kernels of the operator, in the order of the dump.
        fallbacks: the backend fallbacks that serve or lost a key, each once.
        ambiguous: the keys at which two kernels match, so that a call raises.
        stale: the slots that were not refreshed.
    """

    kernels: tuple[KernelGroup, ...]
    fallbacks: tuple[KernelGroup, ...] = ()
    ambiguous: tuple[str, ...] = ()
    stale: tuple[StaleSlots, ...] = ()


def group_by_kernel(view: OperatorView) -> GroupedTable:
    """Return the table by kernel."""
    rows = view.table
    kernels = [_Collected(kernel.key, kernel.debug, kernel) for kernel in view.kernels]
    fallbacks: dict[tuple[str, bool], _Collected] = {}
    ambiguous: list[str] = []
    for row in rows:
        match row.reason:
            case None:
                continue
            case Provenance.AMBIGUOUS:
                ambiguous.append(row.key)
            case Provenance.FALLBACK:
                fallback = _Collected(row.key, row.debug, None)
                fallbacks.setdefault((row.debug, row.fallthrough), fallback).serve(row)
            case _:
                _kernel_of(row, kernels).serve(row)
    for row in rows:
        if row.reason is None:
            continue
        for one in row.beaten:
            if one.reason is Provenance.FALLBACK:
                behind = next((each for (debug, _), each in fallbacks.items() if debug == one.debug), None)
                if behind is None:
                    behind = fallbacks[one.debug, False] = _Collected(one.source or row.key, one.debug, None)
                behind.lose(row, row.reason, one)
            else:
                _beaten_kernel(one, kernels).lose(row, row.reason, one)
    stale: dict[str, list[str]] = {}
    for row in rows:
        stale.setdefault((row.stale or "").rpartition(" [")[0], []).append(row.key)
    return GroupedTable(
        tuple(each.group(stale) for each in kernels),
        tuple(each.group(stale) for each in fallbacks.values()),
        tuple(ambiguous),
        tuple(_stale(rows)),
    )


class _Collected:
    """A kernel while its rows are collected."""

    def __init__(self, key: str, debug: str, registered: KernelRow | None) -> None:
        self.key, self.debug, self.registered = key, debug, registered
        self._fallthrough = False
        self._served: dict[Provenance, list[str]] = {}
        self._lost: dict[tuple[str, Provenance], list[str]] = {}

    def serve(self, row: TableRow) -> None:
        """Add a row that the kernel has."""
        assert row.reason is not None
        self._fallthrough |= row.fallthrough
        self._served.setdefault(row.reason, []).append(row.key)

    def lose(self, row: TableRow, winner: Provenance, beaten: Beaten) -> None:
        """Add a row that the kernel lost."""
        keys = self._lost.setdefault((beaten.why, winner), [])
        if row.key not in keys:
            keys.append(row.key)

    def group(self, stale: Mapping[str, Sequence[str]]) -> KernelGroup:
        """Return the kernel with its rows, and with the keys of its stale slots."""
        served = tuple(Served(reason, tuple(keys)) for reason, keys in self._served.items())
        lost = tuple(Lost(why, winner, tuple(keys)) for (why, winner), keys in self._lost.items())
        return KernelGroup(
            self.key, self.debug, self.registered, self._fallthrough, served, lost, tuple(stale.get(self.debug, ()))
        )


def _kernel_of(row: TableRow, kernels: list[_Collected]) -> _Collected:
    """Return the kernel of a row. A table that PyTorch printed does not name the key of its registration."""
    assert row.reason is not None
    active = [kernel for kernel in kernels if kernel.registered is not None and kernel.registered.active]
    by_text = [each for each in active if each.debug == row.debug]
    aliases = (CATCH_ALL,) if row.reason is Provenance.CATCH_ALL else map(str, aliases_of(row.reason))
    wanted = (row.source,) if row.source else (row.key, *aliases)
    for key in wanted:
        for each in by_text:
            if each.key == key:
                return each
    if by_text and not row.source:
        return by_text[0]
    return _added(_Collected(row.source or row.key, row.debug, None), kernels)


def _beaten_kernel(beaten: Beaten, kernels: list[_Collected]) -> _Collected:
    """Return the kernel that lost a row: an overridden kernel if a newer one of the same key won."""
    same = [kernel for kernel in kernels if (kernel.key, kernel.debug) == (beaten.source, beaten.debug)]
    if not same:
        return _added(_Collected(beaten.source, beaten.debug, None), kernels)
    hidden = beaten.why == NEWER
    return next((each for each in same if each.registered is not None and each.registered.active != hidden), same[0])


def _added(one: _Collected, kernels: list[_Collected]) -> _Collected:
    kernels.append(one)
    return one


def _stale(rows: Iterable[TableRow]) -> Iterator[StaleSlots]:
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.stale is not None:
            groups.setdefault((row.text, row.stale), []).append(row.key)
    for (expected, actual), keys in groups.items():
        yield StaleSlots(expected, actual, tuple(keys))
