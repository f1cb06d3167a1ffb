"""Import orders: import packages in every order, each order in a process of its own, and compare what is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from difflib import unified_diff
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import permutations
from math import factorial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.bounded_read import ReadError, read_file
from dispatchlab.processes.executor import TaskExecutor, completed
from dispatchlab.questions.imports.import_groups import Shared, groups_of, predicted, shared_by, whole_orders
from dispatchlab.sources.executors import executor_for

if TYPE_CHECKING:
    from dispatchlab.pytorch.recording.import_run import ImportOutcome, ImportRun

_FEW = 3  # packages, of which there are six orders, and no use in fewer
_CHECKED = 4  # orders of all packages that are run besides, where those between groups are skipped
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
        what: an operator, `backend fallbacks`, or a package that failed.
        owners: where it was registered, in either way.
        diff: a unified diff of the dumps and tables, or of the failures.
    """

    expected: str
    actual: str
    what: str
    owners: tuple[str, ...]
    diff: str


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
        orders: the orders that were tried, of all packages or of a group; those of all packages are compared with the
            first of them, and those of a group with its first one.
        operators: the operators that are new or changed after any of them, sorted.
        failed: package -> what its import raised, in any order.
        ended: package -> how its import ended the process, in any order.
        between_orders: what differs between the first order and another.
        again: whether the packages were imported once more, after each order.
        imported_again: what differs then; many packages are not made for that, so it does not count as a failure.
        groups: the packages in groups that share nothing; empty where each package was not imported by itself.
        shared: what two packages share, for each two that share something.
        whole: how many of the orders are of all packages.
        skipped: how many orders of all packages were skipped because groups share nothing; else 0.
        not_skipped: why none was skipped although there are groups, a clause; else empty.
        in_python: the operators for which an entry of a Python-side registry is new or changed after any of them.
    """

    packages: tuple[str, ...]
    orders: tuple[tuple[str, ...], ...]
    operators: tuple[str, ...]
    failed: Mapping[str, str]
    ended: Mapping[str, str]
    between_orders: tuple[Difference, ...]
    again: bool
    imported_again: tuple[Difference, ...]
    groups: tuple[tuple[str, ...], ...] = ()
    shared: tuple[Shared, ...] = ()
    whole: int = 0
    skipped: int = 0
    not_skipped: str = ""
    in_python: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """5 when an import ended its process, 1 when an order makes a difference or an import failed, else 0."""
        if self.ended:
            return 5
        return 1 if self.between_orders or self.failed else 0


def compare_import_orders(
    packages: Sequence[str],
    *,
    samples: int,
    seed: int,
    again: bool = False,
    every: bool = False,
    jobs: int = 1,
    cluster: str | None = None,
    started: Callable[[str], None] = lambda _: None,
) -> ImportComparison:
    """Import packages in every order that may matter, or in some when there are many, and compare.

    Args:
        packages: the modules to import.
        samples: how many orders of more than `EVERY` packages.
        seed: of the orders that are chosen at random.
        again: import the packages once more after each order, in the same process.
        every: take every order, however many there are, and also between packages that share nothing.
        jobs: how many orders are tried at once.
        cluster: the address of a scheduler, whose workers try them in place of this machine.
        started: called with how far it has come.

    Raises:
        ClusterError: there is no such cluster, or it is lost.
        OtherPackagesError: its workers have not the same packages.
        DispatchLabError: a package is named twice, or there is no PyTorch.
        ImportTimeoutError: a package takes too long.
    """
    for package in packages:
        if packages.count(package) > 1:
            raise RepeatedPackageError(package)
    orders = permutations(packages) if every else orders_of(packages, samples=samples, seed=seed)
    with nullcontext() if jobs < 2 and cluster is None else executor_for(jobs, cluster) as executor:
        try_all = _Trial(tuple(packages), executor, again=again, is_cluster=cluster is not None, started=started)
        if every or again or len(packages) <= _FEW:
            return _comparison(packages, [try_all(orders)], again=again)
        return _in_groups(try_all, packages, orders, samples=samples, seed=seed)


def _in_groups(
    try_all: _Trial, packages: Sequence[str], orders: Iterable[tuple[str, ...]], *, samples: int, seed: int
) -> ImportComparison:
    """See Note [Orders between groups] in import_groups.py."""
    single = try_all(((package,) for package in packages), footprints=True)
    alone = {package: single.run_of((package,)) for package in packages}
    shared = shared_by(packages, alone)
    groups = groups_of(packages, shared)
    asked = list(dict.fromkeys(orders))
    within = [list(_both_ways(group, samples=samples, seed=seed)) for group in groups]
    whole = list(whole_orders(packages, within, count=_CHECKED, seed=seed))
    if len(groups) == 1 or sum(map(len, within)) + len(whole) >= len(asked):
        return replace(_comparison(packages, [try_all(asked)], again=False), groups=groups, shared=shared)
    tried = try_all([order for group, some in zip(groups, within, strict=True) if len(group) > 1 for order in some])
    checked = try_all(whole)
    runs = {order: tried.run_of(order) for some in within for order in some if len(order) > 1}
    runs |= {(package,): run for package, run in alone.items()}
    trouble = ""
    for order in whole:
        parts = [tuple(package for package in order if package in group) for group in groups]
        trouble = _not_as_predicted(checked.run_of(order), [runs[part].first for part in parts], alone)
        if trouble:
            break
    if trouble:
        found = _comparison(packages, [try_all(dict.fromkeys((*asked, *whole)))], again=False)
        return replace(found, groups=groups, shared=shared, not_skipped=trouble)
    collected = [single.only((part[0],)) if len(part[0]) == 1 else tried.only(part) for part in map(tuple, within)]
    found = _comparison(packages, collected, again=False)
    return replace(
        found,
        orders=(*found.orders, *whole),
        groups=groups,
        shared=shared,
        whole=len(whole),
        skipped=factorial(len(packages)) - len(whole),
    )


def _both_ways(group: Sequence[str], *, samples: int, seed: int) -> Iterator[tuple[str, ...]]:
    """The orders of a group, with its reverse among them however many there are."""
    return iter(dict.fromkeys((tuple(group), tuple(reversed(group)), *orders_of(group, samples=samples, seed=seed))))


def _not_as_predicted(run: ImportRun, parts: Sequence[ImportOutcome], alone: Mapping[str, ImportRun]) -> str:
    """What is not as its groups predict after an order of all packages, a clause; empty when all is."""
    footprint = next(iter(alone.values())).footprint
    expected = None if footprint is None else predicted(parts, footprint.untouched)
    if expected is None:
        return "what two groups register contradicts itself"
    if run.first.observed == expected.observed:
        return ""
    unlike = _compared("its groups", ", ".join(run.order), expected, run.first)
    what = unlike[0].what if unlike else "a process"
    return f"{what} is not as its groups predict after {', '.join(run.order)}"


def _comparison(packages: Sequence[str], collected: Sequence[_Collected], *, again: bool) -> ImportComparison:
    """What was found in some sets of orders, each compared with its own first one."""
    runs = [run for each in collected for run in each.distinct]
    return ImportComparison(
        packages=tuple(packages),
        orders=tuple(order for each in collected for order in each.orders),
        operators=tuple(sorted({name for run in runs for name in run.first.dumps})),
        in_python=tuple(sorted({operator for run in runs for _, operator, _ in run.first.python})),
        failed=_failures(runs, ended=False),
        ended=_failures(runs, ended=True),
        between_orders=tuple(
            found
            for each in collected
            for run in _distinct(each.distinct)
            for found in differences(each.distinct[0], run)
        ),
        again=again,
        imported_again=tuple(each for run in _distinct(runs, again=True) for each in on_repeat(run)),
        whole=sum(len(order) == len(packages) for each in collected for order in each.orders),
    )


class _Collected:
    """Runs of some orders, of which only different ones are kept.

    Args:
        orders: the orders.
    """

    def __init__(self, orders: Iterable[tuple[str, ...]]) -> None:
        self.orders = tuple(orders)
        self._number = {order: number for number, order in enumerate(self.orders)}
        self._first: dict[object, int] = {}  # the first order with what was observed
        self._runs: dict[int, ImportRun] = {}
        self._like: dict[int, object] = {}

    def add(self, run: ImportRun) -> None:
        """Add the run of an order; they come in any order."""
        number = self._number[run.order]
        key = run.first.observed, None if run.again is None else run.again.observed
        first = self._first.get(key)
        self._like[number] = key
        if first is None or number < first:
            if first is not None:
                del self._runs[first]
            self._first[key] = number
            self._runs[number] = run

    @property
    def distinct(self) -> list[ImportRun]:
        """The first run of each outcome, in the order of the orders."""
        return [self._runs[number] for number in sorted(self._runs)]

    def run_of(self, order: tuple[str, ...]) -> ImportRun:
        """The run of an order, or one with the same outcome."""
        return self._runs[self._first[self._like[self._number[order]]]]

    def only(self, orders: Sequence[tuple[str, ...]]) -> _Collected:
        """Those of some orders."""
        found = _Collected(orders)
        for order in orders:
            found.add(replace(self.run_of(order), order=order))
        return found


class _Task(NamedTuple):
    order: tuple[str, ...]
    again: bool
    others: tuple[str, ...]
    limit_s: float | None
    describe: tuple[str, ...]  # the packages whose installation is described


class _Trial:
    """Tries orders, here or elsewhere, each in a fresh process."""

    def __init__(
        self,
        packages: tuple[str, ...],
        executor: TaskExecutor | None,
        *,
        again: bool,
        is_cluster: bool,
        started: Callable[[str], None] = lambda _: None,
    ) -> None:
        from dispatchlab.pytorch.worker.process import limit_in_force

        self._packages, self._executor, self._again, self._started = packages, executor, again, started
        self._limit_s = limit_in_force()
        self._describe = packages if is_cluster else ()
        self._installed: dict[str, str] = {}

    def __call__(self, orders: Iterable[tuple[str, ...]], *, footprints: bool = False) -> _Collected:
        found = _Collected(orders)
        tasks = (
            _Task(
                order,
                self._again,
                tuple(one for one in self._packages if one not in order) if footprints else (),
                self._limit_s,
                self._describe,
            )
            for order in found.orders
        )
        if self._executor is None:
            for number, task in enumerate(tasks, 1):
                self._started(f"order {number} of {len(found.orders)}: {', '.join(task.order)}")
                found.add(_run(task)[0])
            return found
        for number, (_, _, future) in enumerate(completed(self._executor, _run, tasks)):
            self._started(f"{number} of {len(found.orders)} orders are done")
            run, installed = future.result()
            for package, here in installed.items():
                before = self._installed.setdefault(package, here)
                if before != here:
                    raise OtherPackagesError(package, *sorted((before, here)))
            found.add(run)
        return found


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


def _run(task: _Task) -> tuple[ImportRun, dict[str, str]]:
    from dispatchlab.pytorch.bridge.torch import ImportEndedError
    from dispatchlab.pytorch.recording.import_run import ImportOutcome, ImportRun
    from dispatchlab.pytorch.worker.engine import LiveEngine
    from dispatchlab.pytorch.worker.process import import_limit

    installed = {package: _installed(package) for package in task.describe}
    with ExitStack() as stack:
        if task.limit_s is not None:
            stack.enter_context(import_limit(task.limit_s))
        engine = stack.enter_context(LiveEngine())
        try:
            run: ImportRun = engine.ask(
                "dispatchlab.pytorch.recording.import_run:run_order", task.order, task.again, task.others
            )
        except ImportEndedError as ended:
            run = ImportRun(task.order, ImportOutcome({ended.module: ended.reason}, {}, {}, {}, ended=True))
    return run, installed


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
    in_python = [_by_operator(side) for side in (one, other)]
    texts_of: tuple[tuple[str, Mapping[str, str], Mapping[str, str]], ...] = (
        ("dump", one.dumps, other.dumps),
        ("table", one.tables, other.tables),
        ("Python", in_python[0], in_python[1]),
    )
    for name in sorted({name for _, before, after in texts_of for name in (*before, *after)}):
        diff = "".join(
            _diff(title, expected, actual, before.get(name, ""), after.get(name, ""))
            for title, before, after in texts_of
        )
        if diff:
            owners = tuple(dict.fromkeys((*one.owners.get(name, ()), *other.owners.get(name, ()))))
            found.append(Difference(expected, actual, name, owners, diff))
    return found


def _by_operator(outcome: ImportOutcome) -> dict[str, str]:
    """What the Python-side registries have, a text for each operator."""
    found: dict[str, list[str]] = {}
    for (registry, operator, key), text in sorted(outcome.python.items()):
        where = f"{registry}{f' {key}' if key else ''}"
        found.setdefault(operator, []).extend(f"{where}: {line}\n" for line in (text or "taken away").splitlines())
    return {operator: "".join(lines) for operator, lines in found.items()}


def _diff(title: str, expected: str, actual: str, before: str, after: str) -> str:
    names = f"after {expected}: {title}", f"after {actual}: {title}"
    lines = unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=0)
    return "".join(f"{line}\n" for line in lines)
