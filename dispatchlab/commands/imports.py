"""`dispatchlab imports`: packages in every order, each order in a process of its own, and what differs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import permutations
from math import factorial
from typing import TYPE_CHECKING

from dispatchlab.commands.output import Format, chosen_format, out
from dispatchlab.errors import DispatchLabError
from dispatchlab.render.formatting import JSON_VERSION

if TYPE_CHECKING:
    from dispatchlab.live.recording.import_orders import Imported, ImportRun

EVERY = 5
"""Up to this many packages are imported in every order."""

SAMPLES = 120
"""How many orders of more packages are tried."""


class RepeatedPackageError(DispatchLabError):
    """A package was named twice."""

    def __init__(self, package: str) -> None:
        super().__init__(package)
        self.package = package

    def __str__(self) -> str:
        return f"{self.package} is named twice: a package is imported once in each order"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportsRequest:
    """What was asked for; each field is an option of the command."""

    packages: tuple[str, ...]
    samples: int = SAMPLES
    seed: int = 0
    format: Format | None = None


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


def imports(request: ImportsRequest) -> int:
    """Import, compare, and print.

    Returns:
        The exit code: 0 when nothing differs and nothing failed, 1 otherwise.

    Raises:
        DispatchLabError: a package is named twice, or there is no PyTorch.
        WorkerCrashed: an order ended its process; the error says which.
    """
    for package in request.packages:
        if request.packages.count(package) > 1:
            raise RepeatedPackageError(package)
    orders = list(orders_of(request.packages, samples=request.samples, seed=request.seed))
    runs = [_run(order) for order in orders]
    between = [each for run in _distinct(runs) for each in differences(runs[0], run)]
    again = [each for run in _distinct(runs, again=True) for each in on_repeat(run)]
    failed = {package: told for run in runs for package, told in run.first.failures.items()}
    if chosen_format(request.format) == "json":
        out(_json(request.packages, runs, failed, between, again))
    else:
        out(_text(request.packages, runs, failed, between, again))
    return 1 if between or again or failed else 0


def orders_of(packages: Sequence[str], *, samples: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Every order of up to five packages; of more the given one and others by chance, each once."""
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


def _run(order: tuple[str, ...]) -> ImportRun:
    from dispatchlab.live.worker.engine import LiveEngine
    from dispatchlab.live.worker.process import WorkerCrashed

    with LiveEngine() as engine:
        try:
            run: ImportRun = engine.ask("dispatchlab.live.recording.import_orders:run_order", order)
        except WorkerCrashed as crash:
            raise WorkerCrashed(f"importing {', '.join(order)}: {crash.text}", crash.sequence) from None
    return run


def _distinct(runs: Sequence[ImportRun], *, again: bool = False) -> Iterator[ImportRun]:
    """One run for each thing that was seen."""
    known: list[object] = []
    for run in runs:
        seen = (run.first.seen, run.again.seen) if again else run.first.seen
        if seen not in known:
            known.append(seen)
            yield run


def differences(expected: ImportRun, actual: ImportRun) -> list[Difference]:
    """What two orders do not have in common."""
    return _compared(", ".join(expected.order), ", ".join(actual.order), expected.first, actual.first)


def on_repeat(run: ImportRun) -> list[Difference]:
    """What is not the same when the packages are imported once more."""
    order = ", ".join(run.order)
    return _compared(order, f"{order}, purged and again", run.first, run.again)


def _compared(expected: str, actual: str, one: Imported, other: Imported) -> list[Difference]:
    found = []
    for package in sorted({*one.failures, *other.failures}):
        texts = [side.failures.get(package, "imported") for side in (one, other)]
        if texts[0] != texts[1]:
            found.append(Difference(expected, actual, package, (), _diff("import", expected, actual, *texts)))
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


def _text(
    packages: Sequence[str],
    runs: Sequence[ImportRun],
    failed: dict[str, str],
    between: Sequence[Difference],
    again: Sequence[Difference],
) -> str:
    lines = [
        f"packages: {', '.join(packages)}",
        f"orders: {len(runs):,} of {factorial(len(packages)):,}, each in a process of its own",
        f"operators: {len({name for run in runs for name in run.first.dumps}):,} new or changed",
        *(f"failed: {package}: {told}" for package, told in sorted(failed.items())),
        f"differences between orders: {_count(between)}",
        *_told(between),
        f"differences when imported again: {_count(again)}",
        *_told(again),
    ]
    return "".join(f"{line}\n" for line in lines)


def _count(found: Sequence[Difference]) -> str:
    return str(len(found)) if found else "none"


def _told(found: Sequence[Difference]) -> Iterator[str]:
    for each in found:
        yield f"  {each.what}{', registered at ' if each.owners else ''}{', '.join(each.owners)}"
        yield from (f"    {line}" for line in each.diff.splitlines())


def _json(
    packages: Sequence[str],
    runs: Sequence[ImportRun],
    failed: dict[str, str],
    between: Sequence[Difference],
    again: Sequence[Difference],
) -> str:
    def value(each: Difference) -> dict[str, object]:
        return {
            "what": each.what,
            "expected_order": each.expected,
            "actual_order": each.actual,
            "owners": list(each.owners),
            "diff": each.diff,
        }

    told = {
        "version": JSON_VERSION,
        "packages": list(packages),
        "orders": [list(run.order) for run in runs],
        "operators": sorted({name for run in runs for name in run.first.dumps}),
        "failed": failed,
        "between_orders": [value(each) for each in between],
        "imported_again": [value(each) for each in again],
    }
    return json.dumps(told, ensure_ascii=False) + "\n"
