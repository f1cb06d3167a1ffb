"""The help screen over the application."""

from __future__ import annotations

from importlib.resources import files
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

HELP = files(__package__).joinpath("help.txt").read_text(encoding="utf-8")
"""All keys; `docs/explore.md` has the same."""


class HelpScreen(ModalScreen[None]):
    """All keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,f1", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        """Return the text, which scrolls in a small terminal."""
        with VerticalScroll(classes="help"):
            yield Static(HELP, markup=False)
