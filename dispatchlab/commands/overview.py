"""The commands with a line each, and the help of the whole command line, which needs no other module."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "certify": "Prove for every operator of a registry that order has no effect.",
    "check": "Check a package: order, lint, upgrade, drift.",
    "codegen": "Generate code from a native_functions.yaml.",
    "coverage": "Show which operators a backend can run, and how.",
    "defects": "Show which known defects the installed PyTorch has.",
    "demo": "Show a defect of order on a small example, and what to do next.",
    "diff": "Show what differs between two registries.",
    "doctor": "Show the versions, and what works with the installed PyTorch.",
    "dump": "Show the kernels and the dispatch table of an operator.",
    "explain": "Show which kernel a call of OP runs and why, without running it.",
    "explore": "Register and release by hand in an application.",
    "imports": "Import packages in every order and show what depends on it.",
    "init": "Set up dispatchlab in the checkout of a package.",
    "lint": "Report likely mistakes in registrations.",
    "permute": "Check whether the order of registrations matters.",
    "profile": "Measure the dispatcher of the installed PyTorch.",
    "record": "Record what importing packages registers, as a scenario.",
    "schema": "Print the JSON Schema of scenario files.",
    "trace": "Run FILE.py and show every call of its operators.",
    "why": "Show why a program fails, and what fixes it.",
}
"""Each command with its line in the help. Its module and its function are named like it."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Start": ("demo", "doctor", "init"),
    "Inspect": ("explain", "dump", "coverage", "diff", "defects", "explore"),
    "Check": ("why", "check", "lint", "permute", "record", "imports", "certify"),
    "Advanced": ("trace", "profile", "codegen", "schema"),
}
"""The commands in the order of the help."""

_HEAD = """\
Usage: dispatchlab [OPTIONS] COMMAND [ARGS]...

  Prove that the order of registrations does not matter, or show the shortest
  counterexample.

  Examples:
    dispatchlab permute scenarios/
    dispatchlab dump test::foo --from scenario.yaml
"""

_TAIL = """
Options:
  -q, --quiet  Print no progress and no notes on standard error.
  --no-color   Print without colours, as NO_COLOR does; FORCE_COLOR asks for
               them.
  --no-pager   Print long output without a pager.
  --version    Show the version and exit.
  -h, --help   Show this message and exit.

  Exit codes: 0 as expected, 1 not as expected, 2 bad input, 3 incomplete,
  4 nondeterministic, 5 crashed, 70 a defect of dispatchlab, 74 the output could
  not be written, 124 a package took too long to be imported, 130 Ctrl-C,
  141 the reader of the output has gone.
"""


def overview() -> str:
    """The help of the whole command line."""
    width = max(map(len, COMMANDS))
    groups = (
        f"\n{title}:\n" + "".join(f"  {name:<{width}}  {COMMANDS[name]}\n" for name in names)
        for title, names in GROUPS.items()
    )
    return "".join((_HEAD, *groups, _TAIL))
