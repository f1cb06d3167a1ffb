"""Replay random sequences in fresh sandboxes after a proof, and compare them with what the states show.

See Note [What a proof rests on].
"""

# Note [What a proof rests on]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A graph walk proves something of a state space: of its states, and of its equality, by which they are merged. Whether
# the space does what the engine does has not been looked at by then, nor whether two equal states have the same
# future. So random sequences run in fresh sandboxes, and on states that are not merged, step by step. A sandbox that
# shows something else than the states do is `nondeterministic`: the engine gives two answers to one sequence. Two
# sequences to one set that look different in sandboxes are a counterexample that the equality has hidden. Each sequence
# is compared with all before it, and where it ends with the set registered from scratch in ascending order. Long ones
# come to one set with many histories, and short ones in many sandboxes meet what happens once in the life of a sandbox.
# A few sequences find what is wrong often, and prove nothing; a report says how many there were.

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, Final

from dispatchlab.model.lifetimes import Lifetimes, lifetimes_in
from dispatchlab.model.sequence import StepSequence, renumbered
from dispatchlab.model.snapshot import Refusal
from dispatchlab.prover.checker import Observations, Pair, difference, outcome_difference, outcome_text
from dispatchlab.prover.compare_sequences import full_sequence
from dispatchlab.prover.driver import conclude, crashed, verified
from dispatchlab.prover.limits import Interrupted, Watch, later_masks
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.protocol import EngineCrashed, StateSpace
from dispatchlab.prover.result import Counterexample, Exploration, Flaw, Verdict
from dispatchlab.prover.run_sequence import Look, Session, Sessions, StateSession

_WALKS: Final = 2
_EVERY_ORDER: Final = 3
_ORDERS: Final = 24
_LOOKS: Final = 32
"""How many steps of a sequence are looked at; `_FEW_LOOKS` with more than `_FEW` registrations: looks take longer."""

_FEW: Final = 32
_FEW_LOOKS: Final = 4
_BRIEF: Final = 4
"""How many steps a short walk has for each registration."""


def replay_proof(
    proof: Exploration,
    space: Callable[[], StateSpace[Any]],
    fresh: Sessions,
    *,
    order: Sequence[int] = (),
    seed: int = 0,
    watch: Watch,
    program: Iterator[StepSequence] | None = None,
    brief: bool = False,
    numbers: Sequence[int] | None = None,
    orders_alone: bool = False,
) -> Exploration:
    """Replay random sequences after a proof.

    Args:
        proof: what was proved; anything else is returned as it is.
        space: makes the states.
        fresh: fresh sandboxes of the same engine, with the same registrations and operators.
        order: registrations that are registered in this order only.
        seed: of the sequences.
        watch: bounds, which end the replay after its first sequence.
        program: orders of a program, to replay instead of random sequences; one ends at a refusal.
        brief: replay one short walk, which is looked at twice and at its end: for one of very many explorations.
        numbers: what the registrations are called in the result, when they are some of those that were proved.
        orders_alone: replay no walks to and fro: what was proved is about orders without releases in between.

    Returns:
        The same with the number of sequences; or `ORDER_DEPENDENT`, `NONDETERMINISTIC` or `CRASHED`.

    Raises:
        Interrupted: by Ctrl-C, with what was proved of the states alone as `INCOMPLETE`.
    """
    count = proof.registrations if numbers is None else len(numbers)
    if proof.verdict is not Verdict.ORDER_INDEPENDENT or not count:
        return proof
    if program is not None:
        chosen: Iterator[_Plan] = map(_Plan, program)
    elif brief:
        chosen = iter([_walk(SplitMix64(seed).split(), count, _BRIEF * count)])
    else:
        chosen = _plans(count, order, seed, lifetimes_in(space()), 0 if orders_alone else _WALKS)
    looks = 1 if brief else _LOOKS if count <= _FEW else _FEW_LOOKS
    replay = _Replay(space(), count, later_masks(count, order), SplitMix64(seed), looks, program is not None)
    done = 0
    try:
        for plan in chosen:
            if done and watch.is_over():
                break
            with warnings.catch_warnings(), fresh() as session:
                warnings.simplefilter("ignore")  # of overrides, which are reported where they are registered
                trouble = replay.run(session, plan)
            if trouble is not None:
                refuted = _refuted(proof, trouble, fresh, count, order, is_program=program is not None)
                return refuted if numbers is None else _renumbered(refuted, numbers)
            done += 1
    except EngineCrashed as crash:
        verdict, example = crashed(fresh, count, tuple(replay.steps), crash, order=order)
        ended = _with(proof, verdict, example)
        return ended if numbers is None else _renumbered(ended, numbers)
    except KeyboardInterrupt:
        stopped = replace(proof, verdict=Verdict.INCOMPLETE, notes=(*proof.notes, "interrupted"), replayed=done)
        raise Interrupted(stopped) from None
    return replace(proof, replayed=done, elapsed_s=watch.elapsed_s)


def _refuted(
    proof: Exploration,
    trouble: Pair | Counterexample,
    fresh: Sessions,
    count: int,
    order: Sequence[int],
    *,
    is_program: bool,
) -> Exploration:
    if isinstance(trouble, Counterexample):
        return _with(proof, Verdict.NONDETERMINISTIC, trouble)
    if is_program:  # whose sequences cannot be shortened step by step
        example = verified(fresh, trouble)
        unsure = example.flaw is Flaw.NONDETERMINISTIC
        return _with(proof, Verdict.NONDETERMINISTIC if unsure else Verdict.ORDER_DEPENDENT, example)
    verdict, example = conclude(fresh, count, trouble, order=order)
    return _with(proof, verdict, example)


def _renumbered(proof: Exploration, numbers: Sequence[int]) -> Exploration:
    example = proof.counterexample
    assert example is not None, "two sequences disagreed, or one ended the engine"
    expected, actual = (
        renumbered(sequence, numbers) for sequence in (example.expected_sequence, example.actual_sequence)
    )
    return replace(proof, counterexample=replace(example, expected_sequence=expected, actual_sequence=actual))


def _with(proof: Exploration, verdict: Verdict, example: Counterexample) -> Exploration:
    note = "the states of the engine show no difference: it was found in a fresh sandbox"
    return replace(
        proof, verdict=verdict, counterexample=example, conflicts=(), never_accepted=(), notes=(*proof.notes, note)
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """Steps to take; where `toggles`, numbers to register or release, whichever is possible then."""

    steps: StepSequence
    toggles: bool = False


def _plans(count: int, order: Sequence[int], seed: int, lifetimes: Lifetimes, walks: int) -> Iterator[_Plan]:
    """Long walks to and fro, which come to one set with many histories, then everything registered and released."""
    random = SplitMix64(seed)
    for _ in range(walks):
        yield _walk(random.split(), count, max(min(16 * count * count, 144), _BRIEF * count))
    if count <= _EVERY_ORDER and not order:
        for registered in permutations(range(count)):
            released = lifetimes.released(range(count))
            random.shuffle(released)
            yield _Plan((*registered, *(~index for index in released)))
        return
    for _ in range(max(2, _ORDERS // count)):
        yield _Plan(full_sequence(count, random.split(), order=order, lifetimes=lifetimes))


def _walk(random: SplitMix64, count: int, length: int) -> _Plan:
    return _Plan(tuple(random.below(count) for _ in range(length)), toggles=True)


@dataclass
class _Replay:
    """Sequences that were replayed, compared with the states and with one another."""

    space: StateSpace[Any]
    count: int
    later: Sequence[int]
    random: SplitMix64
    looks: int
    is_program: bool
    steps: list[int] = field(default_factory=list)
    imagined: dict[Any, Look] = field(default_factory=dict)
    observations: Observations = field(default_factory=Observations)

    def run(self, session: Session, plan: _Plan) -> Pair | Counterexample | None:
        """Run a plan, without the releases of what was refused; what disagrees, if anything does."""
        steps = self.steps = []
        states = StateSession(self.space)
        looks = self._looks_in(len(plan.steps))
        lifetimes = lifetimes_in(self.space)
        mask = 0
        for at, step in enumerate(plan.steps):
            if plan.toggles and mask >> step & 1:
                step = ~step
            index = ~step if step < 0 else step
            if (step < 0) is not bool(mask >> index & 1) or (step >= 0 and self.later[index] & mask):
                continue
            if step < 0 and lifetimes.is_permanent(index):
                continue
            steps.append(step)
            refusal = session.release(index) if step < 0 else session.register(index)
            imagined = states.release(index) if step < 0 else states.register(index)
            if not _same(refusal, imagined):
                diff = outcome_difference(outcome_text(step, imagined), outcome_text(step, refusal))
                return self._differs(diff)
            if step < 0:
                if refusal is not None:
                    return tuple(steps), tuple(steps)
                mask = lifetimes.after_release(mask, index)
            else:
                pair = self.observations.outcome(mask, index, refusal, steps, len(steps))
                if pair is not None:
                    return pair
                if refusal is not None and self.is_program:
                    break
                mask |= 0 if refusal is not None else 1 << index
            if at in looks:
                trouble = self._look(session, states, mask)
                if trouble is not None:
                    return trouble
        trouble = self._look(session, states, mask)
        return trouble if trouble or self.is_program else self._compared_with_direct_way(session, mask)

    def _looks_in(self, length: int) -> frozenset[int]:
        looks = self.looks
        if length <= looks:
            return frozenset(range(length))
        return frozenset({length // 2 - 1, *(self.random.below(length) for _ in range(looks))})

    def _look(self, session: Session, states: StateSession, mask: int) -> Pair | Counterexample | None:
        look = session.look()
        pair = self.observations.observation(mask, look, self.steps, len(self.steps))
        if pair is not None:
            return pair
        imagined = self.imagined.get(states.state)  # of the same state, or of one that is said to be equal
        if imagined is None:
            imagined = self.imagined[states.state] = states.look()
        if look == imagined:
            return None
        return self._differs(difference(imagined[0], look[0], expected_broken=imagined[1], actual_broken=look[1]))

    def _compared_with_direct_way(self, session: Session, mask: int) -> Pair | None:
        """Compare with the set registered from scratch, in ascending order, on states; None when that is refused."""
        members = (index for index in range(self.count) if mask >> index & 1)
        direct = tuple(lifetimes_in(self.space).permanent_last(members))
        states = StateSession(self.space)
        for index in direct:
            if states.register(index) is not None:
                return None
        return None if states.look() == session.look() else (direct, tuple(self.steps))

    def _differs(self, diff: str) -> Counterexample:
        sequence = tuple(self.steps)
        why = ("expected is what the states of the engine show, actual is a fresh sandbox",)
        return Counterexample(Flaw.NONDETERMINISTIC, sequence, sequence, diff, why)


def _same(one: Refusal | None, other: Refusal | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.kind == other.kind and one.facts == other.facts
