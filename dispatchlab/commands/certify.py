"""`dispatchlab certify`: a certificate for every operator of a registry, worked out in several processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from dispatchlab.analysis.certificate import Certificate, Certification, Pattern, pattern_of
from dispatchlab.analysis.certify_operator import certify_operator
from dispatchlab.analysis.neighbourhoods import Explored, Neighbourhood, Plan, explore_neighbourhood, plan_of
from dispatchlab.analysis.replay_on_lab import for_registry
from dispatchlab.analysis.sources import chosen, recorded_from
from dispatchlab.commands.output import Format, chosen_format, note, out
from dispatchlab.engine.semantics import Semantics
from dispatchlab.errors import DispatchLabError
from dispatchlab.explore.limits import Progress
from dispatchlab.registry.bundled import DEFAULT
from dispatchlab.registry.model import Recorded, RecordedFallback, RecordedOperator
from dispatchlab.registry.replay import fallback_registration
from dispatchlab.render.progress import BarDisplay, Display, LineDisplay, NoDisplay

if TYPE_CHECKING:
    from concurrent.futures import Future

SEMANTICS = ("strict", "torch-2.13")
"""The semantics whose footprints the proof can use."""

_OPERATORS_A_TASK = 32
_SMALL = 4_000  # edges that are worth a task of their own

A = TypeVar("A")
R = TypeVar("R")


class ProverDiedError(DispatchLabError):
    """A process that worked on the proof died, as one that needs too much memory does."""

    def __str__(self) -> str:
        return "a process that worked on the proof died: use --jobs 1, or ask for fewer operators with --operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyRequest:
    """What was asked for; each field is an option of the command."""

    registry: str = DEFAULT
    operators: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    semantics: str = "strict"
    jobs: int | None = None
    format: Format | None = None
    color: bool = True
    progress: bool | None = None


def certify(request: CertifyRequest) -> int:
    """Certify a registry and print what was found.

    Returns:
        The exit code: 0 when everything is proved, 1 when the order of something matters, 3 when something is not
        decided.

    Raises:
        DispatchLabError: the registry cannot be read, or an operator is not in it.
    """
    recorded = recorded_from(request.registry, imports=request.imports, report=note)
    with _display(request) as display:
        certification = certification_of(
            recorded,
            name=request.registry,
            semantics=request.semantics,
            operators=tuple(chosen(recorded, request.operators)),
            jobs=request.jobs or os.cpu_count() or 1,
            progress=lambda told: display.update(request.registry, told),
        )
        display.finish(request.registry)
    match chosen_format(request.format):
        case "json":
            from dispatchlab.render.certify import certification_json

            out(certification_json(certification))
        case "text":
            from dispatchlab.render.certify import certification_text

            out(certification_text(certification))
        case "rich":
            from dispatchlab.render.certify import print_certification
            from dispatchlab.render.rich_view import console

            terminal = console(sys.stdout, color=request.color)
            with terminal.capture() as captured:
                print_certification(terminal, certification)
            out(captured.get())
    return certification.exit_code


def _display(request: CertifyRequest) -> Display:
    if request.progress is False:
        return NoDisplay()
    if sys.stderr.isatty():
        return BarDisplay(sys.stderr, color=request.color)
    return LineDisplay(sys.stderr) if request.progress else NoDisplay()


def certification_of(
    recorded: Recorded,
    *,
    name: str,
    semantics: str = "strict",
    operators: Sequence[RecordedOperator] | None = None,
    jobs: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> Certification:
    """The certificates of a registry; the proof is planned in certify_plan.py.

    Args:
        recorded: the registry.
        name: what to call it.
        semantics: one of `SEMANTICS`.
        operators: which operators; all when left out.
        jobs: how many processes work at once.
        progress: told how far it has come.

    Raises:
        DispatchLabError: a record cannot be read.
    """
    started = perf_counter()
    chosen = tuple(recorded) if operators is None else tuple(operators)
    fallbacks = recorded.fallbacks
    dispatcher = _with_fallbacks(semantics, fallbacks)
    patterns = sorted({pattern_of(operator) for operator in chosen})
    plans = {pattern: plan_of(dispatcher, pattern) for pattern in patterns}
    with _workers(semantics, fallbacks, jobs) as run:
        meter = _Meter(progress, started, sum(map(_cost_of_operator, chosen)))
        known = _explore(list(plans.values()), run, meter)
        tasks = _operator_tasks(plans, known, chosen)
        certificates: dict[str, Certificate] = {}
        steps = 0
        for task, done in run(_certify, tasks):
            for certificate, count in done:
                certificates[certificate.operator] = certificate
                steps += count
            meter.add(sum(_cost_of_operator(operator) for operator, *_ in task))
    return Certification(
        registry=name,
        semantics=semantics,
        certificates=tuple(certificates[str(operator.name)] for operator in chosen),
        patterns=len(patterns),
        neighbourhoods=len(known),
        largest=max((each.size for each in known), default=0),
        sets=sum(each.sets for each in known.values()),
        edges=sum(each.edges for each in known.values()),
        registrations=len(fallbacks) + sum(len(each.kernels) + (not each.is_dangling) for each in chosen),
        steps=steps,
        elapsed_s=perf_counter() - started,
    )


class _Meter:
    """Counts work in steps of an engine, as far as they can be told beforehand."""

    def __init__(self, progress: Callable[[Progress], None] | None, started: float, later: int) -> None:
        self._progress, self._started = progress, started
        self._done, self._total, self._sets = 0, later, 0

    def expect(self, steps: int) -> None:
        self._total += steps

    def add(self, steps: int, sets: int = 0) -> None:
        self._done += steps
        self._sets += sets
        if self._progress is not None:
            elapsed = perf_counter() - self._started
            self._progress(Progress(self._sets, self._sets, self._done, self._total, elapsed))


def _cost(neighbourhood: Neighbourhood) -> int:
    return neighbourhood.size << neighbourhood.size


def _cost_of_operator(operator: RecordedOperator) -> int:
    return 8 * (len(operator.kernels) + 1)


def _explore(plans: Sequence[Plan], run: _Run, meter: _Meter) -> dict[Neighbourhood, Explored]:
    """Explore until no footprint leaves its neighbourhood; what is not needed in the end is left out."""
    known: dict[Neighbourhood, Explored] = {}
    open_plans = list(plans)
    while open_plans:
        wanted = frozenset().union(*(plan.to_explore() for plan in open_plans)) - known.keys()
        meter.expect(sum(map(_cost, wanted)))
        for task, done in run(_explore_some, _batches(wanted)):
            known.update(zip(task, done, strict=True))
            meter.add(sum(map(_cost, task)), sum(each.sets for each in done))
        open_plans = [plan for plan in open_plans if plan.grow(known)]
    needed = frozenset().union(*(plan.to_explore() for plan in plans))
    return {each: known[each] for each in sorted(needed, key=lambda one: one.rank)}


def _batches(wanted: Iterable[Neighbourhood]) -> Iterator[tuple[Neighbourhood, ...]]:
    """The largest first, each alone; small ones together."""
    batch: list[Neighbourhood] = []
    cost = 0
    for each in sorted(wanted, key=lambda one: one.rank, reverse=True):
        batch.append(each)
        cost += _cost(each)
        if cost >= _SMALL:
            yield tuple(batch)
            batch, cost = [], 0
    if batch:
        yield tuple(batch)


_OperatorTask: TypeAlias = tuple[RecordedOperator, int, str, tuple[Explored, ...]]


def _operator_tasks(
    plans: dict[Pattern, Plan],
    known: dict[Neighbourhood, Explored],
    operators: Sequence[RecordedOperator],
) -> list[tuple[_OperatorTask, ...]]:
    decided: dict[Pattern, tuple[int, str, tuple[Explored, ...]]] = {}
    for number, (pattern, plan) in enumerate(plans.items()):
        trouble = plan.trouble_with(known)
        decided[pattern] = number, trouble, () if trouble else plan.stale_of(known)
    tasks = [(operator, *decided[pattern_of(operator)]) for operator in operators]
    return [tuple(tasks[at : at + _OPERATORS_A_TASK]) for at in range(0, len(tasks), _OPERATORS_A_TASK)]


# -- processes

_dispatcher: Semantics | None = None


def _initialise(semantics: str, fallbacks: tuple[RecordedFallback, ...], *, alone: bool = False) -> None:
    global _dispatcher  # a worker makes it once
    if not alone:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process tells when to stop
    _dispatcher = _with_fallbacks(semantics, fallbacks)


def _with_fallbacks(semantics: str, fallbacks: Iterable[RecordedFallback]) -> Semantics:
    return replace(for_registry(semantics), fallbacks=tuple(map(fallback_registration, fallbacks)))


def _explore_some(task: tuple[Neighbourhood, ...]) -> list[Explored]:
    assert _dispatcher is not None
    return [explore_neighbourhood(_dispatcher, each) for each in task]


def _certify(task: tuple[_OperatorTask, ...]) -> list[tuple[Certificate, int]]:
    assert _dispatcher is not None
    return [certify_operator(_dispatcher, *each) for each in task]


class _Run:
    """Runs tasks, here or in processes; gives each with its result, in no promised order."""

    def __init__(self, pool: ProcessPoolExecutor | None) -> None:
        self._pool = pool

    def __call__(self, work: Callable[[A], R], tasks: Iterable[A]) -> Iterator[tuple[A, R]]:
        if self._pool is None:
            for task in tasks:
                yield task, work(task)
            return
        futures: dict[Future[R], A] = {self._pool.submit(work, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenExecutor:
            raise ProverDiedError from None


@contextmanager
def _workers(semantics: str, fallbacks: tuple[RecordedFallback, ...], jobs: int) -> Iterator[_Run]:
    if jobs < 2:
        _initialise(semantics, fallbacks, alone=True)
        yield _Run(None)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _initialise, (semantics, fallbacks)) as pool:
        try:
            yield _Run(pool)
        except BaseException:
            note("stopping")
            pool.shutdown(wait=False, cancel_futures=True)
            raise
