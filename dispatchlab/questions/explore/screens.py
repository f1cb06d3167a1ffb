"""The help screen over the application."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

HELP = """\
REGISTRATIONS   r; press one to register it, again to release it
  0 ... 9       the registration of that number
  up, down      choose; space or enter presses
  click         presses
SEQUENCE        the steps so far; tab goes there
  K, J          move a step up or down; or shift+up, shift+down
  x, delete     take a step out
  enter         go back to just after a step
TABLE           t; what the last step changed is marked ▸
  o             the next operator
  d             the dump as text, and back
AROUND          a; where you are in the state graph
  ● 0 CPU       in force      ○ 0 CPU   not      ✗ 0 CPU   refused
  ─▸ +2 CPU     a step to a neighbouring state; enter or a click takes it
EXPLAIN         e; type the arguments of a call: cpu+requires_grad cuda;
                a list is list:cpu,meta; escape leaves
CHECK           c; every order, as `dispatchlab permute` does
  space         check, or stop
  enter         take the sequence of the counterexample
ANYWHERE
  u, y          undo, redo
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
        """Return the text, which scrolls in a small terminal."""
        with VerticalScroll(classes="help"):
            yield Static(HELP, markup=False)
