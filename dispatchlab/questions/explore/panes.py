"""The widgets of the application: lists with lines to press and move, the panes beside them, and the help.

A pane draws its arguments, and posts a message for each action of its user; it never changes a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from dispatchlab.questions.explore.texts import hanging, without_colors

HELP = files(__package__).joinpath("help.txt").read_text(encoding="utf-8")
"""All keys; `docs/explore.md` has the same."""


def drawn(widget: Widget, text: Text) -> Text:
    """Return a text in the form that a widget draws, without colours if NO_COLOR is set."""
    return without_colors(text) if widget.app.no_color else text


class Lines(OptionList):
    """A list of lines with one highlighted line, which stays highlighted when other lines change."""

    def __init__(self, *, id: str, title: str) -> None:
        super().__init__(id=id, markup=False, compact=True)
        self.border_title = title
        self._drawn: list[Text] = []

    def show_lines(self, lines: Sequence[Text]) -> None:
        """Draw these lines, without drawing unchanged lines again."""
        lines = [drawn(self, line) for line in lines]
        if len(lines) != len(self._drawn):
            kept = self.highlighted
            self.clear_options()
            self.add_options(map(Option, lines))
            self.highlighted = min(kept or 0, len(lines) - 1) if lines else None
        else:
            for at, (line, old) in enumerate(zip(lines, self._drawn, strict=True)):
                if line != old or line.spans != old.spans:
                    self.replace_option_prompt_at_index(at, line)
        self._drawn = list(lines)

    def show_end(self) -> None:
        """Highlight the last line."""
        self.highlighted = self.option_count - 1 if self.option_count else None


class RegistrationList(Lines):
    """The registrations: a press on a line registers or releases it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "select", "Register", show=False)]


class SequenceList(Lines):
    """The steps so far; the user can move and remove steps, and go back to a step."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("shift+up,K", "move(-1)", "Move up", show=False),
        Binding("shift+down,J", "move(1)", "Move down", show=False),
        Binding("delete,backspace,x", "remove", "Remove", show=False),
    ]

    @dataclass
    class Moved(Message):
        """A step was moved to another position."""

        at: int
        to: int

    @dataclass
    class Removed(Message):
        """A step was removed."""

        at: int

    def action_move(self, by: int) -> None:
        """Move the highlighted step."""
        at = self.highlighted
        if at is not None and 0 <= at + by < self.option_count:
            self.post_message(self.Moved(at, at + by))

    def action_remove(self) -> None:
        """Remove the highlighted step."""
        if self.highlighted is not None:
            self.post_message(self.Removed(self.highlighted))


class TextPane(VerticalScroll, can_focus=True):
    """A text that scrolls."""

    def __init__(self, *, id: str, title: str) -> None:
        super().__init__(id=id)
        self.border_title = title
        self.text = ""

    def compose(self) -> ComposeResult:
        """Return the text."""
        yield Static(markup=False)

    def show_text(self, text: Text) -> None:
        """Draw a text."""
        self.text = text.plain
        self.query_one(Static).update(hanging(drawn(self, text)))


class AroundPane(Vertical):
    """The position of the sequence in the state graph, and the neighbouring states."""

    def compose(self) -> ComposeResult:
        """Return the position and the neighbours."""
        yield Static(id="around-head", markup=False)
        yield Lines(id="neighbours", title="")

    def show_around(self, head: Text, neighbours: Sequence[Text]) -> None:
        """Draw the position and the neighbours."""
        self.query_one("#around-head", Static).update(drawn(self, head))
        self.query_one("#neighbours", Lines).show_lines(neighbours)


class ExplainPane(Vertical):
    """A typed call, and its explanation."""

    @dataclass
    class Typed(Message):
        """The call has changed."""

        call: str

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.leave", "Leave")]

    def compose(self) -> ComposeResult:
        """Return the call and its explanation."""
        yield Input(placeholder="the arguments, such as cpu+grad cpu", id="call")
        yield TextPane(id="explanation", title="")

    @property
    def call(self) -> str:
        """The typed call."""
        return self.query_one(Input).value

    def show_text(self, text: Text) -> None:
        """Draw the explanation."""
        self.query_one(TextPane).show_text(text)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(event.value))


class CheckPane(Vertical):
    """The check of every order, and its counterexample."""

    @dataclass
    class Asked(Message):
        """A button was pressed: `check` or `load`."""

        what: str

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "ask('load')", "Take this sequence", show=False),
        Binding("space", "ask('check')", "Check every order", show=False),
    ]

    def compose(self) -> ComposeResult:
        """Return the buttons and the text."""
        with Horizontal(id="check-buttons"):
            yield Button("check", id="check-check", compact=True)
            yield Button("take", id="check-load", compact=True)
        yield TextPane(id="check-text", title="")

    def show_text(self, text: Text, *, has_sequence: bool, running: bool) -> None:
        """Draw the verdict and the counterexample.

        Args:
            text: the text so far.
            has_sequence: whether there is a counterexample to load.
            running: whether the check is running, so that the button stops it.
        """
        self.query_one(TextPane).show_text(text)
        self.query_one("#check-check", Button).label = "stop" if running else "check"
        self.query_one("#check-load", Button).display = has_sequence

    def action_ask(self, what: str) -> None:
        """Post the message of a pressed button."""
        self.post_message(self.Asked(what))

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.Asked((event.button.id or "").removeprefix("check-")))


class HelpScreen(ModalScreen[None]):
    """All keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,f1", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        """Return the text, which scrolls in a small terminal."""
        with VerticalScroll(classes="help"):
            yield Static(HELP, markup=False)
