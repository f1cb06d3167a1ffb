"""Every state that registrations can reach, and the steps between them, for what asks more than whether order matters.

The graph walk stops where a rule of the checker is broken. Snapshots, pictures and the properties of a scenario are
about all states, whatever the verdict is.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from dispatchlab.errors import RegistrationError
from dispatchlab.model.lifetimes import EVERYTHING_IS_RELEASED, Lifetimes, lifetimes_in
from dispatchlab.model.sequence import Step, StepSequence
from dispatchlab.model.snapshot import Refusal
from dispatchlab.prover.limits import later_masks
from dispatchlab.prover.program import Position, Program
from dispatchlab.prover.protocol import StateSpace

Place: TypeAlias = Hashable
"""What a choice of steps remembers. Equal places have equal futures."""


class Choice(Protocol):
    """Which steps can be taken."""

    @property
    def start(self) -> Place:
        """Where it begins."""

    def steps(self, place: Place, mask: int, /) -> Iterator[tuple[Step, Place, Place]]:
        """The steps with a set in force, each with the place behind it: where it is accepted, where it is refused."""


class FreeSteps:
    """Whatever is not registered can be registered, and whatever is can be released.

    Args:
        members: the registrations that are taken.
        order: those of them that are registered in this order only; releases are free.
        lifetimes: how registrations end.
    """

    start = None

    def __init__(
        self,
        members: Sequence[int],
        order: Sequence[int] = (),
        lifetimes: Lifetimes = EVERYTHING_IS_RELEASED,
    ) -> None:
        later = later_masks(max(members, default=-1) + 1, [index for index in order if index in set(members)])
        self._steps = [(index, 1 << index, later[index]) for index in members]
        self._lifetimes = lifetimes

    def steps(self, place: Place, mask: int, /) -> Iterator[tuple[Step, Place, Place]]:
        for index, bit, later in self._steps:
            if mask & bit:
                if not self._lifetimes.is_permanent(index):
                    yield ~index, None, None
            elif not later & mask:
                yield index, None, None


class OneOrder:
    """Each registration once, then, if that is wanted, the release of each: what `--walk orders` runs.

    Args:
        count: how many registrations there are.
        order: those that are registered in this order only.
        lifetimes: how registrations end.
        released: whether they are released afterwards.
    """

    start = 0

    def __init__(
        self,
        count: int,
        order: Sequence[int] = (),
        lifetimes: Lifetimes = EVERYTHING_IS_RELEASED,
        *,
        released: bool = True,
    ) -> None:
        self._count, self._lifetimes, self._released = count, lifetimes, released
        self._before = [0] * count
        for at, index in enumerate(order):
            self._before[index] = sum(1 << other for other in order[:at])

    def steps(self, place: Place, mask: int, /) -> Iterator[tuple[Step, Place, Place]]:
        tried = cast("int", place)
        if tried != (1 << self._count) - 1:
            for index in range(self._count):
                bit = 1 << index
                if not tried & bit and self._before[index] & ~tried == 0:
                    yield index, tried | bit, tried | bit
        elif self._released:
            for index in range(self._count):
                if mask >> index & 1 and not self._lifetimes.is_permanent(index):
                    yield ~index, tried, tried


class ProgramSteps:
    """The orders in which modules make registrations: nothing is released, and a refusal ends a program."""

    def __init__(self, program: Program) -> None:
        self.start: Place = program.start
        self._program = program

    def steps(self, place: Place, mask: int, /) -> Iterator[tuple[Step, Place, Place]]:
        if place is not None:
            for index, after in self._program.next_steps(cast("Position", place)).items():
                yield index, after, None


class StateEdge(NamedTuple):
    """A step from one state to another, by their numbers; why it was refused, where it was."""

    source: int
    step: Step
    target: int
    refusal: Refusal | None


class ReachableStates:
    """The states that can be reached, breadth-first: the first way to a state is a shortest one.

    A state is what is active, the value of the engine's state, and the place of the choice.

    >>> from dispatchlab import Claim
    >>> from dispatchlab.engine.lab_engine import LabEngine
    >>> found = ReachableStates(LabEngine("strict").space([Claim("a"), Claim("b")], ()), FreeSteps([0, 1]))
    >>> len(list(found.edges())), found.masks
    (8, [0, 1, 2, 3])

    Args:
        space: the states.
        choice: the steps.
        stop: is asked before the steps from a state with how many states and edges there are; a sentence ends the walk.
    """

    def __init__(
        self,
        space: StateSpace[Any],
        choice: Choice,
        *,
        stop: Callable[[int, int], str | None] = lambda states, edges: None,
    ) -> None:
        self.space = space
        self.states: list[Any] = []
        self.masks: list[int] = []
        self.stopped: str | None = None
        self._choice, self._stop = choice, stop
        self._places: list[Place] = []
        self._parents, self._steps = array("q"), array("q")
        self._known: dict[tuple[int, Any, Place], int] = {}
        self._add(0, space.empty(), choice.start, -1, 0)

    def edges(self) -> Iterator[StateEdge]:
        """Take every step from every state; iterate once. `stopped` says afterwards whether there would be more."""
        space, after_release = self.space, lifetimes_in(self.space).after_release
        head = edges = 0
        while head < len(self.states):
            self.stopped = self._stop(len(self.states), edges)
            if self.stopped is not None:
                return
            state, mask, place = self.states[head], self.masks[head], self._places[head]
            for step, accepted, refused in self._choice.steps(place, mask):
                edges += 1
                refusal = None
                if step >= 0:
                    new, refusal = space.register(state, step)
                    target = mask if refusal else mask | 1 << step
                else:
                    try:
                        new, target = space.release(state, ~step), after_release(mask, ~step)
                    except RegistrationError:  # the checker reports it
                        continue
                node = self._node(target, new, refused if refusal else accepted, head, step)
                yield StateEdge(head, step, node, refusal)
            head += 1

    def sequence(self, node: int, *more: Step) -> StepSequence:
        """A shortest sequence to a state, and steps behind it."""
        steps = list(reversed(more))
        while self._parents[node] >= 0:
            steps.append(self._steps[node])
            node = self._parents[node]
        return tuple(reversed(steps))

    def _node(self, mask: int, state: Any, place: Place, parent: int, step: Step) -> int:
        known = self._known.get((mask, state, place))
        return self._add(mask, state, place, parent, step) if known is None else known

    def _add(self, mask: int, state: Any, place: Place, parent: int, step: Step) -> int:
        node = self._known[mask, state, place] = len(self.states)
        self.states.append(state)
        self.masks.append(mask)
        self._places.append(place)
        self._parents.append(parent)
        self._steps.append(step)
        return node
