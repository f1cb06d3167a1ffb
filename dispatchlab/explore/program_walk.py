"""Program walk: explore every order in which programs make registrations, module by module, with nothing released.

Works on any engine: states are merged where they can be kept, and each order runs in a fresh sandbox where not.
"""

# Note [What a program can show]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# P0 to P2 of the checker hold between orders of one program as they do between free ones; nothing is released, so P4 is
# not asked. A refusal ends a program: it is an exception at import. So there is a rule besides: when one order makes
# every registration, all orders do. When none does, the registrations exclude one another, in whatever order. That is
# no proof: which of them is in force is decided by the order, and what follows in their modules was not reached.
#
# Registrations that share no operator are explored apart, each group in the orders that are left of the program's when
# the others are left out. Most groups are of one module and have one order, and few have more than two or three.

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from dispatchlab.explore.checker import Observations, Pair
from dispatchlab.explore.compare_sequences import compare_sequences
from dispatchlab.explore.difference import outcome_difference, outcome_text
from dispatchlab.explore.driver import Ending, finish, verified
from dispatchlab.explore.explore import WalkName
from dispatchlab.explore.limits import Interrupted, Progress, Watch
from dispatchlab.explore.partition import among, parts_of, places_of, strays_of
from dispatchlab.explore.partition_by_operator import TOGETHER, groups_of, joined
from dispatchlab.explore.prng import SplitMix64
from dispatchlab.explore.program import Position, Program
from dispatchlab.explore.protocol import Engine, EngineCrashed, Footprints, Forkable, StateSpace
from dispatchlab.explore.random_walk import DEFAULT_SAMPLES
from dispatchlab.explore.replay_proof import replay_proof
from dispatchlab.explore.result import Conflict, Counterexample, Exploration, Flaw, Verdict
from dispatchlab.explore.run_sequence import Sessions, StateSession, on_sandboxes, run
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration, operators_of
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Refusal

MANY_ORDERS: Final = 720
"""How many orders of one group run on an engine that cannot be forked; of more, as many random ones."""

_NAMED: Final = 6
_BROKEN_SETS: Final = 64  # sets that break an invariant after which the walk looks no further

_REPLAYED: Final = 4
"""How many orders of each group are replayed after a proof."""


def explore_program(
    engine: Engine,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    *,
    program: Program,
    walk: WalkName = "auto",
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    max_states: int | None = None,
    timeout_s: float | None = None,
    max_memory: int | None = None,
    cancelled: Callable[[], bool] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Find out whether the order of imports matters.

    Args:
        engine: the engine.
        registrations: what is registered.
        operators: what is observed.
        program: the orders of the registrations.
        walk: `graph` merges states where an engine can be forked, `orders` runs each order in a fresh sandbox, and
            `sample` random ones.
        samples: how many random orders of each group `sample` runs.
        seed: of random orders.
        max_states: stop there; None is no bound.
        timeout_s: stop after so many seconds; None is no bound.
        max_memory: stop when so many bytes of memory are used for it; None is no bound.
        cancelled: called about ten times a second to ask whether to stop.
        progress: called about ten times a second with how far it has come.

    Returns:
        The verdict on all orders of the program, and a counterexample when there is one, verified from scratch.

    Raises:
        Interrupted: by Ctrl-C, with what was covered.
    """
    watch = Watch(
        max_states=max_states, timeout_s=timeout_s, max_memory=max_memory, cancelled=cancelled, progress=progress
    )
    registrations = distinguished(registrations)
    search = _ProgramWalk(engine, registrations, operators, program, walk, samples, seed, watch)
    try:
        found = search.take()
    except Interrupted as stopped:
        raise Interrupted(_described(stopped.exploration, program)) from None
    return _described(found, program)


def _described(found: Exploration, program: Program) -> Exploration:
    """The same, with what it stands for."""
    names = program.names
    shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    kept = "the lines of a module in program order, nothing released; --free explores single registrations and releases"
    orders = program.count_orders()
    if orders == 1:
        scope = f"this is about the one order in which {shown} can be imported, with {kept}"
    else:
        scope = f"this is about the orders in which {shown} can be imported, with {kept}"
    notes = [*found.notes, scope]
    if program.loose:
        notes.append(
            f"{len(program.loose):,} modules import each other in circles; they were taken to wait for nothing that "
            "they import, which is more orders than Python has: look at a difference before you trust it"
        )
    return replace(found, walk="program", orders=orders, modules=len(names), notes=tuple(notes))


class _ProgramWalk:
    """The groups of a program, one after the other."""

    def __init__(
        self,
        engine: Engine,
        registrations: Sequence[Registration],
        operators: Sequence[OperatorName],
        program: Program,
        walk: WalkName,
        samples: int,
        seed: int,
        watch: Watch,
    ) -> None:
        self.walk = walk
        self.engine = engine
        self.registrations = registrations
        self.operators = operators
        self.places = places_of(operators)
        self.program = program
        self.samples = samples
        self.seed = seed
        self.watch = watch

    def take(self) -> Exploration:
        """Explore each group; all in one go when a group turns out not to be independent."""
        everything = tuple(range(len(self.registrations)))
        groups = self._groups() or [everything]
        found: list[tuple[tuple[int, ...], Exploration]] = []
        for members in groups:
            try:
                one, is_apart = self._explore(members)
            except Interrupted as stopped:
                raise Interrupted(self._joined([*found, (members, stopped.exploration)])) from None
            if not is_apart and len(groups) > 1:
                found = [(everything, self._explore(everything)[0])]
                break
            self.watch.settle(one)
            found.append((members, one))
        return replace(self._joined(found), elapsed_s=self.watch.elapsed_s)

    def _groups(self) -> list[tuple[int, ...]]:
        if isinstance(self.engine, Forkable):
            space = self.engine.space(self.registrations, self.operators)
            return [part.indices for part in parts_of(space, self.registrations, self.operators)]
        if len(self.registrations) <= TOGETHER:
            return []
        return groups_of(self.registrations)

    def _joined(self, found: Sequence[tuple[tuple[int, ...], Exploration]]) -> Exploration:
        if len(found) == 1 and len(found[0][0]) == len(self.registrations):
            return found[0][1]
        total = joined(found, len(self.registrations), ())
        if total.verdict is not Verdict.ORDER_DEPENDENT or total.counterexample is None:
            return total
        # The diff of a group numbers its own registrations.
        example = total.counterexample
        fresh = on_sandboxes(self.engine, self.registrations, self.operators)
        again = _differ(fresh, example.expected_sequence, example.actual_sequence)
        return total if again is None else replace(total, counterexample=replace(again, why=example.why))

    def _explore(self, members: tuple[int, ...]) -> tuple[Exploration, bool]:
        """What was found for a group, and whether nothing outside of it was touched."""
        registrations = [self.registrations[member] for member in members]
        named = {name for registration in registrations for name in operators_of(registration)}
        is_all = len(members) == len(self.registrations)
        operators = self.operators if is_all else among(self.places, named)
        program = self.program.restricted_to(members)
        fresh = on_sandboxes(self.engine, registrations, operators)
        if isinstance(self.engine, Forkable) and self.walk in ("auto", "graph"):
            forkable = self.engine
            space = forkable.space(registrations, operators)
            found = finish(_StateDrive(space, program, fresh, self.watch))
            is_apart = not isinstance(space, Footprints) or not strays_of(space, len(members), operators)
            if is_apart:
                random = SplitMix64(self.seed)
                found = replay_proof(
                    found,
                    lambda: forkable.space(registrations, operators),
                    fresh,
                    seed=self.seed,
                    watch=self.watch,
                    program=(program.random_order(random.split()) for _ in range(_REPLAYED)),
                )
            return found, is_apart
        samples, every = self.samples if self.walk == "sample" else None, self.walk == "orders"
        drive = _SandboxDrive(program, fresh, self.watch, every=every, samples=samples, seed=self.seed)
        return finish(drive), True


class _Drive:
    """What the walks share: the observations, the refusals, and how they end."""

    def __init__(self, program: Program, fresh: Sessions, watch: Watch) -> None:
        self.program, self.fresh, self.watch = program, fresh, watch
        self.observations = Observations()
        self.refusals: dict[int, tuple[StepSequence, Refusal]] = {}  # by registration, the first one
        self.complete: StepSequence | None = None  # an order that made every registration
        self.broken: Counterexample | None = None  # a set that breaks an invariant, and no other sequence to it yet
        self._patience = _BROKEN_SETS
        self.edges = 0
        self.at: StepSequence = ()  # the sequence that is being run

    @property
    def states(self) -> int:
        return self.observations.sets

    def note_refusal(self, sequence: StepSequence, refusal: Refusal) -> None:
        self.refusals.setdefault(sequence[-1], (sequence, refusal))

    def found(self, pair: Pair) -> Ending | None:
        """Two sequences disagree; verify it from scratch, without the modules that have no part in it.

        A set that breaks an invariant whatever the sequence is no finding yet: None, and the walk goes on to look for a
        sequence to that set after which all is well.
        """
        example = verified(self.fresh, pair) if self.broken is None or pair[0] != pair[1] else self.broken
        if example.flaw is Flaw.INVARIANT and self._patience:
            self.broken = self.broken or example
            self._patience -= 1
            return None
        if example.flaw is Flaw.NONDETERMINISTIC:
            return Ending(Verdict.NONDETERMINISTIC, example)
        if example.flaw is Flaw.CRASH:
            return Ending(Verdict.CRASHED, example)
        return Ending(Verdict.ORDER_DEPENDENT, self._shorter(example))

    def ended(self, *, proved: bool) -> Ending:
        """Every order that was to be taken was taken. See Note [What a program can show]."""
        verdict = Verdict.ORDER_INDEPENDENT if proved else Verdict.NO_VIOLATION_FOUND
        if self.broken is not None and (self.complete is None or not self.refusals):
            return Ending(Verdict.ORDER_DEPENDENT, self._shorter(self.broken))
        if not self.refusals:
            return Ending(verdict)
        if self.complete is None:
            return Ending(Verdict.NO_VIOLATION_FOUND)
        index, (sequence, refusal) = min(self.refusals.items(), key=lambda item: (len(item[1][0]), item[0]))
        accepted = self.complete[: self.complete.index(index) + 1]
        again = _differ(self.fresh, accepted, sequence)
        if again is None:
            why = (
                f"+{index} was refused in a walk ({refusal.kind}) and is accepted when the sequence is run from scratch"
            )
            example = Counterexample(Flaw.NONDETERMINISTIC, accepted, sequence, "", (why,))
            return Ending(Verdict.NONDETERMINISTIC, example)
        return Ending(Verdict.ORDER_DEPENDENT, self._shorter(again))

    def crashed(self, crash: EngineCrashed) -> Ending:
        return Ending(Verdict.CRASHED, Counterexample(Flaw.CRASH, self.at, self.at, "", (crash.text,)))

    def explained(self, example: Counterexample) -> Counterexample:
        return example

    def exploration(self, ending: Ending) -> Exploration:
        found = ending.counterexample
        done = ending.verdict in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND)
        conflicts = tuple(self._conflicts()) if done else ()
        accepted = self.observations.accepted
        return Exploration(
            verdict=ending.verdict,
            walk="program",
            registrations=self.program.count,
            sets=self.observations.sets,
            states=self.states,
            edges=self.edges,
            orders=self.program.count_orders(),
            conflicts=conflicts,
            never_accepted=tuple(sorted(i for i in self.refusals if done and not accepted >> i & 1)),
            counterexample=None if found is None else self.explained(found),
            notes=(*ending.reasons, *self.coverage(found=found is not None)),
            elapsed_s=self.watch.elapsed_s,
        )

    def coverage(self, *, found: bool) -> Iterator[str]:
        """What was left out, a sentence each."""
        if not found and self.complete is None and self.refusals:
            tried = self.observations.accepted
            for index in self.refusals:
                tried |= 1 << index
            left = self.program.count - tried.bit_count()
            if left:
                yield f"{left:,} registrations that come after a refused one in their module were never reached"

    def _conflicts(self) -> Iterator[Conflict]:
        """The smallest part of each sequence before a refusal that leads to it."""
        known: set[tuple[int, ...]] = set()
        for index, (sequence, refusal) in sorted(self.refusals.items()):
            needed = list(sequence[:-1])
            for step in sequence[:-1]:
                fewer = [other for other in needed if other != step]
                last = _last_refusal(self.fresh, (*fewer, index))
                if last is not None and last.kind == refusal.kind:
                    needed = fewer
            members = tuple(sorted((*needed, index)))
            if members not in known:
                known.add(members)
                yield Conflict(members, refusal.kind.value, refusal.message)

    def _shorter(self, example: Counterexample) -> Counterexample:
        """The same without the modules that nobody of the others imports, as long as the sequences still differ."""
        program = self.program
        left_out = True
        while left_out:
            left_out = False
            for name in program.names:
                fewer = program.without(name)
                if fewer is None:
                    continue
                gone = {item for item in program.bodies[name] if isinstance(item, int)}
                pair = [
                    tuple(step for step in sequence if step not in gone)
                    for sequence in (example.expected_sequence, example.actual_sequence)
                ]
                again = _differ(self.fresh, *pair) if all(pair) else None
                if again is not None and again.flaw is example.flaw:
                    program, example, left_out = fewer, again, True
                    break
        return example


def _differ(fresh: Sessions, expected: StepSequence, actual: StepSequence) -> Counterexample | None:
    """How two orders of a program disagree: as any two sequences do, or in whether their last step is accepted."""
    found = compare_sequences(fresh, expected, actual)
    if found is not None or expected[-1:] != actual[-1:]:
        return found
    one, other = _last_refusal(fresh, expected), _last_refusal(fresh, actual)
    if (one is None) is (other is None):
        return None
    diff = outcome_difference(outcome_text(expected[-1], one), outcome_text(actual[-1], other))
    return Counterexample(Flaw.OUTCOME, expected, actual, diff)


def _last_refusal(fresh: Sessions, sequence: StepSequence) -> Refusal | None:
    """Why the last step of a sequence is refused; None when it is accepted."""
    refusal: Refusal | None = None
    with fresh() as session:
        for _, each in run(session, sequence):
            refusal = each
    return refusal


class _StateDrive(_Drive):
    """Every order of a program on an engine whose states can be kept; breadth-first, so what is found is short."""

    def __init__(self, space: StateSpace[Any], program: Program, fresh: Sessions, watch: Watch) -> None:
        super().__init__(program, fresh, watch)
        self.space = space
        self._seen: set[tuple[Position, Any]] = set()

    @property
    def states(self) -> int:
        return len({state for _, state in self._seen})

    def take(self) -> Ending:
        """Go to the end of every order."""
        program, space, observations = self.program, self.space, self.observations
        queue: deque[tuple[Position, Any, int, StepSequence]] = deque([(program.start, space.empty(), 0, ())])
        self._seen.add((program.start, space.empty()))
        pair = observations.observation(0, (space.observe(space.empty()), space.violations(space.empty())), (), 0)
        ending = None if pair is None else self.found(pair)
        while queue and ending is None:
            position, state, mask, sequence = queue.popleft()
            reason = self.watch.stop(observations.sets, len(self._seen), self.edges)
            if reason is not None:
                return Ending(Verdict.INCOMPLETE, reasons=(reason,))
            steps = program.next_steps(position)
            if not steps and self.complete is None:
                self.complete = sequence
            for index, after in steps.items():
                self.at = longer = (*sequence, index)
                new, refusal = space.register(state, index)
                self.edges += 1
                pair = observations.outcome(mask, index, refusal, longer, len(longer))
                if pair is not None and (ending := self.found(pair)) is not None:
                    break
                if refusal is not None:
                    self.note_refusal(longer, refusal)
                    continue
                if (after, new) in self._seen:
                    continue
                reason = self.watch.full(len(self._seen) + 1)
                if reason is not None:
                    return Ending(Verdict.INCOMPLETE, reasons=(reason,))
                self._seen.add((after, new))
                reached = mask | 1 << index
                look = space.observe(new), space.violations(new)
                pair = observations.observation(reached, look, longer, len(longer))
                if pair is not None and (ending := self.found(pair)) is not None:
                    break
                queue.append((after, new, reached, longer))
        return ending or self.ended(proved=True)

    def explained(self, example: Counterexample) -> Counterexample:
        if example.why or example.flaw in (Flaw.NONDETERMINISTIC, Flaw.CRASH):
            return example
        last = 1 if example.flaw is Flaw.OUTCOME else 0
        if last and {*example.expected_sequence} != {*example.actual_sequence}:
            return example  # the step differs for what comes before it, which the sequences show
        states = []
        for sequence in (example.expected_sequence, example.actual_sequence):
            session = StateSession(self.space)
            for _ in run(session, sequence[: len(sequence) - last]):
                pass
            states.append(session.state)
        return replace(example, why=self.space.why(*states))


class _SandboxDrive(_Drive):
    """Orders of a program, each in a fresh sandbox."""

    def __init__(
        self,
        program: Program,
        fresh: Sessions,
        watch: Watch,
        *,
        every: bool,
        samples: int | None,
        seed: int,
    ) -> None:
        super().__init__(program, fresh, watch)
        self._every = every
        self._samples, self._seed = samples, seed
        self._run = 0
        self._is_sampled = False

    def take(self) -> Ending:
        """Run the first order twice, for an engine that does not do the same twice, and then all the others."""
        for order in self._orders():
            ending = self._take(order)
            if ending is not None:
                return ending
            self._run += 1
            if self._run == 1:
                ending = self._take(order)
                if ending is not None:
                    return ending
        return self.ended(proved=False)

    def _orders(self) -> Iterator[StepSequence]:
        if self._every:
            yield from self.program.orders()
            return
        if self._samples is None:
            some = list(islice(self.program.orders(), MANY_ORDERS + 1))
            if len(some) <= MANY_ORDERS:
                yield from some
                return
            yield some[0]
        self._is_sampled = True
        random = SplitMix64(self._seed)
        for _ in range(self._samples or MANY_ORDERS):
            yield self.program.random_order(random)

    def _take(self, order: StepSequence) -> Ending | None:
        """Run an order until it ends, is refused, or differs from what was seen; how the walk ends, if it does."""
        observations = self.observations
        mask = 0
        pairs: list[Pair | None] = []
        with self.fresh() as session:
            pairs.append(observations.observation(0, session.look(), (), 0))
            for length, index in enumerate(order, 1):
                reason = self.watch.stop(observations.sets, observations.sets, self.edges)
                if reason is not None:
                    return Ending(Verdict.INCOMPLETE, reasons=(reason,))
                self.at = order[:length]
                refusal = session.register(index)
                self.edges += 1
                pairs.append(observations.outcome(mask, index, refusal, order, length))
                if refusal is not None:
                    self.note_refusal(order[:length], refusal)
                    break
                mask |= 1 << index
                reason = None if observations.has(mask) else self.watch.full(observations.sets + 1)
                if reason is not None:
                    return Ending(Verdict.INCOMPLETE, reasons=(reason,))
                pairs.append(observations.observation(mask, session.look(), order, length))
            else:
                self.complete = self.complete or order
        found = (self.found(pair) for pair in pairs if pair is not None)
        return next((ending for ending in found if ending is not None), None)

    def coverage(self, *, found: bool) -> Iterator[str]:
        yield from super().coverage(found=found)
        if self._is_sampled and not found:
            yield f"{self._run:,} random orders were run, not all"
