"""Results of an exploration: the verdict, what it covers, the counterexample, and whether it was expected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from dispatchlab._short_repr import WordEnum, short_repr
from dispatchlab.model.sequence import StepSequence


class Verdict(WordEnum):
    """The verdict of an exploration.

    >>> from dispatchlab import Claim, Verdict, check_order
    >>> check_order([Claim("test")]).verdict is Verdict.ORDER_INDEPENDENT
    True
    """

    ORDER_INDEPENDENT = "order-independent"
    NO_VIOLATION_FOUND = "no violation found"
    ORDER_DEPENDENT = "order-dependent"
    INCOMPLETE = "incomplete"
    NONDETERMINISTIC = "nondeterministic"
    CRASHED = "engine crashed"


class Expectation(WordEnum):
    """The verdict that a scenario expects.

    >>> from dispatchlab import Expectation
    >>> Expectation("order-dependent")
    Expectation.ORDER_DEPENDENT
    """

    ORDER_INDEPENDENT = "order-independent"
    ORDER_DEPENDENT = "order-dependent"
    REFUSED = "refused"


class Flaw(WordEnum):
    """The way in which two sequences disagree."""

    NON_COMMUTING = "non-commuting"  # two orders of the same registrations
    UNDO = "undo"  # a release left something behind
    RESIDUE = "residue"  # a refusal left something behind
    OUTCOME = "outcome"  # accepted after one sequence, refused (or refused otherwise) after the other
    ASYMMETRY = "asymmetry"  # whether a set is accepted depends on the last registration
    INVARIANT = "invariant"  # every sequence to this set breaks an invariant
    RELEASE = "release"  # a release failed
    CRASH = "crash"  # the engine crashed
    NONDETERMINISTIC = "nondeterministic"  # the same sequence gave two results


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Two sequences that should lead to the same state but do not; each is as short as possible.

    >>> from dispatchlab import DispatchKey, Impl, check_order, parse_name
    >>> foo = parse_name("test::foo")
    >>> two = check_order([Impl(foo, DispatchKey.CPU, debug="fn_1"), Impl(foo, DispatchKey.CPU, debug="fn_2")])
    >>> two.counterexample.expected_sequence, two.counterexample.actual_sequence
    ((0, 1), (1, 0))
    >>> print(*two.counterexample.why)  # doctest: +ELLIPSIS
    the registrations fn_1 and fn_2 both set the CPU kernel of test::foo. A later registration replaces ...

    Args:
        flaw: how they disagree.
        expected_sequence: the sequence with the expected result; for `INVARIANT`, the same as `actual_sequence`.
        actual_sequence: the sequence with the other result.
        diff: a unified diff of the observations after them, or of their outcomes.
        why: the reasons in the engine's terms; empty if unknown.
    """

    flaw: Flaw
    expected_sequence: StepSequence
    actual_sequence: StepSequence
    diff: str
    why: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def registrations(self) -> list[int]:
        """The registrations that its steps register or release, ascending."""
        return sorted({max(step, ~step) for step in (*self.expected_sequence, *self.actual_sequence)})


@dataclass(frozen=True, slots=True)
class Conflict:
    """Registrations that exclude each other: if one of them is left out, the others are accepted together.

    Args:
        members: the registrations, ascending.
        kind: the error kind of the refusal.
        message: the message of the engine if the last of `members` comes last.
        asymmetric: whether the facts of the error differ if another member comes last.
    """

    members: tuple[int, ...]
    kind: str
    message: str
    asymmetric: bool = False

    __repr__ = short_repr


@dataclass(frozen=True, slots=True)
class Exploration:
    """The result of one exploration.

    >>> from dispatchlab import DispatchKey, Impl, check_order, parse_name
    >>> found = check_order([Impl(parse_name("test::foo"), key) for key in (DispatchKey.CPU, DispatchKey.CUDA)])
    >>> found.exploration.orders
    4

    Args:
        verdict: the verdict.
        walk: `graph`, `orders`, `sample`, `covering` or `program`.
        registrations: the number of registrations.
        sets: the number of reached active sets, summed over parts.
        states: the number of different states, at least one for each set.
        edges: the number of tried registrations and releases, including refused ones.
        orders: the number of covered orders: all registration orders times all release orders.
        components: the number of independent parts.
        conflicts: minimal conflicts.
        never_accepted: the registrations that were always refused.
        counterexample: the counterexample of a violation, crash or nondeterminism.
        notes: what else a reader should know, a sentence each.
        elapsed_s: seconds.
        seed: the seed of a sampled walk or of passes.
        passes: the number of passes.
        modules: the number of registering modules, if the orders are orders of imports.
        neighbourhoods: the number of neighbourhoods that were explored instead of whole parts; then sets, states and
            edges are sums over them.
        reductions: the reductions that were used: `partition`, `neighbourhoods`.
    """

    verdict: Verdict
    walk: str
    registrations: int
    sets: int
    states: int
    edges: int
    orders: int
    components: int = 1
    conflicts: tuple[Conflict, ...] = ()
    never_accepted: tuple[int, ...] = ()
    counterexample: Counterexample | None = None
    notes: tuple[str, ...] = ()
    elapsed_s: float = field(default=0.0, compare=False)
    seed: int | None = None
    passes: int | None = None
    modules: int | None = None
    neighbourhoods: int = 0
    reductions: tuple[str, ...] = ()

    __repr__ = short_repr


def judge(
    verdict: Verdict, expectation: Expectation, *, conflicts: int, require_proof: bool = False
) -> tuple[bool, int]:
    """Compare a verdict with the expected one.

    Args:
        verdict: the verdict.
        expectation: the expectation of the scenario: `order-independent` means no violation and no refusal, `refused`
            means refusals but no violation, and `order-dependent` means a violation.
        conflicts: the number of minimal conflicts and never accepted registrations.
        require_proof: do not accept "no violation found".

    Returns:
        Whether it is as expected, and the exit code: 0 as expected, 1 not as expected, 3 incomplete, 4
        nondeterministic, 5 the engine died.
    """
    match verdict:
        case Verdict.INCOMPLETE:
            return False, 3
        case Verdict.NONDETERMINISTIC:
            return False, 4
        case Verdict.CRASHED:
            return False, 5
        case Verdict.ORDER_INDEPENDENT | Verdict.NO_VIOLATION_FOUND | Verdict.ORDER_DEPENDENT:
            pass
        case _:
            assert_never(verdict)
    violated = verdict is Verdict.ORDER_DEPENDENT
    match expectation:
        case Expectation.ORDER_INDEPENDENT:
            as_expected = not violated and conflicts == 0
        case Expectation.REFUSED:
            as_expected = not violated and conflicts > 0
        case Expectation.ORDER_DEPENDENT:
            as_expected = violated
        case _:
            assert_never(expectation)
    if as_expected and require_proof and verdict is Verdict.NO_VIOLATION_FOUND:
        return True, 3
    return as_expected, 0 if as_expected else 1


class NotReduced(Exception):
    """Neighbourhoods prove nothing here; the argument is a sentence with the reason."""
