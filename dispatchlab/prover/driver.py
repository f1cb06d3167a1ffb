"""The driver: run a walk to its end, handle every kind of end, and return the result.

A walk chooses steps; the driver takes them in new sandboxes, and the checker compares their results. The driver handles
a crash of the engine, the end of memory, a bound and Ctrl-C, for these walks and for the graph walk.
"""

# Note [How walks are driven]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A walk yields runs, each for a fresh sandbox, and a run yields steps, one at a time. It is sent whether a step was
# accepted, so that a walk can go on from there, and it knows nothing of sessions, observations or verdicts. The graph
# walk keeps states instead of running sequences, so it has a loop of its own: but it ends as the others do.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from dispatchlab.model.sequence import StepSequence
from dispatchlab.prover.chains import Chains, count_orders
from dispatchlab.prover.checker import Observations, Pair, minimal_conflicts
from dispatchlab.prover.limits import Interrupted, Watch
from dispatchlab.prover.protocol import EngineCrashed
from dispatchlab.prover.result import Conflict, Counterexample, Exploration, Flaw, Verdict
from dispatchlab.prover.run_sequence import SequenceError, Session, Sessions, compare_sequences

Steps: TypeAlias = Generator[int, bool | None, None]
"""Yields steps, and is sent for each whether it was accepted."""


@dataclass(frozen=True, slots=True)
class Run:
    """Steps for one new sandbox.

    Args:
        steps: the steps.
        continues: whether it belongs to the run before: bounds are not checked between them, and observations are kept.
        is_long: whether bounds are checked before every step, not only before the run.
    """

    steps: Steps
    continues: bool = False
    is_long: bool = False


class Walk(ABC):
    """A choice of steps on an engine that cannot be forked.

    Attributes:
        name: `orders`, `sample` or `covering`.
        count: the number of registrations.
        order: chains of registrations that are only registered in this order.
        seed: the random seed, if it has one.
        passes: the number of begun passes, if it has passes.
        looks_at_every_step: whether every step is observed; otherwise only the end of each run is observed, and
            compared with the runs that continue it.
        is_shrunk: whether its counterexamples may be shortened.
    """

    name: str
    count: int
    order: Chains
    seed: int | None = None
    passes: int | None = None
    looks_at_every_step = True
    is_shrunk = True

    @abstractmethod
    def runs(self) -> Iterator[Run]:
        """Return the runs, one after another."""

    def ended(self, run: Run) -> None:  # noqa: B027 - most walks count nothing then
        """Note that a run ended, or found two sequences that disagree, and was not interrupted."""

    def sets(self, observations: Observations) -> int:
        """Return the number of observed active sets."""
        return observations.sets

    @abstractmethod
    def coverage(self, *, found: bool) -> list[str]:
        """Return sentences about the extent of the walk; `found` is true if there is a counterexample."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a walk: the verdict, the counterexample, and sentences on why it ended early."""

    verdict: Verdict
    counterexample: Counterexample | None = None
    reasons: tuple[str, ...] = ()


class Drive(Protocol):
    """A running walk."""

    def take(self) -> Ending:
        """Run the walk to its end."""

    def crashed(self, crash: EngineCrashed) -> Ending:
        """Return the sentence about a crash."""

    def exploration(self, ending: Ending) -> Exploration:
        """Return the result so far."""


def finish(drive: Drive) -> Exploration:
    """Run a walk to its end.

    Raises:
        Interrupted: Ctrl-C; the error has the results so far.
    """
    try:
        try:
            ending = drive.take()
        except EngineCrashed as crash:
            ending = drive.crashed(crash)
    except MemoryError:
        ending = Ending(Verdict.INCOMPLETE, reasons=("stopped because memory ran out",))
    except KeyboardInterrupt:
        raise Interrupted(drive.exploration(Ending(Verdict.INCOMPLETE, reasons=("interrupted",)))) from None
    return drive.exploration(ending)


def explore_walk(walk: Walk, sessions: Sessions, *, watch: Watch) -> Exploration:
    """Run a walk in new sandboxes, and shorten its counterexample.

    Args:
        walk: the walk, which chooses the steps.
        sessions: new sandboxes.
        watch: bounds and progress; `max_states` bounds the sets.

    Returns:
        `NO_VIOLATION_FOUND` with its coverage, `ORDER_DEPENDENT`, `INCOMPLETE`, `NONDETERMINISTIC` or `CRASHED`.

    Raises:
        Interrupted: Ctrl-C; the error has the results so far.
    """
    return finish(_SandboxDrive(walk, sessions, watch))


class _SandboxDrive:
    def __init__(self, walk: Walk, sessions: Sessions, watch: Watch) -> None:
        self._walk = walk
        self._sessions = sessions
        self._watch = watch
        self._observations = Observations()
        self._taken = 0  # steps of the runs that are over
        self._steps: list[int] = []  # those of the run that is not
        self._stopped: str | None = None

    def take(self) -> Ending:
        walk = self._walk
        pair: Pair | None = None
        for run in walk.runs():
            if not run.continues:
                if walk.looks_at_every_step:
                    self._stopped = self._stop()
                else:  # a run adds the set in which it ends
                    self._observations.forget()
                    self._stopped = self._stop() or self._watch.full(walk.sets(self._observations) + 1)
            if self._stopped is None:
                with self._sessions() as session:
                    pair = self._run(session, run)
            if self._stopped is not None:
                return Ending(Verdict.INCOMPLETE, reasons=(self._stopped,))
            walk.ended(run)
            if pair is not None:
                if not walk.is_shrunk:
                    return Ending(*judged(self._sessions, pair))
                return Ending(*conclude(self._sessions, walk.count, pair, order=walk.order))
            self._taken += len(self._steps)
            self._steps = []
        return Ending(Verdict.NO_VIOLATION_FOUND)

    def _run(self, session: Session, run: Run) -> Pair | None:
        """Take the steps of a run until it ends, a bound is hit, or two sequences disagree."""
        steps = self._steps
        register, release, look = session.register, session.release, session.look
        outcome, observation = self._observations.outcome, self._observations.observation
        every, stop, choose = self._walk.looks_at_every_step, self._stop, run.steps.send
        mask = 0
        accepted: bool | None = None  # which starts a generator
        pair = observation(0, look(), steps, 0) if every else None
        while pair is None:
            if run.is_long:
                self._stopped = stop()
                if self._stopped is not None:
                    return None
            try:
                step = choose(accepted)
            except StopIteration:
                return None if every else observation(mask, look(), steps, len(steps))
            steps.append(step)
            if step < 0:
                if release(~step) is not None:
                    return tuple(steps), tuple(steps)
                accepted = True
            else:
                refusal = register(step)
                accepted = refusal is None
                pair = outcome(mask, step, refusal, steps, len(steps))
                if pair is not None:
                    return pair
            if accepted:
                mask ^= 1 << (~step if step < 0 else step)
            if every:
                if not self._observations.has(mask):
                    self._stopped = self._watch.full(self._walk.sets(self._observations) + 1)
                    if self._stopped is not None:
                        return None
                pair = observation(mask, look(), steps, len(steps))
        return pair

    def _stop(self) -> str | None:
        sets = self._walk.sets(self._observations)
        return self._watch.stop(sets, sets, self._taken + len(self._steps))

    def crashed(self, crash: EngineCrashed) -> Ending:
        steps = tuple(self._steps)
        if not self._walk.is_shrunk:
            return Ending(Verdict.CRASHED, Counterexample(Flaw.CRASH, steps, steps, "", (crash.text,)))
        return Ending(*crashed(self._sessions, self._walk.count, steps, crash, order=self._walk.order))

    def exploration(self, ending: Ending) -> Exploration:
        walk, found, observations = self._walk, ending.counterexample, self._observations
        sets = walk.sets(observations)
        conflicts: tuple[Conflict, ...] = ()
        if found is None:
            conflicts = minimal_conflicts(observations.refused, observations.asymmetric, range(walk.count))
        done = ending.verdict is Verdict.NO_VIOLATION_FOUND
        return Exploration(
            verdict=ending.verdict,
            walk=walk.name,
            registrations=walk.count,
            sets=sets,
            states=sets,
            edges=self._taken + len(self._steps),
            orders=count_orders(walk.count, walk.order),
            conflicts=conflicts,
            never_accepted=tuple(i for i in range(walk.count) if done and not observations.accepted >> i & 1),
            counterexample=found,
            notes=(*ending.reasons, *walk.coverage(found=found is not None)),
            elapsed_s=self._watch.elapsed_s,
            seed=walk.seed,
            passes=walk.passes,
        )


def conclude(sessions: Sessions, count: int, pair: Pair, *, order: Chains) -> tuple[Verdict, Counterexample]:
    """Verify that two sequences disagree when run from scratch, and shorten them.

    Returns:
        `ORDER_DEPENDENT`; `NONDETERMINISTIC` if they now agree or one of them cannot be run; `CRASHED` if one of
        them ends the engine.
    """
    verdict, example = judged(sessions, pair)
    return (verdict, example) if verdict is Verdict.NONDETERMINISTIC else _shortened(sessions, count, example, order)


def judged(sessions: Sessions, pair: Pair) -> tuple[Verdict, Counterexample]:
    """Verify that two sequences disagree when run from scratch, without shortening them."""
    example = verified(sessions, pair)
    verdicts = {Flaw.NONDETERMINISTIC: Verdict.NONDETERMINISTIC, Flaw.CRASH: Verdict.CRASHED}
    return verdicts.get(example.flaw, Verdict.ORDER_DEPENDENT), example


def verified(sessions: Sessions, pair: Pair) -> Counterexample:
    """Return how two sequences disagree in a new run; `Flaw.NONDETERMINISTIC` if they now agree."""
    why: tuple[str, ...] = ("the sequences disagreed in a walk and agree when they are run from scratch",)
    try:
        example = compare_sequences(sessions, *pair) or compare_sequences(sessions, pair[1], pair[1])
    except SequenceError as error:
        example, why = None, (f"a sequence of a walk cannot be run from scratch: {error}",)
    return example or Counterexample(Flaw.NONDETERMINISTIC, *pair, "", why)


def crashed(
    sessions: Sessions, count: int, sequence: StepSequence, crash: EngineCrashed, *, order: Chains
) -> tuple[Verdict, Counterexample]:
    """Shorten the sequence that ended the engine."""
    return _shortened(sessions, count, Counterexample(Flaw.CRASH, sequence, sequence, "", (crash.text,)), order)


def _shortened(
    sessions: Sessions, count: int, example: Counterexample, order: Chains
) -> tuple[Verdict, Counterexample]:
    from dispatchlab.prover.shrink import shrink

    trouble = None
    try:
        example = shrink(sessions, count, example, order=order)
    except KeyboardInterrupt:
        trouble = "shortening was interrupted"
    except SequenceError as error:
        trouble = f"it could not be made shorter: {error}"
    if trouble is not None:
        example = replace(example, why=(*example.why, trouble))
    return (Verdict.CRASHED if example.flaw is Flaw.CRASH else Verdict.ORDER_DEPENDENT), example
