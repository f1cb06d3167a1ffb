"""An interactive session: a history of steps on an engine, the observation after each, and possible next steps.

This module draws nothing. Methods such as `toggle`, `undo` and `move` change a session; each either succeeds,
or raises and changes nothing. The observation depends only on the sequence, see `Moment`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from threading import RLock
from typing import TYPE_CHECKING

from dispatchlab.engine.lab_engine import LabSpace, LabState
from dispatchlab.engine.row_reasons import operator_view
from dispatchlab.engine.semantics import Semantics
from dispatchlab.errors import DispatchLabError, RegistrationError
from dispatchlab.model.dump_format import parse_table
from dispatchlab.model.keys import SLOT_OF_KEY
from dispatchlab.model.names import OperatorName
from dispatchlab.model.operator_view import OperatorView, view_of
from dispatchlab.model.sequence import Step, StepSequence, format_sequence
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.chains import Chains, later_masks
from dispatchlab.prover.run_sequence import SequenceError

if TYPE_CHECKING:
    from dispatchlab.model.registration import Registration

_KEPT = 4096
"""How many moments a runner remembers: those that undo, redo and the neighbours ask for again."""

_NEAR = 100

MOST_WALKED = 8
"""Up to so many registrations the whole state graph of the lab engine is walked for the states of a set."""

_MOST_STATES = 2048


class SessionError(DispatchLabError):
    """An action is not possible here; the session is unchanged.

    Args:
        reason: the reason, as a sentence.
    """

    reason: str

    template = "{reason}"


@dataclass(frozen=True)
class Seen:
    """An operator at one moment.

    Args:
        snapshot: its dump and its table.
        violations: the invariants that do not hold.
        make_view: makes the view with the reasons behind its table, which few callers need.
    """

    snapshot: Snapshot
    violations: tuple[Violation, ...]
    make_view: Callable[[], OperatorView | None] = field(compare=False)

    @cached_property
    def view(self) -> OperatorView:
        """The view with the reasons behind its table, if the engine knows them."""
        return self.make_view() or view_of(self.snapshot, self.violations)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Moment:
    """The result of a sequence.

    Args:
        sequence: the steps.
        active: the registrations in force afterwards.
        refusals: for each step, why it was refused, or None.
        seen: a function that returns the observation of an operator.
        ended: whether the last release failed, so that no step can follow.
        state: the whole state.
    """

    sequence: StepSequence
    active: frozenset[int]
    refusals: tuple[Refusal | None, ...]
    seen: Callable[[OperatorName], Seen]
    ended: bool
    state: LabState

    def __repr__(self) -> str:
        return f"<Moment after {format_sequence(self.sequence)}>"

    def shows_same(self, other: Moment, operators: Sequence[OperatorName]) -> bool:
        """Return whether some operators are equal for the comparison of the explorer."""
        return self.state == other.state or all(  # equal states need no look
            self.seen(name) == other.seen(name) for name in operators
        )

    @property
    def refused(self) -> tuple[tuple[Step, Refusal], ...]:
        """The steps that were refused, in order."""
        pairs = zip(self.sequence, self.refusals, strict=False)
        return tuple((step, refusal) for step, refusal in pairs if refusal is not None)


class LabRunner:
    """The lab engine; its states are values, so no step is run twice.

    Args:
        registrations: the registrations that sequences number.
        operators: the observed operators.
        semantics: the semantics of the dispatcher.
        ground: the registrations that are always in force.
    """

    def __init__(
        self,
        registrations: Sequence[Registration],
        operators: Sequence[OperatorName],
        semantics: Semantics,
        ground: Sequence[Registration] = (),
    ) -> None:
        self._semantics = semantics
        self._count = len(registrations)
        self._space = LabSpace((*registrations, *ground), operators, semantics)
        self._operators = tuple(operators)
        state = self._space.empty()
        for index in range(len(ground)):
            state, _ = self._space.register(state, self._count + index)
        self._empty = self._moment((), frozenset(), (), state, ended=False)
        self._after = lru_cache(_KEPT)(self._run)
        self._lock = RLock()

    def at(self, sequence: StepSequence, /) -> Moment:
        """Return the result of a sequence.

        Raises:
            SequenceError: a step releases an inactive registration, repeats one, or follows a failed release.
        """
        with self._lock:
            for length in range(_NEAR, len(sequence), _NEAR):  # what is remembered is never far behind
                self._after(sequence[:length])
            return self._after(sequence)

    def _run(self, sequence: StepSequence) -> Moment:
        if not sequence:
            return self._empty
        before, step = self._after(sequence[:-1]), sequence[-1]
        active, state, refusal, ended = before.active, before.state, None, False
        index, release = (~step, True) if step < 0 else (step, False)
        if before.ended:
            raise SequenceError(sequence, len(sequence) - 1, "the release before it failed")
        if (index in active) is not release:
            trouble = f"{index} is {'not ' if release else 'already '}registered"
            raise SequenceError(sequence, len(sequence) - 1, trouble)
        if release:
            active -= {index}
            try:
                state = self._space.release(state, index)
            except RegistrationError as error:
                refusal, ended = Refusal.of(error), True
        else:
            state, refusal = self._space.register(state, index)
            active |= frozenset(() if refusal else (index,))
        return self._moment(sequence, active, (*before.refusals, refusal), state, ended=ended)

    def states_of_sets(self, order: Chains = ()) -> Mapping[frozenset[int], tuple[StepSequence, ...]] | None:
        """Return, for each active set, a shortest sequence to each of its different states.

        Args:
            order: chains of registrations that are registered in this order only.

        Returns:
            None if there are too many states.
        """
        if self._count > MOST_WALKED:
            return None
        later = later_masks(self._count, order)
        found: dict[frozenset[int], list[Moment]] = {frozenset(): [self._empty]}
        waiting: deque[Moment] = deque((self._empty,))
        states = {(self._empty.active, self._empty.state)}
        while waiting:
            here = waiting.popleft()
            mask = sum(1 << index for index in here.active)
            for index in range(self._count):
                if index not in here.active and later[index] & mask:
                    continue
                there = self.at((*here.sequence, ~index if index in here.active else index))
                if there.ended or (there.active, there.state) in states:
                    continue
                states.add((there.active, there.state))
                if len(states) > _MOST_STATES:
                    return None
                waiting.append(there)
                known = found.setdefault(there.active, [])
                if not any(there.shows_same(other, self._operators) for other in known):
                    known.append(there)
        return {active: tuple(one.sequence for one in moments) for active, moments in found.items()}

    def _moment(
        self,
        sequence: StepSequence,
        active: frozenset[int],
        refusals: tuple[Refusal | None, ...],
        state: LabState,
        *,
        ended: bool,
    ) -> Moment:
        @cache
        def look(name: OperatorName) -> Seen:
            space = self._space.restricted((), (name,))
            (snapshot,) = space.observe(state)
            return Seen(snapshot, space.violations(state), lambda: operator_view(state, name, self._semantics))

        return Moment(sequence, active, refusals, look, ended, state)


# -- what differs


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row of a table that differs between two snapshots.

    Args:
        key: the runtime key.
        before: the row in the first snapshot, without its key; None if it is missing.
        after: the row in the second snapshot.
    """

    key: str
    before: str | None
    after: str | None


def changed_rows(before: Snapshot, after: Snapshot) -> tuple[RowChange, ...]:
    """Return the rows that differ, in the order of the table; if possible, compare the kernels that calls use."""
    tables = (one.table if one.slots is None else one.slots for one in (before, after))
    ours, theirs = ({key: str(entry) for key, entry in parse_table(table).items()} for table in tables)
    keys = sorted(ours.keys() | theirs.keys(), key=SLOT_OF_KEY.__getitem__)
    pairs = ((key, ours.get(key), theirs.get(key)) for key in keys)
    return tuple(RowChange(str(key), one, other) for key, one, other in pairs if one != other)


# -- the history


@dataclass(frozen=True, slots=True)
class History:
    """A sequence, with earlier sequences and undone sequences."""

    present: StepSequence = ()
    past: tuple[StepSequence, ...] = ()
    future: tuple[StepSequence, ...] = ()

    def changed_to(self, sequence: StepSequence) -> History:
        """Return the history with a new sequence, without undone sequences."""
        return self if sequence == self.present else History(sequence, (*self.past, self.present))

    def undone(self) -> History:
        """Return the history with the previous sequence; the same history if there is none."""
        if not self.past:
            return self
        return History(self.past[-1], self.past[:-1], (self.present, *self.future))

    def redone(self) -> History:
        """Return the history with the last undone sequence; the same history if there is none."""
        if not self.future:
            return self
        return History(self.future[0], (*self.past, self.present), self.future[1:])


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A step that is possible here.

    Args:
        step: the step.
        refusal: why it is refused; None if it is accepted.
        changed: the number of rows of the shown operator that it changes.
    """

    step: Step
    refusal: Refusal | None
    changed: int


@dataclass(frozen=True, slots=True)
class Around:
    """The state graph around a sequence.

    Args:
        sequence: the sequence.
        active: the registrations in force.
        neighbours: a step for each registration, by number.
        states: the number of different states of this active set; None if unknown.
        others: a shortest sequence to each other state of the active set.
    """

    sequence: StepSequence
    active: tuple[int, ...]
    neighbours: tuple[Neighbour, ...]
    states: int | None = None
    others: tuple[StepSequence, ...] = ()


class StoppedError(Exception):
    """The caller does not need the result any more."""


class InteractiveSession:
    """A sequence on an engine that the user changes step by step.

    Args:
        runner: the registrations on their engine.
        count: the number of registrations.
        operators: the observed operators.
        order: chains of registrations that should be registered in this order only.
        start: the first sequence.

    Attributes:
        history: the sequence, and the sequences that undo and redo restore.
        moment: the present observation.
        before: the observation before the last action.
        action: the last action in words, such as `+2` or `undo`; empty at the start.
    """

    def __init__(
        self,
        runner: LabRunner,
        count: int,
        operators: Sequence[OperatorName],
        *,
        order: Chains = (),
        start: StepSequence = (),
    ) -> None:
        self._runner, self._count, self.operators = runner, count, tuple(operators)
        self._order = tuple(order)
        self.history = History(start)
        self.moment = self.before = runner.at(start)
        self.action = ""
        self._sets: Mapping[frozenset[int], tuple[StepSequence, ...]] | None = None
        self._walked = False

    @property
    def sequence(self) -> StepSequence:
        """The steps so far."""
        return self.history.present

    def changes(self, operator: OperatorName) -> tuple[RowChange, ...]:
        """Return the rows of an operator that the last action changed."""
        return changed_rows(self.before.seen(operator).snapshot, self.moment.seen(operator).snapshot)

    def next_step(self, index: int) -> Step:
        """Return the step that `toggle` takes."""
        return ~index if index in self.moment.active else index

    def toggle(self, index: int) -> None:
        """Register an inactive registration, or release an active one.

        Raises:
            SessionError: there is no such registration, or a failed release ended the sequence.
        """
        if not 0 <= index < self._count:
            raise SessionError(f"there is no registration {index}: they are 0 to {self._count - 1}")
        step = self.next_step(index)
        self._change((*self.sequence, step), format_sequence((step,)))

    def undo(self) -> None:
        """Go back to the sequence before.

        Raises:
            SessionError: there is no such sequence.
        """
        if not self.history.past:
            raise SessionError("nothing to undo")
        self._go(self.history.undone(), "undo")

    def redo(self) -> None:
        """Redo the last undone action.

        Raises:
            SessionError: there is no such sequence.
        """
        if not self.history.future:
            raise SessionError("nothing to redo")
        self._go(self.history.redone(), "redo")

    def move(self, at: int, to: int) -> None:
        """Move a step to another position of the sequence.

        Raises:
            SessionError: the result is not a valid sequence, for example because of a release before its registration.
        """
        steps = list(self.sequence)
        if not (0 <= at < len(steps) and 0 <= to < len(steps)):
            raise SessionError("there is no such place in the sequence")
        step = steps.pop(at)
        steps.insert(to, step)
        self._change(tuple(steps), f"moved {format_sequence((step,))}")

    def remove(self, at: int) -> None:
        """Remove a step from the sequence, a registration together with its release.

        Raises:
            SessionError: there is no such step, or the rest is not a valid sequence.
        """
        if not 0 <= at < len(self.sequence):
            raise SessionError("there is no such step in the sequence")
        steps = list(self.sequence)
        step = steps.pop(at)
        if step >= 0 and self.moment.refusals[at] is None and ~step in steps[at:]:
            del steps[steps.index(~step, at)]
        self._change(tuple(steps), f"removed {format_sequence((step,))}")

    def cut(self, length: int) -> None:
        """Keep the first steps of the sequence."""
        self._change(self.sequence[:length], f"back to step {length}" if length else "back to the start")

    def load(self, sequence: StepSequence, name: str) -> None:
        """Continue from another sequence.

        Args:
            sequence: the steps.
            name: its name for the reader.

        Raises:
            SessionError: it is not a sequence of these registrations.
        """
        self._change(sequence, name)

    def around(self, operator: OperatorName, indices: Sequence[int], *, cancelled: Callable[[], bool] = bool) -> Around:
        """Return the state graph around here.

        Args:
            operator: the operator whose rows are counted.
            indices: the registrations whose steps are tried.
            cancelled: a function that returns whether to stop.

        Raises:
            StoppedError: `cancelled` returned True.
        """
        here = self.moment
        active = tuple(sorted(here.active))
        if here.ended:
            return Around(here.sequence, active, ())
        before = here.seen(operator).snapshot
        neighbours = []
        for index in indices:
            if cancelled():
                raise StoppedError
            step = ~index if index in here.active else index
            there = self._runner.at((*here.sequence, step))
            changed = len(changed_rows(before, there.seen(operator).snapshot))
            neighbours.append(Neighbour(step, there.refusals[-1], changed))
        states, others = self._states_here(here)
        return Around(here.sequence, active, tuple(neighbours), states, others)

    def _states_here(self, here: Moment) -> tuple[int | None, tuple[StepSequence, ...]]:
        """Return the number of states of the active set, and a sequence to each other state."""
        if not self._walked:
            self._sets = self._runner.states_of_sets(self._order)
            self._walked = True
        every = () if self._sets is None else self._sets.get(here.active, ())
        others = tuple(sequence for sequence in every if not self._runner.at(sequence).shows_same(here, self.operators))
        return (len(every), others) if len(others) == len(every) - 1 else (None, ())

    def _change(self, sequence: StepSequence, action: str) -> None:
        self._go(self.history.changed_to(sequence), action)

    def _go(self, history: History, action: str) -> None:
        try:
            moment = self._runner.at(history.present)
        except SequenceError as error:
            raise SessionError(str(error)) from None
        self.before, self.moment = self.moment, moment
        self.history, self.action = history, action
