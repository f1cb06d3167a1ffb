"""The colours of every view: one for each kind of reason, verdict and role, by names that follow the theme in use.

Only the eight colours of a terminal's own palette are used, so that both light and dark themes can be read, and no
colour says what the words beside it do not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dispatchlab.model.dump_format import Provenance
from dispatchlab.prover.result import Verdict
from dispatchlab.views.blocks import REASON_MOODS, Mood

KERNEL: Final = "green"
COMPOSITE: Final = "cyan"
AUTOGRAD: Final = "blue"
FALLBACK: Final = "magenta"
WARNING: Final = "yellow"
BAD: Final = "bold red"
GOOD: Final = "green"
TITLE: Final = "bold"
QUIET: Final = "dim"
EXPECTED: Final = "green"
ACTUAL: Final = "red"

VERDICT_STYLES: Final[Mapping[Verdict, str]] = {
    Verdict.ORDER_INDEPENDENT: GOOD,
    Verdict.NO_VIOLATION_FOUND: COMPOSITE,
    Verdict.ORDER_DEPENDENT: "red",
    Verdict.INCOMPLETE: WARNING,
    Verdict.NONDETERMINISTIC: FALLBACK,
    Verdict.CRASHED: FALLBACK,
}
"""The colour of a verdict."""

MOOD_STYLES: Final[Mapping[Mood, str]] = {
    "": "",
    "good": GOOD,
    "bad": BAD,
    "warn": WARNING,
    "quiet": QUIET,
    "strong": TITLE,
    "emphasis": "italic",
    "kernel": KERNEL,
    "composite": COMPOSITE,
    "autograd": AUTOGRAD,
    "fallback": FALLBACK,
}
"""The colour or weight of a mood."""

REASON_STYLES: Final[Mapping[Provenance, str]] = {reason: MOOD_STYLES[mood] for reason, mood in REASON_MOODS.items()}
"""The colour of a reason."""

DIFF_STYLES: Final[Mapping[str, str]] = {"---": TITLE, "+++": TITLE, "@@ ": QUIET}
FIRST_STYLES: Final[Mapping[str, str]] = {"-": "red", "+": "green"}
"""The colours of what a diff takes away and of what it adds."""
