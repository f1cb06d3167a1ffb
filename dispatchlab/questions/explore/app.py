"""The application: its panes, its keys, and what they do to the session."""

from __future__ import annotations

import os
import signal
from asyncio import get_running_loop
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, TypeAlias

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import ContentSwitcher, Footer, OptionList, Static
from textual.worker import get_current_worker

from dispatchlab.errors import DispatchLabError
from dispatchlab.escape import one_line, printable
from dispatchlab.files import FileKind, check_output, marked, write_file
from dispatchlab.model.names import OperatorName
from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.limits import Progress
from dispatchlab.questions.explore.call_text import explain_call
from dispatchlab.questions.explore.panes import (
    AroundPane,
    CheckPane,
    ExplainPane,
    RegistrationList,
    SequenceList,
    TextPane,
    drawn,
)
from dispatchlab.questions.explore.screens import HelpScreen, SaveScreen, SearchScreen
from dispatchlab.questions.explore.session import Around, InteractiveSession, Runner, SessionError, StoppedError
from dispatchlab.questions.explore.session_subject import Catalogue, Subject, saved_scenario
from dispatchlab.questions.explore.texts import (
    Compared,
    around_head,
    comparison_text,
    dump_text,
    explanation_lines,
    neighbour_text,
    registration_texts,
    sequence_texts,
    table_text,
    verdict_text,
)
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.views.console import plain
from dispatchlab.views.styles import BAD, WARNING

PaneName: TypeAlias = Literal["registrations", "sequence", "table", "around", "explain", "check"]

CHECKED_AT_ONCE = 8
"""Up to so many registrations every order is checked on the lab engine as soon as a subject is opened."""

MOST_NEIGHBOURS = 64
"""Of so many registrations the neighbours are listed."""

_CHECK_TIMEOUT_S = 600.0
_UNEXPECTED = 70
_SIDE = {"around": "Around", "explain": "Explain", "check": "Check"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all sessions of one run of the application share.

    Args:
        runner: makes the registrations of a subject run on the engine.
        catalogue: opens the registry that is searched.
        options: of the check of every order.
        engine_title: the engine, for a reader; the lab's is the name of its semantics.
    """

    runner: Callable[[Subject], Runner]
    catalogue: Callable[[], Catalogue]
    options: RunOptions
    engine_title: str = ""


class ExplorerApp(App[None]):
    """An interactive session in a terminal.

    Args:
        setting: the engine and the registry.
        subject: what to begin with; None begins with the search.
        query: what is searched for at first, when there is no subject.
    """

    CSS_PATH = "explorer.tcss"
    TITLE = "dispatchlab explore"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (56, "-narrow"), (110, "-wide")]  # noqa: RUF012  textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u,ctrl+z", "undo", "Undo"),
        Binding("y,ctrl+y", "redo", "Redo"),
        Binding("r", "show('registrations')", "Registrations", show=False),
        Binding("t", "show('table')", "Table"),
        Binding("a", "show('around')", "Around"),
        Binding("e", "show('explain')", "Explain"),
        Binding("c", "show('check')", "Check"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("s", "save", "Save"),
        Binding("question_mark,f1", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("o", "next_operator", "Next operator", show=False),
        Binding("d", "dump", "Dump", show=False),
        Binding("l", "light", "Light or dark", show=False),
        *(Binding(str(digit), f"press({digit})", "Press", show=False) for digit in range(10)),
    ]

    def __init__(self, setting: Setting, subject: Subject | None, *, query: str = "") -> None:
        super().__init__()
        self._setting, self._first, self._query = setting, subject, query
        self._subject: Subject | None = None
        self._session: InteractiveSession | None = None
        self._runner: Runner | None = None
        self._operator = 0
        self._shows_dump = False
        self._around: Around | None = None
        self.report: Report | None = None  # what the check of every order found
        self._check_state = ""
        self._step = 0
        self.failure: Exception | None = None
        self.ended_by: signal.Signals | None = None

    def _handle_exception(self, error: Exception) -> None:
        """End with an unexpected error, for the command to report; textual would exit with 1, a verdict."""
        if self.is_headless:  # a test
            super()._handle_exception(error)
            return
        self.failure = self.failure or error
        self.exit(return_code=_UNEXPECTED)

    def _end_on_signals(self) -> None:
        """End between two callbacks: an interrupt inside of one would leave its traceback behind."""

        def end(by: signal.Signals) -> None:
            self.ended_by = by
            self.exit()

        for each in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # on Windows
                get_running_loop().add_signal_handler(each, end, each)

    # -- what is drawn

    def compose(self) -> ComposeResult:
        """The title, the panes, and the keys."""
        yield Static(id="title", markup=False)
        with Horizontal(id="body", classes="pane-table"):
            with Vertical(id="left"):
                yield RegistrationList(id="registrations", title="Registrations")
                yield SequenceList(id="sequence", title="Sequence")
            yield TextPane(id="table", title="Table")
            with ContentSwitcher(initial="around", id="side"):
                yield AroundPane(id="around")
                yield ExplainPane(id="explain")
                yield CheckPane(id="check")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Open the first subject, or the search."""
        if not self.is_headless:
            self._end_on_signals()
        self._title_side()
        if self._first is not None:
            self.open_subject(self._first)
        else:
            self.action_search()

    def on_resize(self) -> None:
        """Draw what depends on the width anew."""
        self.call_after_refresh(self._draw_check)

    @property
    def session(self) -> InteractiveSession:
        """The session; there is one as soon as a subject is open."""
        assert self._session is not None
        return self._session

    @property
    def subject(self) -> Subject:
        """What the session is about."""
        assert self._subject is not None
        return self._subject

    @property
    def operator(self) -> OperatorName:
        """The operator that is shown."""
        return self.subject.operators[self._operator]

    def open_subject(self, subject: Subject) -> None:
        """Begin a session about another subject; when it cannot be opened, the one before stays."""
        if self._runner is not None:
            self.workers.cancel_group(self, "around")
            self._runner.close()  # of sandboxes on one PyTorch, fallbacks would meet; it opens another when it is asked
        runner: Runner | None = None
        try:
            runner = self._setting.runner(subject)
            session = InteractiveSession(
                runner,
                len(subject.registrations),
                subject.operators,
                order=subject.scenario.order,
                start=subject.start,
            )
        except DispatchLabError as error:
            if runner is not None:
                runner.close()
            self._complain(error)
            return
        self._subject, self._runner, self._session = subject, runner, session
        self._operator, self._around, self.report, self._step = 0, None, None, 0
        self.workers.cancel_group(self, "check")
        self._check_state = ""
        for note in subject.notes:
            self.notify(printable(note), markup=False)
        self._draw()
        self.query_one("#sequence", SequenceList).show_end()
        self.query_one("#registrations").focus()
        if self._setting.options.engine in (None, "lab") and len(subject.registrations) <= CHECKED_AT_ONCE:
            self._check()

    def _draw(self) -> None:
        session, subject = self.session, self.subject
        moment = session.moment
        changed = moment.active ^ session.before.active if session.action else frozenset()
        self.query_one(RegistrationList).show_lines(registration_texts(subject, moment, changed))
        self.query_one(SequenceList).show_lines(sequence_texts(subject, moment))
        table = self.query_one("#table", TextPane)
        if self._shows_dump:
            table.show_text(dump_text(moment, self.operator))
        else:
            view = moment.seen(self.operator).view
            table.show_text(table_text(self.operator, view, session.changes(self.operator), session.action))
        several = len(subject.operators)
        which = f" of {printable(str(self.operator))}, {self._operator + 1} of {several} (o)" if several > 1 else ""
        table.border_title = Text(f"{'Dump' if self._shows_dump else 'Table'}{which}").markup
        self._draw_title()
        self._draw_explanation(self.query_one(ExplainPane).call)
        self._look_around()

    def _draw_title(self) -> None:
        subject, setting = self.subject, self._setting
        engine = setting.engine_title or f"{subject.semantics.name} on the lab engine"
        title = Text().append_text(plain(subject.title, "bold"))
        if subject.origin:
            title.append_text(plain(f" of {subject.origin}"))
        if self.report is not None:
            title.append("  ").append_text(verdict_text(self.report).split("  ")[0])
        title.append_text(plain(f"  {engine}", "dim"))
        title.append_text(plain(f"  {format_sequence(self.session.sequence)}"))
        self.query_one("#title", Static).update(drawn(self.query_one("#title"), title))

    def _title_side(self) -> None:
        side = self.query_one("#side", ContentSwitcher)
        names = (f"[b]{title}[/]" if name == side.current else title for name, title in _SIDE.items())
        side.border_title = " │ ".join(names)

    # -- actions

    def action_press(self, index: int) -> None:
        """Register or release a registration."""
        self._do(lambda: self.session.toggle(index))

    def action_undo(self) -> None:
        """Take the last action back."""
        self._do(self.session.undo)

    def action_redo(self) -> None:
        """Take the last undo back."""
        self._do(self.session.redo)

    def action_next_operator(self) -> None:
        """Show the next operator."""
        if self._session is not None:
            self._operator = (self._operator + 1) % len(self.subject.operators)
            self._draw()

    def action_dump(self) -> None:
        """Show the dump as text, or the table."""
        self._shows_dump = not self._shows_dump
        if self._session is not None:
            self._draw()

    def action_light(self) -> None:
        """Change between light and dark."""
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_leave(self) -> None:
        """Go back to the registrations."""
        self.query_one("#registrations").focus()

    def action_show(self, name: PaneName) -> None:
        """Show a pane and go there."""
        body = self.query_one("#body")
        where = "side" if name in _SIDE else "left" if name in ("registrations", "sequence") else "table"
        body.set_classes(f"pane-{where}")
        if name in _SIDE:
            self.query_one("#side", ContentSwitcher).current = name
            self._title_side()
            self.call_after_refresh(self._draw_check)  # a pane has a width once it is shown
        target = {"around": "#neighbours", "explain": "#call", "check": "#check-text"}.get(name, f"#{name}")
        self.query_one(target).focus()

    def action_help(self) -> None:
        """Show all keys."""
        self.push_screen(HelpScreen())

    def action_search(self) -> None:
        """Search the registry, and open what is chosen."""
        try:
            catalogue, query = self._setting.catalogue(), self._query
        except DispatchLabError as error:
            self._complain(error)
            return
        self._query = ""

        def chosen(name: str | None) -> None:
            if name is not None:
                with self._complaining():
                    self.open_subject(catalogue.subject(name))
            elif self._session is None:
                self.exit()

        self.push_screen(SearchScreen(catalogue.search, catalogue.source, query), chosen)

    def action_save(self) -> None:
        """Ask for a file, and save the sequence in it."""
        if self._session is None:
            return
        if not self.session.sequence:
            self._complain(SessionError("there is nothing to save: the sequence is empty"))
            return

        def chosen(path: str | None) -> None:
            if path is not None:
                with self._complaining():
                    self.save(path)

        self.push_screen(SaveScreen("explored.yaml", format_sequence(self.session.sequence)), chosen)

    def save(self, path: str) -> None:
        """Save the sequence as a scenario.

        Raises:
            OverwriteError: the file holds something else than a scenario that was written.
            WriteError: it cannot be written.
            UnwritableError: a registration cannot be written.
        """
        check_output(path, FileKind.SCENARIO)
        text, _ = saved_scenario(self.subject, self.session.sequence, path=path)
        write_file(path, marked(text, FileKind.SCENARIO, path))
        self.notify(one_line(f"wrote {os.path.abspath(path)}"), markup=False)

    def _do(self, action: Callable[[], None]) -> None:
        """Change the session and draw it; a sentence when that is not possible."""
        if self._session is None:
            return
        with self._complaining():
            length = len(self.session.sequence)
            action()
            self._draw()
            if len(self.session.sequence) > length:
                self.query_one(SequenceList).show_end()

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        """Show the sentence of an error in place of ending the application."""
        try:
            yield
        except DispatchLabError as error:
            self._complain(error)

    def _complain(self, error: DispatchLabError) -> None:
        self.notify(printable(str(error)), severity="error", markup=False)

    # -- the lists

    @on(OptionList.OptionSelected, "#registrations")
    def _pressed(self, event: OptionList.OptionSelected) -> None:
        self._do(lambda: self.session.toggle(event.option_index))

    @on(OptionList.OptionSelected, "#sequence")
    def _gone_back(self, event: OptionList.OptionSelected) -> None:
        self._do(lambda: self.session.cut(event.option_index + 1))

    @on(SequenceList.Moved)
    def _moved(self, event: SequenceList.Moved) -> None:
        self._do(lambda: self.session.move(event.at, event.to))
        steps = self.query_one(SequenceList)
        steps.highlighted = min(event.to, steps.option_count - 1)

    @on(SequenceList.Removed)
    def _removed(self, event: SequenceList.Removed) -> None:
        self._do(lambda: self.session.remove(event.at))

    @on(OptionList.OptionSelected, "#neighbours")
    def _neighbour(self, event: OptionList.OptionSelected) -> None:
        if self._around is not None and event.option_index < len(self._around.neighbours):
            step = self._around.neighbours[event.option_index].step
            self._do(lambda: self.session.toggle(max(step, ~step)))

    # -- around

    def _look_around(self) -> None:
        indices = self.subject.concerning(self.operator)[:MOST_NEIGHBOURS]
        work = partial(self._around_of, self.session, self.operator, indices)
        self.run_worker(work, thread=True, exclusive=True, group="around")

    def _around_of(self, session: InteractiveSession, operator: OperatorName, indices: Sequence[int]) -> None:
        worker = get_current_worker()
        try:
            found = session.around(operator, indices, cancelled=lambda: worker.is_cancelled)
        except StoppedError:
            return
        except DispatchLabError as error:
            self.call_from_thread(self._complain, error)
            return
        if not worker.is_cancelled:
            self.call_from_thread(self._draw_around, found)

    def _draw_around(self, found: Around) -> None:
        if found.sequence != self.session.sequence:
            return
        self._around = found
        lines = [neighbour_text(one, self.subject) for one in found.neighbours]
        self.query_one(AroundPane).show_around(around_head(found, self.subject), lines)

    # -- explain

    @on(ExplainPane.Typed)
    def _typed(self, event: ExplainPane.Typed) -> None:
        if self._session is not None:
            self._draw_explanation(event.call)

    def _draw_explanation(self, call: str) -> None:
        try:
            text = explanation_lines(explain_call(self.session.moment.seen(self.operator).view, call), self.subject)
        except DispatchLabError as error:
            text = plain(str(error), WARNING)
        self.query_one(ExplainPane).show_text(text)

    # -- the check of every order

    @on(CheckPane.Asked)
    def _asked(self, event: CheckPane.Asked) -> None:
        if self._session is None:
            return
        counterexample = None if self.report is None else self.report.exploration.counterexample
        match event.what:
            case "check" if self._check_state:
                self.workers.cancel_group(self, "check")
                self._check_state = ""
            case "check":
                self._check()
                return
            case "back":
                self._step = max(0, self._step - 1)
            case "forward" if counterexample is not None:
                longest = max(len(counterexample.expected_sequence), len(counterexample.actual_sequence))
                self._step = min(longest, self._step + 1)
            case "load" if counterexample is not None:
                sequence = counterexample.actual_sequence
                self._do(lambda: self.session.load(sequence, "counterexample"))
        self._draw_check()

    def _check(self) -> None:
        self.report, self._step, self._check_state = None, 0, "checking every order"
        self._draw_check()
        self.run_worker(partial(self._checked, self.subject), thread=True, exclusive=True, group="check")

    def _checked(self, subject: Subject) -> None:
        worker, setting = get_current_worker(), self._setting
        options = replace(setting.options, timeout_s=_CHECK_TIMEOUT_S)

        def progress(value: Progress) -> None:
            if not worker.is_cancelled:
                self.call_from_thread(self._check_came_to, subject, f"checking every order: {value.states:,} states")

        try:
            outcome = run_scenario(subject.scenario, options, progress=progress, cancelled=lambda: worker.is_cancelled)
        except DispatchLabError as error:
            if not worker.is_cancelled:
                self.call_from_thread(self._check_came_to, subject, "", error=error)
            return
        except KeyboardInterrupt:  # how a walk in another process is stopped
            return
        if not worker.is_cancelled:
            self.call_from_thread(self._check_came_to, subject, "", outcome.report)

    def _check_came_to(
        self, subject: Subject, state: str, report: Report | None = None, error: DispatchLabError | None = None
    ) -> None:
        """Draw how far the check of a subject is, if that is still open."""
        if subject is not self._subject:
            return
        self._check_state = state
        if error is not None:
            self._complain(error)
        if report is not None:
            self.report, self._step = report, 0
            self._draw_title()
        self._draw_check()

    def _draw_check(self) -> None:
        if self._session is None:
            return
        pane = self.query_one(CheckPane)
        report = self.report
        if report is None:
            text = Text(self._check_state or "space checks every order of the registrations, as `permute` does", "dim")
            pane.show_text(text, stepping=False, running=bool(self._check_state))
            return
        text = verdict_text(report)
        counterexample = report.exploration.counterexample
        if counterexample is not None:
            text.append("\n\n")
            expected, actual = counterexample.expected_sequence, counterexample.actual_sequence
            assert self._runner is not None
            try:
                moments = [self._runner.at(sequence[: self._step]) for sequence in (expected, actual)]
                compared = Compared(self._step, *moments)
                pane_width = self.query_one("#check-text").content_size.width
                width = max(24, pane_width - 1)  # its scrollbar comes when the text is long
                text.append_text(comparison_text(self.subject, counterexample, compared, width))
            except DispatchLabError as error:
                text.append_text(plain(str(error), BAD))
        pane.show_text(text, stepping=counterexample is not None, running=False)
