"""Import orders: import packages in every order, each order in a process of its own, and compare what is registered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import permutations
from math import factorial
from typing import TYPE_CHECKING

from dispatchlab.errors import DispatchLabError

if TYPE_CHECKING:
    from dispatchlab.live.recording.import_run import ImportOutcome, ImportRun

EVERY = 5
"""Up to this many packages are imported in every order."""


class RepeatedPackageError(DispatchLabError):
    """A package was named twice."""

    def __init__(self, package: str) -> None:
        super().__init__(package)
        self.package = package

    def __str__(self) -> str:
        return f"{self.package} is named twice: a package is imported once in each order"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not the same after two ways to import.

    Args:
        expected: the one way, such as `a, b`.
        actual: the other one.
        what: an operator, `backend fallbacks`, or a package that failed.
        owners: where it was registered, in either way.
        diff: a unified diff of the dumps and tables, or of the failures.
    """

    expected: str
    actual: str
    what: str
    owners: tuple[str, ...]
    diff: str


@dataclass(frozen=True, slots=True)
class ImportComparison:
    """What was found about the imports of some packages.

    Args:
        packages: the packages, as they were named.
        orders: the orders that were tried, the first of them the one that the others are compared with.
        operators: the operators that are new or changed after any of them, sorted.
        failed: package -> what its import raised, in any order.
        ended: package -> how its import ended the process, in any order.
        between_orders: what differs between the first order and another.
        again: whether the packages were imported once more, after each order.
        imported_again: what differs then; many packages are not made for that, so it does not count as a failure.
    """

    packages: tuple[str, ...]
    orders: tuple[tuple[str, ...], ...]
    operators: tuple[str, ...]
    failed: Mapping[str, str]
    ended: Mapping[str, str]
    between_orders: tuple[Difference, ...]
    again: bool
    imported_again: tuple[Difference, ...]

    @property
    def exit_code(self) -> int:
        """5 when an import ended its process, 1 when an order makes a difference or an import failed, else 0."""
        if self.ended:
            return 5
        return 1 if self.between_orders or self.failed else 0


def compare_import_orders(packages: Sequence[str], *, samples: int, seed: int, again: bool = False) -> ImportComparison:
    """Import packages in every order, or in some orders when there are many, and compare.

    Args:
        packages: the modules to import.
        samples: how many orders of more than `EVERY` packages.
        seed: of the orders that are chosen at random.
        again: import the packages once more after each order, in the same process.

    Raises:
        DispatchLabError: a package is named twice, or there is no PyTorch.
        ImportTimeoutError: a package takes too long.
    """
    for package in packages:
        if packages.count(package) > 1:
            raise RepeatedPackageError(package)
    runs = [_run(order, again=again) for order in orders_of(packages, samples=samples, seed=seed)]
    return ImportComparison(
        packages=tuple(packages),
        orders=tuple(run.order for run in runs),
        operators=tuple(sorted({name for run in runs for name in run.first.dumps})),
        failed=_failures(runs, ended=False),
        ended=_failures(runs, ended=True),
        between_orders=tuple(each for run in _distinct(runs) for each in differences(runs[0], run)),
        again=again,
        imported_again=tuple(each for run in _distinct(runs, again=True) for each in on_repeat(run)),
    )


def orders_of(packages: Sequence[str], *, samples: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Every order of up to five packages; of more the given one and random ones, each once."""
    if len(packages) <= EVERY:
        yield from permutations(packages)
        return
    from dispatchlab.explore.prng import SplitMix64

    random, known = SplitMix64(seed), {tuple(packages)}
    yield tuple(packages)
    while len(known) < min(samples, factorial(len(packages))):
        left = list(packages)
        order = tuple(left.pop(random.below(len(left))) for _ in packages)
        if order not in known:
            known.add(order)
            yield order


def differences(expected: ImportRun, actual: ImportRun) -> list[Difference]:
    """What two orders do not have in common."""
    return _compared(", ".join(expected.order), ", ".join(actual.order), expected.first, actual.first)


def on_repeat(run: ImportRun) -> list[Difference]:
    """What is not the same when the packages are imported once more."""
    if run.again is None:
        return []
    order = ", ".join(run.order)
    return _compared(order, f"{order}, purged and again", run.first, run.again)


def _failures(runs: Sequence[ImportRun], *, ended: bool) -> dict[str, str]:
    outcomes = [run.first for run in runs if run.first.ended is ended]
    return {package: reason for outcome in outcomes for package, reason in outcome.failures.items()}


def _run(order: tuple[str, ...], *, again: bool) -> ImportRun:
    from dispatchlab.live.bridge.torch import ImportEndedError
    from dispatchlab.live.recording.import_run import ImportOutcome, ImportRun
    from dispatchlab.live.worker.engine import LiveEngine

    with LiveEngine() as engine:
        try:
            run: ImportRun = engine.ask("dispatchlab.live.recording.import_run:run_order", order, again)
        except ImportEndedError as ended:
            return ImportRun(order, ImportOutcome({ended.module: ended.reason}, {}, {}, {}, ended=True))
    return run


def _distinct(runs: Sequence[ImportRun], *, again: bool = False) -> Iterator[ImportRun]:
    """One run for each outcome."""
    known: list[object] = []
    for run in runs:
        second = run.again.observed if again and run.again is not None else None
        observed = run.first.observed, second
        if observed not in known:
            known.append(observed)
            yield run


def _compared(expected: str, actual: str, one: ImportOutcome, other: ImportOutcome) -> list[Difference]:
    found = []
    for package in sorted({*one.failures, *other.failures}):
        texts = [side.failures.get(package, "imported") for side in (one, other)]
        if texts[0] != texts[1]:
            found.append(Difference(expected, actual, package, (), _diff("import", expected, actual, *texts)))
    if one.ended or other.ended:
        return found
    for name in sorted({*one.tables, *other.tables, *one.dumps, *other.dumps}):
        diff = "".join(
            _diff(title, expected, actual, before.get(name, ""), after.get(name, ""))
            for title, before, after in (("dump", one.dumps, other.dumps), ("table", one.tables, other.tables))
        )
        if diff:
            owners = tuple(dict.fromkeys((*one.owners.get(name, ()), *other.owners.get(name, ()))))
            found.append(Difference(expected, actual, name, owners, diff))
    return found


def _diff(title: str, expected: str, actual: str, before: str, after: str) -> str:
    names = f"after {expected}: {title}", f"after {actual}: {title}"
    lines = unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=0)
    return "".join(f"{line}\n" for line in lines)
