"""Find the cause of a failure and try its fixes, in the process of the program that failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dispatchlab.model.failure import Failure, Fix, Position, Trial
from dispatchlab.questions.why.cause import causes

_MOST_EVIDENCE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The reason why a program failed.

    Args:
        code: the number of the cause, such as `WHY306`; empty if the cause is unknown.
        title: its short name.
        cause: the sentence.
        fixes: the fixes, each with the result of its trial.
        evidence: the facts behind the cause.
        dispatcher: whether the cause is the dispatcher or a registration.
        error: the exception, as one line.
        at: the user's innermost frame.
        wrong: a wrong advice.
        failed: whether the program failed; if not, the answer is about a warning or a write.
    """

    code: str
    title: str
    cause: str
    fixes: tuple[Trial, ...] = ()
    evidence: tuple[str, ...] = ()
    dispatcher: bool = True
    error: str = ""
    at: Position | None = None
    wrong: str = ""
    failed: bool = True


def diagnose(failure: Failure, attempt: Callable[[Fix], Trial] | None = None) -> Answer:
    """Return the cause of a failure with its fixes.

    Args:
        failure: the failure.
        attempt: a function that tries a fix; default: try no fix.
    """
    error = failure.chain[0].line if failure.chain else ""
    for cause in causes():
        explanation = cause.explain(failure)
        fixes = () if explanation is None else explanation.fixes
        trials = tuple(Trial(fix, "not tried") if attempt is None else attempt(fix) for fix in fixes)
        if explanation is not None and all(trial.outcome == "works" for trial in trials if trial.fix.again):
            break
    else:
        return Answer(
            code="",
            title="no known cause",
            cause=f"no known cause of the dispatcher: {error or 'the program failed without an exception'}",
            error=error,
            at=failure.at,
            dispatcher=False,
        )
    return Answer(
        code=cause.code,
        title=cause.title,
        cause=explanation.sentence if cause.dispatcher else f"not the dispatcher: {explanation.sentence}",
        fixes=_shown(trials),
        evidence=explanation.evidence[:_MOST_EVIDENCE],
        dispatcher=cause.dispatcher,
        error=error,
        at=failure.at,
        wrong=cause.wrong,
    )


def _shown(trials: tuple[Trial, ...]) -> tuple[Trial, ...]:
    """Return the fixes that PyTorch accepts; fixes that worked in a trial come first."""
    kept = tuple(trial for trial in trials if trial.outcome not in ("refused", "fails"))
    if any(trial.outcome == "works" for trial in kept):
        kept = tuple(trial for trial in kept if not trial.fix.otherwise)
    return tuple(sorted(kept, key=lambda trial: trial.outcome != "works"))
