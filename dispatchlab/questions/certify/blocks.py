"""Certificates of a registry as blocks: in text by operator, on a terminal by owner, in a page by what is proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dispatchlab.model.sequence import format_sequence
from dispatchlab.questions.certify.certificate import Cause, Certification, Certified, OrderReason, Owner
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.formatting import counted, first_of, key_names, seconds
from dispatchlab.views.view import View

_SLOTS_SHOWN = 4
_FEW = 50
_MOODS: dict[Certified, b.Mood] = {
    Certified.ORDER_INDEPENDENT: "good",
    Certified.ORDER_DEPENDENT: "bad",
    Certified.NOT_DECIDED: "warn",
}


def certification_view(found: Certification, *, torch: str = "") -> View[Certification]:
    """How certificates are shown.

    Args:
        found: the certificates.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
    """
    return View(found, lines=_lines, screen=_screen, document=_page, indent=1, torch=torch)


@as_json.register
def _(value: Certification) -> dict[str, object]:
    head = {
        "registry": value.registry,
        "semantics": value.semantics,
        "operators": len(value.certificates),
        "proved": len(value.of(Certified.ORDER_INDEPENDENT)),
        "order_matters": len(value.of(Certified.ORDER_DEPENDENT)),
        "not_decided": len(value.of(Certified.NOT_DECIDED)),
    }
    not_covered = [
        "C++ signatures",
        *(f"the release of the fallback of {fallback.key}" for fallback in value.replaced),
        *(f"the fallback of {fallback.key}" for fallback in value.unknown),
    ]
    done = fields_of(value, without=(*head, "certificates"), elapsed_s=round(value.elapsed_s, 3))
    return {**head, **done, "not_covered": not_covered, "certificates": as_json(value.certificates)}


@as_json.register
def _(value: OrderReason) -> dict[str, object]:
    expected, actual = map(format_sequence, (value.expected_sequence, value.actual_sequence))
    return fields_of(value, expected_sequence=expected, actual_sequence=actual)


# -- the summary, which every format has


def _summary(found: Certification) -> Iterator[b.Line]:
    """A line for each verdict and cause, and two for what was covered."""
    if found.interrupted:
        yield b.Line(
            f"interrupted: {len(found.certificates):,} of {counted(found.selected, 'operator')} were certified, "
            "nothing is known of the others"
        )
    ideal = ", an idealised dispatcher" if found.semantics == "strict" else ""
    yield b.Line(f"{found.registry} under {found.semantics}{ideal}: {counted(len(found.certificates), 'operator')}")
    if found.against:
        same = f"left out, as they are the same in {found.against}: {found.left_out:,}"
        yield b.Line(f"{same}; --all certifies them, too", indent=2)
    if found.lazy:
        yield b.Line(
            f"left out, as PyTorch registers it for itself when a part of it is first used: "
            f"{counted(found.lazy, 'operator')}; --all certifies {'it' if found.lazy == 1 else 'them'}, too",
            indent=2,
        )
    if found.known:
        known = f"{Certified.ORDER_DEPENDENT} in {found.against} already, for the same reasons: {len(found.known):,}"
        yield b.Line(known, indent=2)
    yield _verdict_line(found, Certified.ORDER_INDEPENDENT)
    yield _verdict_line(found, Certified.ORDER_DEPENDENT)
    overridden, stale = found.because(Cause.OVERRIDE), found.because(Cause.STALE)
    if overridden:
        yield b.Line(f"a kernel overrides another at its key: {len(overridden):,}", indent=4)
    if stale:
        now = len(found.because(Cause.STALE, in_force=True))
        what = f"a slot that calls use can go stale: {len(stale):,}, with everything registered: {now:,}"
        yield b.Line(what, indent=4)
    if found.of(Certified.NOT_DECIDED):
        yield _verdict_line(found, Certified.NOT_DECIDED)
    yield b.Line(
        f"{counted(found.patterns, 'pattern')}, {counted(found.neighbourhoods, 'neighbourhood')} of at most "
        f"{counted(found.largest, 'registration')} in all orders: {counted(found.sets, 'set')}, "
        f"{counted(found.edges, 'edge')}, each with the footprints of its refreshes"
    )
    if found.alike:
        yield b.Line(
            f"symmetry: {counted(found.alike, 'neighbourhood')} more with the same tables up to which key is which, a "
            "sequence run on each"
        )
    if found.by_window:
        yield b.Line(
            f"without roles and symmetry: {counted(found.by_window, 'pattern')}, all that reaches the slots of one "
            "refresh together"
        )
    yield b.Line(
        f"{counted(found.registrations, 'registration')} covered, {counted(found.steps, 'step')} on whole operators "
        f"besides, {seconds(found.elapsed_s)}"
    )
    yield b.Line("not covered: C++ signatures, which registries do not hold")
    for fallback in found.replaced:
        yield b.Line(
            f"not covered: the release of the fallback of {fallback.key} ({fallback.debug or 'no debug text'}), which "
            "empties the key; what it replaced does not come back"
        )
    for fallback in found.unknown:
        yield b.Line(f"not covered: the fallback of {fallback.key}, a key that {found.semantics} does not have")


def _verdict_line(found: Certification, verdict: Certified) -> b.Line:
    return b.Line(f"{verdict}: {len(found.of(verdict)):,}", indent=2)


def _worst(found: Certification) -> Certified:
    by_weight = (Certified.NOT_DECIDED, Certified.ORDER_DEPENDENT)
    return next((verdict for verdict in by_weight if found.of(verdict)), Certified.ORDER_INDEPENDENT)


def _reasons(found: Certification, cause: Cause) -> list[tuple[str, OrderReason]]:
    """The operators whose order matters for a cause, once for each reason."""
    return [(one.operator, reason) for one in found.certificates for reason in one.reasons if reason.cause is cause]


# -- text: every operator whose order matters with its owners, then what is proved and what was done for it


def _lines(found: Certification) -> Iterator[b.Block]:
    reasons = [
        b.Line(f"{one.operator}: {one.verdict}: {text}")
        for one in found.certificates
        for text in (*([one.not_decided] if one.verdict is Certified.NOT_DECIDED else ()), *map(_reason, one.reasons))
    ]
    yield from reasons
    if reasons:
        yield b.Line()
    yield from _summary(found)


def _reason(reason: OrderReason) -> str:
    """Why the order matters and whose registrations they are, in a sentence."""
    if reason.winner is not None:
        others = " and ".join(_debug(loser) for loser in reason.losers)
        return f"{reason.keys[0]}: the newest wins, which is {_debug(reason.winner)}; it overrides {others}"
    shown = first_of(reason.keys, _SLOTS_SHOWN)
    sequences = (
        f"{format_sequence(reason.expected_sequence)} and {format_sequence(reason.actual_sequence)} end differently"
    )
    owners = ", ".join(f"{number} is {owner}" for number, owner in enumerate(reason.registrations))
    return f"{shown}: the slot can go stale{_when(reason)}: {sequences}, where {owners}"


def _debug(owner: Owner) -> str:
    return owner.debug or "a kernel without a debug text"


def _when(reason: OrderReason) -> str:
    return "" if reason.in_force else ", but not when everything is registered"


# -- a terminal: the summary, then what matters: overrides counted by their owners, and each slot that can go stale


def _screen(found: Certification) -> Iterator[b.Block]:
    first, *rest = _summary(found)
    yield b.Frame((b.Line(first.content, "strong"), *rest), _MOODS[_worst(found)])
    rows = Counter[tuple[str, str, str]]()
    examples: dict[tuple[str, str, str], str] = {}
    for operator, reason in _reasons(found, Cause.OVERRIDE):
        assert reason.winner is not None
        row = (str(reason.keys[0]), _file(reason.winner), " and ".join(map(_file, reason.losers)))
        rows[row] += 1
        examples.setdefault(row, operator)
    if rows:
        yield b.Section("kernels that override another: the newest wins", mood="bad")
    for row, number in sorted(rows.items(), key=lambda item: (-item[1], item[0])):
        key, winner, losers = row
        such = f"{counted(number, 'operator')}, such as {examples[row]}" if number > 1 else examples[row]
        yield b.Line((b.strong(key), f" {winner} overrides {losers}: ", b.quiet(such)), indent=2)
    for operator, reason in _reasons(found, Cause.STALE):
        one, other = map(format_sequence, (reason.expected_sequence, reason.actual_sequence))
        keys = b.strong(", ".join(key_names([str(key) for key in reason.keys])))
        owners = (
            b.Line((f"{at} is {owner.key or 'def'}: ", b.source(owner.debug)), indent=4)
            for at, owner in enumerate(reason.registrations)
        )
        differ = b.Line((keys, f" after {one} and after {other} differ"), indent=2)
        yield b.Section(f"{operator}: a slot can go stale{_when(reason)}", (differ, *owners), mood="bad")
    for one_operator in found.of(Certified.NOT_DECIDED):
        yield b.Line((b.warn(f"{one_operator.operator}: "), one_operator.not_decided))


def _file(owner: Owner) -> str:
    """Where a kernel comes from, without the line and the folders."""
    text = owner.debug.removeprefix("registered at ")
    return text.rpartition("/")[2].rpartition(":")[0] or text or "(no debug text)"


# -- a page: the operators whose order matters and whose kernels they are, and all that is proved


def _page(found: Certification) -> b.Document:
    worst = _worst(found)
    counts = [
        ("operators", len(found.certificates)),
        *((str(verdict), len(found.of(verdict))) for verdict in Certified),
    ]
    facts = b.Facts((*counts, ("registrations covered", found.registrations), ("elapsed", seconds(found.elapsed_s))))
    lead = (b.Verdict(str(worst), _MOODS[worst]), facts)
    return b.Document("certify", f"{found.registry} under {found.semantics}", (*lead, *_sections(found)))


def _sections(found: Certification) -> Iterator[b.Section]:
    overrides = tuple(_override(*reason) for reason in _reasons(found, Cause.OVERRIDE))
    if overrides:
        heads: tuple[str, ...] = ("operator", "key", "the newest wins", "over")
        table = b.Table("Kernels that override another at their key", heads, overrides)
        yield b.Section("Overrides", (table,), "overrides")
    stale = tuple(_stale(*reason) for reason in _reasons(found, Cause.STALE))
    if stale:
        heads = ("operator", "slots", "with everything registered", "sequences that end differently", "registrations")
        yield b.Section("Stale slots", (b.Table("Slots that calls use and that can go stale", heads, stale),), "stale")
    undecided = tuple(
        (b.Cell(one.operator, "name"), b.Cell(b.source(one.not_decided))) for one in found.of(Certified.NOT_DECIDED)
    )
    if undecided:
        table = b.Table("Operators that are not decided", ("operator", "why"), undecided)
        yield b.Section("Not decided", (table,), "undecided")
    proved = tuple((b.Cell(one.operator, "name"), one.pattern) for one in found.of(Certified.ORDER_INDEPENDENT))
    table = b.Table("Operators whose order is proved not to matter", ("operator", "pattern"), proved)
    folded = b.Folded(counted(len(proved), "operator"), (table,), is_open=len(proved) <= _FEW)
    yield b.Section("Proved", (folded,), "proved")
    if found.known:
        names = b.Line(b.between(map(b.name, found.known)))
        yield b.Section(f"Order-dependent in {found.against} already", (names,), "known")
    yield b.Section("What this covers", (b.Frame(tuple(_summary(found))),), "covered")


def _override(operator: str, reason: OrderReason) -> b.Row:
    assert reason.winner is not None
    losers = b.Stack(tuple(map(_owner, reason.losers)))
    return (
        b.Cell(operator, "name"),
        b.Cell(str(reason.keys[0]), "name"),
        b.Cell(_owner(reason.winner), "code"),
        b.Cell(losers, "code"),
    )


def _stale(operator: str, reason: OrderReason) -> b.Row:
    sequences = tuple(map(format_sequence, (reason.expected_sequence, reason.actual_sequence)))
    owners = tuple((f"{at}: {owner.key or 'def'} ", _owner(owner)) for at, owner in enumerate(reason.registrations))
    return (
        b.Cell(operator, "name"),
        ", ".join(key_names([str(key) for key in reason.keys])),
        "stale" if reason.in_force else "not stale",
        b.Cell(b.Stack(sequences), "name"),
        b.Cell(b.Stack(owners), "code"),
    )


def _owner(owner: Owner) -> b.Inline:
    return b.source(owner.debug) if owner.debug else "(no debug text)"
