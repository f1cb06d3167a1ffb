"""Properties of one's own: check what a scenario states of its states and orders, on every walk.

See Note [What a property is checked on].
"""

# Note [What a property is checked on]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `always` and `never` are about every state that a walk comes to, or about every attempt of a registration there, as
# far as the condition holds: some registrations are in force and others are not. `eventually` is about every order in
# which each registration is tried once: in one of its states, or at one of its attempts, it holds.
#
# Where states can be kept, they are walked breadth-first, whether or not they agree with one another: the first
# violation is one of least length. Of the prover's reductions only the partition is used, and only as far as this goes:
# a property is about the parts that have its operators and its registrations, walked together. What happens in parts
# does not depend on the rest, so each sequence of the whole shows in these parts what its steps there show alone, and
# each sequence of these parts is one of the whole. That stands on the independence of all parts, also of those that the
# property is not about: one of these could write what it looks at. It is taken from a proof of `explore` in parts,
# which has walked them all, or else each part is walked here. If a variable that is touched lies outside of its part,
# or if the parts are too large for that, the whole is walked. Neighbourhoods and patterns are not used for states: they
# prove that states agree, from states that are not all visited, and say nothing of what the others show.
#
# An engine that cannot be forked is walked as `explore` walks it. What is found is run again from scratch, and made
# short: every shorter sequence is tried while these are few, else steps are left out as long as it shows.

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from typing import Any, Final

from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.lifetimes import Lifetimes, lifetimes_in
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import StepSequence, renumbered
from dispatchlab.model.snapshot import Refusal
from dispatchlab.prover.all_orders import AllOrders, orders_keeping
from dispatchlab.prover.covering_walk import DEFAULT_PASSES, CoveringWalk
from dispatchlab.prover.limits import Watch, count_edges
from dispatchlab.prover.partition import Part, among, parts_of, places_of, strays_of
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.program import Program
from dispatchlab.prover.protocol import Engine, EngineCrashed, Forkable, StateSpace
from dispatchlab.prover.random_walk import DEFAULT_SAMPLES, RandomWalks
from dispatchlab.prover.result import Mode, Standing
from dispatchlab.prover.run_sequence import Look, SequenceError, Sessions, on_prefixes, on_sandboxes, on_states, run
from dispatchlab.prover.states import Choice, FreeSteps, OneOrder, Place, ProgramSteps, ReachableStates
from dispatchlab.prover.walk_options import DEFAULT_WALK, WalkOptions

MOST_ORDERS: Final = 720
"""How many orders are run on an engine that cannot be forked; of more, as many random ones."""

_MOST_EDGES: Final = 1_000_000
"""Parts with more edges are not walked to see whether they are independent."""

_IN_ORDERS: Final = "with each registration once, then its release: nothing in between, nothing again"

_MOST_TRIED: Final = 2_000
"""How many shorter sequences are tried to find the shortest on an engine that cannot be forked."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A property as a walk checks it: of what is seen, or of the attempt of a registration.

    Args:
        mode: when it holds.
        during: the registrations that have to be in force for it to be about a state, as a bit mask.
        without: those that must not be.
        operators: the operators that it looks at.
        of_look: whether what is seen is as it says; None for one about an attempt.
        attempt: the registration whose attempt it is about.
        of_attempt: whether the outcome of that attempt is as it says.
    """

    mode: Mode
    during: int = 0
    without: int = 0
    operators: frozenset[OperatorName] = frozenset()
    of_look: Callable[[Look], bool] | None = None
    attempt: int | None = None
    of_attempt: Callable[[Refusal | None], bool] | None = None

    @property
    def members(self) -> int:
        """The registrations that it names, as a bit mask."""
        return self.during | self.without | (0 if self.attempt is None else 1 << self.attempt)

    def is_about(self, mask: int) -> bool:
        """Whether its condition holds with a set in force."""
        return mask & self.during == self.during and not mask & self.without

    def in_state(self, mask: int, look: Callable[[], Look]) -> bool | None:
        """Whether a state is as it says; None where it is not about it."""
        return self.of_look(look()) if self.of_look is not None and self.is_about(mask) else None

    def at_attempt(self, mask: int, index: int, refusal: Refusal | None) -> bool | None:
        """Whether the outcome of a registration is as it says; None where it is not about it."""
        if self.of_attempt is None or index != self.attempt or not self.is_about(mask):
            return None
        return self.of_attempt(refusal)


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found about a property.

    Args:
        standing: what is known.
        tested: in how many states it was tested, or at how many attempts.
        sequence: a sequence after whose last step it is violated; of `eventually` an order in which it never holds.
        note: what else a reader should know; empty for nothing.
    """

    standing: Standing
    tested: int
    sequence: StepSequence | None = None
    note: str = ""


@dataclass(slots=True)
class _Case:
    """A property while it is checked."""

    statement: Statement
    tested: int = 0
    sequence: StepSequence | None = None

    def take(self, value: bool | None, sequence: Callable[[], StepSequence]) -> None:  # noqa: FBT001
        """Note a test: `value` is None where there was none."""
        if value is not None:
            self.tested += 1
            if self.sequence is None and value is (self.statement.mode is Mode.NEVER):
                self.sequence = sequence()

    def checked(self, *, proved: bool, stopped: str | None) -> Checked:
        if self.sequence is not None:
            return Checked(Standing.VIOLATED, self.tested, self.sequence)
        if stopped is not None:
            return Checked(Standing.INCOMPLETE, self.tested, note=stopped)
        if not self.tested:
            return Checked(Standing.NEVER_TESTED, 0, note="its condition holds nowhere")
        return Checked(Standing.HOLDS if proved else Standing.NO_VIOLATION_FOUND, self.tested)


def check_statements(
    engine: Engine,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    statements: Sequence[Statement],
    options: WalkOptions = DEFAULT_WALK,
    *,
    order: Sequence[int] = (),
    program: Program | None = None,
    independent: bool = False,
    cancelled: Callable[[], bool] | None = None,
) -> tuple[Checked, ...]:
    """Check properties on the walk that `explore` takes with these options. See Note [What a property is checked on].

    Arguments that are not named here are those of `explore`.

    Args:
        statements: the properties.
        program: the modules that make the registrations; then the orders are those of their imports.
        independent: a walk of the parts has shown that they are independent of one another.

    Returns:
        What was found about each.
    """
    registrations = distinguished(registrations)
    watch = Watch(options, cancelled=cancelled)
    check = _Check(engine, registrations, operators, options, order, program, watch, independent or None)
    return tuple(check.one(statement) for statement in statements)


@dataclass(slots=True)
class _Check:
    engine: Engine
    registrations: Sequence[Registration]
    operators: Sequence[OperatorName]
    options: WalkOptions
    order: Sequence[int]
    program: Program | None
    watch: Watch
    independent: bool | None  # None where that is not known

    def one(self, statement: Statement) -> Checked:
        if isinstance(self.engine, Forkable) and self.options.walk != "sample":
            return self._verified(statement, self._on_states(self.engine, statement))
        try:
            return self._on_sandboxes(statement)
        except EngineCrashed as crash:
            return Checked(Standing.INCOMPLETE, 0, note=f"the engine crashed: {crash}")

    def _fresh(self) -> Sessions:
        return on_sandboxes(self.engine, self.registrations, self.operators)

    def _verified(self, statement: Statement, found: Checked) -> Checked:
        """Run a violation in a fresh sandbox, and say so when it does not show there."""
        if found.sequence is None or _shows(self._fresh(), statement, found.sequence):
            return found
        return replace(found, note="it does not show in a fresh sandbox of this engine")

    # -- where states can be kept

    def _on_states(self, engine: Forkable, statement: Statement) -> Checked:
        everything = tuple(range(len(self.registrations)))
        members = everything
        if self.options.walk == "auto" and self.program is None:
            members = self._parts(engine, statement)
        found, is_independent = self._walked(engine, statement, members)
        if not is_independent:
            found = self._walked(engine, statement, everything)[0]
        if found.standing is Standing.HOLDS and self.options.walk == "orders" and self.program is None:
            found = replace(found, note=_IN_ORDERS)
        return found

    def _parts(self, engine: Forkable, statement: Statement) -> tuple[int, ...]:
        """The registrations of the parts that a property is about; all of them unless parts are independent."""
        whole = engine.space(self.registrations, self.operators)
        parts = list(parts_of(whole, self.registrations, self.operators, self.order))
        if self.independent is None:
            self.independent = self._are_independent(engine, parts)
        if not self.independent:
            return tuple(range(len(self.registrations)))
        named = statement.members
        members: set[int] = set()
        for part in parts:
            is_named = any(named >> index & 1 for index in part.indices)
            if is_named or not statement.operators.isdisjoint(part.operators):
                members.update(part.indices)
        return tuple(sorted(members))

    def _are_independent(self, engine: Forkable, parts: Sequence[Part]) -> bool:
        """Walk each part, and see whether it touches nothing outside of it."""
        if sum(count_edges(len(part.indices), part.order) for part in parts) > _MOST_EDGES:
            return False
        for part in parts if len(parts) > 1 else ():
            space = engine.space([self.registrations[index] for index in part.indices], part.operators)
            free = FreeSteps(range(len(part.indices)), part.order, lifetimes_in(space))
            walk = ReachableStates(space, free, stop=self._stop)
            for _ in walk.edges():
                pass
            for state in walk.states:
                space.observe(state)
            if walk.stopped is not None or strays_of(space, len(part.indices), part.operators):
                return False
        return True

    def _walked(self, engine: Forkable, statement: Statement, members: tuple[int, ...]) -> tuple[Checked, bool]:
        """What the states of some registrations show, and whether they are independent of the others."""
        is_all = len(members) == len(self.registrations)
        operators = self.operators if is_all else among(places_of(self.operators), statement.operators)
        local = {index: at for at, index in enumerate(members)}
        order = [local[index] for index in self.order if index in local]
        space = engine.space([self.registrations[index] for index in members], operators)
        mine = _renamed(statement, local)
        if mine.mode is Mode.EVENTUALLY:
            found = self._eventually(space, mine, len(members), order)
        else:
            found = self._in_states(space, mine, len(members), order)
        if not is_all and strays_of(space, len(members), operators):
            return found, False
        if found.sequence is not None:
            sequence = renumbered(found.sequence, members)
            if mine.mode is Mode.EVENTUALLY and not is_all:
                sequence = self._whole_order(sequence)
            found = replace(found, sequence=sequence)
        return found, True

    def _whole_order(self, sequence: StepSequence) -> StepSequence:
        """An order of some registrations with the others in it, which have no part in what they show."""
        left = [index for index in self.order if index not in sequence]
        whole: list[int] = []
        for index in sequence:
            if index in self.order:
                before = {*self.order[: self.order.index(index)]}
                whole += [other for other in left if other in before]
                left = [other for other in left if other not in before]
            whole.append(index)
        others = {*range(len(self.registrations))}.difference(whole, left)
        return (*whole, *left, *sorted(others))

    def _choice(self, space: StateSpace[Any], count: int, order: Sequence[int]) -> Choice:
        if self.program is not None:
            return ProgramSteps(self.program)
        lifetimes = lifetimes_in(space)
        if self.options.walk == "orders":
            return OneOrder(count, order, lifetimes)
        return FreeSteps(range(count), order, lifetimes)

    def _in_states(self, space: StateSpace[Any], statement: Statement, count: int, order: Sequence[int]) -> Checked:
        walk = ReachableStates(space, self._choice(space, count, order), stop=self._stop)
        case, seen, edges = _Case(statement), 0, walk.edges()
        while True:
            for node in range(seen, len(walk.states)):
                value = statement.in_state(walk.masks[node], partial(_look, space, walk.states[node]))
                case.take(value, partial(walk.sequence, node))
            seen = len(walk.states)
            edge = next(edges, None) if case.sequence is None else None
            if edge is None:
                return case.checked(proved=True, stopped=walk.stopped)
            if edge.step >= 0:
                value = statement.at_attempt(walk.masks[edge.source], edge.step, edge.refusal)
                case.take(value, partial(walk.sequence, edge.source, edge.step))

    def _eventually(self, space: StateSpace[Any], statement: Statement, count: int, order: Sequence[int]) -> Checked:
        """Look for an order in which it never holds: from where it does, nothing is gone on."""
        choice: Choice = OneOrder(count, order, lifetimes_in(space), released=False)
        if self.program is not None:
            choice = ProgramSteps(self.program)
        start = (0, space.empty(), choice.start)
        came: dict[tuple[int, Any, Place], tuple[Any, int]] = {start: (None, 0)}
        queue, tested = deque([start]), 0
        while queue:
            stopped = self._stop(len(came), 0)
            if stopped is not None:
                return Checked(Standing.INCOMPLETE, tested, note=stopped)
            node = queue.popleft()
            mask, state, place = node
            held = statement.in_state(mask, partial(_look, space, state))
            tested += held is not None
            steps = [] if held else list(choice.steps(place, mask))
            if not steps and not held:
                return Checked(Standing.VIOLATED, tested, _way(came, node))
            for step, accepted, refused in steps:
                new, refusal = space.register(state, step)
                value = statement.at_attempt(mask, step, refusal)
                tested += value is not None
                after = (mask, new, refused) if refusal else (mask | 1 << step, new, accepted)
                if not value and after not in came:
                    came[after] = node, step
                    queue.append(after)
        return Checked(Standing.HOLDS, tested)

    def _stop(self, states: int, edges: int) -> str | None:
        return self.watch.stop(states, states, edges)

    # -- where they cannot

    def _on_sandboxes(self, statement: Statement) -> Checked:
        """Take the walk of `explore` on fresh sandboxes, or on states for random walks."""
        sessions, count = self._fresh(), len(self.registrations)
        if isinstance(self.engine, Forkable):
            space = self.engine.space(self.registrations, self.operators)
            sessions = on_states(space) if statement.mode is not Mode.EVENTUALLY else on_prefixes(space)
        case, stopped = _Case(statement), None
        if statement.mode is Mode.EVENTUALLY or self.program is not None:
            for sequence in self._orders():
                stopped = self._stop(0, 0)
                if stopped is not None or (case.sequence is not None and self.program is None):
                    break
                one = _Case(statement)
                self._along(sessions, one, sequence)
                case.tested += one.tested
                if one.sequence is not None and (case.sequence is None or len(one.sequence) < len(case.sequence)):
                    case.sequence = one.sequence
        else:
            stopped = self._on_walk(sessions, case)
        if case.sequence is not None and statement.mode is not Mode.EVENTUALLY and self.program is None:
            case.sequence = _shortest(self._fresh(), statement, case.sequence, count, self._free())
        return case.checked(proved=False, stopped=stopped)

    def _free(self) -> FreeSteps:
        return FreeSteps(range(len(self.registrations)), self.order, Lifetimes.of(self.registrations))

    def _on_walk(self, sessions: Sessions, case: _Case) -> str | None:
        """Take the steps of a walk until it ends, a bound is hit, or a violation is found."""
        count, lifetimes, options = len(self.registrations), Lifetimes.of(self.registrations), self.options
        seed = options.seed
        walk: CoveringWalk | RandomWalks | AllOrders
        if options.walk == "sample":
            samples = options.samples or DEFAULT_SAMPLES
            walk = RandomWalks(count, samples=samples, seed=seed, order=self.order, lifetimes=lifetimes)
        elif options.walk == "orders":
            walk = AllOrders(count, order=self.order, lifetimes=lifetimes)
        else:
            passes = options.passes or DEFAULT_PASSES
            walk = CoveringWalk(count, passes=passes, seed=seed, order=self.order, lifetimes=lifetimes)
        edges = 0
        for one in walk.runs():
            with sessions() as session:
                steps: list[int] = []
                mask = 0
                accepted: bool | None = None
                case.take(case.statement.in_state(mask, session.look), tuple)
                while case.sequence is None:
                    stopped = self._stop(0, edges)
                    if stopped is not None:
                        return stopped
                    try:
                        step = one.steps.send(accepted)
                    except StopIteration:
                        break
                    steps.append(step)
                    edges += 1
                    refusal = session.release(~step) if step < 0 else session.register(step)
                    accepted = refusal is None or step < 0
                    if step >= 0:
                        case.take(case.statement.at_attempt(mask, step, refusal), partial(tuple, steps))
                    if accepted:
                        mask = lifetimes.after_release(mask, ~step) if step < 0 else mask | 1 << step
                    case.take(case.statement.in_state(mask, session.look), partial(tuple, steps))
            if case.sequence is not None:
                return None
            walk.ended(one)
        return None

    def _orders(self) -> Iterator[StepSequence]:
        """The orders of registration: all of them while these are few, else random ones."""
        random = SplitMix64(self.options.seed)
        if self.program is not None:
            some = list(islice(self.program.orders(), MOST_ORDERS + 1))
            program = self.program
            many = len(some) > MOST_ORDERS
            yield from (program.random_order(random.split()) for _ in range(MOST_ORDERS)) if many else some
            return
        orders = list(islice(orders_keeping(len(self.registrations), self.order), MOST_ORDERS + 1))
        if len(orders) <= MOST_ORDERS:
            yield from orders
            return
        for _ in range(MOST_ORDERS):
            shuffled = list(range(len(self.registrations)))
            random.shuffle(shuffled)
            kept = iter(self.order)
            yield tuple(next(kept) if index in set(self.order) else index for index in shuffled)

    def _along(self, sessions: Sessions, case: _Case, sequence: StepSequence) -> None:
        """Run an order; of `eventually`, note it where the property never holds."""
        statement, mask, held, tested = case.statement, 0, False, 0
        is_eventual = statement.mode is Mode.EVENTUALLY
        with sessions() as session:

            def take(value: bool | None, done: int) -> None:  # noqa: FBT001
                nonlocal held, tested
                held |= value is True
                tested += value is not None
                if not is_eventual:
                    case.take(value, lambda: sequence[:done])

            take(statement.in_state(0, session.look), 0)
            for done, index in enumerate(sequence, 1):
                refusal = session.register(index)
                take(statement.at_attempt(mask, index, refusal), done)
                mask |= 0 if refusal else 1 << index
                take(statement.in_state(mask, session.look), done)
                if refusal and self.program is not None:
                    sequence = sequence[:done]
                    break
        if is_eventual:
            case.tested += tested
            if not held:
                case.sequence = sequence


def _look(space: StateSpace[Any], state: Any) -> Look:
    return space.observe(state), ()


def _way(came: Mapping[Any, tuple[Any, int]], node: Any) -> StepSequence:
    steps: list[int] = []
    while came[node][0] is not None:
        node, step = came[node]
        steps.append(step)
    return tuple(reversed(steps))


def _renamed(statement: Statement, numbers: Mapping[int, int]) -> Statement:
    """A property in the numbers of some registrations, which have all that it names."""

    def renamed(mask: int) -> int:
        return sum(1 << new for old, new in numbers.items() if mask >> old & 1)

    attempt = None if statement.attempt is None else numbers[statement.attempt]
    during, without = renamed(statement.during), renamed(statement.without)
    return replace(statement, during=during, without=without, attempt=attempt)


# -- from scratch


def _shows(sessions: Sessions, statement: Statement, sequence: StepSequence) -> bool:
    """Whether a sequence violates a property when it is run from scratch."""
    mask, held, value = 0, False, None
    with sessions() as session:
        lifetimes = lifetimes_in(session)
        value = statement.in_state(0, session.look)
        held |= value is True
        try:
            for step, refusal in run(session, sequence):
                value = statement.at_attempt(mask, step, refusal) if step >= 0 else None
                held |= value is True
                if refusal is None:
                    mask = lifetimes.after_release(mask, ~step) if step < 0 else mask | 1 << step
                seen = statement.in_state(mask, session.look)
                held |= seen is True
                value = seen if value is None else value
        except (SequenceError, EngineCrashed):
            return False
    if statement.mode is Mode.EVENTUALLY:
        return not held
    return value is (statement.mode is Mode.NEVER)


def _shortest(
    sessions: Sessions, statement: Statement, sequence: StepSequence, count: int, free: FreeSteps
) -> StepSequence:
    """A sequence that violates a property, made short; the shortest where those that are shorter are few."""
    best, left_out = sequence, True
    while left_out:
        left_out = False
        for keep in _without_steps(best):
            if _is_free(keep, free) and _shows(sessions, statement, keep):
                best, left_out = keep, True
                break
    tried = 0
    for length in range(len(best)):
        tried += count**length
        if tried > _MOST_TRIED:
            break
        for shorter in product([step for index in range(count) for step in (index, ~index)], repeat=length):
            if _is_free(shorter, free) and _shows(sessions, statement, shorter):
                return shorter
    return best


def _without_steps(sequence: StepSequence) -> Iterator[StepSequence]:
    """A sequence without one step, or without the two of a registration and its release."""
    for first in range(len(sequence)):
        yield sequence[:first] + sequence[first + 1 :]
        for second in range(first + 1, len(sequence)):
            if sequence[second] == ~sequence[first]:
                yield sequence[:first] + sequence[first + 1 : second] + sequence[second + 1 :]


def _is_free(sequence: StepSequence, free: FreeSteps) -> bool:
    """Whether the steps can be taken one after the other, if none is refused."""
    mask = 0
    for step in sequence:
        if all(step != other for other, _, _ in free.steps(None, mask)):
            return False
        mask ^= 1 << max(step, ~step)
    return True
