"""Graph walk: visit every state once, and prove that order does not matter or find the shortest counterexample.

It works on a `StateSpace`, an engine whose whole state is a value. Note [What is checked] has the checks on every edge.
Note [When states may be merged] says why they are enough for sequences of any length.
"""

# Note [When states may be merged]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Nodes are pairs (A, state); equal states have equal futures. Every sequence is a path, by induction on its length:
# each step starts at a node from which that very edge was tried. So checks that hold on every edge hold for all
# sequences of any length, re-registrations included. A set may have several nodes: hidden state, benign as long as no
# check fails.
#
# Note [Shortest sequences]
# ~~~~~~~~~~~~~~~~~~~~~
# The walk is breadth-first by the length of sequences, so the first check that fails does so after a sequence of least
# length, and F and R are given by a sequence that is no longer. An invariant that fails on the first state of a set has
# no other sequence to compare with yet: the walk goes on to the end of that length and looks for a state of the same
# set where all is well. There is none: the set itself is at fault, and both sequences of the counterexample are the
# same.

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dispatchlab._gc_pause import collector_paused
from dispatchlab.errors import RegistrationError
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Refusal, Snapshot
from dispatchlab.prover.chains import Chains, count_edges, count_orders, later_masks
from dispatchlab.prover.checker import (
    Observation,
    Outcome,
    check_observation,
    check_outcome,
    check_release,
    minimal_conflicts,
    outcomes_agree,
)
from dispatchlab.prover.driver import Ending, finish
from dispatchlab.prover.limits import Watch
from dispatchlab.prover.protocol import EngineCrashed, StateSpace
from dispatchlab.prover.result import Counterexample, Exploration, Flaw, Verdict

_OBSERVATIONS_KEPT: Final = 4096


class _Full(Exception):
    """The next state would exceed the bound; the argument is the sentence about it."""


def explore_graph(
    space: StateSpace[Any],
    count: int,
    *,
    order: Chains = (),
    watch: Watch | None = None,
    max_length: int | None = None,
    max_edges: int | None = None,
    numbers: Sequence[int] | None = None,
) -> Exploration:
    """Visit every state that `count` registrations can reach, in both directions of every edge.

    Args:
        space: the states.
        count: the number of registrations.
        order: chains of registrations that are only registered in this order; releases are free.
        watch: bounds and progress.
        max_length: ignore sequences longer than this.
        max_edges: stop after this many edges, between two states.
        numbers: the numbers of the registrations in the result, if they are part of a larger scenario.

    Returns:
        `ORDER_INDEPENDENT`, `ORDER_DEPENDENT` with the shortest counterexample, `INCOMPLETE` after a bound, or
        `CRASHED`.

    Raises:
        Interrupted: Ctrl-C; the error has the results so far.
    """
    if watch is None:
        watch = Watch(total_edges=count_edges(count, order))
    return finish(_GraphDrive(space, count, order, watch, max_length, max_edges, numbers or range(count)))


def too_long(length: int) -> str:
    """Return the reason for the end of a walk: the bound on the length of sequences."""
    return f"stopped at sequences of {length} steps"


def too_many(edges: int) -> str:
    """Return the reason for the end of a walk: the bound on the number of edges."""
    return f"stopped at {edges:,} edges"


@dataclass
class _GraphDrive:
    """One breadth-first walk. A node is an index into `states`, `masks` (its active set) and `parents`."""

    space: StateSpace[Any]
    count: int
    order: Chains
    watch: Watch
    max_length: int | None
    max_edges: int | None
    numbers: Sequence[int]

    def __post_init__(self) -> None:
        self.later = later_masks(self.count, self.order)
        self.states: list[Any] = []
        self.masks: list[int] = []
        self.parents = array("q")
        self.steps = array("q")
        self.refused_steps: set[int] = set()  # nodes that a refusal led to
        self.first: dict[int, int] = {}  # active set -> its first node
        self.others: dict[int, dict[Any, int]] = {}  # active set -> its further states
        self.refused: dict[int, dict[int, Refusal]] = {}  # set -> who was refused when coming last, and how
        self.asymmetric: set[int] = set()
        self.observed: dict[int, tuple[Snapshot, ...]] = {}
        self.pending: int | None = None  # see Note [Shortest sequences]
        self.edges = 0
        self.at = 0  # the node and the step that are being tried
        self.step = 0

    def take(self) -> Ending:
        with collector_paused():  # a walk makes no cycles, and its states go before the collector looks at them
            try:
                return self._ending()
            finally:
                self.states.clear()
                self.others.clear()
                self.observed.clear()

    def _ending(self) -> Ending:
        try:
            stopped, example = self._walk()
        except _Full as full:
            stopped = None if self.pending is not None else str(full)
            example = None if self.pending is None else self._differ(self.pending, self.pending)
        if example is not None:
            return Ending(Verdict.ORDER_DEPENDENT, example)
        return Ending(Verdict.ORDER_INDEPENDENT) if stopped is None else Ending(Verdict.INCOMPLETE, reasons=(stopped,))

    def crashed(self, crash: EngineCrashed) -> Ending:
        sequence = self._sequence(self.at, self.step)
        return Ending(Verdict.CRASHED, Counterexample(Flaw.CRASH, sequence, sequence, "", (crash.text,)))

    def _walk(self) -> tuple[str | None, Counterexample | None]:
        """Return the reason for an early end, and a counterexample."""
        space, register, release = self.space, self.space.register, self.space.release
        states, masks, first, refused = self.states, self.masks, self.first, self.refused
        bits = [(index, 1 << index, self.later[index]) for index in range(self.count)]
        stop = self.watch.stop
        head, edges, length, level_end = 0, 0, -1, 0
        self._arrive(0, space.empty(), -1, 0, refused=False)
        example: Counterexample | None = None
        while head < len(states):
            if head == level_end:
                length, level_end = length + 1, len(states)
                if self.pending is not None:
                    break
                if self.max_length is not None and length >= self.max_length:
                    self.edges = edges
                    return too_long(self.max_length), None
            self.edges, self.at = edges, head
            reason = stop(len(first), len(states), edges)
            if reason is None and self.max_edges is not None and edges >= self.max_edges:
                reason = too_many(self.max_edges)
            if reason is not None:
                if self.pending is not None:
                    break
                return reason, None
            state, mask = states[head], masks[head]
            for index, bit, later in bits:
                if mask & bit:
                    self.step = ~index
                    try:
                        new = release(state, index)
                    except RegistrationError as error:
                        self.edges = edges + 1
                        return None, self._failed_release(head, index, error)
                    target, refusal = mask ^ bit, None
                elif later & mask:
                    continue
                else:
                    self.step = index
                    new, refusal = register(state, index)
                    if refusal is None:
                        target = mask | bit
                        if refused and target in refused:
                            example = self._accepted_after_all(head, index)
                    else:
                        target = mask
                        example = self._was_refused(head, index, refusal)
                    if example is not None:
                        self.edges = edges + 1
                        return None, example
                edges += 1
                known = first.get(target)
                if known is not None:
                    old = states[known]
                    if old is new or old == new:
                        continue
                self.edges = edges
                example = self._arrive(target, new, head, self.step, refused=refusal is not None)
                if example is not None:
                    return None, example
            head += 1
        self.edges = edges
        return None, None if self.pending is None else self._differ(self.pending, self.pending)

    # --- nodes

    def _arrive(self, mask: int, state: Any, parent: int, step: int, *, refused: bool) -> Counterexample | None:
        """Keep a second state of a set, and check P0 for it."""
        earlier = self.first.get(mask)
        others = self.others.get(mask)
        if others is not None and state in others:
            return None
        node = len(self.states)
        full = self.watch.full(node + 1)
        if full is not None:
            raise _Full(full)
        self.states.append(state)
        self.masks.append(mask)
        self.parents.append(parent)
        self.steps.append(step)
        if refused:
            self.refused_steps.add(node)
        if earlier is None:
            self.first[mask] = node
        elif others is None:
            self.others[mask] = {state: node}
        else:
            others[state] = node

        broken = self.space.violations(state)
        if self.pending is not None:
            if mask == self.masks[self.pending] and not broken:
                return self._differ(node, self.pending)
            return None
        if earlier is None:
            if broken:
                self.pending = node
            return None
        if broken or self._observation(earlier) != self.space.observe(state):
            return self._differ(earlier, node)
        return None

    def _observation(self, node: int) -> tuple[Snapshot, ...]:
        seen = self.observed.get(node)
        if seen is None:
            if len(self.observed) >= _OBSERVATIONS_KEPT:
                self.observed.clear()
            seen = self.observed[node] = self.space.observe(self.states[node])
        return seen

    def _sequence(self, node: int, *more: int) -> StepSequence:
        steps = list(reversed(more))
        while self.parents[node] >= 0:
            steps.append(self.steps[node])
            node = self.parents[node]
        return tuple(self._named(step) for step in reversed(steps))

    def _named(self, step: int) -> int:
        return ~self.numbers[~step] if step < 0 else self.numbers[step]

    def _has_refusal(self, node: int) -> bool:
        while node > 0:
            if node in self.refused_steps:
                return True
            node = self.parents[node]
        return False

    # --- outcomes

    def _was_refused(self, node: int, index: int, refusal: Refusal) -> Counterexample | None:
        """Check P1 and P2 for a refusal."""
        mask = self.masks[node]
        whole = mask | 1 << index
        row = self.refused.setdefault(whole, {})
        known = row.get(index)
        if known is not None:
            if outcomes_agree(known, refusal, same_step=True):
                return None
            return self._other_outcome(self.first[mask], index, known, node, index, refusal)
        if self.first[mask] != node:
            return self._other_outcome(self.first[mask], index, None, node, index, refusal)
        if row:
            other, known = next(iter(row.items()))
            if not outcomes_agree(known, refusal, same_step=False):
                return self._other_outcome(self.first[whole ^ 1 << other], other, known, node, index, refusal)
            if known != refusal:
                self.asymmetric.add(whole)
        elif whole in self.first:
            for other in range(self.count):
                base = self.first.get(whole ^ 1 << other) if whole >> other & 1 else None
                if base is not None and base < node and not self.later[other] & whole:
                    return self._other_outcome(base, other, None, node, index, refusal)
        row[index] = refusal
        return None

    def _accepted_after_all(self, node: int, index: int) -> Counterexample:
        """Return the violation of P1 or P2 if a set was refused before, but is accepted now."""
        mask = self.masks[node]
        whole = mask | 1 << index
        row = self.refused[whole]
        other = index if index in row else next(iter(row))
        return self._other_outcome(self.first[whole ^ 1 << other], other, row[other], node, index, None)

    # --- counterexamples

    def _other_outcome(
        self, expected: int, by: int, wanted: Refusal | None, actual: int, index: int, got: Refusal | None
    ) -> Counterexample:
        example = check_outcome(
            Outcome(self._sequence(expected, by), wanted), Outcome(self._sequence(actual, index), got)
        )
        assert example is not None, "the walk compared the outcomes"
        return example if example.flaw is Flaw.ASYMMETRY else self._explained(example, expected, actual)

    def _differ(self, expected: int, actual: int) -> Counterexample:
        example = check_observation(self._observed(expected), self._observed(actual))
        assert example is not None, "the walk compared what is observed"
        return self._explained(example, expected, actual)

    def _observed(self, node: int) -> Observation:
        state = self.states[node]
        look = self.space.observe(state), self.space.violations(state)
        return Observation(self._sequence(node), look, self._has_refusal(node), node in self.refused_steps)

    def _explained(self, example: Counterexample, expected: int, actual: int) -> Counterexample:
        return replace(example, why=self.space.why(self.states[expected], self.states[actual]))

    def _failed_release(self, node: int, index: int, error: RegistrationError) -> Counterexample:
        example = check_release(self._sequence(node, ~index), self._named(~index), Refusal.of(error))
        assert example is not None, "the release failed"
        return example

    # --- the result

    def exploration(self, ending: Ending) -> Exploration:
        proved, example = ending.verdict is Verdict.ORDER_INDEPENDENT, ending.counterexample
        sets, states = len(self.first), len(self.masks)
        notes = ending.reasons
        if proved and states > sets:
            notes = (f"{states:,} states for {sets:,} sets: the engine keeps hidden state that is never observed",)
        accepted = 0
        if proved:
            for mask in self.first:
                accepted |= mask
        return Exploration(
            verdict=ending.verdict,
            walk="graph",
            registrations=self.count,
            sets=sets,
            states=states,
            edges=self.edges,
            orders=count_orders(self.count, self.order),
            conflicts=() if example else minimal_conflicts(self.refused, self.asymmetric, self.numbers),
            never_accepted=tuple(self.numbers[i] for i in range(self.count) if proved and not accepted >> i & 1),
            counterexample=example,
            notes=notes,
            elapsed_s=self.watch.elapsed_s,
        )
