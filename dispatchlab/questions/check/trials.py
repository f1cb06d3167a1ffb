"""The trials of packages' operators: start their process, and make findings of the failed trials."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.trial_run import BY_FALLBACK, CPU_ALONE, NO_KERNEL, TrialRun
from dispatchlab.questions.check.report import Answer as Answered
from dispatchlab.questions.check.report import Question
from dispatchlab.questions.lint.rule import Finding, Level, grouped
from dispatchlab.questions.why.diagnose import Answer
from dispatchlab.registries.debug_text import in_its_language
from dispatchlab.views.formatting import counted, first_of

if TYPE_CHECKING:
    from dispatchlab.live.recording.package_facts import PackageFacts
    from dispatchlab.model.order_run import OrderRun

_WORKER: Final = "dispatchlab.questions.check.trial_process"
_LACKING: Final = ("WHY501", "WHY508", "WHY531", "WHY622")
"""Causes that say what an operator does not have, which only its author knows to be wrong."""

_ERRORS: Final = ("signature", "call", "schema", "fake", "backward", "import", "registrations")
"""Trials whose failure breaks plain calls, their gradients or what traces them."""

NO_INPUT: Final = "no input"
"""The beginning of the note about operators that were not called."""

Run: TypeAlias = tuple[TrialRun, Answer | None]
"""A trial of an operator, and the cause where it failed."""


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """The request for trials.

    Args:
        packages: the modules, imported in this order.
        path: the folders of modules.
        inputs: a file of inputs; empty for none.
        whole: also run the trials that need a compiler.
        seed: chooses generated inputs.
        submodules: modules of the packages to import afterwards; if one fails, the others are still imported.
        operators: the names and globs of the operators to run; all when there are none.
        trials: whether trials are run.
        orders: whether several modules are imported in other orders later.
    """

    packages: tuple[str, ...]
    path: tuple[str, ...] = ()
    inputs: str = ""
    whole: bool = False
    seed: int = 0
    submodules: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    trials: bool = True
    orders: bool = True


class TrialsFailedError(DispatchLabError):
    """The trials could not be run.

    Args:
        reason: the reason.
    """

    reason: str

    template = "{reason}"


class TrialProcess(NamedTuple):
    """The worker that imports packages once, for the facts about them and for the trials, which run in parallel.

    Args:
        facts: imports the packages, starts the trials, and returns the facts of the import. It raises ImportFailedError
            if a package cannot be imported, and a DispatchLabError if PyTorch cannot be used.
        runs: returns the results of the trials after `facts`, at the latest after so many seconds. It raises
            TrialsFailedError if the process ended without an answer, or the inputs cannot be read.
        orders: returns what `runs_in_copy` returns, after `facts`.
    """

    facts: Callable[[], PackageFacts]
    runs: Callable[[float], list[Run]]
    orders: Callable[..., tuple[OrderRun, ...]]


@contextmanager
def trial_process(request: TrialRequest) -> Iterator[TrialProcess]:
    """Start the process of the trials; leaving the block ends it."""
    from dispatchlab.live.worker.engine import LiveEngine

    with LiveEngine() as engine:
        facts = partial(engine.ask, f"{_WORKER}:facts_and_trials", request)
        orders = partial(engine.ask, "dispatchlab.live.recording.order_runs:runs_in_copy")
        yield TrialProcess(facts, partial(engine.ask, f"{_WORKER}:trial_runs"), orders)


_REPEATS: Final = {
    **{"WHY103": "DL001", "WHY109": "DL001", "WHY212": "DL022"},
    **{"WHY233": "order", "WHY401": "DL006", "WHY531": "DL010", "WHY611": "DL023"},
}
"""Causes of failed trials, and the rules of lint that report the same mistake."""


def trials_answer(
    found: Sequence[Run], packages: Sequence[str], *, whole: bool, reported: Collection[tuple[str, str]] = ()
) -> Answered:
    """Return the findings of the trials, and the command that runs the remaining trials.

    Args:
        found: the trials.
        packages: the packages.
        whole: whether the trials that need a compiler were run.
        reported: rules and operators of lint findings, which the trials do not report again.
    """
    notes = [f"{run.trial}: {run.why}" for run, _ in found if not run.operator]  # files of inputs
    found = [(run, answer) for run, answer in found if run.operator]
    if not found:
        return Answered(Question.TRIALS, "no operator is registered", notes=tuple(notes), asked=False)
    runs = [run for run, _ in found if run.trial != "import"]
    imports = f"{counted(len(found) - len(runs), 'import')} failed"
    if not runs:
        return Answered(Question.TRIALS, imports, tuple(finding_of(run, answer) for run, answer in found if answer))
    counts = Counter(run.status for run in runs)
    text = f"{imports}; " * (len(found) > len(runs))
    text += f"{counted(len({run.operator for run in runs}), 'operator')}: {counted(counts['passed'], 'trial')} passed"
    on = Counter(run.device for run in runs if run.status == "passed" and run.device not in ("", "cpu"))
    text += "".join(f" ({count:,} on {device})" for device, count in on.items())
    failed = [(run, answer) for run, answer in found if run.status == "failed" and run.trial != "import"]
    lacking = [run for run, answer in failed if answer is not None and _lacks(run, answer)]
    command = f"dispatchlab check {' '.join(packages)}"
    served = {run.operator: run.status for run in runs if run.why == BY_FALLBACK}
    uncalled = [run for run in runs if run.status == "no input" and run.trial == "call" and run.why != BY_FALLBACK]
    given = (NO_KERNEL, f"{NO_INPUT} on ")
    without = _operators_by(uncalled, lambda run: run.why if run.why.startswith(given) else NO_INPUT)
    how = f"run pytest --why once, or {command} --inputs FILE.py"
    alone = without.pop(NO_KERNEL, [])
    notes += [f"{why} for {first_of(sorted(names), 3)}: {how}" for why, names in sorted(without.items())]
    notes += [f"{NO_KERNEL}: {first_of(sorted(alone), 3)}"] if alone else []
    if served:
        refused = [name for name, status in served.items() if status == "no input"]
        text_of = f"; it raises in each call of {first_of(sorted(refused), 3)}" if refused else ""
        notes.append(
            f"the fallback was called for {counted(len(served), 'operator')}: {first_of(sorted(served), 3)}{text_of}"
        )
    if on_cpu := dict.fromkeys(run.trial for run in runs if run.why == CPU_ALONE):
        notes.append(f"not run on the device of the package: what {CPU_ALONE} ({', '.join(on_cpu)})")
    for why in dict.fromkeys(run.why for run in runs if run.status == "not tried"):
        left_out = Counter(run.trial for run in runs if run.status == "not tried" and run.why == why)
        of = "; ".join(
            f"{', '.join(trial for trial in left_out if left_out[trial] == count)} of {counted(count, 'operator')}"
            for count in sorted({*left_out.values()})
        )
        notes.append(f"not tried, since {why}: {of}: {command} --run")
    notes += [] if whole else [f"not run: what needs a compiler: {command} --run"]
    left = _operators_by(
        (run for run in runs if run.status == "open"), lambda run: f"{run.trial} has no result: {run.why}"
    )
    notes += [f"{text}: {first_of(names, 3)}" for text, names in left.items()]
    findings = {
        (run.operator, answer.code or answer.error): finding_of(run, answer)
        for run, answer in reversed(found)
        if answer
    }
    kept = [one for one in reversed(findings.values()) if (_REPEATS.get(one.code, ""), one.operator) not in reported]
    worse = len(grouped(one for one in kept if one.level is not Level.INFORMATION))
    repeats = sorted({_REPEATS[one.code] for one in findings.values() if one not in kept})
    if count := len(failed) - len(lacking):
        parts = [counted(worse, "finding")] * (0 < worse != count) + [code for code in repeats if code != "DL010"]
        text += f", {count:,} failed" + f" ({' and '.join(parts)} below)" * bool(parts)
    text += f", {len(lacking):,} for information" + " (DL010 below)" * ("DL010" in repeats) if lacking else ""
    text += f", {counted(len(uncalled), 'operator')} not run" if uncalled else ""
    text += f", {counts['not tried']:,} not tried" if counts["not tried"] else ""
    return Answered(Question.TRIALS, text, tuple(kept), tuple(notes), trials=tuple(runs))


def _operators_by(runs: Iterable[TrialRun], text: Callable[[TrialRun], str]) -> dict[str, list[str]]:
    """Return the operators of trials by a text about each trial."""
    found = dict[str, list[str]]()
    for run in runs:
        found.setdefault(text(run), []).append(run.operator)
    return found


def _from_package(text: str) -> str:
    """Return a text in which paths start at the package or at the current folder, as those of lint do."""
    for folder in sorted({*sys.path, os.getcwd()}, key=len, reverse=True):
        text = text.replace(os.path.join(folder, ""), "") if len(folder) > 1 else text
    return text


def _lacks(run: TrialRun, answer: Answer) -> bool:
    """Return whether a failure only says what the operator does not have."""
    return answer.code in _LACKING and run.trial != "backward"


def finding_of(run: TrialRun, answer: Answer) -> Finding:
    """Return the finding of a failed trial."""
    level = Level.ERROR if run.trial in _ERRORS and answer.code != "WHY401" else Level.WARNING
    message = answer.cause.removeprefix("no known cause of the dispatcher: ").removeprefix("WrongResultError: ")
    message = _from_package(message)
    at = answer.at
    on = f" on {run.device}" if run.device not in ("", "cpu") else ""
    same: object = message if run.trial == "import" else run.operator
    if at and (run.why == BY_FALLBACK or "RecursionError" in run.error or (run.inputs and run.frames)):
        same = f"{at} {run.error.replace(run.operator, '').rpartition(': ')[0]}"  # other operators reach the line, too
    owners = () if at is None else (f"registered at {_from_package(str(at))}",)
    fix = _from_package("; ".join(trial.fix.text for trial in answer.fixes[:2]))
    return Finding(
        answer.code or "trials",
        run.operator,
        None,
        f"{message}; found by the trial {run.trial}{on} with {run.inputs}" if run.inputs else message,
        owners,
        Level.INFORMATION if _lacks(run, answer) else level,
        f"{answer.code} {same}",
        in_its_language(fix, owners, run.operator.partition("::")[0]),
    )
