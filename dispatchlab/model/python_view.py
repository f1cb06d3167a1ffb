"""What Python has registered for an operator, each with what it takes the place of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dispatchlab.model.dump_format import DumpError, parse_entry
from dispatchlab.model.python_layer import PythonRegistration

if TYPE_CHECKING:
    from dispatchlab.model.snapshot import Snapshot


class Overridden(NamedTuple):
    """What a registration takes the place of.

    Args:
        what: what it is, such as `the kernel for Meta`.
        site: where that comes from: a debug text of the dispatcher or a site; empty when that is not known.
    """

    what: str
    site: str = ""


class PythonRow(NamedTuple):
    """A registration, and what it takes the place of where it applies.

    Args:
        registration: the registration.
        overrides: what it takes the place of, what would run first in front.
    """

    registration: PythonRegistration
    overrides: tuple[Overridden, ...] = ()


def python_rows(registrations: Sequence[PythonRegistration], snapshot: Snapshot | None = None) -> tuple[PythonRow, ...]:
    """The rows of an operator.

    Args:
        registrations: all that the Python layer has for it.
        snapshot: the operator as the dispatcher shows it; None where it has no such operator.
    """
    return tuple(PythonRow(one, tuple(_overridden(one, registrations, snapshot))) for one in registrations)


_META = "Meta"


def _overridden(
    one: PythonRegistration, others: Sequence[PythonRegistration], snapshot: Snapshot | None
) -> Iterator[Overridden]:
    """See Note [What takes the place of what]."""
    if not one.active:
        return
    for older in others:
        if older.slot == one.slot and not older.active:
            yield Overridden("an older one", older.site)
    match one.registry:
        case "py_kernels":
            yield from _kernels(one.key, snapshot)
        case "fake_rules" | "fake_checks" | "fast_fake_rules":
            python = [each for each in others if each.registry == "py_kernels" and each.key == _META]
            yield from (Overridden("the Python kernel for Meta", each.site) for each in python)
            if not python:
                yield from _kernels(_META, snapshot)
        case "dtensor_rules" if one.key != "strategy" and one.key != "rule":
            yield from _other(one, [each for each in others if each.key == "strategy"], "dtensor_rules", "the strategy")
        case _ if one.described.over[0]:
            yield from _other(one, others, *one.described.over)


# Note [What takes the place of what]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A registration is said to take the place of another where PyTorch looks for both in one place, and finds it first:
#
# - a Python kernel and the C++ kernel of the same slot, with the Python dispatcher on; at an alias key that is the
#   kernel registered there, since which slots it reaches is not the same for the two;
# - a fake-tensor rule and what would be called for Meta;
# - a function in a table that one step of a compiler asks, and that of the table which it was made of: meta functions
#   are chosen before decompositions, and the tables of Inductor and of torch.export start as copies;
# - a handler of DTensor and its rules, a strategy for one dimension and one for all;
# - a lowering of a user and Inductor's.
#
# Where two tables have the same function, neither takes the place of the other.


def _kernels(key: str, snapshot: Snapshot | None) -> Iterator[Overridden]:
    """The C++ kernel that a Python kernel at a key hides: that of the slot, or the one registered at an alias key."""
    if snapshot is None:
        return
    row = _line(snapshot.table, f"{key}: ")
    if row is not None:
        try:
            entry = parse_entry(row)
        except DumpError:  # its debug text has several lines
            yield Overridden(f"the kernel at {key}", row)
        else:
            yield Overridden(f"the {entry.provenance} at {key}", entry.debug)
        return
    kernel = _line(snapshot.dump, f"{key}[alias]: ")
    if kernel is not None:
        yield Overridden(f"the kernel at {key}", kernel.rpartition(" :: ")[0] or kernel)


def _line(text: str, start: str) -> str | None:
    """What follows `start` on the first line that starts so; None without one. A whole dump costs more to parse."""
    at = 0 if text.startswith(start) else text.find(f"\n{start}") + 1
    return text[at + len(start) :].partition("\n")[0] if at or text.startswith(start) else None


def _other(
    one: PythonRegistration, others: Sequence[PythonRegistration], registry: str, what: str
) -> Iterator[Overridden]:
    for each in others:
        same = (each.function, each.site) == (one.function, one.site)
        if each.registry == registry and each.active and each is not one and not same:
            yield Overridden(what, each.site)
