"""Import orders: import packages in every order, each order in a process of its own, and compare what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import chain, permutations
from math import factorial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.bounded_read import ReadError, read_file
from dispatchlab.views.formatting import counted

if TYPE_CHECKING:
    from dispatchlab.pytorch.recording.import_run import ImportOutcome
    from dispatchlab.scenario.import_orders import OrderFinding

_SOURCE = 2**24

EVERY = 5
"""Up to this many packages are imported in every order."""


class RepeatedPackageError(DispatchLabError):
    """A package was named twice."""

    package: str

    template = "{package} is named twice: a package is imported once in each order"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not the same after two ways to import.

    Args:
        expected: the one way, such as `a, b`.
        actual: the other one.
        what: what it is about, such as `kernel of my::op at CPU`.
        owners: where it was registered, in either way.
        diff: a unified diff of what is there.
        certain: a call can tell; else only code that looks at the values of its own module can.
    """

    expected: str
    actual: str
    what: str
    owners: tuple[str, ...]
    diff: str
    certain: bool = True


class OtherPackagesError(DispatchLabError):
    """Workers of a cluster import different packages, so what they find cannot be compared.

    Args:
        package: the package.
        one: what one worker has.
        other: what another one has.
    """

    package: str
    one: str
    other: str

    template = (
        "one worker of the cluster has {package} {one} and another one {other}: install the same "
        "on all machines of the cluster"
    )


@dataclass(frozen=True, slots=True)
class ImportComparison:
    """What was found about the imports of some packages.

    Args:
        packages: the packages, as they were named.
        orders: the orders that were tried; the others are compared with the first of them.
        operators: the operators that are new or changed after any of them, sorted.
        failed: package -> what its import raised, in any order.
        ended: package -> how its import ended the process, in any order.
        between_orders: what differs between the first order and another.
        again: whether the packages were imported once more, after each order.
        imported_again: what differs then; many packages are not made for that, so it does not count as a failure.
        in_python: the operators for which an entry of a Python-side registry is new or changed after any of them.
        loaded: the packages that others had loaded whenever their turn came after these.
        open: what could not be compared, a sentence each.
    """

    packages: tuple[str, ...]
    orders: tuple[tuple[str, ...], ...]
    operators: tuple[str, ...]
    failed: Mapping[str, str]
    ended: Mapping[str, str]
    between_orders: tuple[Difference, ...]
    again: bool
    imported_again: tuple[Difference, ...]
    in_python: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    open: tuple[str, ...] = ()

    @property
    def certain(self) -> int:
        """How many differences between orders a call can tell."""
        return sum(each.certain for each in self.between_orders)

    @property
    def exit_code(self) -> int:
        """5 when an import ended its process, 1 when an order makes a difference or an import failed, else 0."""
        if self.ended:
            return 5
        return 1 if self.certain or self.failed else 0


def compare_import_orders(
    packages: Sequence[str],
    *,
    samples: int,
    seed: int,
    again: bool = False,
    every: bool = False,
    jobs: int = 1,
    started: Callable[[str], None] = lambda _: None,
) -> ImportComparison:
    """Import packages in every order, or in some when there are many, and compare.

    Args:
        packages: the modules to import.
        samples: how many orders of more than `EVERY` packages.
        seed: of the orders that are chosen at random.
        again: import the packages once more after each order, in the same process.
        every: take every order, however many there are.
        jobs: how many orders are tried at once.
        started: called with how far it has come.

    Raises:
        DispatchLabError: a package is named twice, or there is no PyTorch.
        ImportTimeoutError: a package takes too long.
    """
    from dispatchlab.pytorch.worker.process import IMPORT_LIMIT_S, limit_in_force

    for package in packages:
        if packages.count(package) > 1:
            raise RepeatedPackageError(package)
    orders = tuple(permutations(packages) if every else orders_of(packages, samples=samples, seed=seed))
    limit_s = limit_in_force()
    limit_s = IMPORT_LIMIT_S if limit_s is None else limit_s
    started(f"{counted(len(orders), 'order')} of {', '.join(packages)}")
    outcomes = [_run(_Task(orders, again, limit_s, jobs, ()))[0]]
    loaded = dict(chain.from_iterable(each.loaded for each in outcomes))
    return ImportComparison(
        tuple(packages),
        orders,
        tuple(sorted({name for each in outcomes for name in each.operators})),
        {package: reason for each in outcomes for package, reason in each.failed.items()},
        {package: how for each in outcomes for package, how in each.ended.items()},
        tuple(_differences(each.between_orders for each in outcomes)),
        again,
        tuple(_differences(each.imported_again for each in outcomes)),
        tuple(sorted({name for each in outcomes for name in each.in_python})),
        tuple(
            package
            for package in packages
            if {package in early for order, early in loaded.items() if package in order[1:]} == {True}
        ),
        tuple(dict.fromkeys(sentence for each in outcomes for sentence in each.open)),
    )


def orders_of(packages: Sequence[str], *, samples: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Every order of up to five packages; of more the given one and random ones, each once."""
    if len(packages) <= EVERY:
        yield from permutations(packages)
        return
    from dispatchlab.prover.prng import SplitMix64

    random, known = SplitMix64(seed), {tuple(packages)}
    yield tuple(packages)
    while len(known) < min(samples, factorial(len(packages))):
        left = list(packages)
        order = tuple(left.pop(random.below(len(left))) for _ in packages)
        if order not in known:
            known.add(order)
            yield order


class _Task(NamedTuple):
    orders: tuple[tuple[str, ...], ...]
    again: bool
    limit_s: float
    jobs: int
    describe: tuple[str, ...]  # the packages whose installation is described


def _run(task: _Task) -> tuple[ImportOutcome, dict[str, str]]:
    from dispatchlab.pytorch.worker.engine import LiveEngine

    installed = {package: _installed(package) for package in task.describe}
    with LiveEngine() as engine:
        outcome: ImportOutcome = engine.ask(
            "dispatchlab.pytorch.recording.import_run:run_orders", task.orders, task.again, task.limit_s, task.jobs
        )
    return outcome, installed


def _differences(found: Iterable[Sequence[OrderFinding]]) -> Iterator[Difference]:
    """What differs, each thing once, what says most first."""
    known: dict[tuple[str, tuple[str, ...]], OrderFinding] = {}
    for one in chain.from_iterable(found):
        known.setdefault((one.what, one.expected), one)
    for one in known.values():
        expected, actual = (
            ", ".join(each or "purged and again" for each in order) for order in (one.expected, one.actual)
        )
        names = f"after {expected}", f"after {actual}"
        lines = unified_diff(one.before.splitlines(), one.after.splitlines(), *names, lineterm="", n=0)
        diff = "".join(f"{line}\n" for line in lines)
        yield Difference(expected, actual, one.what, one.sites, diff, one.certain)


@cache
def _installed(package: str) -> str:
    """What would be imported on this machine: its version, and a digest of its files."""
    top = package.partition(".")[0]
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return "nowhere"
    roots = list(spec.submodule_search_locations or ()) or [spec.origin or ""]
    found, count = sha256(), 0
    for root in roots:
        base = Path(root)
        for path in sorted(base.rglob("*")) if base.is_dir() else [base]:
            if path.is_file() and path.suffix != ".pyc":
                count += 1
                found.update(f"{path.relative_to(base).as_posix()} {path.stat().st_size}\n".encode())
                with suppress(OSError, ReadError):
                    found.update(read_file(path, limit=_SOURCE, what="sources") if path.suffix == ".py" else b"")
    try:
        number = version(top)
    except PackageNotFoundError:
        number = "of no version"
    return f"{number} ({count:,} files, {found.hexdigest()[:12]})"
