"""What comes on top of the application: the search, the file name to save under, and the help."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from dispatchlab.escape import printable
from dispatchlab.views.console import plain

MOST_SHOWN = 100
"""The results that a search lists; further letters find the others."""


class SearchScreen(ModalScreen[str | None]):
    """Find an operator of a registry, and dismiss with its name.

    Args:
        search: the names that hold each word of a text, the best first.
        source: what the registry is called.
        text: what is searched for at first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("down", "move(1)", "Down", show=False),
        Binding("up", "move(-1)", "Up", show=False),
        Binding("pagedown", "move(10)", "Down", show=False),
        Binding("pageup", "move(-10)", "Up", show=False),
    ]

    def __init__(self, search: Callable[[str], tuple[str, ...]], source: str, text: str = "") -> None:
        super().__init__()
        self._search, self._source, self._text = search, source, text
        self._found: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        """The text, the count and the names."""
        with Vertical(classes="dialog"):
            yield Input(self._text, placeholder="words of a name, such as: add tensor", id="search-text")
            yield Label(id="search-count", markup=False)
            names = OptionList(id="search-names", markup=False, compact=True)
            names.can_focus = False
            yield names

    def on_mount(self) -> None:
        """Search for the first text."""
        self._show(self._text)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._show(event.value)

    @on(Input.Submitted)
    def _submitted(self) -> None:
        names = self.query_one(OptionList)
        if names.highlighted is not None:
            self.dismiss(self._found[names.highlighted])

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._found[event.option_index])

    def action_move(self, by: int) -> None:
        """Highlight another name while the text keeps the focus."""
        names = self.query_one(OptionList)
        if names.option_count:
            names.highlighted = max(0, min(names.option_count - 1, (names.highlighted or 0) + by))

    def _show(self, text: str) -> None:
        self._found = self._search(text)
        names = self.query_one(OptionList)
        names.clear_options()
        names.add_options(Option(plain(name)) for name in self._found[:MOST_SHOWN])
        names.highlighted = 0 if self._found else None
        shown = f", the first {MOST_SHOWN} shown" if len(self._found) > MOST_SHOWN else ""
        count = f"{len(self._found):,} operators of {self._source}{shown}"
        self.query_one("#search-count", Label).update(Text(printable(count)))


class SaveScreen(ModalScreen[str | None]):
    """Ask for the file to save the sequence in, and dismiss with its path.

    Args:
        path: what is proposed.
        sequence: what is saved, for a reader.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Close")]

    def __init__(self, path: str, sequence: str) -> None:
        super().__init__()
        self._path, self._sequence = path, sequence

    def compose(self) -> ComposeResult:
        """The question and the path."""
        with Vertical(classes="dialog small"):
            yield Label(Text(f"Save {self._sequence} as a scenario"))
            yield Input(self._path, id="save-path")
            yield Label("enter saves, escape does not", markup=False, classes="quiet")

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        path = event.value.strip()
        if path:
            self.dismiss(path)


HELP = """\
REGISTRATIONS   r; press one to register it, again to release it
  0 ... 9       the registration of that number
  up, down      choose; space or enter presses
  click         presses
SEQUENCE        the steps so far; tab goes there
  drag          a step to another place; or K, J, shift+up, shift+down
  x, delete     take a step out
  enter         go back to just after a step
TABLE           t; what the last step changed is marked ▸
  o             the next operator
  d             the dump as text, and back
AROUND          a; where you are in the state graph
  ● 0 CPU       in force      ○ 0 CPU   not      ✗ 0 CPU   refused
  ─▸ +2 CPU     a step to a neighbouring state; enter or a click takes it
  ≠ 1 2         does not commute with 1 and 2: the order of them matters
EXPLAIN         e; type a call: cpu requires_grad, cuda; escape leaves
                a list is [cpu, meta], a guard exclude=Autograd
CHECK           c; every order, as `dispatchlab permute` does
  space         check, or stop
  left, right   step through the counterexample; enter takes its sequence
ANYWHERE
  u, y          undo, redo
  /             search the operators of the registry
  s             save the sequence as a scenario
  l             light or dark
  tab           the next pane
  ?             this help
  q             quit
"""
"""All keys; `docs/explore.md` has the same."""


class HelpScreen(ModalScreen[None]):
    """All keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,f1", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        """The text, which scrolls in a small terminal."""
        with VerticalScroll(classes="dialog help"):
            yield Static(HELP, markup=False)
