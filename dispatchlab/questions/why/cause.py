"""A cause: what recognises it, the sentence, the fix, and what would be wrong to advise."""

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
        wrong: what would be wrong to advise, and why.
        rows: how it is recognised and what is said, asked in order.
        pattern: expressions, one of which a message must match; the rows have others.
        look: returns what the rows cannot see themselves, or None where the failure is another one.
        dispatcher: the dispatcher or what registers on it is concerned; False for what only looks so.
    """

    code: str
    title: str
    wrong: str
    rows: tuple[Row, ...]
    pattern: tuple[str, ...]
    look: Look
    dispatcher: bool = True

    def explain(self, failure: Failure) -> Explanation | None:
        """Return the explanation of a failure, or None where it is another one."""
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
        """The page: the cause, a program that fails, the same with the fix, and a wrong fix."""
        body = self.file.read_text(encoding="utf-8")
        wrong = f"\n## Wrong\n\n{self.wrong[:1].upper()}{self.wrong[1:]}.\n" if self.wrong else ""
        return f"# {self.code}: {self.title}\n\n{body}{wrong}"


def looks_for(code: str) -> Callable[[Look], Look]:
    """Make a function look for a cause before its rows are asked."""

    def register(look: Look) -> Look:
        assert code not in _LOOKS, code
        _LOOKS[code] = look
        return look

    return register


def saw(**words: object) -> Mapping[str, object]:
    """Return the facts from a function: `case` chooses its rows, and rows name the others as fields."""
    return words


@cache
def causes() -> tuple[Cause, ...]:
    """Return all causes, in the order of the questions."""
    return tuple(cause for family in FAMILIES for cause in _family(family))


def _family(family: str) -> Iterator[Cause]:
    folder = files(f"{__package__}.causes")
    if (folder / f"{family}.py").is_file():
        import_module(f"{__package__}.causes.{family}")
    table = tomllib.loads((folder / f"{family}.toml").read_text(encoding="utf-8"))
    patterns = table.pop("patterns", {})
    for code, entry in table.items():
        yield _cause(code, patterns, **entry)


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
    """Return a cause from its entry; rows without texts of their own get the texts of the cause."""
    rows = tuple(Row.of({**shared, **fields}, patterns) for fields in row)
    look = _LOOKS.get(code, lambda words: {})
    return Cause(code, title, wrong, rows, expressions(pattern, patterns), look, dispatcher)
