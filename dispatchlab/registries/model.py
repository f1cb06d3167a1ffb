"""Recorded registries as frozen values: operators, kernels and fallbacks, in texts that a dispatcher printed.

`Registry` has all of it in memory; `Recorded` is the interface that a file (file.py) also has.
Texts are kept as printed: replay.py parses a schema if its types are needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from dispatchlab._short_repr import short_repr
from dispatchlab.model.dump_format import (
    DumpError,
    KernelLine,
    OperatorDump,
    Provenance,
    entry_text,
    parse_dump,
    parse_table,
    row_text,
)
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName, find_names, name_of
from dispatchlab.model.registration import AliasKind, KernelFlags

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonLayer


@dataclass(frozen=True, slots=True)
class RecordedKernel:
    """A kernel of an operator.

    Args:
        key: the key of its registration, which may be an alias key.
        debug: its debug text; may be empty.
        inferred: the schema of its type, such as `(Tensor _0) -> Tensor _0`; None without one.
        flags: how it can be called.
        active: False when a newer kernel of the same key has taken its place.
    """

    key: DispatchKey
    debug: str
    inferred: str | None = None
    flags: KernelFlags = KernelFlags.BOXED
    active: bool = True

    __repr__ = short_repr

    @property
    def is_fallthrough(self) -> bool:
        """True when calls skip the key that this kernel is at."""
        return self.flags is KernelFlags.FALLTHROUGH

    @property
    def takes_symint(self) -> bool:
        """True for a typed kernel whose integers are symbolic."""
        return self.flags is KernelFlags.BOXED and self.inferred is not None


SLOTS_UNREADABLE = "the slots of this PyTorch cannot be read here: calls may run another kernel than its tables say"
"""What is said of a registry without the slots of its operators."""


@dataclass(frozen=True, slots=True)
class RecordedOperator:
    """One operator.

    Args:
        name: the operator.
        schema: its schema as the dispatcher prints it; None for kernels that dangle because it has no def.
        debug: the debug text of the def; empty without a def.
        alias: the alias kind of the def; None when it was left at upstream's default, and without a def.
        tags: names of tags.
        kernels: in the order of the dump: key by key as its version numbers them, of each key the newest first.
        slots: the slots that calls use, in the form of a table, if they differ from the table; else empty.

    Raises:
        ValueError: the name is invalid, the schema belongs to another operator, or the kernels are not in this order.
    """

    name: OperatorName
    schema: str | None = None
    debug: str = ""
    alias: AliasKind | None = None
    tags: frozenset[str] = frozenset()
    kernels: tuple[RecordedKernel, ...] = ()
    slots: str = field(default="", compare=False)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if name_of(str(self.name)) != self.name:
            raise ValueError(f"{self.name!r} is not the name of an operator")
        if self.schema is not None and not self.schema.startswith(f"{self.name}("):
            raise ValueError(f"{self.schema} is not the schema of {self.name}")
        previous: DispatchKey | None = None
        seen: set[DispatchKey] = set()
        for kernel in self.kernels:
            if kernel.active is (kernel.key is previous) or (kernel.active and kernel.key in seen):
                raise ValueError(f"the kernels of {self.name} are not in the order of a dump")
            previous = kernel.key
            seen.add(previous)

    @property
    def origin(self) -> str:
        """The source of its def, or of its first kernel when it has no def; empty when it has neither."""
        return self.debug if self.schema is not None else self.kernels[0].debug if self.kernels else ""

    @property
    def is_dangling(self) -> bool:
        """True when it has no def."""
        return self.schema is None

    @property
    def is_overridden(self) -> bool:
        """True if one of its kernels overrides another."""
        return any(not kernel.active for kernel in self.kernels)

    def kernels_at(self, key: DispatchKey) -> tuple[RecordedKernel, ...]:
        """Return the kernels registered at one key, the active one first."""
        return tuple(kernel for kernel in self.kernels if kernel.key is key)

    def active_at(self, key: DispatchKey) -> RecordedKernel | None:
        """Return the active kernel at one key; alias keys are not resolved."""
        return next((kernel for kernel in self.kernels if kernel.key is key), None)


@dataclass(frozen=True, slots=True)
class RecordedFallback:
    """The kernel that every operator falls back to at a key."""

    key: DispatchKey
    fallthrough: bool
    debug: str = ""

    __repr__ = short_repr


def read_dump(text: str, tags: Iterable[str] = ()) -> RecordedOperator:
    """Return the record of an operator from its dump.

    Args:
        text: the output of the dispatcher, not empty.
        tags: the names of its tags, which no dump shows.

    Raises:
        DumpError: a line does not fit a dump, or a kernel has no key, as in PR #35061.
    """
    dump = parse_dump(text)
    kernels = tuple(map(_recorded, dump.kernels))
    return RecordedOperator(name_of(dump.name), dump.schema, dump.debug or "", dump.alias, frozenset(tags), kernels)


def _recorded(line: KernelLine) -> RecordedKernel:
    if line.key is None:
        raise DumpError(str(line), "a dispatch key")
    return RecordedKernel(line.key, line.debug, line.inferred, line.flags, line.active)


def dump_text(operator: RecordedOperator) -> str:
    """Return the dump of a recorded operator, as the dispatcher printed it."""
    kernels = tuple(KernelLine(one.key, one.debug, one.inferred, one.flags, one.active) for one in operator.kernels)
    return str(OperatorDump(str(operator.name), operator.schema, operator.debug, operator.alias, kernels))


def read_fallbacks(table: str) -> tuple[RecordedFallback, ...]:
    """Return the backend fallbacks, by key, from the computed table of an operator without kernels.

    Raises:
        DumpError: a row does not belong to a fallback.
    """
    found = []
    for key, entry in parse_table(table).items():
        if entry.provenance is not Provenance.FALLBACK:
            wanted = f"a row 'KEY: {entry_text('DEBUG', Provenance.FALLBACK)}'"
            raise DumpError(row_text(key, str(entry)).removesuffix("\n"), wanted)
        found.append(RecordedFallback(key, entry.fallthrough, entry.debug))
    return tuple(sorted(found, key=lambda fallback: fallback.key))


class Recorded(Protocol):
    """The queries of a recorded registry, whether it is in memory or in a file."""

    @property
    def torch(self) -> str:
        """The version of the PyTorch that was recorded."""

    @property
    def imports(self) -> tuple[str, ...]:
        """The packages that were imported besides torch."""

    @property
    def privateuse1(self) -> str:
        """The name that a package gave the PrivateUse1 backend; empty when none did."""

    @property
    def names(self) -> Sequence[str]:
        """The operators, sorted."""

    @property
    def fallbacks(self) -> tuple[RecordedFallback, ...]:
        """The backend fallbacks, by key."""

    def operator(self, name: OperatorName | str, /) -> RecordedOperator | None:
        """Return the operator with this name; None if there is none."""

    def overload_order(self, name: str, /) -> tuple[str, ...]:
        """Return the overloads of a name in the order of a call, `` for the default; empty if they were not recorded.

        A call tries the overloads that only TorchScript has after them; no registry contains these.
        """

    def __iter__(self) -> Iterator[RecordedOperator]:
        """All operators, by name."""


@dataclass(frozen=True, slots=True)
class Registry:
    """All registrations of a dispatcher at one moment.

    Args:
        torch: the version of PyTorch, as in `torch.__version__`; another text for a registry of another origin.
        operators: sorted by the text of their names, each name once; `registry_of` sees to that.
        fallbacks: sorted by key, each key once.
        imports: the packages that were imported besides torch.
        privateuse1: the name that a package gave the PrivateUse1 backend; empty when none did.
        unreadable: a sentence for each unreadable part, which is left out; files do not contain these.
        python: the registrations of Python; None if they were not recorded.
        orders: for each name of several overloads, as a call tries them; empty when that was not recorded.
    """

    torch: str
    operators: tuple[RecordedOperator, ...]
    fallbacks: tuple[RecordedFallback, ...] = ()
    imports: tuple[str, ...] = ()
    privateuse1: str = ""
    unreadable: tuple[str, ...] = field(default=(), compare=False)
    python: PythonLayer | None = field(default=None, compare=False)
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        return f"<Registry: PyTorch {self.torch}, {len(self):,} operators>"

    @property
    def names(self) -> tuple[str, ...]:
        """The operators, sorted."""
        return tuple(str(operator.name) for operator in self.operators)

    def operator(self, name: OperatorName | str) -> RecordedOperator | None:
        """Return the operator with this name; None if there is none."""
        text = str(name)
        at = bisect_left(self.operators, text, key=lambda operator: str(operator.name))
        found = self.operators[at] if at < len(self.operators) else None
        return found if found is not None and str(found.name) == text else None

    def overload_order(self, name: str) -> tuple[str, ...]:
        """Return the overloads of a name in the order of a call; empty if the order was not recorded."""
        return self.orders.get(name, ())

    def __iter__(self) -> Iterator[RecordedOperator]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    @property
    def kernel_count(self) -> int:
        """The number of kernels, including inactive ones."""
        return sum(len(operator.kernels) for operator in self.operators)


def registry_of(
    torch: str,
    operators: Sequence[RecordedOperator],
    fallbacks: Sequence[RecordedFallback] = (),
    imports: Sequence[str] = (),
) -> Registry:
    """Return a registry of these operators and fallbacks, given in any order.

    Raises:
        ValueError: an operator or the fallback of a key is there twice.
    """
    by_name = sorted(operators, key=lambda operator: str(operator.name))
    by_key = sorted(fallbacks, key=lambda fallback: fallback.key)
    for one, other in pairwise(by_name):
        if one.name == other.name:
            raise ValueError(f"two records of the operator {one.name}")
    for fallback, another in pairwise(by_key):
        if fallback.key is another.key:
            raise ValueError(f"two records of the fallback of {fallback.key}")
    return Registry(torch, tuple(by_name), tuple(by_key), tuple(imports))


def find(recorded: Recorded, asked: str = "*", *, keys: Collection[DispatchKey] = ()) -> Iterator[RecordedOperator]:
    """Return the operators to which all of this applies, by name.

    Args:
        recorded: the registry.
        asked: a text for `find_names`; `*` means every operator of every namespace.
        keys: the operator must have a kernel at one of these keys; empty for any kernel.

    Raises:
        RegistryFileError: the registry is in a file that is damaged.
    """
    names = recorded.names if asked == "*" else find_names(recorded.names, asked)
    every: Iterable[RecordedOperator | None] = recorded if asked == "*" else map(recorded.operator, names)
    for operator in every:
        if operator is not None and (not keys or any(kernel.key in keys for kernel in operator.kernels)):
            yield operator
