"""The field `imports` of a record: the orders in which its packages were imported, and what differed between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dispatchlab.files.yaml_fields import TEXT, Context, Entry, Field, Shape, Table, Wrong, expected, list_of, scalar
from dispatchlab.files.yaml_tree import Listing, Node

Order: TypeAlias = tuple[str, ...]
"""Modules, in the order in which they were imported."""

# Note [What a record stands on]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A record has what its packages register in one order of imports. That they register the same in every order is an
# assumption, and a package is a program: what it registers may depend on what it finds. So the orders are run, and what
# each leaves behind is compared. Where all orders agree, that is a proof by itself, whatever the packages ask or read.
# Where only some were run, a proof stands on the registrations, the orders that were run, and on no module asking for
# what another one writes. A record that was taken once proves nothing.


@dataclass(frozen=True, slots=True)
class OrderFinding:
    """Something that is not the same after two orders of imports.

    Args:
        what: what it is about, such as `kernel of my::op at CPU`.
        expected: the order that the record was taken in.
        actual: the order that leads elsewhere.
        before: what is there after the one.
        after: what is there after the other.
        sites: the lines that registered for it, in either order.
        certain: a call can tell; else only code that looks at the values of its own module can.
    """

    what: str
    expected: Order
    actual: Order
    before: str = ""
    after: str = ""
    sites: tuple[str, ...] = ()
    certain: bool = True


@dataclass(frozen=True, slots=True)
class ImportOrders:
    """The orders in which the packages of a record were imported.

    Args:
        ran: how many different orders ran, the one of the record among them.
        of: how many there are; 0 where they are too many to count.
        findings: what differs between them.
        open: what could not be compared or followed, a sentence each; then the orders prove nothing.
    """

    ran: int
    of: int
    findings: tuple[OrderFinding, ...] = ()
    open: tuple[str, ...] = ()

    @property
    def are_all(self) -> bool:
        """Whether every order ran, and everything could be compared."""
        return self.ran == self.of and not self.open

    @property
    def text(self) -> str:
        """How many orders ran, a clause: `2 of 2 import orders ran`."""
        if self.ran == self.of == 1:
            return "the one order in which these modules can be imported ran"
        of = f"{self.of:,}" if self.of else "very many"
        return f"{self.ran:,} of {of} import orders ran"


def _number(node: Node, context: Context) -> int:
    text = scalar(node, "a number").text
    if not (text.isdecimal() and len(text) < 10):
        raise expected("a number", node)
    return int(text)


def _truth(node: Node, context: Context) -> bool:
    text = scalar(node, "true or false").text
    if text not in ("true", "false"):
        raise expected("true or false", node)
    return text == "true"


_NUMBER = Shape("a number", _number, {"type": "integer", "minimum": 0})
_TRUTH = Shape("true or false", _truth, {"type": "boolean"})
_TEXTS = list_of(TEXT, "a list of texts")
_WHAT = Field("what", TEXT, "What differs, such as `kernel of my::op at CPU`.", required=True)
_EXPECTED = Field("expected", _TEXTS, "The order of imports that the record was taken in.", required=True)
_ACTUAL = Field("actual", _TEXTS, "The order that leads elsewhere.", required=True)
_BEFORE = Field("before", TEXT, "What is there after the expected order.")
_AFTER = Field("after", TEXT, "What is there after the actual order.")
_SITES = Field("sites", _TEXTS, "The lines that registered for it.")
_CERTAIN = Field("certain", _TRUTH, "false where only code that looks at values of its own module can tell.")
_FINDING = Table("a difference between orders", (_WHAT, _EXPECTED, _ACTUAL, _BEFORE, _AFTER, _SITES, _CERTAIN))


def _finding(node: Node, context: Context) -> OrderFinding:
    entry = Entry.read(node, _FINDING, context)
    if not entry.is_right:
        return OrderFinding("", (), ())  # every problem is reported already
    before, after, sites = entry.get(_BEFORE, ""), entry.get(_AFTER, ""), entry.get(_SITES, ())
    certain = entry.get(_CERTAIN, True)  # the default of the field
    return OrderFinding(entry[_WHAT], entry[_EXPECTED], entry[_ACTUAL], before, after, sites, certain)


def _findings(node: Node, context: Context) -> tuple[OrderFinding, ...]:
    if not isinstance(node, Listing):
        raise expected("a list of differences", node)
    return tuple(_finding(child, context) for child in node.items)


_RAN = Field("ran", _NUMBER, "How many different orders of imports ran.", required=True)
_OF = Field("of", _NUMBER, "How many there are; 0 where they are too many to count.", required=True)
_DIFFERENCES = Field(
    "differences",
    Shape("a list of differences", _findings, {"type": "array", "items": _FINDING.schema}),
    "What is not the same after two of these orders.",
)
_OPEN = Field("open", _TEXTS, "What could not be compared or followed, so that the orders prove nothing.")
_TABLE = Table("import orders", (_RAN, _OF, _DIFFERENCES, _OPEN))


def _read(node: Node, context: Context) -> ImportOrders:
    entry = Entry.read(node, _TABLE, context)
    if not entry.is_right:
        return ImportOrders(0, 0)
    ran, of = entry[_RAN], entry[_OF]
    if not ran:
        raise Wrong(node, "expected at least the order of the record but found 0 orders that ran")
    if of and ran > of:
        raise Wrong(node, f"expected at most {of:,} orders that ran but found {ran:,}", "of is 0 for very many")
    return ImportOrders(ran, of, entry.get(_DIFFERENCES, ()), entry.get(_OPEN, ()))


IMPORTS = Field(
    "imports",
    Shape("import orders", _read, _TABLE.schema),
    "The orders in which `dispatchlab record` imported the packages, and what differed. Without it, no verdict about "
    "`packages` is a proof.",
)


def import_fields(orders: ImportOrders) -> Iterator[tuple[str, int | str | tuple[str, ...]]]:
    """The lines of the field as they are written, each with a value; the first of an item begins with `- `."""
    yield "  ran", orders.ran
    yield "  of", orders.of
    if orders.open:
        yield "  open", orders.open
    for at, one in enumerate(orders.findings):
        if not at:
            yield "  differences", ""
        yield "    - what", one.what
        yield "      expected", one.expected
        yield "      actual", one.actual
        for name, value in (("before", one.before), ("after", one.after), ("sites", one.sites)):
            if value:
                yield f"      {name}", value
        if not one.certain:
            yield "      certain", False
