"""Every state that registrations can reach, and the steps between them, for snapshots and predicates.

The graph walk stops if a rule of the checker is broken. Snapshots and predicates need all states, for any verdict.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from dispatchlab.errors import RegistrationError
from dispatchlab.model.sequence import Step, StepSequence
from dispatchlab.model.snapshot import Refusal
from dispatchlab.prover.chains import Chains, later_masks
from dispatchlab.prover.protocol import StateSpace


class StateEdge(NamedTuple):
    """A step from one state to another, by their numbers; with the reason if it was refused."""

    source: int
    step: Step
    target: int
    refusal: Refusal | None


class ReachableStates:
    """The reachable states, breadth-first: the first sequence to a state is a shortest one.

    A state consists of the active set and the value of the engine's state.

    >>> from dispatchlab import Claim
    >>> from dispatchlab.engine.lab_engine import LabEngine
    >>> found = ReachableStates(LabEngine("strict").space([Claim("a"), Claim("b")], ()), [0, 1])
    >>> len(list(found.edges())), found.masks
    (8, [0, 1, 2, 3])

    Args:
        space: the states.
        members: the registrations to use.
        order: the chains of registrations that are only registered in this order; releases are free.
        stop: gets the numbers of states and edges before the steps from a state; its sentence ends the walk.
    """

    def __init__(
        self,
        space: StateSpace[Any],
        members: Sequence[int],
        order: Chains = (),
        *,
        stop: Callable[[int, int], str | None] = lambda states, edges: None,
    ) -> None:
        self.space = space
        self.states: list[Any] = []
        self.masks: list[int] = []
        self.stopped: str | None = None
        self._stop = stop
        later = later_masks(1 + max((*members, *(index for chain in order for index in chain)), default=-1), order)
        self._members = [(index, 1 << index, later[index]) for index in members]
        self._parents, self._steps = array("q"), array("q")
        self._known: dict[tuple[int, Any], int] = {}
        self._add(0, space.empty(), -1, 0)

    def edges(self) -> Iterator[StateEdge]:
        """Take every step from every state; iterate only once. Then `stopped` says whether the walk is incomplete."""
        space = self.space
        head = edges = 0
        while head < len(self.states):
            self.stopped = self._stop(len(self.states), edges)
            if self.stopped is not None:
                return
            state, mask = self.states[head], self.masks[head]
            for index, bit, later in self._members:
                refusal = None
                if mask & bit:
                    step = ~index
                    try:
                        new, target = space.release(state, index), mask & ~(1 << index)
                    except RegistrationError:  # the checker reports it
                        continue
                elif later & mask:
                    continue
                else:
                    step = index
                    new, refusal = space.register(state, index)
                    target = mask if refusal else mask | bit
                edges += 1
                node = self._known.get((target, new))
                yield StateEdge(head, step, self._add(target, new, head, step) if node is None else node, refusal)
            head += 1

    def nodes(self) -> Iterator[int]:
        """Return every state by its number, taking steps as needed; iterate only once."""
        seen = 0
        for node in chain((0,), (edge.target for edge in self.edges())):
            if node == seen:
                seen += 1
                yield node

    def sequence(self, node: int, *more: Step) -> StepSequence:
        """Return a shortest sequence to a state, followed by further steps."""
        steps = list(reversed(more))
        while self._parents[node] >= 0:
            steps.append(self._steps[node])
            node = self._parents[node]
        return tuple(reversed(steps))

    def _add(self, mask: int, state: Any, parent: int, step: Step) -> int:
        node = self._known[mask, state] = len(self.states)
        self.states.append(state)
        self.masks.append(mask)
        self._parents.append(parent)
        self._steps.append(step)
        return node
