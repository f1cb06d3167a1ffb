"""`dispatchlab permute`: one report for each scenario, a summary, and the worst exit code of them all."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from dispatchlab.analysis.report import Report
from dispatchlab.analysis.run_scenario import Asked, Outcome
from dispatchlab.analysis.run_scenarios import WorkerDied, run_scenarios
from dispatchlab.analysis.sources import scenario_files
from dispatchlab.analysis.state_graph import StateGraph
from dispatchlab.atomic_write import WriteError, write_file
from dispatchlab.commands.output import Format, OutputClosed, chosen_format, note, out
from dispatchlab.errors import DispatchLabError
from dispatchlab.explore.protocol import EngineCrashed
from dispatchlab.render.progress import BarDisplay, Display, LineDisplay, NoDisplay

BAD_INPUT = 2
CRASHED = 5
INTERRUPTED = 130
CLOSED_PIPE = 141


class OneScenarioError(DispatchLabError):
    """An option is about one scenario and there are several."""

    def __init__(self, option: str, count: int) -> None:
        super().__init__(option, count)
        self.option, self.count = option, count

    def __str__(self) -> str:
        return f"{self.option} is for one scenario and {self.count} were given: name one file"


class PictureFormatError(DispatchLabError):
    """A picture can be a .dot or a .svg file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"--graph {self.path}: expected a file that ends in .dot or .svg"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermuteRequest:
    """What was asked for; each field is an option of the command."""

    scenarios: tuple[str, ...]
    asked: Asked = field(default_factory=Asked)
    jobs: int = 1
    format: Format | None = None
    color: bool = True
    progress: bool | None = None


def permute(request: PermuteRequest) -> int:
    """Explore each scenario and print its report as soon as it is there.

    Returns:
        The highest exit code of the scenarios: 0 as expected, 1 not, 2 bad input, 3 incomplete or not proved where
        that is required, 4 nondeterministic, 5 the engine died; 130 after Ctrl-C, 141 when nobody reads the output.

    Raises:
        DispatchLabError: the options make no sense together.
    """
    files = scenario_files(request.scenarios)
    _check(request, files)
    return _Run(request, files).run()


def _check(request: PermuteRequest, files: Sequence[str]) -> None:
    single = {"--save": request.asked.save, "--replay": request.asked.replay, "--graph": request.asked.graph}
    for option, value in single.items():
        if value is not None and len(files) > 1:
            raise OneScenarioError(option, len(files))
    graph = request.asked.graph
    if graph is not None and not graph.endswith((".dot", ".svg")):
        raise PictureFormatError(graph)


class _Run:
    def __init__(self, request: PermuteRequest, files: Sequence[str]) -> None:
        self.request = request
        self.files = files
        self.format = chosen_format(request.format)
        self.code = 0
        self.reports = self.as_expected = self.unreadable = 0

    def run(self) -> int:
        interrupted = closed = False
        try:
            with (
                _display(self.request) as display,
                closing(
                    run_scenarios(
                        self.files,
                        self.request.asked,
                        jobs=self.request.jobs,
                        progress=display.update,
                        finished=display.finish,
                    )
                ) as outcomes,
            ):
                for _, outcome in outcomes:
                    interrupted |= self._take(outcome)
        except OutputClosed:
            closed = True
        except KeyboardInterrupt:
            note("interrupted")
            interrupted = True
        if len(self.files) > 1 and not closed:
            closed = self._summary()
        if interrupted:
            return INTERRUPTED
        return CLOSED_PIPE if closed else self.code

    def _take(self, outcome: Outcome | DispatchLabError) -> bool:
        """Show what became of a scenario; whether it was interrupted."""
        if isinstance(outcome, DispatchLabError):
            note(str(outcome))
            self.unreadable += 1
            self.code = max(self.code, CRASHED if isinstance(outcome, WorkerDied | EngineCrashed) else BAD_INPUT)
            return False
        for text in outcome.notes:
            note(f"note: {text}")
        report = outcome.report
        self.code = max(self.code, report.exit_code)
        try:
            out(self._shown(report, first=self.reports == 0))
            if outcome.program is not None and len(self.files) == 1 and self.format != "json":
                out(f"\n# A program that shows it to whoever has PyTorch; --save FILE.py keeps it.\n{outcome.program}")
        finally:
            self._save(outcome)
        self.reports += 1
        self.as_expected += report.as_expected
        return outcome.interrupted

    def _shown(self, report: Report, *, first: bool) -> str:
        match self.format:
            case "json":
                from dispatchlab.render.json_view import report_json

                return report_json(report)
            case "text":
                from dispatchlab.render.text import report_text

                return report_text(report) if first else f"\n{report_text(report)}"
            case "rich":
                from dispatchlab.render.rich_view import console, print_report

                terminal = console(sys.stdout, color=self.request.color)
                with terminal.capture() as captured:
                    print_report(terminal, report)
                return captured.get()

    def _save(self, outcome: Outcome) -> None:
        """Write the files that were asked for; one that cannot be written makes a success a failure."""
        if self.request.asked.save is not None:
            if outcome.not_saved is not None:
                note(outcome.not_saved)
                self.code = self.code or BAD_INPUT
            elif outcome.saved is None:
                note(f"note: there is no counterexample, so {self.request.asked.save} was not written")
            else:
                self._write(self.request.asked.save, outcome.saved)
        if self.request.asked.graph is not None:
            if outcome.graph is not None:
                self._write(self.request.asked.graph, _picture(outcome.graph, self.request.asked.graph))
            else:
                note(outcome.not_drawn or "the graph was not drawn: the exploration was interrupted")
                self.code = self.code or BAD_INPUT

    def _write(self, path: str, text: str) -> None:
        try:
            write_file(path, text)
        except WriteError as error:
            note(str(error))
            self.code = self.code or BAD_INPUT

    def _summary(self) -> bool:
        """Print the line that ends several reports; whether nobody reads it."""
        left = len(self.files) - self.reports - self.unreadable
        from dispatchlab.render.text import summary

        text = summary(self.reports, as_expected=self.as_expected, unreadable=self.unreadable, not_explored=left)
        if self.format == "json":
            note(text)
            return False
        try:
            out(f"\n{text}\n")
        except OutputClosed:
            return True
        return False


def _picture(graph: StateGraph, path: str) -> str:
    from dispatchlab.render.state_graph import dot, svg

    return svg(graph) if path.endswith(".svg") else dot(graph)


def _display(request: PermuteRequest) -> Display:
    """Bars on a terminal; elsewhere nothing, or lines when they are asked for."""
    if request.progress is False:
        return NoDisplay()
    if sys.stderr.isatty():
        return BarDisplay(sys.stderr, color=request.color)
    return LineDisplay(sys.stderr) if request.progress else NoDisplay()
