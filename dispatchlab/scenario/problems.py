"""What is wrong with a file: each problem with its place, all of them in one error."""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.registration import Place

SHOWN = 60
"""How many characters of a user's text a message quotes at most."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Args:
        where: the place, or the file alone when it could not be read at all.
        message: what was found and what was expected.
        hint: what to do next, such as the nearest right name; may be empty.
    """

    where: Place | str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" + (f"; {self.hint}" if self.hint else "")


class ScenarioError(DispatchLabError):
    """A file cannot be used; tells all its problems, one a line, as `file:line:column: message`.

    Args:
        problems: at least one, in the order of the file.
    """

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def quoted(text: str) -> str:
    """The text as one printable line in quotes, shortened when it is long."""
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")
