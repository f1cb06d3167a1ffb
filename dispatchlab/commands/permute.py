"""`dispatchlab permute`: explore scenarios and compare with what they expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from dispatchlab.commands.options import (
    JOBS,
    MOST_GIB,
    SCENARIO,
    SEED,
    NoEffectError,
    allow_import_option,
    check_page,
    cluster_option,
    engine_option,
    force_option,
    import_option,
    in_bytes,
    progress_option,
    quiet_option,
    refuse,
    report_option,
    semantics_option,
    view_format_option,
)
from dispatchlab.commands.output import (
    FOR_READING,
    Drawn,
    Format,
    OutputClosed,
    chosen_format,
    exit_with,
    is_quiet,
    note,
    out,
    out_paged,
    progress_display,
    rich_text,
    save,
    shown,
    warn,
)
from dispatchlab.errors import DispatchLabError
from dispatchlab.escape import printable

if TYPE_CHECKING:
    from dispatchlab.files.file_kinds import FileKind
    from dispatchlab.model.operator_view import OperatorView
    from dispatchlab.questions.dump.inspect_operators import Inspection
    from dispatchlab.questions.order.report import Report
    from dispatchlab.questions.order.run_scenario import Outcome, RunOptions
    from dispatchlab.questions.order.snapshots import Snapshots

_BAD_INPUT = 2
_MOST_OPERATORS = 5  # that are shown beside a verdict
_CLOSED_PIPE = 141


class OneScenarioError(DispatchLabError):
    """An option is about one scenario and there are several."""

    option: str
    count: int

    template = "{option} is for one scenario and {count} were given: name one file"


class PictureFormatError(DispatchLabError):
    """A graph can be a .dot or a .mmd file."""

    path: str

    template = "--graph {path}: expected a file that ends in .dot or .mmd"


@click.command()
@click.argument("scenarios", metavar="SCENARIO...", nargs=-1, required=True, type=SCENARIO)
@engine_option("Engine to explore. Default: lab.", default=None)
@semantics_option
@click.option(
    "--walk",
    type=click.Choice(["auto", "graph", "orders", "sample"]),
    default="auto",
    show_default=True,
    help="auto: prove by the strongest reduction that applies. graph: visit every state once, with no reduction. "
    "orders: run all n! times n! orders of registration and then release, which proves something of these alone. "
    "sample: take random walks, where the state graph is too large.",
)
@click.option("--samples", metavar="N", type=click.IntRange(min=1), help="With --walk sample: take N random walks.")
@click.option("--seed", metavar="N", type=SEED, default=0, show_default=True, help="Random seed.")
@click.option(
    "--passes",
    metavar="N",
    type=click.IntRange(min=1),
    help="With --engine torch: take every edge N times, since the state cannot be read. Default: 8.",
)
@click.option(
    "--free",
    is_flag=True,
    help="Take every registration by itself, and releases too, where a scenario has modules. Default: the orders in "
    "which the modules can be imported, each with its lines in program order.",
)
@click.option("--max-states", metavar="N", type=click.IntRange(min=1), help="Explore at most N states.")
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop after this many seconds. Default: 120 for each scenario with --engine torch, else no bound.",
)
@click.option(
    "--max-memory",
    metavar="GIB",
    type=click.FloatRange(min=0, min_open=True, max=MOST_GIB),
    callback=in_bytes,
    help="Stop when the states of a scenario need this many GiB of memory. Default: half of the machine's memory, "
    "shared by the jobs.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=JOBS,
    default=1,
    show_default=True,
    help="Explore N scenarios at once, at most one for each core.",
)
@cluster_option("Explore scenarios")
@click.option("--require-proof", is_flag=True, help="Exit with 3 when no violation was found and nothing was proved.")
@click.option(
    "--conform",
    is_flag=True,
    help="Also compare the live engine with its model, or with the one that --semantics names, step by step.",
)
@click.option(
    "--every-table",
    is_flag=True,
    help="With --engine torch: read the table after every step, which takes twice as long.",
)
@import_option()
@click.option(
    "--save",
    metavar="FILE",
    type=click.Path(),
    help="Save the counterexample: FILE.py is a program, FILE.yaml a small scenario.",
)
@click.option(
    "--graph",
    metavar="FILE.dot|.mmd",
    type=click.Path(),
    help="Write the graph of states with the counterexample marked: .dot for Graphviz, .mmd for Mermaid.",
)
@click.option(
    "--at",
    "moments",
    metavar="SEQUENCE",
    multiple=True,
    help="Also show the operators after these registrations, such as '0 2', or steps, such as '+0 +2 -0'; may be "
    "repeated. On a terminal, all registrations in the order of the file are shown without it, with --engine lab.",
)
@click.option(
    "--snapshots",
    is_flag=True,
    help="Also show what every registration and release leads to, with what each changes: of all orders, each state "
    "once, or of the sequences that --at names.",
)
@report_option(" of all scenarios, with pictures of states and their tables")
@force_option
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print the whole report of every scenario. Default: of several, one line for each that is as expected.",
)
@view_format_option()
@progress_option
@quiet_option
@allow_import_option
@click.pass_context
def permute(
    context: click.Context,
    /,
    *,
    scenarios: tuple[str, ...],
    jobs: int,
    cluster: str | None,
    format: Format | None,
    progress: bool | None,
    force: bool,
    verbose: bool,
    moments: tuple[str, ...],
    snapshots: bool,
    page: str | None,
    **options: Any,
) -> None:
    """Check whether the order of registrations matters.

    A folder stands for all scenarios below it. The exit code is the highest of theirs: 0 as the scenario expects, 1 not
    as expected, 2 bad input, 3 a bound was hit (or there is no proof and --require-proof), 4 nondeterministic, 5 the
    engine crashed; 130 after Ctrl-C, with what was covered until then.

    \b
    Examples:
      dispatchlab permute scenario.yaml
      dispatchlab permute scenarios/ --jobs 2 --format json
      dispatchlab permute scenario.yaml --semantics torch-2.13 --save found.yaml
      dispatchlab permute scenario.yaml --graph states.dot
      dispatchlab permute scenario.yaml --at '0 2'
      dispatchlab permute scenario.yaml --snapshots
      dispatchlab permute scenarios/ --report report.html
      dispatchlab permute scenarios/ --cluster tcp://10.0.0.1:8786
    """
    from dispatchlab.questions.order.run_scenario import RunOptions
    from dispatchlab.questions.order.run_scenarios import run_scenarios
    from dispatchlab.sources.find_sources import scenario_files

    asked = RunOptions(**options)
    _refuse_without_effect(context, asked)
    if cluster is not None:
        refuse(
            context, ("jobs",), "is for processes of this machine, and --cluster has its own: leave one of the two out"
        )
        refuse(context, ("save", "graph"), "is for this machine: leave --cluster out")
    files = scenario_files(scenarios, report=note)
    _check(asked, files, force=force)
    chosen = chosen_format(format)
    for option, given in (("--at", moments), ("--snapshots", snapshots)):
        if given and len(files) > 1:
            raise OneScenarioError(option, len(files))
    if chosen == "json" and not snapshots:
        refuse(context, ("moments",), "shows operators as text, and `dump --after SEQUENCE` has them as JSON: use it")
    _check_moments(moments, files, asked)
    if snapshots and not moments:
        _check_all_snapshots(files[0], asked)
    check_page(context, page, force=force, others=True)
    printer = _Printer(files, asked, chosen, force, verbose or len(files) == 1, moments, page, snapshots)
    interrupted = closed = False
    try:
        with (
            progress_display(progress) as display,
            closing(
                run_scenarios(
                    files, asked, jobs=jobs, cluster=cluster, progress=display.update, finished=display.finish
                )
            ) as outcomes,
        ):
            for _, outcome in outcomes:
                interrupted |= printer.print(outcome)
    except OutputClosed:
        closed = True
    except KeyboardInterrupt:
        warn("interrupted")
        interrupted = True
    if len(files) > 1 and not closed:
        closed = printer.print_summary()
    printer.save_page(interrupted=interrupted)
    exit_with(130 if interrupted else _CLOSED_PIPE if closed else printer.code)


def _refuse_without_effect(context: click.Context, asked: RunOptions) -> None:
    """Refuse what has no effect on this engine, or with this walk."""
    if asked.engine != "torch":
        of_live = "is for an engine whose state cannot be read: use it with --engine torch, or leave it out"
        refuse(context, ("passes", "every_table"), of_live)
    if asked.walk != "sample":
        refuse(context, ("samples",), "is the number of random walks: use it with --walk sample")
    if asked.walk in ("orders", "sample") and not asked.conform:
        refuse(context, ("passes",), f"is for --walk graph, and --walk {asked.walk} has no passes: leave one out")


def _check(asked: RunOptions, files: Sequence[str], *, force: bool) -> None:
    """Refuse options that have no effect together, and files that must not be written over, before anything runs."""
    single = {"--save": asked.save, "--graph": asked.graph}
    for option, value in single.items():
        if value is not None and len(files) > 1:
            raise OneScenarioError(option, len(files))
    if asked.graph is not None and asked.engine == "torch":
        reason = "draws the states of the lab engine, and those of PyTorch cannot be read: leave it out"
        raise NoEffectError("--graph", reason)
    if asked.graph is not None and not asked.graph.endswith((".dot", ".mmd")):
        raise PictureFormatError(asked.graph)
    if asked.save is not None or asked.graph is not None:
        from dispatchlab.files.file_kinds import FileKind, check_output
        from dispatchlab.questions.order.counterexamples import kept_kind

        if asked.save is not None:
            check_output(asked.save, kept_kind(asked.save), force=force)
        if asked.graph is not None:
            check_output(asked.graph, FileKind.STATE_GRAPH, force=force)


@dataclass
class _Printer:
    """Prints each outcome as soon as it is there, writes the requested files, and keeps the exit code."""

    files: Sequence[str]
    asked: RunOptions
    format: Format
    force: bool
    verbose: bool
    moments: tuple[str, ...]
    page: str | None
    steps: bool
    code: int = 0
    snapshots: Snapshots | None = None  # after each step, of the one scenario
    outcomes: list[Outcome | DispatchLabError] = field(default_factory=list)
    wrote_report: bool = False
    reports: int = 0
    as_expected: int = 0
    unreadable: int = 0
    build: str = ""  # the PyTorch of the operators that are shown

    def print(self, outcome: Outcome | DispatchLabError) -> bool:
        """Print the outcome of one scenario; whether it was interrupted."""
        if self.page is not None:
            self.outcomes.append(outcome)
        if isinstance(outcome, DispatchLabError):
            warn(str(outcome))
            self.unreadable += 1
            self.code = max(self.code, outcome.exit_code)
            return False
        for text in outcome.notes:
            note(f"note: {text}")
        report = outcome.report
        self.code = max(self.code, report.exit_code)
        if self.steps and not outcome.interrupted:
            self.snapshots = self._at_every_step()
        try:
            text = self._shown(report)
            if outcome.program is not None and len(self.files) == 1 and self.format != "json":
                about = "A program that shows it wherever PyTorch is installed; --save FILE.py keeps it."
                program = f"\n# {about}\n{outcome.program}"
                if self.format not in FOR_READING:
                    program = f"\n{about}\n\n```python\n{outcome.program}```\n"
                text = Drawn(text + printable(program)) if isinstance(text, Drawn) else text + program
            deliver = out_paged if len(self.files) == 1 and self.format != "json" else out
            deliver(text)
        finally:
            self._save(outcome)
        self.reports += 1
        self.as_expected += report.as_expected
        return outcome.interrupted

    def print_summary(self) -> bool:
        """Print the line that ends several reports; whether it has no reader."""
        text = self._summary()
        if self.format == "json":
            note(text)
            return False
        try:
            out(f"\n{text}\n")
        except OutputClosed:
            return True
        return False

    def save_page(self, *, interrupted: bool) -> None:
        """Write the report to keep, if one was asked for."""
        if self.page is None:
            return
        from dispatchlab.files.file_kinds import FileKind
        from dispatchlab.questions.order.blocks import Explored, permute_document
        from dispatchlab.views.html.backend import html_page

        outcomes = [outcome for outcome in self.outcomes if not isinstance(outcome, DispatchLabError)]
        seen = self._operators() if len(self.files) == 1 else []
        page = permute_document(
            [Explored(each.report, seen, each.notes, self.snapshots) for each in outcomes],
            failed=[str(each) for each in self.outcomes if isinstance(each, DispatchLabError)],
            summary=self._summary(),
            interrupted=interrupted,
        )
        self._write(self.page, html_page(page), FileKind.PAGE)

    def _summary(self) -> str:
        from dispatchlab.questions.order.report_text import summary

        return summary(
            self.reports,
            as_expected=self.as_expected,
            unreadable=self.unreadable,
            not_explored=len(self.files) - self.reports - self.unreadable,
        )

    def _shown(self, report: Report) -> str:
        if self.format != "json" and not report.exit_code and not self.verbose:
            from dispatchlab.questions.order.report_text import line_of

            gap = "\n" if self.wrote_report else ""
            self.wrote_report = False
            line = f"{line_of(report)}\n"
            if self.format not in FOR_READING:
                from dispatchlab.views.blocks import Items
                from dispatchlab.views.view import View

                line = shown(self.format, View(report, lambda report: (Items((line_of(report),)),)))
            return "" if is_quiet() else f"{gap}{line}"
        from dispatchlab.questions.order.blocks import report_view

        self.wrote_report = True
        gap = "\n" if self.reports and self.format != "json" else ""
        if self.format == "rich":
            seen = self._operators() if len(self.files) == 1 and not self.steps else []
            view = report_view(report, seen=seen, snapshots=self.snapshots, torch=self.build)
            return Drawn(gap + rich_text(view.draw))
        text = gap + shown(self.format, report_view(report, snapshots=self.snapshots))
        return text + "".join(map(_moment_text, self._seen() if self.format == "text" and not self.steps else ()))

    def _at_every_step(self) -> Snapshots | None:
        """The snapshots after each step; where they cannot be shown, the exit code says so."""
        from dispatchlab.questions.order.snapshots import snapshots_of_file

        try:
            return snapshots_of_file(
                self.files[0],
                [_steps_of(moment) for moment in self.moments],
                engine=self.asked.engine or "lab",
                semantics=self.asked.semantics,
                imports=self.asked.imports,
                allow_import=self.asked.allow_import,
            )
        except DispatchLabError as error:
            self._fail(str(error))
            return None

    def _operators(self) -> list[tuple[str, list[OperatorView]]]:
        """The same with their reasons."""
        made = []
        for title, found in self._seen(full=True):
            self.build = found.build
            made.append((title, [found.view(one.operator) for one in found.snapshots if one.exists]))
        return made

    def _seen(self, *, full: bool = False) -> Iterator[tuple[str, Inspection]]:
        """The operators at the moments that were asked for; before them with everything registered, if `full`."""
        if full and self.asked.engine in (None, "lab"):
            try:
                title, found = self._at(None)
                if any(snapshot.exists for snapshot in found.snapshots):  # a scenario of Python alone makes no operator
                    yield title, found
            except DispatchLabError as error:  # the verdict stands, and so does its exit code
                note(f"note: the operators cannot be shown: {error}")
        for moment in self.moments:
            yield self._at(moment)

    def _at(self, moment: str | None) -> tuple[str, Inspection]:
        from dispatchlab.questions.dump.inspect_operators import InspectOptions, inspect_scenario

        found = inspect_scenario(
            self.files[0],
            after=None if moment is None else _steps_of(moment),
            most=_MOST_OPERATORS,
            options=InspectOptions(
                self.asked.engine or "lab", self.asked.semantics, self.asked.imports, self.asked.allow_import
            ),
        )
        what = "all registrations, in the order of the file" if moment is None else moment
        refused = f", {len(found.refused)} refused" if found.refused else ""
        return f"after {what}{refused}", found

    def _save(self, outcome: Outcome) -> None:
        """Write the requested files; one that cannot be written makes a success a failure."""
        from dispatchlab.files.file_kinds import FileKind
        from dispatchlab.questions.order.counterexamples import kept_kind

        if self.asked.save is not None:
            if outcome.not_saved is not None:
                self._fail(outcome.not_saved)
            elif outcome.saved is None:
                note(f"note: there is no counterexample, so {self.asked.save} was not written")
            else:
                self._write(self.asked.save, outcome.saved, kept_kind(self.asked.save))
        if self.asked.graph is not None:
            if outcome.graph is None:
                self._fail(outcome.not_drawn or "the graph was not drawn: the exploration was interrupted")
            else:
                from dispatchlab.questions.order.state_graph_text import dot_text, mermaid_text

                picture = (dot_text if self.asked.graph.endswith(".dot") else mermaid_text)(outcome.graph)
                self._write(self.asked.graph, picture, FileKind.STATE_GRAPH)

    def _write(self, path: str, text: str, kind: FileKind) -> None:
        try:
            save(path, text, kind, force=self.force)
        except DispatchLabError as error:
            self._fail(str(error))

    def _fail(self, trouble: str) -> None:
        warn(trouble)
        self.code = self.code or _BAD_INPUT


def _check_moments(moments: Sequence[str], files: Sequence[str], asked: RunOptions) -> None:
    """Refuse what is no sequence of the scenario, before anything runs."""
    if not moments:
        return
    from dispatchlab.model.sequence import parse_sequence
    from dispatchlab.scenario.load import load_scenario

    count = len(load_scenario(files[0], allow_import=asked.allow_import).registrations)
    for moment in moments:
        parse_sequence(_steps_of(moment), count=count)


def _check_all_snapshots(file: str, asked: RunOptions) -> None:
    """Refuse all orders where there is no graph of states, before anything runs."""
    from dispatchlab.questions.order.run_scenario import FreeOptionError
    from dispatchlab.scenario.load import load_scenario

    if asked.engine == "torch":
        raise NoEffectError(
            "--snapshots", "shows states, and those of PyTorch cannot be read: name sequences with --at"
        )
    if load_scenario(file, allow_import=asked.allow_import).modules and not asked.free:
        raise FreeOptionError("--snapshots")


def _steps_of(moment: str) -> str:
    """A sequence in full: `0 2` is `+0 +2`."""
    return " ".join(f"+{word}" if word.isascii() and word.isdigit() else word for word in moment.split())


def _moment_text(seen: tuple[str, Inspection]) -> str:
    from dispatchlab.questions.dump.operator_text import operator_text

    title, found = seen
    return f"\n{title}\n\n" + "\n".join(operator_text(snapshot) for snapshot in found.snapshots if snapshot.exists)
