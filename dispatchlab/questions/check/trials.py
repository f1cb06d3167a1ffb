"""The trials of packages' operators: start their process, and make findings of what failed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.trial_run import TrialRun
from dispatchlab.questions.check.report import Answer as Answered
from dispatchlab.questions.check.report import Question
from dispatchlab.questions.check.trial_process import TrialAnswer, TrialRequest
from dispatchlab.questions.lint.rule import Finding, Level
from dispatchlab.questions.why.diagnose import Answer
from dispatchlab.views.formatting import counted

_BOOT: Final = "import sys; from dispatchlab.questions.check.trial_process import main; main(sys.argv[1:])"
_LACKING: Final = ("WHY401", "WHY501", "WHY508", "WHY531", "WHY601", "WHY631", "WHY602", "WHY603", "WHY605")
"""Causes that say what an operator does not have, which only its author knows to be wrong."""

_ERRORS: Final = ("signature", "call", "schema", "fake", "import", "registrations")
"""Trials whose failure breaks plain calls or what traces them."""


class TrialsFailedError(DispatchLabError):
    """The trials could not be run.

    Args:
        reason: why.
    """

    reason: str

    template = "{reason}"


class TrialProcess:
    """The process of the trials, which runs while other questions are asked; leaving the block ends it."""

    def __init__(self, request: TrialRequest) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._answer, given = Path(self._folder.name) / "answer", Path(self._folder.name) / "request"
        given.write_bytes(pickle.dumps(request))
        ours = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(self._answer), str(given)],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> TrialProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def answer(self, limit_s: float) -> TrialAnswer:
        """Return what came of the trials.

        Raises:
            TrialsFailedError: the process ended without an answer, or the inputs cannot be read.
        """
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)
        if not self._answer.exists():
            code = self._process.poll()
            how = f"there is no answer within {limit_s:g} s" if code is None else f"their process ended with {code}"
            raise TrialsFailedError(how)
        found: TrialAnswer = pickle.loads(self._answer.read_bytes())
        if found.error:
            raise TrialsFailedError(found.error)
        return found


def trials_answer(found: TrialAnswer, packages: Sequence[str], *, whole: bool) -> Answered:
    """Return what the trials say, with the command that decides what is left open."""
    runs = [run for run, _ in found.runs]
    operators = {run.operator for run in runs}
    if not operators:
        return Answered(Question.TRIALS, "no operator is registered", asked=False)
    counts = Counter(run.status for run in runs)
    text = f"{counted(len(operators), 'operator')}: {counted(counts['passed'], 'trial')} passed"
    text += f", {counts['failed']:,} failed" if counts["failed"] else ""
    command = f"dispatchlab check {' '.join(packages)}"
    notes = []
    without = sorted({run.operator for run in runs if run.status == "no input"})
    if without:
        names = ", ".join(without[:3]) + (f" and {len(without) - 3} more" if len(without) > 3 else "")
        notes.append(f"no input for {names}: {command} --inputs FILE.py")
    if not whole:
        notes.append(f"not run: what needs a compiler: {command} --run")
    notes += [f"{run.operator}: {run.trial} is open: {run.why}" for run in runs if run.status == "open"]
    return Answered(Question.TRIALS, text, tuple(_findings(found)), tuple(notes))


def _findings(found: TrialAnswer) -> Iterator[Finding]:
    seen: set[tuple[str, str, str]] = set()
    for run, answer in found.runs:
        if answer is None:
            continue
        key = (run.operator, answer.code, answer.error if not answer.code else "")
        if key not in seen:
            seen.add(key)
            yield finding_of(run, answer)


def finding_of(run: TrialRun, answer: Answer) -> Finding:
    """Return the finding of a trial that failed."""
    level = Level.ERROR if run.trial in _ERRORS else Level.WARNING
    level = Level.INFORMATION if answer.code in _LACKING else level
    level = Level.WARNING if answer.code == "WHY533" and "nothing records" in answer.cause else level
    message = answer.cause.removeprefix("no known cause of the dispatcher: ")
    shown = f"; {run.trial} with {run.inputs}: {run.error}" if run.inputs else ""
    mends = [trial.fix.text for trial in answer.fixes[:2]]
    owners = tuple(f"registered at {at}" for at in (answer.at,) if at is not None)
    return Finding(
        answer.code or "trials",
        run.operator,
        None,
        message + shown,
        owners,
        level,
        f"{answer.code} {run.operator}",
        "; ".join(mends),
    )
