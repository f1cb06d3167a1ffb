"""The grammar of dumps: parse and print PyTorch's dump and computed table, to the character.

A dump is what `torch._C._dispatch_dump` and `Dispatcher.dump` print; their twins with `_table` print a computed table.
Every engine prints with this module, and what reads a dump parses with it; `str` of a value is its text, and parsing
that text gives an equal value.

    name: test::foo                                                      OperatorDump
    schema: test::foo(Tensor x) -> Tensor
    debug: registered at foo.cpp:1
    alias analysis kind: FROM_SCHEMA
    CPU: fn_cpu :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]            KernelLine
    Autograd[alias]: fn_autograd :: (none) [ boxed ]

    CPU: fn_cpu [kernel]                                                 a key and its TableEntry
    Tracer: fallthrough registered at tracer.cpp:3 [backend fallback]

See Note [Texts of several lines].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from dispatchlab._short_repr import WordEnum
from dispatchlab.errors import DispatchLabError
from dispatchlab.model.keys import MOVED_KEYS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.registration import AliasKind, KernelFlags


class Provenance(WordEnum):
    """The origin of the kernel in a slot, in the words of upstream's `dumpComputedTable`."""

    KERNEL = "kernel"
    DEFAULT_BACKEND = "default backend kernel"
    NESTED = "nested kernel"
    MATH = "math kernel"
    AMBIGUOUS = "ambiguous autogradother"
    AUTOGRAD = "autograd kernel"
    BATCHED = "batched kernel"
    FALLBACK = "backend fallback"
    CATCH_ALL = "catchall kernel"


COMPOSITE = frozenset((Provenance.DEFAULT_BACKEND, Provenance.NESTED, Provenance.MATH, Provenance.BATCHED))
"""The provenances of kernels that are made of other operators and serve many backends."""

PROVENANCE_OF_ALIAS: Mapping[DispatchKey, Provenance] = MappingProxyType(
    {
        DispatchKey.CompositeExplicitAutogradNonFunctional: Provenance.DEFAULT_BACKEND,
        DispatchKey.CompositeExplicitAutograd: Provenance.DEFAULT_BACKEND,
        DispatchKey.CompositeImplicitAutogradNestedTensor: Provenance.NESTED,
        DispatchKey.CompositeImplicitAutograd: Provenance.MATH,
        DispatchKey.Autograd: Provenance.AUTOGRAD,
        DispatchKey.FuncTorchBatchedDecomposition: Provenance.BATCHED,
    }
)
"""How a table calls a kernel that fills a slot from an alias key; of two keys the one that comes first stands first."""


def aliases_of(provenance: Provenance) -> tuple[DispatchKey, ...]:
    """Return the alias keys with kernels of a provenance, in their order."""
    return tuple(key for key, of in PROVENANCE_OF_ALIAS.items() if of is provenance)


AMBIGUOUS_DEBUG = "ambiguous_autogradother"
"""The debug text of the kernel that AutogradOther holds when two kernels could be meant."""

CATCH_ALL = "catchall"
"""What the dumps of PR #35061 print for a kernel without a key."""


class DumpError(DispatchLabError):
    """A text is not the dump of an operator, or has a form that this version does not know.

    Args:
        line: the line that could not be read.
        wanted: the expected text.
    """

    line: str
    wanted: str

    template = "this is not the dump of an operator: expected {wanted} but found {line!r}"


class UnknownKeyInDumpError(DumpError):
    """A dump names a dispatch key that this version does not know.

    Args:
        line: the line that could not be read.
        key: the key.
    """

    def __init__(self, line: str, key: str) -> None:
        super().__init__(line, "a dispatch key")
        self.key = key

    def __str__(self) -> str:
        return (
            f"dispatchlab does not know the dispatch key {self.key}, which this PyTorch shows in {self.line!r}: what "
            "reads dumps and tables does not work with it; `dispatchlab doctor` shows what does"
        )


_NAME_OF_A_KEY = re.compile(r"[A-Z][A-Za-z0-9]{1,79}", re.ASCII)


# -- the dump of an operator


class KernelLine(NamedTuple):
    """A registered kernel as a dump prints it.

    Args:
        key: the key that it is registered at; None in the catch-all bucket of PR #35061.
        debug: its debug text; may be empty.
        inferred: the schema of its type, such as `(Tensor _0) -> Tensor _0`; None without one.
        flags: how it can be called.
        active: false when a newer kernel of the same key shadows it.
    """

    key: DispatchKey | None
    debug: str
    inferred: str | None
    flags: KernelFlags
    active: bool = True

    @property
    def is_alias(self) -> bool:
        """True if its key stands for several keys."""
        return self.key is not None and self.key.is_alias

    def __str__(self) -> str:
        alias = "[alias]" if self.is_alias else ""
        inactive = "" if self.active else " (inactive)"
        return f"{key_text(self.key)}{alias}{inactive}: {kernel_text(self.debug, self.inferred, self.flags)}"


def key_text(key: DispatchKey | None) -> str:
    """Return the key of a kernel; None is the catch-all bucket of PR #35061."""
    return CATCH_ALL if key is None else key.name


def kernel_text(debug: str, inferred: str | None, flags: KernelFlags) -> str:
    """Return a kernel without its key: `fn_cpu :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]`."""
    return f"{debug} :: {_NONE if inferred is None else inferred} [ {flags} ]"


@dataclass(frozen=True, slots=True)
class OperatorDump:
    """The content of a dump of an operator.

    Args:
        name: its name.
        schema: its schema as it is printed; None without a def.
        debug: the debug text of the def; None without a def, and in the dumps of PR #35061, which do not show it.
        alias: the alias kind of the def; None when it was left at upstream's default, and without a def.
        kernels: by key, and within a key the newest first.
    """

    name: str
    schema: str | None = None
    debug: str | None = None
    alias: AliasKind | None = None
    kernels: tuple[KernelLine, ...] = ()

    def __str__(self) -> str:
        lines = [_NAME + self.name, _SCHEMA + (_NONE if self.schema is None else self.schema)]
        if self.schema is not None:
            if self.debug is not None:
                lines.append(_DEBUG + self.debug)
            lines.append(_ALIAS + alias_text(self.alias))
        return "\n".join((*lines, *map(str, self.kernels), ""))


def alias_text(alias: AliasKind | None) -> str:
    """Return the alias analysis kind of a def; None is upstream's default."""
    return _DEFAULT_ALIAS if alias is None else str(alias)


_NAME, _SCHEMA, _DEBUG, _ALIAS = "name: ", "schema: ", "debug: ", "alias analysis kind: "
_NONE = "(none)"
_DEFAULT_ALIAS = f"{AliasKind.CONSERVATIVE} (default)"
_ALIAS_KINDS: Mapping[str, AliasKind | None] = {_DEFAULT_ALIAS: None, **{str(kind): kind for kind in AliasKind}}
_KEYS: Mapping[str, DispatchKey | None] = {CATCH_ALL: None, **DispatchKey.__members__}
_KERNEL = re.compile(r"(\w+)(\[alias\])?( \(inactive\))?: (.*) :: (.*) \[ ([a-z ]*) \]", re.DOTALL)

# Note [Texts of several lines]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A debug text is the user's and can have lines of its own, which may look like lines of a dump. A dump does not mark
# where such a text ends, but what comes after it is fixed: the alias analysis kind after that of a def, a schema and
# flags after that of a kernel, a provenance after that of a row. So a line goes on in the next one until it ends like
# that. What remains ambiguous is a text that itself ends a line in that very way.


def parse_dump(text: str) -> OperatorDump:
    """Parse the dump of an operator.

    Args:
        text: the output of a dispatcher, not empty.

    Raises:
        DumpError: a line does not fit a dump.
    """
    lines = text.removesuffix("\n").split("\n")
    name, schema = _after(_NAME, lines, 0), _after(_SCHEMA, lines, 1)
    if schema == _NONE:
        return OperatorDump(name, kernels=_kernels(lines[2:]))
    debug, at = None, 2
    if lines[2:] and lines[2].startswith(_DEBUG):
        debug, at = _after(_DEBUG, lines, 2), 3
        while at < len(lines) and not (lines[at].startswith(_ALIAS) and lines[at][len(_ALIAS) :] in _ALIAS_KINDS):
            debug, at = f"{debug}\n{lines[at]}", at + 1
        if at == len(lines) and at > 3:
            # No alias analysis kind that is known follows: blame the line that stands in its place.
            debug, at = lines[2][len(_DEBUG) :], 3
    alias = _after(_ALIAS, lines, at)
    if alias not in _ALIAS_KINDS:
        raise DumpError(alias, "an alias analysis kind")
    return OperatorDump(name, schema, debug, _ALIAS_KINDS[alias], _kernels(lines[at + 1 :]))


def _after(start: str, lines: list[str], at: int) -> str:
    line = lines[at] if at < len(lines) else ""
    if not line.startswith(start):
        raise DumpError(line, f"a line that starts with {start!r}")
    return line[len(start) :]


def _kernels(lines: list[str]) -> tuple[KernelLine, ...]:
    kernels: list[KernelLine] = []
    for text in _joined(lines, lambda text: _KERNEL.fullmatch(text) is not None):
        kernel = _kernel(text)
        if not kernel.active and not (kernels and kernels[-1].key is kernel.key):
            raise DumpError(text, "the active kernel of the key before its inactive ones")
        kernels.append(kernel)
    return tuple(kernels)


def _joined(lines: Iterable[str], is_whole: Callable[[str], bool]) -> Iterator[str]:
    # See Note [Texts of several lines]
    unfinished: str | None = None
    for line in lines:
        text = line if unfinished is None else f"{unfinished}\n{line}"
        if is_whole(text):
            yield text
            unfinished = None
        else:
            unfinished = text
    if unfinished is not None:
        yield unfinished


def _kernel(text: str) -> KernelLine:
    match = _KERNEL.fullmatch(text)
    if match is None:
        raise DumpError(text, "a line 'KEY: DEBUG :: SCHEMA [ FLAGS ]'")
    key, _, inactive, debug, inferred, flags = match.groups()
    if key not in _KEYS:
        name = key.removesuffix("[alias]")
        raise UnknownKeyInDumpError(text, name) if _NAME_OF_A_KEY.fullmatch(name) else DumpError(text, "a dispatch key")
    try:
        known = KernelFlags(flags)
    except ValueError:
        raise DumpError(text, "the flags of a kernel: " + ", ".join(KernelFlags)) from None
    return KernelLine(_KEYS[key], debug, None if inferred == _NONE else inferred, known, inactive is None)


# -- the computed table


class TableEntry(NamedTuple):
    """The part of a computed table's row after its key.

    Args:
        debug: the debug text of the kernel.
        provenance: why it is in the slot.
        fallthrough: calls skip the key.
    """

    debug: str
    provenance: Provenance
    fallthrough: bool = False

    def __str__(self) -> str:
        return entry_text(self.debug, self.provenance, fallthrough=self.fallthrough)


def entry_text(debug: str, provenance: Provenance, *, fallthrough: bool = False) -> str:
    """Return a row without its key: `fallthrough fn_cpu [kernel]`."""
    return f"{_FALLTHROUGH if fallthrough else ''}{debug} [{provenance}]"


def row_text(key: DispatchKey, entry: str) -> str:
    """Return a row with its key and the end of its line."""
    return f"{key.name}: {entry}\n"


def parse_entry(text: str) -> TableEntry:
    """Parse a row without its key.

    Raises:
        DumpError: it does not end with a provenance.
    """
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise DumpError(text, "DEBUG [PROVENANCE], where the provenance is one of " + ", ".join(Provenance))
    return TableEntry(match[2], Provenance(match[3]), match[1] is not None)


def parse_table(table: str) -> dict[DispatchKey, TableEntry]:
    """Parse a computed table, or slots in the same form: the entries by their keys, in the order of the table.

    Raises:
        DumpError: a row does not start with a dispatch key, or does not end with a provenance.
    """
    rows: dict[DispatchKey, TableEntry] = {}
    last = -1
    lines = table.removesuffix("\n").split("\n") if table else []
    for text in _joined(lines, lambda text: _ENTRY.fullmatch(text) is not None):
        name, _, entry = text.partition(": ")
        key = DispatchKey.__members__.get(name)
        slot = -1 if key is None else SLOT_OF_KEY.get(key, -1)
        if key is None and _NAME_OF_A_KEY.fullmatch(name) and _ENTRY.fullmatch(entry):
            raise UnknownKeyInDumpError(text, name)
        if key is None or slot < 0 or key in rows or (slot < last and key not in MOVED_KEYS):
            raise DumpError(text, "a row that starts with a dispatch key" + (", in their order" if rows else ""))
        if key not in MOVED_KEYS:
            last = slot
        rows[key] = parse_entry(entry)
    return rows


_FALLTHROUGH = "fallthrough "
_ENTRY = re.compile(rf"({_FALLTHROUGH})?(.*) \[({'|'.join(Provenance)})\]", re.DOTALL)
