"""One operator with its reasons: its kernels, and for each row of its table why the row is as it is."""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.model.registration import SourceLocation
from dispatchlab.model.snapshot import Violation


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A registered kernel; `active` is false for one that a newer kernel of its key shadows."""

    key: str
    is_alias: bool
    active: bool
    debug: str
    inferred: str | None
    flags: tuple[str, ...]
    location: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class Beaten:
    """A kernel that could have had a slot: where it is registered, its debug text, its reason, and what beat it."""

    source: str
    debug: str
    reason: str
    why: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the computed table.

    Args:
        key: the runtime key.
        text: the row as the dump prints it, without its key; empty when the slot should hold nothing.
        debug: where the kernel comes from.
        reason: its provenance.
        fallthrough: calls skip the key.
        source: the key that the kernel is registered at; empty for the ambiguous kernel.
        beaten: the other candidates, best first.
        stale: what the slot holds instead, `nothing` included; None when it holds what it should.
    """

    key: str
    text: str
    debug: str
    reason: str
    fallthrough: bool
    source: str
    beaten: tuple[Beaten, ...] = ()
    stale: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorView:
    """An operator with its reasons; `schema`, `debug` and `alias_kind` are None while there is no def."""

    name: str
    schema: str | None
    debug: str | None
    alias_kind: str | None
    tags: tuple[str, ...]
    kernels: tuple[KernelRow, ...]
    table: tuple[TableRow, ...]
    violations: tuple[Violation, ...] = ()
