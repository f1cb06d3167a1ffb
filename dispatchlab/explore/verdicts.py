"""Whether a verdict is what a scenario expects, and the exit code that says so."""

from __future__ import annotations

from typing import assert_never

from dispatchlab.explore.result import Expectation, Verdict


def judge(
    verdict: Verdict, expectation: Expectation, *, conflicts: int, require_proof: bool = False
) -> tuple[bool, int]:
    """Compare a verdict with what was expected.

    Args:
        verdict: what was found.
        expectation: what the scenario says: `commutes` is neither violation nor refusal, `refused` is refusals and no
            violation, `order-matters` is a violation.
        conflicts: how many minimal conflicts and registrations that were never accepted there are.
        require_proof: do not take "no violation found" for an answer.

    Returns:
        Whether it is as expected, and the exit code: 0 as expected, 1 not, 3 nothing is known for sure, 4 not
        deterministic, 5 the engine died.
    """
    match verdict:
        case Verdict.INCOMPLETE:
            return False, 3
        case Verdict.NOT_DETERMINISTIC:
            return False, 4
        case Verdict.CRASHED:
            return False, 5
        case Verdict.PROVED | Verdict.NO_VIOLATION_FOUND | Verdict.VIOLATED:
            pass
        case _:
            assert_never(verdict)
    violated = verdict is Verdict.VIOLATED
    match expectation:
        case Expectation.COMMUTES:
            as_expected = not violated and conflicts == 0
        case Expectation.REFUSED:
            as_expected = not violated and conflicts > 0
        case Expectation.ORDER_MATTERS:
            as_expected = violated
        case _:
            assert_never(expectation)
    if as_expected and require_proof and verdict is Verdict.NO_VIOLATION_FOUND:
        return True, 3
    return as_expected, 0 if as_expected else 1
