"""Program walk: explore every order in which programs make registrations, module by module, with nothing released.

Works on any engine: states are merged where they can be kept, and each order runs in a fresh sandbox where not.
"""

# Note [What a program can show]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# P0 to P2 of the checker hold between orders of one program as they do between free ones; nothing is released, so P4 is
# not asked. A refusal ends a program: it is an exception at import. So there is a rule besides: when one order makes
# every registration, all orders do. When none does, the registrations exclude one another, in whatever order. That is
# no proof: the order decides which of them is in force, and what follows in their modules was not reached.
#
# Groups of registrations that share no operator are explored separately, each in the orders of the program that remain
# without the others. Most groups come from one module and have one order; few have more than two or three.

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration, operators_of
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Refusal
from dispatchlab.prover.checker import Observations, Pair, outcome_difference, outcome_text
from dispatchlab.prover.compare_sequences import compare_sequences, reasons_of
from dispatchlab.prover.driver import Ending, finish, verified
from dispatchlab.prover.limits import Interrupted, Progress, Watch
from dispatchlab.prover.partition import among, parts_of, places_of, strays_of
from dispatchlab.prover.partition_by_operator import TOGETHER, groups_of, joined
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.program import Position, Program
from dispatchlab.prover.protocol import Engine, EngineCrashed, Footprints, Forkable, StateSpace
from dispatchlab.prover.random_walk import DEFAULT_SAMPLES
from dispatchlab.prover.result import Conflict, Counterexample, Exploration, Flaw, Verdict
from dispatchlab.prover.run_sequence import Sessions, on_prefixes, on_sandboxes, run
from dispatchlab.prover.walk_options import DEFAULT_WALK, WalkOptions

MANY_ORDERS: Final = 720
"""How many orders of one group run on an engine that cannot be forked; of more, as many random ones."""

_NAMED: Final = 6
_BROKEN_SETS: Final = 64  # sets that break an invariant after which the walk looks no further


def explore_program(
    engine: Engine,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    program: Program,
    options: WalkOptions = DEFAULT_WALK,
    *,
    cancelled: Callable[[], bool] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Find out whether the order of imports matters.

    Arguments that are not named here are those of `explore`.

    Args:
        registrations: what is registered.
        program: the orders of the registrations.

    Returns:
        The verdict on all orders of the program, and a counterexample when there is one, verified from scratch.

    Raises:
        Interrupted: by Ctrl-C, with what was covered.
    """
    watch = Watch(options, cancelled=cancelled, progress=progress)
    walk = _ProgramWalk(engine, distinguished(registrations), operators, program, options, watch)
    try:
        exploration = walk.take()
    except Interrupted as stopped:
        raise Interrupted(_with_scope(stopped.exploration, program)) from None
    return _with_scope(exploration, program)


def _with_scope(exploration: Exploration, program: Program) -> Exploration:
    """The same, with a note on the orders that it is about."""
    names = program.names
    modules = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    orders = program.count_orders()
    scope = (
        f"this is about the {'one order' if orders == 1 else 'orders'} in which {modules} can be imported, with the "
        "lines of a module in program order, nothing released; --free explores single registrations and releases"
    )
    notes = [*exploration.notes, scope]
    parents = Counter(name.rpartition(".")[0] for name in names)
    silent = sorted(parent for parent, count in parents.items() if parent and count > 1 and parent not in names)
    if silent and orders > 1:
        notes.append(
            f"modules of {', '.join(silent[:_NAMED])} are taken in every order that their own imports allow; where "
            "__init__ imports them, another order takes an edit of that file"
        )
    if program.relaxed:
        notes.append(
            f"{len(program.relaxed):,} modules import each other in circles; they were taken to wait for nothing that "
            "they import, which is more orders than Python has: look at a difference before you trust it"
        )
    return replace(exploration, walk="program", orders=orders, modules=len(names), notes=tuple(notes))


@dataclass
class _ProgramWalk:
    """The groups of a program, one after the other."""

    engine: Engine
    registrations: Sequence[Registration]
    operators: Sequence[OperatorName]
    program: Program
    options: WalkOptions
    watch: Watch

    def __post_init__(self) -> None:
        self.places = places_of(self.operators)

    def take(self) -> Exploration:
        """Explore each group; all in one go when a group turns out not to be independent."""
        everything = tuple(range(len(self.registrations)))
        groups = self._groups() or [everything]
        explored: list[tuple[tuple[int, ...], Exploration]] = []
        for members in groups:
            try:
                exploration, is_independent = self._explore(members)
            except Interrupted as stopped:
                raise Interrupted(self._joined([*explored, (members, stopped.exploration)])) from None
            if not is_independent and len(groups) > 1:
                explored = [(everything, self._explore(everything)[0])]
                break
            self.watch.settle(exploration)
            explored.append((members, exploration))
        return replace(self._joined(explored), elapsed_s=self.watch.elapsed_s)

    def _groups(self) -> list[tuple[int, ...]]:
        if isinstance(self.engine, Forkable):
            space = self.engine.space(self.registrations, self.operators)
            return [part.indices for part in parts_of(space, self.registrations, self.operators)]
        if len(self.registrations) <= TOGETHER:
            return []
        return groups_of(self.registrations)

    def _joined(self, explored: Sequence[tuple[tuple[int, ...], Exploration]]) -> Exploration:
        if len(explored) == 1 and len(explored[0][0]) == len(self.registrations):
            return explored[0][1]
        total = joined(explored, len(self.registrations), ())
        if total.verdict is not Verdict.ORDER_DEPENDENT or total.counterexample is None:
            return total
        # The diff of a group numbers its own registrations.
        example = total.counterexample
        fresh = on_sandboxes(self.engine, self.registrations, self.operators)
        again = _differ(fresh, example.expected_sequence, example.actual_sequence)
        return total if again is None else replace(total, counterexample=replace(again, why=example.why))

    def _explore(self, members: tuple[int, ...]) -> tuple[Exploration, bool]:
        """The exploration of a group, and whether it is independent: nothing outside of it was touched."""
        registrations = [self.registrations[member] for member in members]
        named = {name for registration in registrations for name in operators_of(registration)}
        is_all = len(members) == len(self.registrations)
        operators = self.operators if is_all else among(self.places, named)
        program = self.program.restricted_to(members)
        fresh = on_sandboxes(self.engine, registrations, operators)
        if isinstance(self.engine, Forkable) and self.options.walk != "sample":
            forkable = self.engine
            space = forkable.space(registrations, operators)
            if self.options.walk == "orders":
                exploration = finish(_SandboxDrive(program, fresh, self.watch, self.options, space))
            else:
                exploration = finish(_StateDrive(space, program, fresh, self.watch))
            is_independent = not isinstance(space, Footprints) or not strays_of(space, len(members), operators)
            return exploration, is_independent
        return finish(_SandboxDrive(program, fresh, self.watch, self.options)), True


class _Drive:
    """What the walks share: the observations, the refusals, and how they end."""

    def __init__(self, program: Program, fresh: Sessions, watch: Watch, space: StateSpace[Any] | None = None) -> None:
        self.program, self.fresh, self.watch, self.space = program, fresh, watch, space
        self.observations = Observations()
        self.refusals: dict[int, tuple[StepSequence, Refusal]] = {}  # by registration, the first one
        self.complete: StepSequence | None = None  # an order that made every registration
        self.broken: Counterexample | None = None  # a set that breaks an invariant, and no other sequence to it yet
        self._patience = _BROKEN_SETS
        self.edges = 0
        self.sequence: StepSequence = ()  # the sequence that is being run

    @property
    def states(self) -> int:
        return self.observations.sets

    def note_refusal(self, sequence: StepSequence, refusal: Refusal) -> None:
        self.refusals.setdefault(sequence[-1], (sequence, refusal))

    def conclude(self, pair: Pair | None) -> Ending | None:
        """Verify that two sequences disagree, if they do, and leave out the modules that have no part in it.

        A set that breaks an invariant whatever the sequence is no finding yet: None, and the walk goes on to look for a
        sequence to that set after which all is well.
        """
        if pair is None:
            return None
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
        return Ending(Verdict.CRASHED, Counterexample(Flaw.CRASH, self.sequence, self.sequence, "", (crash.text,)))

    def explained(self, example: Counterexample) -> Counterexample:
        if self.space is None or example.why or example.flaw in (Flaw.NONDETERMINISTIC, Flaw.CRASH):
            return example
        if example.flaw is Flaw.OUTCOME and {*example.expected_sequence} != {*example.actual_sequence}:
            return example  # the step differs for what comes before it, which the sequences show
        return replace(example, why=reasons_of(self.space, example))

    def exploration(self, ending: Ending) -> Exploration:
        example = ending.counterexample
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
            counterexample=None if example is None else self.explained(example),
            notes=(*ending.reasons, *self.coverage(found=example is not None)),
            elapsed_s=self.watch.elapsed_s,
        )

    def coverage(self, *, found: bool) -> Iterator[str]:
        """What was left out, a sentence each."""
        if not found and self.complete is None and self.refusals:
            tried = self.observations.accepted
            for index in self.refusals:
                tried |= 1 << index
            unreached = self.program.count - tried.bit_count()
            if unreached == 1:
                yield "1 registration that comes after a refused one in its module was never reached"
            elif unreached:
                yield f"{unreached:,} registrations that come after a refused one in their module were never reached"

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
        """The same without modules that no other imports, as long as the sequences still differ."""
        program = self.program
        is_shorter = True
        while is_shorter:
            is_shorter = False
            for name in program.names:
                fewer = program.without(name)
                if fewer is None:
                    continue
                removed = {item for item in program.bodies[name] if isinstance(item, int)}
                pair = [
                    tuple(step for step in sequence if step not in removed)
                    for sequence in (example.expected_sequence, example.actual_sequence)
                ]
                again = _differ(self.fresh, *pair) if all(pair) else None
                if again is not None and again.flaw is example.flaw:
                    program, example, is_shorter = fewer, again, True
                    break
        return example


def _differ(fresh: Sessions, expected: StepSequence, actual: StepSequence) -> Counterexample | None:
    """How two orders of a program disagree: as any two sequences do, or in whether their last step is accepted."""
    example = compare_sequences(fresh, expected, actual)
    if example is not None or expected[-1:] != actual[-1:]:
        return example
    one, other = _last_refusal(fresh, expected), _last_refusal(fresh, actual)
    if (one is None) is (other is None):
        return None
    diff = outcome_difference(outcome_text(expected[-1], one), outcome_text(actual[-1], other))
    return Counterexample(Flaw.OUTCOME, expected, actual, diff)


def _last_refusal(fresh: Sessions, sequence: StepSequence) -> Refusal | None:
    """Why the last step of a sequence is refused; None when it is accepted."""
    refusal: Refusal | None = None
    with fresh() as session:
        for _, outcome in run(session, sequence):
            refusal = outcome
    return refusal


class _StateDrive(_Drive):
    """Every order of a program on an engine whose states can be kept; breadth-first, so what is found is short."""

    def __init__(self, space: StateSpace[Any], program: Program, fresh: Sessions, watch: Watch) -> None:
        super().__init__(program, fresh, watch, space)
        self._walked = space
        self._seen: set[tuple[Position, Any]] = set()
        self._queue: deque[tuple[Position, Any, int, StepSequence]] = deque()

    @property
    def states(self) -> int:
        return len({state for _, state in self._seen})

    def take(self) -> Ending:
        """Go to the end of every order."""
        program, space, observations = self.program, self._walked, self.observations
        ending = self._arrive(program.start, space.empty(), 0, ())
        while self._queue and ending is None:
            position, state, mask, sequence = self._queue.popleft()
            reason = self.watch.stop(observations.sets, len(self._seen), self.edges)
            if reason is not None:
                return Ending(Verdict.INCOMPLETE, reasons=(reason,))
            steps = program.next_steps(position)
            if not steps and self.complete is None:
                self.complete = sequence
            for index, after in steps.items():
                self.sequence = longer = (*sequence, index)
                new, refusal = space.register(state, index)
                self.edges += 1
                ending = self.conclude(observations.outcome(mask, index, refusal, longer, len(longer)))
                if ending is not None:
                    break
                if refusal is not None:
                    self.note_refusal(longer, refusal)
                    continue
                if (after, new) in self._seen:
                    continue
                reason = self.watch.full(len(self._seen) + 1)
                if reason is not None:
                    return Ending(Verdict.INCOMPLETE, reasons=(reason,))
                ending = self._arrive(after, new, mask | 1 << index, longer)
                if ending is not None:
                    break
        return ending or self.ended(proved=True)

    def _arrive(self, position: Position, state: Any, mask: int, sequence: StepSequence) -> Ending | None:
        """Observe a new state, to go on from there later."""
        self._seen.add((position, state))
        self._queue.append((position, state, mask, sequence))
        look = self._walked.observe(state), self._walked.violations(state)
        return self.conclude(self.observations.observation(mask, look, sequence, len(sequence)))


class _SandboxDrive(_Drive):
    """Orders of a program, each in a fresh sandbox; or, all of them, on states that are not merged."""

    def __init__(
        self,
        program: Program,
        fresh: Sessions,
        watch: Watch,
        options: WalkOptions,
        space: StateSpace[Any] | None = None,
    ) -> None:
        super().__init__(program, fresh, watch, space)
        self._options = options
        self._sessions = fresh if space is None else on_prefixes(space)
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
        return self.ended(proved=self.space is not None)

    def _orders(self) -> Iterator[StepSequence]:
        if self._options.walk == "orders":
            yield from self.program.orders()
            return
        samples = MANY_ORDERS
        if self._options.walk == "sample":
            samples = self._options.samples or DEFAULT_SAMPLES
        else:
            some = list(islice(self.program.orders(), MANY_ORDERS + 1))
            if len(some) <= MANY_ORDERS:
                yield from some
                return
            yield some[0]
        self._is_sampled = True
        random = SplitMix64(self._options.seed)
        for _ in range(samples):
            yield self.program.random_order(random)

    def _take(self, order: StepSequence) -> Ending | None:
        """Run an order until it ends, is refused, or differs from what was seen; how the walk ends, if it does."""
        observations = self.observations
        mask = 0
        pairs: list[Pair | None] = []
        with self._sessions() as session:
            pairs.append(observations.observation(0, session.look(), (), 0))
            for length, index in enumerate(order, 1):
                reason = self.watch.stop(observations.sets, observations.sets, self.edges)
                if reason is not None:
                    return Ending(Verdict.INCOMPLETE, reasons=(reason,))
                self.sequence = order[:length]
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
        return next(filter(None, map(self.conclude, pairs)), None)

    def coverage(self, *, found: bool) -> Iterator[str]:
        yield from super().coverage(found=found)
        if self._is_sampled and not found:
            yield f"{self._run:,} random orders were run, not all"
