"""Every state that registrations can reach, and the steps between them, for what asks more than whether order matters.

The graph walk stops where a rule of the checker is broken. Snapshots, pictures and the properties of a scenario are
about all states, whatever the verdict is.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dispatchlab.errors import RegistrationError
from dispatchlab.model.sequence import Step, StepSequence
from dispatchlab.model.snapshot import Refusal
from dispatchlab.prover.limits import later_masks
from dispatchlab.prover.program import Position, Program
from dispatchlab.prover.protocol import StateSpace, lifetimes_in


class StateEdge(NamedTuple):
    """A step from one state to another, by their numbers; why it was refused, where it was."""

    source: int
    step: Step
    target: int
    refusal: Refusal | None


class ReachableStates:
    """The states that can be reached, breadth-first: the first way to a state is a shortest one.

    A state is what is active, the value of the engine's state, and of a program the position in it.

    >>> from dispatchlab import Claim
    >>> from dispatchlab.engine.lab_engine import LabEngine
    >>> found = ReachableStates(LabEngine("strict").space([Claim("a"), Claim("b")], ()), 2)
    >>> len(list(found.edges())), found.masks
    (8, [0, 1, 2, 3])

    Args:
        space: the states.
        count: how many registrations there are.
        members: those that are taken; all of them when left out.
        order: registrations that are registered in this order only; releases are free.
        program: the modules that make the registrations; then nothing is released, and a refusal ends a program.
        stop: is asked before the steps from a state with how many states and edges there are; a sentence ends the walk.
    """

    def __init__(
        self,
        space: StateSpace[Any],
        count: int,
        *,
        members: Sequence[int] | None = None,
        order: Sequence[int] = (),
        program: Program | None = None,
        stop: Callable[[int, int], str | None] = lambda states, edges: None,
    ) -> None:
        self.space, self.count = space, count
        self.states: list[Any] = []
        self.masks: list[int] = []
        self.stopped: str | None = None
        self.edge_count = 0
        self._members = range(count) if members is None else members
        self._later = later_masks(count, [index for index in order if index in set(self._members)])
        self._program, self._stop = program, stop
        self._positions: list[Position | None] = []
        self._parents, self._steps = array("q"), array("q")
        self._known: dict[tuple[int, Any, Position | None], int] = {}
        self._add(0, space.empty(), None if program is None else program.start, -1, 0)

    def edges(self) -> Iterator[StateEdge]:
        """Take every step from every state; iterate once. `stopped` says afterwards whether there would be more."""
        head = 0
        while head < len(self.states):
            self.stopped = self._stop(len(self.states), self.edge_count)
            if self.stopped is not None:
                return
            for edge in self._from(head) if self._program is None else self._in_program(head, self._program):
                self.edge_count += 1
                yield edge
            head += 1

    def sequence(self, node: int, *more: Step) -> StepSequence:
        """A shortest sequence to a state, and steps behind it."""
        steps = list(reversed(more))
        while self._parents[node] >= 0:
            steps.append(self._steps[node])
            node = self._parents[node]
        return tuple(reversed(steps))

    def _from(self, head: int) -> Iterator[StateEdge]:
        space, lifetimes = self.space, lifetimes_in(self.space)
        state, mask = self.states[head], self.masks[head]
        for index in self._members:
            bit = 1 << index
            if mask & bit:
                if lifetimes.is_permanent(index):
                    continue
                try:
                    new = space.release(state, index)
                except RegistrationError:  # the checker reports it
                    continue
                target = self._node(lifetimes.after_release(mask, index), new, None, head, ~index)
                yield StateEdge(head, ~index, target, None)
            elif not self._later[index] & mask:
                new, refusal = space.register(state, index)
                target = self._node(mask if refusal else mask | bit, new, None, head, index)
                yield StateEdge(head, index, target, refusal)

    def _in_program(self, head: int, program: Program) -> Iterator[StateEdge]:
        state, mask, position = self.states[head], self.masks[head], self._positions[head]
        if position is None:  # of a program that a refusal has ended
            return
        for index, after in program.next_steps(position).items():
            new, refusal = self.space.register(state, index)
            target = self._node(mask if refusal else mask | 1 << index, new, None if refusal else after, head, index)
            yield StateEdge(head, index, target, refusal)

    def _node(self, mask: int, state: Any, position: Position | None, parent: int, step: Step) -> int:
        known = self._known.get((mask, state, position))
        return self._add(mask, state, position, parent, step) if known is None else known

    def _add(self, mask: int, state: Any, position: Position | None, parent: int, step: Step) -> int:
        node = self._known[mask, state, position] = len(self.states)
        self.states.append(state)
        self.masks.append(mask)
        self._positions.append(position)
        self._parents.append(parent)
        self._steps.append(step)
        return node
