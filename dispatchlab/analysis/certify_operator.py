"""Certify one operator: hold it to what was proved of its pattern, and find the sequences that show order matters.

See Note [What a certificate stands on].
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

from dispatchlab.analysis.certificate import (
    Cause,
    Certificate,
    Certified,
    OrderReason,
    Owner,
    overrides_of,
    owner_of,
    pattern_of,
)
from dispatchlab.analysis.neighbourhoods import Explored, KeySequence
from dispatchlab.analysis.stale_slots import order_that_leaves_behind
from dispatchlab.engine.lab_engine import LabEngine, LabSpace
from dispatchlab.engine.semantics import Semantics
from dispatchlab.explore.compare_sequences import tell
from dispatchlab.explore.prng import SplitMix64
from dispatchlab.explore.run_sequence import on_sandboxes
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.registration import Def, Impl, Registration
from dispatchlab.model.sequence import StepSequence
from dispatchlab.registry.model import RecordedOperator
from dispatchlab.registry.replay import operator_registrations

_STALE = "stale slot"


def certify_operator(
    semantics: Semantics, operator: RecordedOperator, number: int, trouble: str, stale: Sequence[Explored]
) -> tuple[Certificate, int]:
    """The certificate of an operator, and how many steps were run for it.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        operator: the operator.
        number: of its pattern.
        trouble: why its pattern is not decided.
        stale: what leaves slots behind in its pattern.
    """
    name = str(operator.name)
    if trouble:
        return Certificate(name, Certified.NOT_DECIDED, number, (), trouble), 0
    bench = _Bench(semantics, operator)
    slots = frozenset().union(*(each.stale for each in stale))
    wrong = bench.both_ways() or bench.random_sequence(slots)
    if wrong:
        return Certificate(name, Certified.NOT_DECIDED, number, (), wrong), bench.steps
    reasons = [*bench.overrides()]
    for each in stale:
        reason = bench.stale(each)
        if reason is None:
            text = "a counterexample of its pattern does not show on the operator itself"
            return Certificate(name, Certified.NOT_DECIDED, number, (), text), bench.steps
        reasons.append(reason)
    verdict = Certified.ORDER_MATTERS if reasons else Certified.PROVED
    return Certificate(name, verdict, number, tuple(reasons)), bench.steps


class _Bench:
    """Runs sequences on one operator with the fallbacks of the registry in force."""

    def __init__(self, semantics: Semantics, operator: RecordedOperator) -> None:
        self.operator = operator
        self.semantics = semantics
        self.steps = 0
        self.registrations: tuple[Def | Impl, ...] = operator_registrations(operator)
        self.space = LabSpace(self.registrations, [operator.name], self.semantics)
        self.engine = LabEngine(self.semantics)

    def both_ways(self) -> str:
        """Whether everything is accepted with the def first and with the def last; a sentence when not."""
        forward = range(len(self.registrations))
        for sequence in (forward, [*forward[1:], *forward[:1]]):
            state = self.space.empty()
            for index in sequence:
                state, refusal = self.space.register(state, index)
                self.steps += 1
                if refusal is not None:
                    return f"a registration was refused: {refusal.message}"
        return ""

    def random_sequence(self, may_be_stale: frozenset[int]) -> str:
        """Whether a random sequence keeps to what was proved of the pattern; a sentence when not."""
        count = len(self.registrations)
        newer = _newer_of(self.registrations)
        random, state, mask = SplitMix64(count), self.space.empty(), 0
        allowed = {str(RUNTIME_KEYS[slot]) for slot in may_be_stale}
        for _ in range(3 * count):
            index = random.below(count)
            if mask >> index & 1:
                state = self.space.release(state, index)
            elif mask & newer[index]:
                continue
            else:
                state, refusal = self.space.register(state, index)
                if refusal is not None:
                    return f"a registration was refused: {refusal.message}"
            mask ^= 1 << index
            self.steps += 1
            for violation in self.space.violations(state):
                if violation.rule != _STALE or not allowed.issuperset(violation.keys):
                    return f"a sequence over the whole operator breaks what its pattern keeps: {violation}"
        return ""

    def overrides(self) -> Iterable[OrderReason]:
        """Each place with several kernels, with two sequences that end differently."""
        for key, kernels in overrides_of(self.operator):
            numbers = [at for at, one in enumerate(self.registrations) if isinstance(one, Impl) and one.key is key]
            pair = numbers[-2:]
            if not self._tell((pair[0], pair[1]), (pair[1], pair[0])):
                continue
            owners = tuple(Owner(key, self.registrations[at].debug) for at in pair)
            winner, *losers = map(owner_of, kernels)
            yield OrderReason(Cause.OVERRIDE, (key,), owners, (0, 1), (1, 0), winner, tuple(losers))

    def stale(self, explored: Explored) -> OrderReason | None:
        """Slots that are left behind, with two sequences of this operator that show it; None when they do not."""
        sequences = [self._sequence(sequence) for sequence in explored.sequences]
        if not self._tell(sequences[0], sequences[1]):
            return None
        pattern, in_force = pattern_of(self.operator), False
        for slot in sorted(explored.stale):
            order = order_that_leaves_behind(self.semantics, pattern, slot)
            in_force = order is not None and self._ends_stale(order, slot)
            if in_force:
                break
        keys = tuple(RUNTIME_KEYS[slot] for slot in sorted(explored.stale))
        return self._reason(keys, sequences[0], sequences[1], in_force=in_force)

    def _ends_stale(self, order: Sequence[DispatchKey], slot: int) -> bool:
        state = self.space.empty()
        kernels = tuple((key, False) for key in order)
        for index in self._sequence(kernels if self.operator.is_dangling else ((None, False), *kernels)):
            state, _ = self.space.register(state, index)
            self.steps += 1
        return any(str(RUNTIME_KEYS[slot]) in violation.keys for violation in self.space.violations(state))

    def _sequence(self, keys: KeySequence) -> StepSequence:
        """A sequence in keys as one of this operator: the kernels of a key in their order, its def for None."""
        at: dict[DispatchKey | None, list[int]] = {}
        for number, one in enumerate(self.registrations):
            at.setdefault(one.key if isinstance(one, Impl) else None, []).append(number)
        sequence: list[int] = []
        for key, released in keys:
            sequence += [~number for number in at[key]] if released else at[key]
        return tuple(sequence)

    def _tell(self, expected: Sequence[int], actual: Sequence[int]) -> bool:
        self.steps += len(expected) + len(actual)
        sessions = on_sandboxes(self.engine, self.registrations, [self.operator.name])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of kernels that are overridden: that is what is shown
            return tell(sessions, tuple(expected), tuple(actual)) is not None

    def _reason(
        self, keys: tuple[DispatchKey, ...], expected: Sequence[int], actual: Sequence[int], *, in_force: bool
    ) -> OrderReason:
        numbers = sorted({~step if step < 0 else step for step in (*expected, *actual)})
        place = {number: at for at, number in enumerate(numbers)}
        owners = tuple(
            Owner(one.key if isinstance(one, Impl) else None, one.debug)
            for one in (self.registrations[number] for number in numbers)
        )
        sequences = [
            tuple(~place[~step] if step < 0 else place[step] for step in sequence) for sequence in (expected, actual)
        ]
        return OrderReason(Cause.STALE, keys, owners, sequences[0], sequences[1], in_force=in_force)


def _newer_of(registrations: Sequence[Registration]) -> list[int]:
    """For each registration the kernels that came after it at its place, as a mask."""
    masks = []
    for at, one in enumerate(registrations):
        newer = 0
        for other in range(at + 1, len(registrations)):
            later = registrations[other]
            if isinstance(one, Impl) and isinstance(later, Impl) and one.key is later.key:
                newer |= 1 << other
        masks.append(newer)
    return masks
