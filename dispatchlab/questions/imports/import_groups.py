"""Groups of packages that share something, from the footprint of each; between groups no order needs to be tried."""

# Note [Orders between groups]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Claim: when no package of a group shares anything with one of another group, what is registered after an order of all
# packages is, operator by operator, what is registered after the orders of the groups that it is made of.
#
# Ground: an operator is what was registered for it, for the backend fallbacks and for its namespace, in that order.
# So a package can make a difference to what another one registers in these ways alone:
#   - both register for an operator, or make libraries of a namespace, whose claim is exclusive;
#   - one registers a backend fallback, which reaches every operator, and the other one registers anything;
#   - both write into Python-side registries of PyTorch for one name of operators, or one does and the other registers
#     an operator of this name. The registry and the overload do not matter: a lowering replaces a decomposition, and
#     what is written for a name reaches all its overloads;
#   - one runs the other's code, or looks whether it is there: it imports it, or a source that it loads names it;
#   - it does something to PyTorch or to a third module that the other one depends on, and that no registration shows.
# The first four are found when each package is imported by itself, in a fresh process. A package that fails there may
# need any other one, so it shares with all. An operator that a part of PyTorch registers for itself when that is first
# loaded is the same whoever loads it: it counts as shared only where a package registers for it, too, or where it is
# not the same after the two.
#
# Check: nothing shows the last way beforehand. So some orders of all packages are run besides, in which every two
# groups are imported both ways round, one wholly before the other. (Two packages both ways round are not enough: one,
# of the same group as the second, may import it earlier.) Each has to register what its groups predict, to the
# character. Where one does not, nothing is skipped: all orders are run. What could remain is a hidden dependence that
# shows only when packages of three groups come in a certain order, or those of two in turns; `--all-orders` finds it.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from dispatchlab.model.python_layer import base_name
from dispatchlab.views.formatting import first_of

if TYPE_CHECKING:
    from dispatchlab.pytorch.recording.import_footprint import ImportFootprint
    from dispatchlab.pytorch.recording.import_run import ImportOutcome, ImportRun

_FEW = 3


@dataclass(frozen=True, slots=True)
class Shared:
    """Why the order of two packages may matter.

    Args:
        packages: the two.
        reason: what they share, a clause.
    """

    packages: tuple[str, str]
    reason: str


def shared_by(packages: Sequence[str], alone: Mapping[str, ImportRun]) -> tuple[Shared, ...]:
    """Every two packages that share something. See Note [Orders between groups].

    Args:
        packages: the packages.
        alone: each, imported by itself with its footprint.
    """
    pairs = ((one, other, _reason(one, other, alone[one], alone[other])) for one, other in combinations(packages, 2))
    return tuple(Shared((one, other), reason) for one, other, reason in pairs if reason)


def groups_of(packages: Sequence[str], shared: Sequence[Shared]) -> tuple[tuple[str, ...], ...]:
    """The packages in groups, in which each shares something with another one; in the order of the list."""
    group = {package: frozenset((package,)) for package in packages}
    for each in shared:
        together = group[each.packages[0]] | group[each.packages[1]]
        group |= dict.fromkeys(together, together)
    found = dict.fromkeys(group[package] for package in packages)
    return tuple(tuple(package for package in packages if package in members) for members in found)


def _reason(one: str, other: str, mine: ImportRun, theirs: ImportRun) -> str:
    for package, run in ((one, mine), (other, theirs)):
        if run.first.ended or run.first.failures or run.footprint is None:
            return f"{package} cannot be imported by itself"
    assert mine.footprint is not None
    assert theirs.footprint is not None
    a, b = mine.footprint, theirs.footprint
    for package, another, of in ((one, other, a), (other, one, b)):
        if another in of.packages:
            return f"{package} imports or names {another}"
    operators = (a.operators & (b.operators | b.by_torch)) | (b.operators & a.by_torch)
    if operators:
        return f"both register {first_of(sorted(operators), _FEW)}"
    in_python = _shared_in_python(a, b) | _shared_in_python(b, a)
    if in_python:
        both = _base_names(a.python, a.python_by_torch) & _base_names(b.python, b.python_by_torch)
        which = " in Python" if in_python <= both else ", one of them in Python"
        return f"both register {first_of(sorted(in_python), _FEW)}{which}"
    namespaces = a.namespaces & b.namespaces
    if namespaces:
        return f"both make libraries of {first_of(sorted(namespaces), _FEW)}"
    for package, another, of, with_ in ((one, other, a, b), (other, one, b, a)):
        if of.fallbacks and (with_.operators or with_.by_torch or with_.namespaces or with_.fallbacks):
            return f"{package} registers backend fallbacks, which reach what {another} registers"
    unlike = [
        name
        for name in a.by_torch & b.by_torch
        if any(
            side_a.get(name) != side_b.get(name)
            for side_a, side_b in ((mine.first.dumps, theirs.first.dumps), (mine.first.tables, theirs.first.tables))
        )
    ]
    python, other_python = mine.first.python, theirs.first.python
    unlike += sorted({slot[1] for slot in python.keys() & other_python.keys() if python[slot] != other_python[slot]})
    return f"PyTorch registers {first_of(sorted(unlike), _FEW)} in another way for each" if unlike else ""


def _shared_in_python(one: ImportFootprint, other: ImportFootprint) -> frozenset[str]:
    """The names for which one writes into a registry of Python, and the other one does or registers an operator."""
    return _base_names(one.python) & _base_names(other.python, other.python_by_torch, other.operators, other.by_torch)


def _base_names(*names: frozenset[str]) -> frozenset[str]:
    return frozenset(base_name(each) for some in names for each in some)


def whole_orders(
    packages: Sequence[str], orders: Sequence[Sequence[tuple[str, ...]]], *, count: int, seed: int
) -> Iterator[tuple[str, ...]]:
    """Some orders of all packages to check predictions by, each made of orders of the groups that were run.

    Args:
        packages: the packages, in the order of the list.
        orders: the orders of each group that were run; the first two are that of the list and its reverse.
        count: how many at most, and at least two.
        seed: of those that are chosen at random.
    """
    from dispatchlab.prover.prng import SplitMix64

    forward = tuple(package for some in orders for package in some[0])
    backward = tuple(package for some in reversed(orders) for package in some[:2][-1])
    known = dict.fromkeys((forward, backward, tuple(packages), tuple(reversed(packages))))
    random = SplitMix64(seed)
    for _ in range(8 * count):
        if len(known) >= count:
            break
        parts = [iter(some[random.below(len(some))]) for some in orders]
        turns = [number for number, some in enumerate(orders) for _ in some[0]]
        random.shuffle(turns)
        known[tuple(next(parts[number]) for number in turns)] = None
    yield from tuple(known)[:count]


def predicted(groups: Sequence[ImportOutcome], untouched: str) -> ImportOutcome | None:
    """What is registered after an order of all packages; None when what two groups register contradicts itself.

    Args:
        groups: the outcome of each group, in the order that it has in the order of all.
        untouched: the table of an operator that nobody touched, without any package.
    """
    from dispatchlab.pytorch.recording.import_run import FALLBACKS, ImportOutcome

    failures: dict[str, str] = {}
    dumps: dict[str, str] = {}
    tables: dict[str, str] = {}
    owners: dict[str, tuple[str, ...]] = {}
    python: dict[tuple[str, str, str], str] = {}
    for each in groups:
        if any(python.setdefault(slot, text) != text for slot, text in each.python.items()):
            return None
        for mine, theirs in ((failures, each.failures), (dumps, each.dumps), (tables, each.tables)):
            for name, text in theirs.items():
                known = mine.get(name, text)
                if known == text or (name == FALLBACKS and known == untouched):
                    mine[name] = text
                elif not (name == FALLBACKS and text == untouched):
                    return None
        for name, sites in each.owners.items():
            owners[name] = tuple(dict.fromkeys((*owners.get(name, ()), *sites)))
    return ImportOutcome(failures, dumps, tables, owners, ended=any(each.ended for each in groups), python=python)
