"""The commands with a line each, and the help of the whole command line, which needs no other module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from shutil import get_terminal_size
from textwrap import fill

COMMANDS: Mapping[str, str] = {
    "check": "Find mistakes in a package and its operators.",
    "why": "Show why a program fails, and what fixes it.",
    "explain": "Show which kernel a call of OP would run, and why.",
    "trace": "Run FILE.py and show every call of its operators.",
    "dump": "Show the kernels and the dispatch table of an operator.",
    "diff": "Show the differences between two registries.",
    "coverage": "Show which operators a backend can run, and how.",
    "explore": "Register and release by hand in a terminal application.",
    "permute": "Prove that the order of a scenario (YAML) does not matter.",
    "record": "Import packages and record their registrations as a scenario.",
    "init": "Set up dispatchlab in the checkout of a package.",
    "doctor": "Show what works with the installed PyTorch, or its known defects.",
    "demo": "Show a defect of order on a small example, and what to do next.",
    "codegen": "Generate code from a native_functions.yaml.",
}
"""Each command with its line in the help, in the order of the help. Its module and its function are named like it."""

HIDDEN = ("rule", "schema")
"""The commands that the help leaves out."""

RENAMED: Mapping[str, str] = {
    r"lint .*--explain[ =](\S+).*": r"rule \1",
    r"lint(.*)": r"check\1 --only lint",
    r"readiness(.*)": r"check\1 --run",
    r"imports(.*)": r"check\1 --orders",
    r"certify(.*)": r"permute\1",
    r"defects(.*)": r"doctor --defects\1",
    r"profile .*(?:-o|--output)[ =]?(\S+).*": r"doctor --measure \1",
    r"profile.*": r"doctor --measure -",
}
"""Calls of former commands, as expressions, with the calls that replace them; the first that matches counts."""

_TITLES: Mapping[str, str] = {
    "check": "Find mistakes and explain calls",
    "dump": "Look at registrations",
    "permute": "Explore orders of registrations",
    "init": "Set up, learn, generate",
}
"""The groups of commands, each by its first command."""

_HEAD = """\
Usage: dispatchlab [OPTIONS] COMMAND [ARGS]...

  PyTorch's dispatcher, checked: which kernel a call runs, why it fails, and whether the order of registrations matters.

  Examples:
    dispatchlab check my_package
    dispatchlab why train.py
    dispatchlab explain aten::add.Tensor cpu+grad cpu
"""

_TAIL = """
Options, before or after the command:
  -q, --quiet  Print no progress and no notes on standard error.
  --no-color   Print without colours, like NO_COLOR; FORCE_COLOR turns them on.
  --no-pager   Print long output without a pager.
  --version    Show the version and exit.
  -h, --help   Show this message and exit.

  Exit codes: 0 as expected, 1 not as expected, 2 bad input, 3 incomplete, 4 nondeterministic, 5 crashed, 70 a defect \
of dispatchlab, 74 output not written, 124 an import took too long, 130 Ctrl-C, 141 the output was closed.
  dispatchlab rule CODE explains a code of check or why, for example DL004.
"""


def overview() -> str:
    """Return the help of the whole command line, for the width of the terminal and at most 80 columns."""
    column = max(map(len, COMMANDS))
    parts = [_HEAD, "\n"]
    for name, line in COMMANDS.items():
        parts.append(f"{_TITLES[name]}:\n" if name in _TITLES else "")
        parts.append(f"  {name:<{column}}  {line}\n")
    width = min(get_terminal_size().columns, 80)
    return "\n".join(_wrapped(line, width) for line in "".join((*parts, _TAIL)).split("\n"))


def _wrapped(line: str, width: int) -> str:
    """Return a line of the help, wrapped below the beginning of its text."""
    indent = re.match(r"(  (?:\S+|-\w, \S+)  +)?\s*", line)
    assert indent is not None
    return fill(line, width, subsequent_indent=" " * indent.end(), break_long_words=False, break_on_hyphens=False)
