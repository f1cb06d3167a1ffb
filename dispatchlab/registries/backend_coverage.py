"""Coverage of a backend: what runs each operator, and what one more registration would change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dispatchlab._short_repr import WordEnum
from dispatchlab.errors import DispatchLabError, did_you_mean, no_operator
from dispatchlab.model.dump_format import COMPOSITE, Provenance
from dispatchlab.model.keys import DispatchKey, parse_key
from dispatchlab.model.names import find_names, is_glob
from dispatchlab.model.operator_view import OperatorView, TableRow
from dispatchlab.registries.model import Recorded, RecordedOperator


class Way(WordEnum):
    """How a call with a key finds its kernel."""

    DIRECT = "direct"  # a kernel at the key itself
    COMPOSITE = "composite"  # a kernel at an alias key that covers it
    FALLBACK = "fallback"  # the fallback of the key
    AMBIGUOUS = "ambiguous"  # two could be meant, and a call raises
    MISSING = "missing"  # a call raises


@dataclass(frozen=True, slots=True)
class Filled:
    """What a slot of an operator holds.

    Args:
        way: how it comes there.
        source: where the kernel is registered; the key itself for a fallback, None when there is none.
        fallthrough: calls skip the key and go to the next one.
    """

    way: Way
    source: DispatchKey | None = None
    fallthrough: bool = False


FillOf: TypeAlias = Callable[[RecordedOperator, DispatchKey], Filled]
"""What an engine puts into a slot of an operator."""


@dataclass(frozen=True, slots=True)
class Covered:
    """One operator at one key.

    Args:
        operator: its name.
        filled: what the slot holds.
        debug: where that kernel comes from.
    """

    operator: str
    filled: Filled
    debug: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """All operators at one key, by name."""

    registry: str
    key: DispatchKey
    operators: tuple[Covered, ...]

    def by(self, way: Way) -> tuple[Covered, ...]:
        """The operators that are covered in one way."""
        return tuple(operator for operator in self.operators if operator.filled.way is way)

    def sources(self, way: Way) -> tuple[tuple[DispatchKey, int], ...]:
        """The keys at which the kernels of one way are registered, with how many there are, most first."""
        counts: dict[DispatchKey, int] = {}
        for each in self.by(way):
            if each.filled.source is not None:
                counts[each.filled.source] = counts.get(each.filled.source, 0) + 1
        return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def fallthrough(self) -> int:
        """How many operators skip the key."""
        return sum(operator.filled.fallthrough for operator in self.operators)


class NoSlotError(DispatchLabError):
    """Coverage was requested for a key that no call ever has."""

    key: DispatchKey

    def __str__(self) -> str:
        kind = "stands for a set of keys" if self.key.is_alias else "exists once for each backend"
        return f"{self.key} {kind} and has no slot of its own: name a runtime key, such as PrivateUse1 or AutogradCPU"


def runtime_key(text: str, *, privateuse1: str = "") -> DispatchKey:
    """The runtime key of a name, for coverage.

    Args:
        text: the name of a key.
        privateuse1: the name that a package gave the PrivateUse1 backend, which is a name of that key as well.

    Raises:
        UnknownKeyError: there is no such key.
        NoSlotError: it has no slot.
    """
    key = DispatchKey.PrivateUse1 if privateuse1 and text == privateuse1 else parse_key(text)
    if not key.is_runtime:
        raise NoSlotError(key)
    return key


def coverage(
    recorded: Recorded,
    key: DispatchKey,
    fill: FillOf,
    *,
    name: str,
    operators: Iterable[RecordedOperator] | None = None,
) -> Coverage:
    """How the operators of a registry are covered at a key.

    Args:
        recorded: the registry.
        key: a runtime key.
        fill: what an engine puts into a slot.
        name: what to call the registry.
        operators: which operators; all when left out.

    Raises:
        RegistryFileError: the registry is in a file that is damaged.
    """
    fallbacks = {fallback.key: fallback.debug for fallback in recorded.fallbacks}
    covered = []
    for operator in recorded if operators is None else operators:
        filled = fill(operator, key)
        debug = ""
        if filled.way is Way.FALLBACK:
            debug = fallbacks.get(key, "")
        elif filled.source is not None and (kernel := operator.active_at(filled.source)) is not None:
            debug = kernel.debug
        covered.append(Covered(str(operator.name), filled, debug))
    return Coverage(name, key, tuple(covered))


_WORDS = ("impl", "fallback")
_IMPL = "impl OPERATOR KEY"
_FALLBACK = "fallback KEY"


class WhatIfError(DispatchLabError):
    """A supposition cannot be read, or is about what is not there.

    Args:
        text: what was asked.
        trouble: what is wrong with it, a clause that ends in what to do.
    """

    text: str
    trouble: str

    template = "--what-if {text!r}: {trouble}"


@dataclass(frozen=True, slots=True)
class Supposition:
    """A registration that is not there yet.

    Args:
        text: as it was written.
        operators: the operators of an impl; empty for a fallback.
        key: its key.
        fallthrough: whether calls would skip the key.
    """

    text: str
    operators: tuple[str, ...]
    key: DispatchKey
    fallthrough: bool = False


def parse_what_if(text: str, names: Sequence[str]) -> Supposition:
    """Read `impl aten::mul.Tensor PrivateUse1`, `impl 'aten::mul*' CPU fallthrough` or `fallback PrivateUse1`.

    Args:
        text: the words.
        names: the operators that there are; a glob stands for all that match, a name without overload for all of it.

    Raises:
        WhatIfError: it is none of these, or no operator matches.
        UnknownKeyError: there is no such key.
    """
    words = text.split()
    fallthrough = len(words) > 1 and words[-1] == "fallthrough"
    words = words[:-1] if fallthrough else words
    kind = words[0] if words else ""
    if kind not in _WORDS:
        raise WhatIfError(text, f"expected {_IMPL!r} or {_FALLBACK!r}{did_you_mean(kind, _WORDS)}")
    if len(words) != (3 if kind == "impl" else 2):
        raise WhatIfError(text, f"expected {_IMPL if kind == 'impl' else _FALLBACK!r}, and fallthrough behind it if so")
    key = parse_key(words[-1])
    if kind == "fallback":
        if not key.is_runtime:
            raise WhatIfError(text, f"{key} has no slot of its own: name a runtime key")
        return Supposition(text, (), key, fallthrough)
    found = find_names(names, words[1])
    if not found:
        wanted = words[1] if "::" in words[1] or is_glob(words[1]) else f"aten::{words[1]}"
        raise WhatIfError(text, no_operator(wanted, names))
    return Supposition(text, found, key, fallthrough)


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row of a table before and after; empty text is no kernel."""

    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What a registration would do to one operator.

    Args:
        text: the registration.
        operator: the operator.
        rows: the rows that would change, in the order of the table.
        consequences: what a reader should know, a sentence each; warnings first.
        refused: why a dispatcher would refuse it, a sentence; empty otherwise.
    """

    text: str
    operator: str
    rows: tuple[RowChange, ...] = ()
    consequences: tuple[str, ...] = ()
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """How many operators would be covered in another way."""

    before: Way
    after: Way
    operators: int
    example: str


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """What the views of coverage show.

    Args:
        coverage: the operators at the key.
        listed: the ways whose operators are listed one by one.
        suppositions: what each registration would do, operator by operator.
        moved: how the coverage at the key would change by all of them together.
        no_answer: a sentence, when the registry has no kernels for the backend of the key; else empty.
    """

    coverage: Coverage
    listed: tuple[Way, ...] = ()
    suppositions: tuple[WhatIf, ...] = ()
    moved: tuple[Moved, ...] = ()
    no_answer: str = ""


def compared(text: str, key: DispatchKey, before: OperatorView, after: OperatorView) -> WhatIf:
    """What a kernel at `key` changes in an operator.

    Args:
        text: the registration, as it was written.
        key: where its kernel would be.
        before: the operator without it.
        after: the operator with it.
    """
    olds, news = ({row.key: row for row in view.table} for view in (before, after))
    rows = tuple(
        RowChange(each, _text(olds.get(each)), _text(news.get(each)))
        for each in sorted({*olds, *news}, key=lambda one: DispatchKey[one].slot)
        if _text(olds.get(each)) != _text(news.get(each))
    )
    return WhatIf(text, before.name, rows, tuple(_consequences(key, before, olds, news)))


def _text(row: TableRow | None) -> str:
    return "" if row is None else row.text


def _consequences(
    key: DispatchKey, before: OperatorView, olds: dict[str, TableRow], news: dict[str, TableRow]
) -> Iterator[str]:
    shadowed = next((kernel for kernel in before.kernels if kernel.key == str(key)), None)
    if shadowed is not None:
        yield (
            f"it overrides the {key} kernel from {shadowed.debug or '(no debug text)'}, because it is newer; "
            "in the other order it would lose"
        )
    sources = {each: row.source for each, row in news.items()}
    lost = [each for each, row in olds.items() if row.reason in COMPOSITE and sources.get(each, "") != row.source]
    for source in dict.fromkeys(olds[each].source for each in lost):
        of_source = [each for each in lost if olds[each].source == source]
        direct = [each for each in of_source if each == str(key)]
        others = [each for each in of_source if each != str(key)]
        if direct:
            yield (
                f"it silently disables the decomposition for {key}: calls no longer run the {source} kernel from "
                f"{olds[direct[0]].debug}"
            )
        for each in others:
            if each in news and news[each].reason is Provenance.AMBIGUOUS:
                continue
            yield _lost(each, source, olds[each], news.get(each))
    for each, row in news.items():
        if row.reason is Provenance.AMBIGUOUS and (each not in olds or olds[each].reason != row.reason):
            yield f"{each} becomes ambiguous: a call with a gradient raises"
    if before.schema is None:
        yield f"{before.name} has no def, so the kernel dangles until its package is imported"
    gained = [each for each in news if each not in olds]
    if gained:
        more = f" and {len(gained) - 4} more slots" if len(gained) > 4 else ""
        yield f"{', '.join(gained[:4])}{more} had no kernel and {'has' if len(gained) == 1 else 'have'} one"


def _lost(key: str, source: str, old: TableRow, new: TableRow | None) -> str:
    if new is None:
        return f"{key} loses the {source} kernel and has nothing left: a call with that key raises"
    if new.reason is Provenance.FALLBACK:
        hint = ", so nothing is recorded for gradients unless you register an autograd kernel"
        return f"{key} loses the {source} kernel to the {new.reason}{hint if key.startswith('Autograd') else ''}"
    return f"{key} loses the {source} kernel to {new.text}"
