"""The report of `certify`: the operators whose order matters and whose kernels they are, and all that is proved."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.analysis.certificate import Cause, Certification, Certified, OrderReason, Owner
from dispatchlab.model.sequence import format_sequence
from dispatchlab.render.certify import summary
from dispatchlab.render.formatting import seconds
from dispatchlab.render.html.elements import Child, Html, element, joined
from dispatchlab.render.html.page import Section, page
from dispatchlab.render.html.parts import (
    Cell,
    Mood,
    Row,
    data_table,
    facts,
    folded,
    keys_text,
    lines,
    short_debug,
    verdict,
)

_MOODS: dict[Certified, Mood] = {
    Certified.ORDER_INDEPENDENT: "good",
    Certified.ORDER_DEPENDENT: "bad",
    Certified.NOT_DECIDED: "warn",
}


def certify_report(found: Certification) -> str:
    """The certificates of a registry."""
    return page("certify", f"{found.registry} under {found.semantics}", _lead(found), [*_sections(found)])


def _lead(found: Certification) -> Html:
    worst = next(
        (each for each in (Certified.NOT_DECIDED, Certified.ORDER_DEPENDENT) if found.of(each)),
        Certified.ORDER_INDEPENDENT,
    )
    counted: list[tuple[str, Child]] = [("operators", len(found.certificates))]
    counted += [(str(each), len(found.of(each))) for each in Certified]
    counted += [("registrations covered", found.registrations), ("elapsed", seconds(found.elapsed_s))]
    return joined((element("p", verdict(str(worst), _MOODS[worst])), facts(counted)))


def _sections(found: Certification) -> Iterator[Section]:
    overrides = [
        _override(each.operator, reason)
        for each in found.certificates
        for reason in each.reasons
        if reason.winner is not None
    ]
    stale = [
        _stale(each.operator, reason)
        for each in found.certificates
        for reason in each.reasons
        if reason.cause is Cause.STALE
    ]
    if overrides:
        heads: tuple[str, ...] = ("operator", "key", "the newest wins", "over")
        body = data_table("Kernels that override another at their key", heads, overrides)
        yield Section("overrides", "Overrides", body)
    if stale:
        heads = ("operator", "slots", "with everything registered", "sequences that end differently", "registrations")
        yield Section("stale", "Stale slots", data_table("Slots that calls use and that can go stale", heads, stale))
    undecided = [
        (Cell(each.operator, "name"), short_debug(each.not_decided)) for each in found.of(Certified.NOT_DECIDED)
    ]
    if undecided:
        body = data_table("Operators that are not decided", ("operator", "why"), undecided)
        yield Section("undecided", "Not decided", body)
    proved = [(Cell(each.operator, "name"), each.pattern) for each in found.of(Certified.ORDER_INDEPENDENT)]
    table = data_table("Operators whose order is proved not to matter", ("operator", "pattern"), proved)
    count = f"{len(proved):,} operator{'' if len(proved) == 1 else 's'}"
    yield Section("proved", "Proved", folded(count, table, is_open=len(proved) <= _FEW))
    if found.known:
        names = element("p", ", ".join(found.known))
        yield Section("known", f"Order-dependent in {found.against} already", names)
    yield Section("covered", "What this covers", element("pre", "\n".join(summary(found)), tabindex=0))


_FEW = 50


def _override(operator: str, reason: OrderReason) -> Row:
    assert reason.winner is not None
    losers = lines(_owner(loser) for loser in reason.losers)
    return (
        Cell(operator, "name"),
        Cell(str(reason.keys[0]), "name"),
        Cell(_owner(reason.winner), "code"),
        Cell(losers, "code"),
    )


def _stale(operator: str, reason: OrderReason) -> Row:
    sequences = [element("div", format_sequence(each)) for each in (reason.expected_sequence, reason.actual_sequence)]
    owners = [element("div", f"{number}: {_named(owner)}") for number, owner in enumerate(reason.registrations)]
    return (
        Cell(operator, "name"),
        keys_text(tuple(map(str, reason.keys))),
        "stale" if reason.in_force else "not stale",
        Cell(sequences, "name"),
        Cell(owners, "code"),
    )


def _owner(owner: Owner) -> str:
    return short_debug(owner.debug) or "(no debug text)"


def _named(owner: Owner) -> str:
    return f"{owner.key or 'def'} {_owner(owner)}"
