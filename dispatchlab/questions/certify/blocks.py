"""Certificates of a registry as a document: the counts, the operators whose order matters and why, and the proofs."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.model.sequence import format_sequence
from dispatchlab.questions.certify.certificate import Cause, Certification, Certified, OrderReason, Owner
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.formatting import counted, key_names, seconds
from dispatchlab.views.view import View

_MOODS: dict[Certified, b.Mood] = {
    Certified.ORDER_INDEPENDENT: "good",
    Certified.ORDER_DEPENDENT: "bad",
    Certified.NOT_DECIDED: "warn",
}


def certification_view(found: Certification, *, torch: str = "") -> View[Certification]:
    """Return the view of certificates.

    Args:
        found: the certificates.
        torch: the PyTorch version of the source locations; empty if unknown.
    """
    return View(found, document=_document, indent=1, torch=torch)


@as_json.register
def _(value: Certification) -> dict[str, object]:
    counts = {str(verdict).replace(" ", "_").replace("-", "_"): len(value.of(verdict)) for verdict in Certified}
    return counts | fields_of(value, elapsed_s=round(value.elapsed_s, 3), not_covered=_not_covered(value))


@as_json.register
def _(value: OrderReason) -> dict[str, object]:
    expected, actual = map(format_sequence, (value.expected_sequence, value.actual_sequence))
    return fields_of(value, expected_sequence=expected, actual_sequence=actual)


def _document(found: Certification) -> b.Document:
    ideal = ", an idealised dispatcher" if found.semantics == "strict" else ""
    return b.Document("permute", f"{found.registry} under {found.semantics}{ideal}", tuple(_blocks(found)))


def _blocks(found: Certification) -> Iterator[b.Block]:
    by_weight = (Certified.NOT_DECIDED, Certified.ORDER_DEPENDENT)
    worst = next((verdict for verdict in by_weight if found.of(verdict)), Certified.ORDER_INDEPENDENT)
    yield b.Verdict(counted(len(found.certificates), "operator"), _MOODS[worst])
    if found.interrupted:
        done = f"{len(found.certificates):,} of {counted(found.selected, 'operator')} were certified"
        yield b.Line(f"interrupted: {done}, nothing is known of the others", "warn")
    overridden, stale = _reasons(found, Cause.OVERRIDE), _reasons(found, Cause.STALE)
    yield b.Facts(tuple((str(verdict), len(found.of(verdict))) for verdict in Certified))
    rows = ((_names(names), b.Cell(b.Stack(texts), "code")) for texts, names in _alike(overridden).items())
    yield from b.part("Kernels that override another: the newest wins", ("operators", "key and kernels"), rows, most=20)
    rows = ((b.Cell(operator, "name"), b.Cell(b.Stack(tuple(_stale(reason))), "code")) for operator, reason in stale)
    yield from b.part("Slots that can go stale", ("operator", "slots and sequences"), rows)
    rows = (
        (b.Cell(one.operator, "name"), b.Cell(b.source(one.not_decided))) for one in found.of(Certified.NOT_DECIDED)
    )
    yield from b.part("Not decided", ("operator", "why"), rows)
    if found.known:
        shown = b.Folded(counted(len(found.known), "operator"), (b.Line(", ".join(found.known)),))
        yield b.Section(f"Order-dependent in {found.against} already, for the same reasons", (shown,))
    names = ", ".join(one.operator for one in found.of(Certified.ORDER_INDEPENDENT))
    if names:
        folded = b.Folded(counted(len(found.of(Certified.ORDER_INDEPENDENT)), "operator"), (b.Line(names),))
        yield b.Section("Order-independent", (folded,))
    yield b.Section("What this covers", tuple(_covered(found)))


def _covered(found: Certification) -> Iterator[b.Line]:
    """Return the covered operators, and the operators that are left out."""
    if found.against:
        same = f"left out, as they are the same in {found.against}: {found.left_out:,}"
        yield b.Line(f"{same}; --operator '*' certifies them, too")
    if found.lazy:
        operators = f"left out, as PyTorch registers them on first use of a part: {counted(found.lazy, 'operator')}"
        yield b.Line(f"{operators}; --operator '*' certifies them, too")
    yield b.Line(
        f"{counted(found.patterns, 'pattern')}, {counted(found.neighbourhoods, 'neighbourhood')} of at most "
        f"{counted(found.largest, 'registration')} in all orders: {counted(found.sets, 'set')}, "
        f"{counted(found.edges, 'edge')}"
    )
    covered = f"{counted(found.registrations, 'registration')} covered"
    yield b.Line(f"{covered}, {counted(found.steps, 'step')} on whole operators besides, {seconds(found.elapsed_s)}")
    yield from (b.Line(f"not covered: {text}") for text in _not_covered(found))


def _not_covered(found: Certification) -> list[str]:
    return [
        "C++ signatures, which registries do not hold",
        *(f"the release of the fallback of {fallback.key}, which empties the key" for fallback in found.replaced),
        *(f"the fallback of {fallback.key}, a key that {found.semantics} does not have" for fallback in found.unknown),
    ]


def _reasons(found: Certification, cause: Cause) -> list[tuple[str, OrderReason]]:
    """Return the operators whose order matters because of a cause, once for each reason."""
    return [(one.operator, reason) for one in found.certificates for reason in one.reasons if reason.cause is cause]


def _alike(reasons: list[tuple[str, OrderReason]]) -> dict[tuple[b.Inline, ...], list[str]]:
    """Return the operators in which kernels of the same files override one another, most operators first."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[tuple[str, OrderReason]]] = {}
    for operator, reason in reasons:
        assert reason.winner is not None
        row = str(reason.keys[0]), _file(reason.winner), tuple(map(_file, reason.losers))
        groups.setdefault(row, []).append((operator, reason))
    made: dict[tuple[b.Inline, ...], list[str]] = {}
    for (key, winner, losers), some in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        first = some[0][1]
        exact = len(some) == 1 and first.winner is not None
        files = [winner, *losers]
        owners = [_owner(one) for one in (first.winner, *first.losers) if one is not None] if exact else files
        overridden = (piece for owner in owners[1:] for piece in (" and ", owner))
        text: tuple[b.Inline, ...] = (f"{key}: ", owners[0], " overrides ", *(*overridden,)[1:])
        made[(text,)] = [operator for operator, _ in some]
    return made


def _file(owner: Owner) -> str:
    """Return the file of a kernel, without the line and the folders."""
    text = owner.debug.removeprefix("registered at ")
    return text.rpartition("/")[2].rpartition(":")[0] or text or "(no debug text)"


def _stale(reason: OrderReason) -> Iterator[b.Inline]:
    keys = ", ".join(key_names([str(key) for key in reason.keys]))
    expected, actual = map(format_sequence, (reason.expected_sequence, reason.actual_sequence))
    when = "" if reason.in_force else ", but not when everything is registered"
    yield f"{keys}: after {expected} and after {actual} calls find something else{when}"
    for at, owner in enumerate(reason.registrations):
        yield (f"{at} is {owner.key or 'def'} ", _owner(owner))


def _owner(owner: Owner) -> b.Inline:
    return b.source(owner.debug) if owner.debug else "(no debug text)"


def _names(names: list[str]) -> b.Cell:
    if len(names) == 1:
        return b.Cell(names[0], "name")
    return b.Cell(b.Folded(f"{counted(len(names), 'operator')}, such as {names[0]}", (b.Line(", ".join(names)),)))
