"""The colours of every view: one for each kind of reason, verdict and role, by names that follow the theme in use.

Only the eight colours of a terminal's own palette are used, so that both light and dark themes can be read, and no
colour says what the words beside it do not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dispatchlab.explore.result import Verdict
from dispatchlab.model.dump_format import Provenance

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

REASON_STYLES: Final[Mapping[Provenance, str]] = {
    Provenance.KERNEL: KERNEL,
    Provenance.DEFAULT_BACKEND: COMPOSITE,
    Provenance.NESTED: COMPOSITE,
    Provenance.MATH: COMPOSITE,
    Provenance.BATCHED: COMPOSITE,
    Provenance.CATCH_ALL: COMPOSITE,
    Provenance.AUTOGRAD: AUTOGRAD,
    Provenance.FALLBACK: FALLBACK,
    Provenance.AMBIGUOUS: BAD,
}
"""The colour of a reason: the same in every command."""

VERDICT_STYLES: Final[Mapping[Verdict, str]] = {
    Verdict.ORDER_INDEPENDENT: GOOD,
    Verdict.NO_VIOLATION_FOUND: COMPOSITE,
    Verdict.ORDER_DEPENDENT: "red",
    Verdict.INCOMPLETE: WARNING,
    Verdict.NONDETERMINISTIC: FALLBACK,
    Verdict.CRASHED: FALLBACK,
}
"""The colour of a verdict."""

DIFF_STYLES: Final[Mapping[str, str]] = {"---": TITLE, "+++": TITLE, "@@ ": QUIET}
FIRST_STYLES: Final[Mapping[str, str]] = {"-": "green", "+": "red"}
"""A diff leads from what is expected to what is there: what is there is the defect, and red."""


def key_style(key: str) -> str:
    """The colour of a kernel that runs for no key: that of the reason for which it would."""
    if key.startswith("Composite"):
        return COMPOSITE
    return AUTOGRAD if key == "Autograd" else KERNEL
