"""Certificates of a registry as text, as JSON and for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dispatchlab.analysis.certificate import Cause, Certificate, Certification, Certified, OrderReason, Owner
from dispatchlab.escape import printable
from dispatchlab.model.sequence import format_sequence
from dispatchlab.render.as_json import as_json, fields_of, json_text
from dispatchlab.render.formatting import seconds

if TYPE_CHECKING:
    from rich.console import Console

_SLOTS_SHOWN = 4


def certification_text(found: Certification) -> str:
    """Every operator whose order matters with its owners, then what is proved and what was done for it."""
    lines = [line for each in found.certificates for line in _certificate(each)]
    return "".join(f"{line}\n" for line in [*lines, *([""] if lines else []), *summary(found)])


def summary(found: Certification) -> Iterator[str]:
    """A line for each verdict and cause, and two for what was covered."""
    if found.interrupted:
        yield (
            f"interrupted: {len(found.certificates):,} of {_count(found.selected, 'operator')} were certified, nothing "
            "is known of the others"
        )
    yield f"{found.registry} under {found.semantics}: {_count(len(found.certificates), 'operator')}"
    if found.against:
        yield f"  left out, as they are the same in {found.against}: {found.left_out:,}; --all certifies them, too"
    if found.lazy:
        yield (
            f"  left out, as PyTorch registers it for itself when a part of it is first used: "
            f"{_count(found.lazy, 'operator')}; --all certifies {'it' if found.lazy == 1 else 'them'}, too"
        )
    if found.known:
        yield f"  {Certified.ORDER_DEPENDENT} in {found.against} already, for the same reasons: {len(found.known):,}"
    yield f"  {Certified.ORDER_INDEPENDENT}: {len(found.of(Certified.ORDER_INDEPENDENT)):,}"
    matters = found.of(Certified.ORDER_DEPENDENT)
    yield f"  {Certified.ORDER_DEPENDENT}: {len(matters):,}"
    overridden, stale = found.because(Cause.OVERRIDE), found.because(Cause.STALE)
    if overridden:
        yield f"    a kernel overrides another at its key: {len(overridden):,}"
    if stale:
        now = len(found.because(Cause.STALE, in_force=True))
        yield f"    a slot that calls use can go stale: {len(stale):,}, with everything registered: {now:,}"
    undecided = found.of(Certified.NOT_DECIDED)
    if undecided:
        yield f"  {Certified.NOT_DECIDED}: {len(undecided):,}"
    yield (
        f"{_count(found.patterns, 'pattern')}, {_count(found.neighbourhoods, 'neighbourhood')} of at most "
        f"{_count(found.largest, 'registration')} in all orders: {_count(found.sets, 'set')}, "
        f"{_count(found.edges, 'edge')}, each with the footprints of its refreshes; "
        f"{_count(found.replayed, 'random sequence')} replayed in fresh sandboxes"
    )
    if found.alike:
        yield (
            f"symmetry: {_count(found.alike, 'neighbourhood')} more with the same tables up to which key is which, a "
            "sequence run on each"
        )
    if found.by_window:
        yield (
            f"without roles and symmetry: {_count(found.by_window, 'pattern')}, all that reaches the slots of one "
            "refresh together"
        )
    yield (
        f"{_count(found.registrations, 'registration')} covered, {_count(found.steps, 'step')} on whole operators "
        f"besides, {seconds(found.elapsed_s)}"
    )
    yield "not covered: C++ signatures, which registries do not hold"
    for one in found.replaced:
        yield (
            f"not covered: the release of the fallback of {one.key} ({printable(one.debug) or 'no debug text'}), which "
            "empties the key; what it replaced does not come back"
        )
    for one in found.unknown:
        yield f"not covered: the fallback of {one.key}, a key that {found.semantics} does not have"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _certificate(one: Certificate) -> Iterator[str]:
    if one.verdict is Certified.NOT_DECIDED:
        yield f"{one.operator}: {one.verdict}: {printable(one.not_decided)}"
    for reason in one.reasons:
        yield f"{one.operator}: {one.verdict}: {printable(reason_text(reason))}"


def reason_text(reason: OrderReason) -> str:
    """Why the order matters and whose registrations they are, in a sentence."""
    if reason.winner is not None:
        others = " and ".join(_debug(loser) for loser in reason.losers)
        return f"{reason.keys[0]}: the newest wins, which is {_debug(reason.winner)}; it overrides {others}"
    shown = ", ".join(map(str, reason.keys[:_SLOTS_SHOWN]))
    if len(reason.keys) > _SLOTS_SHOWN:
        shown += f" and {len(reason.keys) - _SLOTS_SHOWN} more"
    sequences = (
        f"{format_sequence(reason.expected_sequence)} and {format_sequence(reason.actual_sequence)} end differently"
    )
    owners = ", ".join(f"{number} is {owner}" for number, owner in enumerate(reason.registrations))
    when = "" if reason.in_force else ", but not when everything is registered"
    return f"{shown}: the slot can go stale{when}: {sequences}, where {owners}"


def _debug(owner: Owner) -> str:
    return owner.debug or "a kernel without a debug text"


def certification_json(found: Certification) -> str:
    """All certificates; `version` says which fields there are."""
    head = {
        "registry": found.registry,
        "semantics": found.semantics,
        "operators": len(found.certificates),
        "proved": len(found.of(Certified.ORDER_INDEPENDENT)),
        "order_matters": len(found.of(Certified.ORDER_DEPENDENT)),
        "not_decided": len(found.of(Certified.NOT_DECIDED)),
    }
    not_covered = [
        "C++ signatures",
        *(f"the release of the fallback of {one.key}" for one in found.replaced),
        *(f"the fallback of {one.key}" for one in found.unknown),
    ]
    done = fields_of(found, without=(*head, "certificates"), elapsed_s=round(found.elapsed_s, 3))
    return json_text({**head, **done, "not_covered": not_covered, "certificates": found.certificates}, indent=1)


@as_json.register
def _(value: OrderReason) -> dict[str, object]:
    expected, actual = map(format_sequence, (value.expected_sequence, value.actual_sequence))
    return fields_of(value, expected_sequence=expected, actual_sequence=actual)


def print_certification(console: Console, found: Certification, *, torch: str = "") -> None:
    """Print the summary, then what matters: overrides counted by their owners, and each slot that can go stale.

    Args:
        console: where to.
        found: the certificates.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
    """
    from rich.text import Text

    from dispatchlab.render.key_names import key_names
    from dispatchlab.render.page import Page, commas, words
    from dispatchlab.render.styles import BAD, GOOD, QUIET, TITLE, WARNING

    page = Page(console, torch=torch)
    undecided, dependent = found.of(Certified.NOT_DECIDED), found.of(Certified.ORDER_DEPENDENT)
    with page.framed(WARNING if undecided else "red" if dependent else GOOD):
        first, *rest = summary(found)
        page.line(first, TITLE)
        for line in rest:
            page.line(line.strip(), indent=len(line) - len(line.lstrip()))
    owners: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for each in found.certificates:
        for reason in each.reasons:
            if reason.winner is not None:
                row = (str(reason.keys[0]), _file(reason.winner), " and ".join(map(_file, reason.losers)))
                owners[row] += 1
                examples.setdefault(row, each.operator)
    if owners:
        page.title("kernels that override another: the newest wins", BAD)
    for row, number in sorted(owners.items(), key=lambda item: (-item[1], item[0])):
        key, winner, losers = row
        such = f"{_count(number, 'operator')}, such as {examples[row]}" if number > 1 else examples[row]
        about = [*words(key, TITLE), *words(f"{winner} overrides {losers}:"), *words(such, QUIET)]
        page.flow(about, indent=4, first=Text("  "))
    for each in found.certificates:
        for reason in each.reasons:
            if reason.cause is Cause.STALE:
                when = "" if reason.in_force else ", but not when everything is registered"
                page.title(f"{each.operator}: a slot can go stale{when}", BAD)
                one, other = map(format_sequence, (reason.expected_sequence, reason.actual_sequence))
                keys = commas(key_names([str(key) for key in reason.keys]), TITLE)
                page.flow([*keys, *words(f"after {one} and after {other} differ")], indent=4, first=Text("  "))
                for at, owner in enumerate(reason.registrations):
                    what = words(f"{at} is {owner.key or 'def'}:")
                    page.flow([*what, *page.source(owner.debug)], indent=6, first=Text("    "))
        if each.not_decided:
            page.flow([*words(f"{each.operator}:", WARNING), *page.words(each.not_decided)], indent=2, first=Text())


def _file(owner: Owner) -> str:
    """Where a kernel comes from, without the line and the folders."""
    text = owner.debug.removeprefix("registered at ")
    return text.rpartition("/")[2].rpartition(":")[0] or text or "(no debug text)"
