"""The outcomes of scenarios as `permute` shows them: one by one, and all of them as a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dispatchlab.errors import DispatchLabError, RequestError
from dispatchlab.files import FileKind, check_output
from dispatchlab.questions.order.blocks import explored_view, line_of, permute_document
from dispatchlab.questions.order.report import Explored
from dispatchlab.questions.order.report_text import summary
from dispatchlab.questions.order.run_scenario import Outcome, RunOptions
from dispatchlab.views.blocks import Document
from dispatchlab.views.view import View

if TYPE_CHECKING:
    from dispatchlab.model.operator_view import OperatorView
    from dispatchlab.questions.order.snapshots import Snapshots

_BAD_INPUT = 2
_MOST_OPERATORS = 5  # that are shown beside a verdict


def check_files(files: Sequence[str], options: RunOptions, *, snapshots: bool) -> None:
    """Refuse unwritable files before the run, and options for one scenario if there are several.

    Raises:
        DispatchLabError: a file or an option is refused.
    """
    asked = {"--save": options.save, "--snapshots": snapshots or None}
    for option, value in asked.items():
        if value is not None and len(files) > 1:
            raise RequestError(f"{option} works with one scenario, but {len(files)} were given: name one file")
    if options.save is not None:
        from dispatchlab.questions.order.counterexamples import kept_kind

        check_output(options.save, kept_kind(options.save))
    if snapshots and options.engine == "torch":
        raise RequestError("--snapshots: the states of PyTorch cannot be read: leave it out")


_UNPROVED = "no violation was found, but that is no proof, so --require-proof ends with exit code 3"


@dataclass
class Outcomes:
    """The outcomes so far.

    Args:
        files: all scenarios.
        options: the options of the runs.
        details: show the whole report of every scenario, not one line for expected results.
        with_snapshots: show the result of every registration and release.
        with_operators: observe the operators of one scenario, for a page.
        shows_operators: also show these operators, which plain text and JSON do not.
        report: a function that gets a sentence about each thing that cannot be shown or written.
        code: the exit code so far.
    """

    files: Sequence[str]
    options: RunOptions
    details: bool
    with_snapshots: bool
    with_operators: bool
    shows_operators: bool
    report: Callable[[str], None]
    code: int = 0
    _explored: list[Explored] = field(default_factory=list)
    _failed: list[str] = field(default_factory=list)

    def take(self, outcome: Outcome | DispatchLabError) -> View[object] | None:
        """Return the view of an outcome; if the scenario cannot be run, report it and return None."""
        if isinstance(outcome, DispatchLabError):
            self._failed.append(str(outcome))
            self._fail(str(outcome), outcome.exit_code)
            return None
        for text in outcome.notes:
            self.report(f"note: {text}")
        report = outcome.report
        self.code = max(self.code, report.exit_code)
        if report.as_expected and report.exit_code:
            self.report(f"note: {report.scenario}: {_UNPROVED}")
        snapshots = self._snapshots() if self.with_snapshots and not outcome.interrupted else None
        shows = self.with_operators and len(self.files) == 1 and snapshots is None and self.options.engine != "torch"
        build, seen = self._operators() if shows else ("", [])
        self._explored.append(Explored(report, seen, outcome.notes, snapshots))
        is_one = len(self.files) == 1
        if not (is_one or self.details or report.exit_code):
            return View(report, lines=lambda _: (line_of(report),))
        program = (outcome.program or "") if is_one else ""
        shown = Explored(report, seen if self.shows_operators else (), snapshots=snapshots)
        return explored_view(shown, program=program, torch=build, details=self.details, is_last=is_one)

    def files_of(self, outcome: Outcome) -> Iterator[tuple[str, str, FileKind]]:
        """Return the path, text and kind of the requested file; report a file that cannot be written."""
        save = self.options.save
        if save is not None and outcome.not_saved is not None:
            self._fail(outcome.not_saved)
        elif save is not None and outcome.saved is None:
            self.report(f"note: there is no counterexample, so {save} was not written")
        elif save is not None and outcome.saved is not None:
            from dispatchlab.questions.order.counterexamples import kept_kind

            yield save, outcome.saved, kept_kind(save)

    @property
    def summary(self) -> str:
        """The line that ends the reports of several scenarios."""
        reports, failed = [one.report for one in self._explored], len(self._failed)
        good, rest = sum(report.as_expected for report in reports), len(self.files) - len(reports) - failed
        return summary(len(reports), as_expected=good, unreadable=failed, not_explored=rest)

    def document(self, *, interrupted: bool) -> Document:
        """Return all outcomes as a page."""
        return permute_document(self._explored, failed=self._failed, summary=self.summary, interrupted=interrupted)

    def _fail(self, trouble: str, code: int = _BAD_INPUT) -> None:
        self.report(trouble)
        self.code = max(self.code, code)

    def _snapshots(self) -> Snapshots | None:
        from dispatchlab.questions.order.snapshots import snapshots_of_file

        try:
            return snapshots_of_file(
                self.files[0], semantics=self.options.semantics, allow_import=self.options.allow_import
            )
        except DispatchLabError as error:
            self._fail(str(error))
            return None

    def _operators(self) -> tuple[str, list[tuple[str, list[OperatorView]]]]:
        """Return the version of PyTorch, and the operators with everything registered, with a title."""
        from dispatchlab.questions.dump.inspect_scenario import InspectOptions, inspect_scenario

        how = InspectOptions(semantics=self.options.semantics, allow_import=self.options.allow_import)
        try:
            found = inspect_scenario(self.files[0], most=_MOST_OPERATORS, options=how)
        except DispatchLabError as error:  # the verdict stands, and so does its exit code
            self.report(f"note: the operators cannot be shown: {error}")
            return "", []
        views = [found.view(one.operator) for one in found.snapshots if one.exists]
        refused = f", {len(found.refused)} refused" if found.refused else ""
        title = f"after all registrations, in the order of the file{refused}"
        return found.build, [(title, views)] if views else []
