"""Certify a registry: prove each pattern, and compare every operator with the proof of its pattern.

First, the neighbourhoods of all patterns are explored, each once; then sequences of every operator are run. See
docs/proof.md and Note [Kernels that play the same part].
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from time import perf_counter
from typing import Any

from dispatchlab.engine.lab_engine import LabEngine, LabSpace
from dispatchlab.engine.semantics import Semantics
from dispatchlab.errors import RequestError
from dispatchlab.model.installed_torch import model_for
from dispatchlab.model.keys import SLOT_KEYS, DispatchKey
from dispatchlab.model.registration import Def, Impl, Registration
from dispatchlab.model.sequence import StepSequence
from dispatchlab.prover.limits import Progress
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.run_sequence import compare_sequences, on_sandboxes
from dispatchlab.questions.certify.certificate import (
    Cause,
    Certificate,
    Certification,
    Certified,
    OrderReason,
    Owner,
    Pattern,
    is_of_custom_op,
    overrides_of,
    owner_of,
    pattern_of,
)
from dispatchlab.questions.certify.operator_neighbourhoods import (
    Explored,
    KeySequence,
    Neighbourhood,
    explore_neighbourhood,
    order_with_stale_slot,
    stays,
)
from dispatchlab.questions.certify.slot_neighbourhoods import neighbourhoods_of
from dispatchlab.questions.sources.find_sources import Difference, chosen, own_operators
from dispatchlab.questions.sources.replay_on_lab import for_registry
from dispatchlab.registries.model import Recorded, RecordedOperator
from dispatchlab.registries.replay import fallback_registration, operator_registrations


def certification_of(
    recorded: Recorded,
    *,
    name: str,
    semantics: str | None = None,
    operators: Sequence[RecordedOperator] | None = None,
    progress: Callable[[Progress], None] | None = None,
    partial: bool = False,
    against: str = "",
) -> Certification:
    """Return the certificates of a registry.

    Args:
        recorded: the registry.
        name: its name in output.
        semantics: a name such as `strict` or `torch-2.13`; default: the model of the registry's PyTorch.
        operators: the operators to certify; default: all.
        progress: a function that gets the progress.
        partial: after Ctrl-C, return the results so far, with `interrupted` true.
        against: the registry whose operators were left out, for the error if no operator is left.

    Raises:
        RequestError: there is no operator.
        DispatchLabError: a record cannot be read.
    """
    started = perf_counter()
    chosen = tuple(recorded) if operators is None else tuple(operators)
    if not chosen:
        why = f"each is as in {against}, or only PyTorch changed it, when a part of PyTorch was first used"
        why = (
            f"{why}; --operator '*' certifies all"
            if against
            else "nothing was selected, or everything in it was refused"
        )
        raise RequestError(f"{name} has no operator to certify: {why}")
    rules = for_registry(semantics or model_for(recorded.torch), torch=recorded.torch)
    fallbacks = tuple(fallback for fallback in recorded.fallbacks if fallback.key in rules.existing)
    replaced = tuple(fallback for fallback in fallbacks if stays(rules, fallback.key, fallback.debug))
    dispatcher = replace(rules, fallbacks=tuple(map(fallback_registration, fallbacks)))
    meter = _Meter(progress, started, sum(map(_cost_of_operator, chosen)))
    known: dict[Neighbourhood, Explored] = {}
    certificates: dict[str, Certificate] = {}
    steps, interrupted = 0, False
    patterns = sorted({pattern_of(operator) for operator in chosen})
    try:
        proof = _Proof(dispatcher, patterns, meter)
        known = proof.known
        decided = {pattern: (number, *proof.decided(pattern)) for number, pattern in enumerate(patterns)}
        for operator in chosen:
            certificate, count = certify_operator(dispatcher, operator, *decided[pattern_of(operator)])
            certificates[certificate.operator] = certificate
            steps += count
            meter.add(_cost_of_operator(operator))
    except KeyboardInterrupt:
        if not partial:
            raise
        interrupted = True
    return Certification(
        registry=name,
        semantics=rules.name,
        certificates=tuple(certificates[name] for each in chosen if (name := str(each.name)) in certificates),
        patterns=len(patterns),
        neighbourhoods=len(known),
        largest=max((each.size for each in known), default=0),
        sets=sum(each.sets for each in known.values()),
        edges=sum(each.edges for each in known.values()),
        registrations=len(fallbacks)
        - len(replaced)
        + sum(len(each.kernels) + (not each.is_dangling) for each in chosen if str(each.name) in certificates),
        steps=steps,
        elapsed_s=perf_counter() - started,
        selected=len(chosen),
        interrupted=interrupted,
        replaced=tuple(Owner(one.key, one.debug) for one in replaced),
        unknown=tuple(Owner(one.key, one.debug) for one in recorded.fallbacks if one.key not in rules.existing),
    )


def certification_of_own(
    recorded: Recorded,
    name: str,
    *,
    operators: Sequence[str] = (),
    semantics: str | None = None,
    **options: Any,
) -> Certification:
    """Return the certificates for the additions of a recording to the registry of its PyTorch.

    Args:
        recorded: the registry.
        name: its name in output.
        operators: names and globs of operators, which are certified even if that registry has them.
        semantics: the dispatcher; default: the model of the registry's PyTorch.
        options: as for `certification_of`.

    Raises:
        DispatchLabError: as for `certification_of`, or there is no such operator.
    """
    difference = Difference(tuple(chosen(recorded, operators))) if operators else own_operators(recorded, name)
    found = certification_of(
        recorded,
        name=name,
        semantics=semantics,
        operators=difference.operators,
        against=difference.against,
        **options,
    )
    return _without_known(found, difference)


def _without_known(certification: Certification, difference: Difference) -> Certification:
    """Return the certificates of operators that differ from a registry, without findings of the registry itself."""
    own = {str(operator.name): operator for operator in difference.operators}
    kept: list[Certificate] = []
    known: list[str] = []
    for certificate in certification.certificates:
        operator = own[certificate.operator]
        base = None if difference.base is None else difference.base.operator(certificate.operator)
        reasons = tuple(
            one
            for one in certificate.reasons
            if one.cause is not Cause.OVERRIDE
            or not is_of_custom_op(operator, key := one.keys[0], operator.kernels_at(key))
        )
        fresh = tuple(reason for reason in reasons if base is None or not _is_in(reason, operator, base))
        if not reasons and certificate.verdict is Certified.ORDER_DEPENDENT:
            kept.append(replace(certificate, verdict=Certified.ORDER_INDEPENDENT, reasons=()))
        elif fresh or not reasons:
            kept.append(replace(certificate, reasons=fresh))
        else:
            known.append(certificate.operator)
    return replace(
        certification,
        certificates=tuple(kept),
        against=difference.against,
        left_out=difference.left_out,
        lazy=difference.lazy,
        known=tuple(known),
    )


def _is_in(reason: OrderReason, own: RecordedOperator, base: RecordedOperator) -> bool:
    """Return whether the base overrides the same kernels."""
    if reason.cause is not Cause.OVERRIDE:
        return False
    mine, theirs = (
        [(kernel.inferred, kernel.flags, kernel.active) for kernel in operator.kernels_at(reason.keys[0])]
        for operator in (own, base)
    )
    return mine == theirs


class _Meter:
    """Counts the work in steps of an engine, if their number is known before."""

    def __init__(self, progress: Callable[[Progress], None] | None, started: float, later: int) -> None:
        self._progress, self._started = progress, started
        self._done, self._total, self._sets = 0, later, 0

    def expect(self, steps: int) -> None:
        self._total += steps

    def add(self, steps: int, sets: int = 0) -> None:
        """Count work."""
        self._done += steps
        self._sets += sets
        if self._progress is not None:
            elapsed = perf_counter() - self._started
            self._progress(Progress(self._sets, self._sets, self._done, self._total, elapsed))


def _cost(neighbourhood: Neighbourhood) -> int:
    return neighbourhood.size << neighbourhood.size


def _cost_of_operator(operator: RecordedOperator) -> int:
    return 8 * (len(operator.kernels) + 1)


class _Proof:
    """The proof of the patterns.

    Args:
        dispatcher: the dispatcher.
        patterns: the patterns of the operators.
        meter: counts the explored steps.
    """

    def __init__(self, dispatcher: Semantics, patterns: Sequence[Pattern], meter: _Meter) -> None:
        self._wanted = neighbourhoods_of(dispatcher, patterns)
        chosen = frozenset().union(*(some for some in self._wanted.values() if not isinstance(some, str)))
        self.known: dict[Neighbourhood, Explored] = {}
        meter.expect(sum(map(_cost, chosen)))
        for each in sorted(chosen, key=attrgetter("rank")):
            explored = self.known[each] = explore_neighbourhood(dispatcher, each)
            meter.add(_cost(each), explored.sets)

    def decided(self, pattern: Pattern) -> tuple[str, tuple[Explored, ...]]:
        """Return why a pattern is not decided (empty if it is decided), and each cause of its stale slots once."""
        wanted = self._wanted[pattern]
        if isinstance(wanted, str):
            return wanted, ()
        stale: dict[frozenset[int], Explored] = {}
        for each in sorted(wanted, key=attrgetter("rank")):
            explored = self.known[each]
            if explored.trouble:
                return explored.trouble, ()
            if explored.stale:
                stale.setdefault(explored.stale, explored)
        return "", tuple(stale.values())


# -- one operator

_STALE = "stale slot"


def certify_operator(
    semantics: Semantics,
    operator: RecordedOperator,
    number: int,
    trouble: str,
    stale: Sequence[Explored],
) -> tuple[Certificate, int]:
    """Return the certificate of an operator, and the number of steps that were run for it.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        operator: the operator.
        number: the number of its pattern.
        trouble: why the pattern is not decided.
        stale: the causes of stale slots in its pattern.
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
    verdict = Certified.ORDER_DEPENDENT if reasons else Certified.ORDER_INDEPENDENT
    return Certificate(name, verdict, number, tuple(reasons)), bench.steps


class _Bench:
    """Runs sequences on one operator with the fallbacks of the registry in force."""

    def __init__(self, semantics: Semantics, operator: RecordedOperator) -> None:
        self.operator = operator
        self.semantics = semantics
        self.steps = 0
        self.registrations: tuple[Def | Impl, ...] = operator_registrations(operator)
        self.space = LabSpace(self.registrations, [operator.name], semantics)
        self.engine = LabEngine(self.semantics)

    def both_ways(self) -> str:
        """Return a sentence if a registration is refused with the def first or with the def last; else empty."""
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
        """Return a sentence if a random sequence contradicts the proof of the pattern; else empty."""
        count = len(self.registrations)
        newer = _newer_of(self.registrations)
        random, state, mask = SplitMix64(count), self.space.empty(), 0
        allowed = {str(SLOT_KEYS[slot]) for slot in may_be_stale}
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
        """Return each key with several kernels, with two sequences that lead to different states."""
        for key, kernels in overrides_of(self.operator):
            numbers = [at for at, one in enumerate(self.registrations) if isinstance(one, Impl) and one.key is key]
            pair = numbers[-2:]
            if not self._tell((pair[0], pair[1]), (pair[1], pair[0])):
                continue
            owners = tuple(Owner(key, self.registrations[at].debug) for at in pair)
            winner, *losers = map(owner_of, kernels)
            yield OrderReason(Cause.OVERRIDE, (key,), owners, (0, 1), (1, 0), winner, tuple(losers))

    def stale(self, explored: Explored) -> OrderReason | None:
        """Return slots that stay stale, with two sequences of this operator that show it; None without any."""
        sequences = [self._sequence(sequence) for sequence in explored.sequences]
        if not self._tell(sequences[0], sequences[1]):
            return None
        pattern, in_force = pattern_of(self.operator), False
        for slot in sorted(explored.stale):
            order = order_with_stale_slot(self.semantics, pattern, slot)
            in_force = order is not None and self._ends_stale(order, slot)
            if in_force:
                break
        keys = tuple(SLOT_KEYS[slot] for slot in sorted(explored.stale))
        return self._reason(keys, sequences[0], sequences[1], in_force=in_force)

    def _ends_stale(self, order: Sequence[DispatchKey], slot: int) -> bool:
        state = self.space.empty()
        kernels = tuple((key, False) for key in order)
        for index in self._sequence(kernels if self.operator.is_dangling else ((None, False), *kernels)):
            state, _ = self.space.register(state, index)
            self.steps += 1
        return any(str(SLOT_KEYS[slot]) in violation.keys for violation in self.space.violations(state))

    def _sequence(self, keys: KeySequence) -> StepSequence:
        """Return the sequence of this operator for keys: the kernels of a key in their order; None means the def."""
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
            return compare_sequences(sessions, tuple(expected), tuple(actual)) is not None

    def _reason(
        self, keys: tuple[DispatchKey, ...], expected: Sequence[int], actual: Sequence[int], *, in_force: bool
    ) -> OrderReason:
        numbers = sorted({~step if step < 0 else step for step in (*expected, *actual)})
        index = {number: at for at, number in enumerate(numbers)}
        owners = tuple(
            Owner(one.key if isinstance(one, Impl) else None, one.debug)
            for one in (self.registrations[number] for number in numbers)
        )
        sequences = [
            tuple(~index[~step] if step < 0 else index[step] for step in sequence) for sequence in (expected, actual)
        ]
        return OrderReason(Cause.STALE, keys, owners, sequences[0], sequences[1], in_force=in_force)


def _newer_of(registrations: Sequence[Registration]) -> list[int]:
    """Return, for each registration, the later kernels at its key, as a bit mask."""
    masks = []
    for at, one in enumerate(registrations):
        newer = 0
        for other in range(at + 1, len(registrations)):
            later = registrations[other]
            if isinstance(one, Impl) and isinstance(later, Impl) and one.key is later.key:
                newer |= 1 << other
        masks.append(newer)
    return masks
