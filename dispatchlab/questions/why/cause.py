"""A cause: what recognises it, the sentence, the fix, and what would be wrong to advise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, TypeAlias

from dispatchlab.model.failure import Failure, Fix

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
"""The modules of the causes, in the order in which they are asked."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a cause says of a failure.

    Args:
        sentence: what is wrong, with the operator, the key and the line.
        fixes: what to write instead, the best first.
        evidence: what it is concluded from, at most ten lines.
    """

    sentence: str
    fixes: tuple[Fix, ...] = ()
    evidence: tuple[str, ...] = ()


Recognise: TypeAlias = Callable[[Failure], Explanation | None]


@dataclass(frozen=True, slots=True)
class Cause:
    """A kind of failure.

    Args:
        code: its number, such as `WHY101`.
        title: a short name.
        recognise: returns what to say of a failure, or None where it is another one.
        wrong: what would be wrong to advise, and why.
        dispatcher: the dispatcher or what registers on it is concerned; False for what only looks so.
    """

    code: str
    title: str
    recognise: Recognise
    wrong: str
    dispatcher: bool = True

    @property
    def file(self) -> Traversable:
        """Return the file of its page."""
        return files("dispatchlab.questions.why") / "pages" / f"{self.code}.md"

    @property
    def page(self) -> str:
        """Return the page: what it is, a program that fails, the same with the fix, and what would be wrong."""
        body = self.file.read_text(encoding="utf-8")
        wrong = f"\n## Wrong\n\n{self.wrong[:1].upper()}{self.wrong[1:]}.\n" if self.wrong else ""
        return f"# {self.code}: {self.title}\n\n{body}{wrong}"


_CAUSES: Final[dict[str, Cause]] = {}


def cause(code: str, title: str, *, wrong: str = "", dispatcher: bool = True) -> Callable[[Recognise], Recognise]:
    """Make a function a cause."""

    def register(recognise: Recognise) -> Recognise:
        assert code not in _CAUSES, code
        _CAUSES[code] = Cause(code, title, recognise, wrong, dispatcher)
        return recognise

    return register


def causes() -> tuple[Cause, ...]:
    """Return all causes, in the order in which they are asked."""
    for family in FAMILIES:
        import_module(f"dispatchlab.questions.why.causes.{family}")
    return tuple(_CAUSES.values())


def explanations(failure: Failure) -> Iterator[tuple[Cause, Explanation]]:
    """Return each cause that recognises a failure, with what it says; most need the first alone."""
    for known in causes():
        found = known.recognise(failure)
        if found is not None:
            yield known, found
