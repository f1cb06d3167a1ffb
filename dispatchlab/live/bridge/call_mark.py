"""Call marks: the file and line of a library; in a dump, they show which call made a kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import count

from dispatchlab.live.bridge.reserved_namespaces import LIBRARY_FILE
from dispatchlab.live.bridge.torch import bindings

# Note [Libraries without a file]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A library is made with a file and a line, and every debug text of what is registered on it names both. Before 2.9
# the bindings drop the file and say `/dev/null`; the line is all that is left. There the lines of one mark begin at a
# number of its own, ten digits long, that no source file has.
#
# PyTorch 2.9 keeps the file, as a pointer into a list of strings that grows: a string of up to 15 characters is moved
# then, and the debug texts of libraries that were made before show what has taken its memory. The characters of a
# longer one stay where they are.

_DIGITS = 6
_MARKS = 3000  # a line is a number below 2**32
_numbers = count(1)


@cache
def file_of_libraries() -> str | None:
    """Return the file that the debug text of every library names; None for the file that made the library."""
    made = "dispatchlab"
    library = bindings()._dispatch_library("FRAGMENT", LIBRARY_FILE, "", made, 1)
    library.define("probe() -> ()", "")
    try:
        shown = re.search(r"^debug: registered at (.*):1$", bindings()._dispatch_dump(f"{LIBRARY_FILE}::probe"), re.M)
    finally:
        library.reset()
    return None if shown is None or shown[1] == made else shown[1]


def debug_text(file: str, line: int) -> str:
    """Return the debug text of registrations on a library that is made with this file and line."""
    return f"registered at {file_of_libraries() or file}:{line}"


@dataclass(frozen=True, slots=True)
class CallMark:
    """The file and the lines that stand for the calls of some sandboxes: one line for each call number.

    Args:
        file: the file of the libraries, which debug texts name.
        first: the line of the call with the number 0.
    """

    file: str
    first: int = 0

    @classmethod
    def create(cls) -> CallMark:
        """Return a mark that no other sandbox of this process has. See Note [Libraries without a file]."""
        number, file = next(_numbers), file_of_libraries()
        if file is None:
            return cls(f"dispatchlab-calls-{number}!")
        return cls(file, (1000 + number % _MARKS) * 10**_DIGITS)

    def line(self, number: int) -> int:
        """Return the line of the call with this number."""
        return self.first + number

    def debug(self, number: int) -> str:
        """Return the debug text of the call with this number."""
        return f"registered at {self.file}:{self.line(number)}"

    @property
    def pattern(self) -> str:
        """A regular expression that finds these debug texts; its only group has the call number."""
        lines = f"{self.first // 10**_DIGITS}([0-9]{{{_DIGITS}}})(?![0-9])" if self.first else "([0-9]+)"
        return re.escape(f"registered at {self.file}:") + lines
