"""The grammar of dumps: parse and print PyTorch's dump and computed table, to the character.

A dump is what `torch._C._dispatch_dump` and `Dispatcher.dump` print; their twins with `_table` print a computed table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.keys import RUNTIME_KEYS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.operator_view import KernelRow, OperatorView, TableRow
from dispatchlab.model.registration import AliasKind
from dispatchlab.model.snapshot import Snapshot, Violation
from dispatchlab.registry.model import KernelFlags, RecordedFallback, RecordedKernel, RecordedOperator, name_of

_KERNEL = re.compile(r"(\w+)(?:\[alias\])?( \(inactive\))?: (.*) :: (.*) \[ ([a-z ]*) \]", re.DOTALL)
_KERNEL_STARTS = re.compile(r"\w+(?:\[alias\])?(?: \(inactive\))?: ")
_FALLBACK = re.compile(r"(fallthrough )?(.*) \[backend fallback\]", re.DOTALL)


class DumpError(DispatchLabError):
    """A text is not the dump of an operator, or not one that this version knows.

    Args:
        line: the line that could not be read.
        wanted: what should have been there.
    """

    def __init__(self, line: str, wanted: str) -> None:
        super().__init__(line, wanted)
        self.line, self.wanted = line, wanted

    def __str__(self) -> str:
        return f"this is not the dump of an operator: expected {self.wanted} but found {self.line!r}"


def read_dump(text: str, tags: Iterable[str] = ()) -> RecordedOperator:
    """The record of an operator from its dump.

    Args:
        text: what the dispatcher printed, not empty.
        tags: the names of its tags, which no dump shows.

    Raises:
        DumpError: a line is not what a dump has there.
    """
    lines = text.removesuffix("\n").split("\n")
    name = name_of(_after("name: ", lines, 0))
    schema: str | None = _after("schema: ", lines, 1)
    debug, alias, first = "", None, 2
    if schema == "(none)":
        schema = None
    else:
        debug, alias, first = _after("debug: ", lines, 2), _alias(_after("alias analysis kind: ", lines, 3)), 4
    kernels: list[RecordedKernel] = []
    for line in _joined(lines[first:]):
        kernel = _kernel(line)
        if not kernel.active and not (kernels and kernels[-1].key is kernel.key):
            raise DumpError(line, "the active kernel of the key before its inactive ones")
        kernels.append(kernel)
    return RecordedOperator(name, schema, debug, alias, frozenset(tags), tuple(kernels))


def _after(start: str, lines: list[str], at: int) -> str:
    line = lines[at] if at < len(lines) else ""
    if not line.startswith(start):
        raise DumpError(line, f"a line that starts with {start!r}")
    return line[len(start) :]


def _alias(text: str) -> AliasKind | None:
    if text == "CONSERVATIVE (default)":
        return None
    try:
        return AliasKind(text)
    except ValueError:
        raise DumpError(text, "an alias analysis kind") from None


def _joined(lines: list[str]) -> list[str]:
    """A debug text can have lines of its own: what does not end as a kernel does goes on in the next line."""
    joined: list[str] = []
    unfinished = False
    for line in lines:
        if unfinished and not (_KERNEL_STARTS.match(line) and _KERNEL.fullmatch(line)):
            joined[-1] += f"\n{line}"
        else:
            joined.append(line)
        unfinished = _KERNEL.fullmatch(joined[-1]) is None
    return joined


def _kernel(line: str) -> RecordedKernel:
    match = _KERNEL.fullmatch(line)
    if match is None:
        raise DumpError(line, "a line 'KEY: DEBUG :: SCHEMA [ FLAGS ]'")
    key, inactive, debug, inferred, flags = match.groups()
    if key not in DispatchKey.__members__:
        raise DumpError(line, "a dispatch key")
    try:
        known = KernelFlags(flags)
    except ValueError:
        raise DumpError(line, "the flags of a kernel: " + ", ".join(KernelFlags)) from None
    return RecordedKernel(DispatchKey[key], debug, None if inferred == "(none)" else inferred, known, not inactive)


def dump_text(operator: RecordedOperator) -> str:
    """The dump of a recorded operator, as the dispatcher printed it."""
    lines = [f"name: {operator.name}", f"schema: {'(none)' if operator.schema is None else operator.schema}"]
    if operator.schema is not None:
        alias = "CONSERVATIVE (default)" if operator.alias is None else operator.alias
        lines += [f"debug: {operator.debug}", f"alias analysis kind: {alias}"]
    for kernel in operator.kernels:
        alias = "[alias]" if kernel.key.is_alias else ""
        inactive = "" if kernel.active else " (inactive)"
        inferred = "(none)" if kernel.inferred is None else kernel.inferred
        lines.append(f"{kernel.key}{alias}{inactive}: {kernel.debug} :: {inferred} [ {kernel.flags} ]")
    return "\n".join(lines) + "\n"


def read_fallbacks(table: str) -> tuple[RecordedFallback, ...]:
    """The backend fallbacks from the computed table of an operator that has no kernel of its own, by key.

    Raises:
        DumpError: a row is not that of a fallback.
    """
    found = []
    for key, row in rows_of(table).items():
        match = _FALLBACK.fullmatch(row)
        if match is None:
            raise DumpError(f"{key}: {row}", "a row 'KEY: DEBUG [backend fallback]'")
        found.append(RecordedFallback(key, match[1] is not None, match[2]))
    return tuple(sorted(found, key=lambda fallback: fallback.key))


def rows_of(table: str) -> dict[DispatchKey, str]:
    """The rows of a computed table by their keys, in its order; a debug text can have lines of its own.

    Raises:
        DumpError: the text does not start with a row.
    """
    rows: dict[DispatchKey, str] = {}
    last = -1
    for line in table.removesuffix("\n").split("\n") if table else ():
        name, colon, rest = line.partition(": ")
        slot = SLOT_OF_KEY.get(DispatchKey[name], -1) if colon and name in DispatchKey.__members__ else -1
        if slot > last:
            last = slot
            rows[RUNTIME_KEYS[slot]] = rest
        elif rows:
            rows[RUNTIME_KEYS[last]] += f"\n{line}"
        else:
            raise DumpError(line, "a row that starts with a dispatch key")
    return rows


_KERNEL_LINE = re.compile(r"(\w+)(\[alias\])?( \(inactive\))?: (.*) :: (.*) \[ (.*)\]")
_ROW = re.compile(r"(\w+): (fallthrough )?(.*) \[([^\[\]]*)\]")


def view_of(snapshot: Snapshot, violations: tuple[Violation, ...] = ()) -> OperatorView:
    """An operator without the reasons behind its rows: what beat what is not in the texts.

    Args:
        snapshot: the operator; nothing of it is read when it does not exist.
        violations: the invariants that do not hold.
    """
    head = dict(line.split(": ", 1) for line in snapshot.dump.splitlines()[:4] if ": " in line)
    return OperatorView(
        name=str(snapshot.operator),
        schema=snapshot.schema,
        debug=None if snapshot.schema is None else head.get("debug"),
        alias_kind=None if snapshot.schema is None else head.get("alias analysis kind"),
        tags=(),
        kernels=tuple(_kernels(snapshot)),
        table=tuple(_rows(snapshot)),
        violations=violations,
    )


def _kernels(snapshot: Snapshot) -> Iterator[KernelRow]:
    first = 4 if snapshot.schema is not None else 2
    for line in snapshot.dump.splitlines()[first:]:
        found = _KERNEL_LINE.fullmatch(line)
        if found is None:
            continue
        key, alias, inactive, debug, inferred, flags = found.groups()
        yield KernelRow(
            key=key,
            is_alias=alias is not None,
            active=inactive is None,
            debug=debug,
            inferred=None if inferred == "(none)" else inferred,
            flags=tuple(flags.split()),
        )


def _rows(snapshot: Snapshot) -> Iterator[TableRow]:
    computed = _by_key(snapshot.table)
    held = computed if snapshot.slots is None else _by_key(snapshot.slots)
    for key in dict.fromkeys([*computed, *held]):
        text = computed.get(key, "")
        found = _ROW.fullmatch(f"{key}: {text}")
        stale = held.get(key, "nothing")
        yield TableRow(
            key=key,
            text=text,
            debug=found.group(3) if found else "",
            reason=found.group(4) if found else "",
            fallthrough=found is not None and found.group(2) is not None,
            source="",
            stale=None if stale == text else stale,
        )


def _by_key(table: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in table.splitlines() if ": " in line)
