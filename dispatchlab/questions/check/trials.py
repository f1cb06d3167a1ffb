"""The trials of packages' operators: start their process, and make findings of what failed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.trial_run import TrialRun
from dispatchlab.questions.check.report import Answer as Answered
from dispatchlab.questions.check.report import Question
from dispatchlab.questions.lint.rule import Finding, Level
from dispatchlab.questions.why.diagnose import Answer
from dispatchlab.views.formatting import counted, first_of

_BOOT: Final = "import sys; from dispatchlab.questions.check.trial_process import main; main(sys.argv[1:])"
_LACKING: Final = ("WHY401", "WHY501", "WHY508", "WHY531", "WHY622")
"""Causes that say what an operator does not have, which only its author knows to be wrong."""

_ERRORS: Final = ("signature", "call", "schema", "fake", "import", "registrations")
"""Trials whose failure breaks plain calls or what traces them."""


Run: TypeAlias = tuple[TrialRun, Answer | None]
"""A trial of an operator, and the cause where it failed."""


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """The request for trials.

    Args:
        packages: the modules, imported in this order.
        path: folders in which modules are found.
        inputs: a file of inputs; empty for none.
        whole: run the trials that need a compiler, too.
        seed: chooses generated inputs.
        submodules: modules of the packages that are imported afterwards; one that fails costs itself alone.
    """

    packages: tuple[str, ...]
    path: tuple[str, ...] = ()
    inputs: str = ""
    whole: bool = False
    seed: int = 0
    submodules: tuple[str, ...] = ()


class TrialsFailedError(DispatchLabError):
    """The trials could not be run.

    Args:
        reason: why.
    """

    reason: str

    template = "{reason}"


class TrialProcess:
    """The process of the trials, which runs while other questions are asked."""

    def __init__(self, process: subprocess.Popen[bytes], answer_file: Path) -> None:
        self._process, self._file = process, answer_file

    def runs(self, limit_s: float) -> list[Run]:
        """Return the results of the trials.

        Raises:
            TrialsFailedError: the process ended without an answer, or the inputs cannot be read.
        """
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)
        if not self._file.exists():
            code = self._process.poll()
            how = f"there is no answer within {limit_s:g} s" if code is None else f"their process ended with {code}"
            raise TrialsFailedError(how)
        found: list[Run] | str = pickle.loads(self._file.read_bytes())
        if isinstance(found, str):
            raise TrialsFailedError(found)
        return found


@contextmanager
def trial_process(request: TrialRequest) -> Iterator[TrialProcess]:
    """Start the process of the trials; leaving the block ends it."""
    with tempfile.TemporaryDirectory() as folder:
        answer_file, request_file = Path(folder) / "answer", Path(folder) / "request"
        request_file.write_bytes(pickle.dumps(request))
        path = os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"))))
        with subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(answer_file), str(request_file)],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield TrialProcess(process, answer_file)
            finally:
                process.kill()


def trials_answer(found: Sequence[Run], packages: Sequence[str], *, whole: bool) -> Answered:
    """Return the findings of the trials, with the command that decides open ones."""
    runs = [run for run, _ in found]
    operators = {run.operator for run in runs}
    if not operators:
        return Answered(Question.TRIALS, "no operator is registered", asked=False)
    counts = Counter(run.status for run in runs)
    text = f"{counted(len(operators), 'operator')}: {counted(counts['passed'], 'trial')} passed"
    text += f", {counts['failed']:,} failed" if counts["failed"] else ""
    command = f"dispatchlab check {' '.join(packages)}"
    without = sorted({run.operator for run in runs if run.status == "no input" and run.trial == "call"})
    notes = [f"no input for {first_of(without, 3)}: {command} --inputs FILE.py"] if without else []
    notes += [] if whole else [f"not run: what needs a compiler: {command} --run"]
    left = dict[tuple[str, str], list[str]]()
    for run in runs:
        if run.status == "open":
            left.setdefault((run.trial, run.why), []).append(run.operator)
    notes += [f"{trial} is open: {why}: {first_of(names, 3)}" for (trial, why), names in left.items()]
    findings = {
        (run.operator, answer.code or answer.error): finding_of(run, answer)
        for run, answer in reversed(found)
        if answer
    }
    return Answered(Question.TRIALS, text, tuple(reversed(findings.values())), tuple(notes))


def finding_of(run: TrialRun, answer: Answer) -> Finding:
    """Return the finding of a failed trial."""
    level = Level.ERROR if run.trial in _ERRORS else Level.WARNING
    message = answer.cause.removeprefix("no known cause of the dispatcher: ")
    return Finding(
        answer.code or "trials",
        run.operator,
        None,
        f"{message}; {run.trial} with {run.inputs}: {run.error}" if run.inputs else message,
        tuple(f"registered at {at}" for at in (answer.at,) if at is not None),
        Level.INFORMATION if answer.code in _LACKING else level,
        f"{answer.code} {run.operator}",
        "; ".join(trial.fix.text for trial in answer.fixes[:2]),
    )
