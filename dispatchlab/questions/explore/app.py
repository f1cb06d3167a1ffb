"""The application: its panes, its keys, and their actions on the session."""

from __future__ import annotations

import signal
from asyncio import get_running_loop
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from dispatchlab.escape import printable
from dispatchlab.model.names import OperatorName
from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.limits import Progress
from dispatchlab.questions.explain.argument_specs import describe_arguments
from dispatchlab.questions.explain.hops import NotCallableError, explain, schema_of, thread_keys
from dispatchlab.questions.explore.panes import (
    AroundPane,
    CheckPane,
    ExplainPane,
    HelpScreen,
    RegistrationList,
    SequenceList,
    TextPane,
    drawn,
)
from dispatchlab.questions.explore.session import Around, InteractiveSession, StoppedError
from dispatchlab.questions.explore.session_subject import Subject, runner_for
from dispatchlab.questions.explore.texts import (
    around_head,
    dump_text,
    explanation_lines,
    neighbour_text,
    no_def_text,
    registration_texts,
    sequence_texts,
    table_text,
    verdict_text,
)
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.views.console import plain
from dispatchlab.views.styles import WARNING

PaneName: TypeAlias = Literal["registrations", "sequence", "table", "around", "explain", "check"]

CHECKED_AT_ONCE = 8
"""Up to so many registrations every order is checked on the lab engine as soon as a subject is opened."""

MOST_NEIGHBOURS = 64
"""Of so many registrations the neighbours are listed."""

_CHECK_TIMEOUT_S = 600.0
_UNEXPECTED = 70
_SIDE = {"around": "Around", "explain": "Explain", "check": "Check"}


class ExplorerApp(App[None]):
    """An interactive session in a terminal.

    Args:
        subject: the subject of the session.
        semantics: the semantics for the check of every order, if the user named some.
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
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("f1", "help", "Help"),
        Binding("q", "quit", "Quit"),
        Binding("o", "next_operator", "Next operator", show=False),
        Binding("d", "dump", "Dump", show=False),
        Binding("l", "light", "Light or dark", show=False),
        *(Binding(str(digit), f"press({digit})", "Press", show=False) for digit in range(10)),
    ]

    def __init__(self, subject: Subject, *, semantics: str | None = None) -> None:
        super().__init__()
        self.subject = subject
        self.session = InteractiveSession(
            runner_for(subject),
            len(subject.registrations),
            subject.operators,
            order=subject.scenario.order,
            start=subject.start,
        )
        self._options = RunOptions(engine="lab", semantics=semantics, timeout_s=_CHECK_TIMEOUT_S)
        self._operator = 0
        self._shows_dump = False
        self._around: Around | None = None
        self.report: Report | None = None  # what the check of every order found
        self._check_state = ""
        self.failure: Exception | None = None
        self.ended_by: signal.Signals | None = None

    def _handle_exception(self, error: Exception) -> None:
        """End with an unexpected error, which the command reports; textual would exit with 1, the code of a verdict."""
        if self.is_headless:  # a test
            super()._handle_exception(error)
            return
        self.failure = self.failure or error
        self.exit(return_code=_UNEXPECTED)

    def _end_on_signals(self) -> None:
        """End between two callbacks, because an interrupt inside of a callback would print a traceback."""

        def end(by: signal.Signals) -> None:
            self.ended_by = by
            self.exit()

        for each in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # on Windows
                get_running_loop().add_signal_handler(each, end, each)

    # -- what is drawn

    def compose(self) -> ComposeResult:
        """Return the title, the panes, and the keys."""
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
        """Draw the subject, and check every order if it is small."""
        if not self.is_headless:
            self._end_on_signals()
        self._title_side()
        for note in self.subject.notes:
            self.notify(printable(note), markup=False)
        self._draw()
        self.query_one("#sequence", SequenceList).show_end()
        self.query_one("#registrations").focus()
        if len(self.subject.registrations) <= CHECKED_AT_ONCE:
            self._check()
        self._draw_check()

    @property
    def operator(self) -> OperatorName:
        """The operator that is shown."""
        return self.subject.operators[self._operator]

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
        subject = self.subject
        title = Text().append_text(plain(subject.title, "bold"))
        if subject.origin:
            title.append_text(plain(f" of {subject.origin}"))
        if self.report is not None:
            title.append("  ").append_text(verdict_text(self.report, subject).split("  ")[0])
        title.append_text(plain(f"  {subject.semantics.name} on the lab engine", "dim"))
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
        """Undo the last action."""
        self._do(self.session.undo)

    def action_redo(self) -> None:
        """Redo the last undone action."""
        self._do(self.session.redo)

    def action_next_operator(self) -> None:
        """Show the next operator."""
        self._operator = (self._operator + 1) % len(self.subject.operators)
        self._draw()

    def action_dump(self) -> None:
        """Show the dump as text, or the table."""
        self._shows_dump = not self._shows_dump
        self._draw()

    def action_light(self) -> None:
        """Change between light and dark."""
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_leave(self) -> None:
        """Focus the registrations."""
        self.query_one("#registrations").focus()

    def action_show(self, name: PaneName) -> None:
        """Show a pane and focus it."""
        body = self.query_one("#body")
        where = "side" if name in _SIDE else "left" if name in ("registrations", "sequence") else "table"
        body.set_classes(f"pane-{where}")
        if name in _SIDE:
            self.query_one("#side", ContentSwitcher).current = name
            self._title_side()
        target = {"around": "#neighbours", "explain": "#call", "check": "#check-text"}.get(name, f"#{name}")
        self.query_one(target).focus()

    def action_help(self) -> None:
        """Show all keys."""
        self.push_screen(HelpScreen())

    def _do(self, action: Callable[[], None]) -> None:
        """Change the session and draw it, or show a sentence if the change is not possible."""
        try:
            length = len(self.session.sequence)
            action()
            self._draw()
            if len(self.session.sequence) > length:
                self.query_one(SequenceList).show_end()
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
        self._draw_explanation(event.call)

    def _draw_explanation(self, call: str) -> None:
        view = self.session.moment.seen(self.operator).view
        try:
            described = describe_arguments(schema_of(view), call.split())
            text = explanation_lines(explain(view, described, thread_keys()), self.subject)
        except NotCallableError:
            text = plain(no_def_text(self.subject, self.operator), WARNING)
        except DispatchLabError as error:
            text = plain(str(error), WARNING)
        self.query_one(ExplainPane).show_text(text)

    # -- the check of every order

    @on(CheckPane.Asked)
    def _asked(self, event: CheckPane.Asked) -> None:
        counterexample = None if self.report is None else self.report.exploration.counterexample
        match event.what:
            case "check" if self._check_state:
                self.workers.cancel_group(self, "check")
                self._check_state = ""
                self._draw_check()
            case "check":
                self._check()
            case "load" if counterexample is not None:
                sequence = counterexample.actual_sequence
                self._do(lambda: self.session.load(sequence, "counterexample"))

    def _check(self) -> None:
        self.report = None
        self._check_came_to("checking every order")
        self.run_worker(self._checked, thread=True, exclusive=True, group="check")

    def _checked(self) -> None:
        worker = get_current_worker()

        def came_to(state: str, report: Report | None = None, error: DispatchLabError | None = None) -> None:
            if not worker.is_cancelled:
                self.call_from_thread(self._check_came_to, state, report, error)

        def progress(value: Progress) -> None:
            came_to(f"checking every order: {value.states:,} states")

        try:
            outcome = run_scenario(
                self.subject.scenario, self._options, progress=progress, cancelled=lambda: worker.is_cancelled
            )
        except DispatchLabError as error:
            came_to("", error=error)
        else:
            came_to("", outcome.report)

    def _check_came_to(self, state: str, report: Report | None = None, error: DispatchLabError | None = None) -> None:
        """Draw the progress of the check."""
        self._check_state = state
        if error is not None:
            self._complain(error)
        if report is not None:
            self.report = report
            self._draw_title()
        self._draw_check()

    def _draw_check(self) -> None:
        report = self.report
        if report is None:
            text = Text(self._check_state or "space checks every order of the registrations, as `permute` does", "dim")
        else:
            text = verdict_text(report, self.subject)
        has_sequence = report is not None and report.exploration.counterexample is not None
        self.query_one(CheckPane).show_text(text, has_sequence=has_sequence, running=bool(self._check_state))
