"""A cause: how to recognise it, its sentence, its fix, and a wrong advice."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final, TypeAlias

from dispatchlab.model.failure import Failure
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.row import Explanation, Patterns, Row, expressions

FAMILIES: Final = (
    "tried",
    "transforms",
    "overrides",
    "missing_operators",
    "fake_kernels",
    "gradients",
    "registrations",
    "missing_kernels",
    "compiling",
    "silent_results",
    "outside",
)
"""The families of the causes, in the order in which they are asked; each has a file of rows in `causes/`."""

Look: TypeAlias = Callable[[Words], Mapping[str, object] | None]
_LOOKS: Final[dict[str, Look]] = {}


@dataclass(frozen=True, slots=True)
class Cause:
    """A kind of failure.

    Args:
        code: its number, such as `WHY101`.
        title: a short name.
        wrong: a wrong advice, and why it is wrong.
        rows: its conditions and texts, tried in order.
        pattern: expressions; a message must match one of them. Rows may have their own.
        look: a function that returns facts for the rows, or None if the failure has another cause.
        dispatcher: whether the cause is the dispatcher or a registration; else it only looks so.
    """

    code: str
    title: str
    wrong: str
    rows: tuple[Row, ...]
    pattern: tuple[str, ...]
    look: Look
    dispatcher: bool = True

    def explain(self, failure: Failure) -> Explanation | None:
        """Return the explanation of a failure, or None if the failure has another cause."""
        words = Words(failure)
        seen = self.look(words) if words.match(self.pattern) else None
        if seen is None:
            return None
        words |= seen
        return next(filter(None, (row.explain(words) for row in self.rows)), None)

    @property
    def file(self) -> Traversable:
        """The file of its page."""
        return files("dispatchlab.questions.why") / "pages" / f"{self.code}.md"

    @property
    def page(self) -> str:
        """The page: the cause, a failing program, the program with the fix, and a wrong fix."""
        body = self.file.read_text(encoding="utf-8")
        wrong = f"\n## What does not help\n\n- {self.wrong}\n" if self.wrong else ""
        return f"# {self.code}: {self.title}\n\n{body}{wrong}"


def looks_for(code: str) -> Callable[[Look], Look]:
    """Make a function look for a cause before its rows are tried."""

    def register(look: Look) -> Look:
        assert code not in _LOOKS, code
        _LOOKS[code] = look
        return look

    return register


saw: Final = dict
"""Makes the facts of a function, which rows use as fields."""


@cache
def causes() -> tuple[Cause, ...]:
    """Return all causes, in the order in which they are tried."""
    return tuple(cause for family in FAMILIES for cause in _family(family))


def _family(family: str) -> Iterator[Cause]:
    folder = files(f"{__package__}.causes")
    if (folder / f"{family}.py").is_file():
        import_module(f"{__package__}.causes.{family}")
    table = tomllib.loads((folder / f"{family}.toml").read_text(encoding="utf-8"))
    patterns = table.pop("patterns", {})
    yield from (_cause(code, patterns, **entry) for code, entry in table.items())


def _cause(
    code: str,
    patterns: Patterns,
    *,
    title: str,
    wrong: str,
    row: list[dict[str, Any]],
    pattern: str | Sequence[str] = (),
    dispatcher: bool = True,
    **shared: Any,
) -> Cause:
    """Return a cause from its entry; rows without their own texts get the texts of the cause."""
    rows = tuple(Row.of({**shared, **fields}, patterns) for fields in row)
    look = _LOOKS.get(code, lambda words: {})
    return Cause(code, title, wrong, rows, expressions(pattern, patterns), look, dispatcher)
