"""Long output goes to a pager, as git's does: on a terminal that someone can type at, and when it is longer than that.

DISPATCHLAB_PAGER and then PAGER name the program, and `less` is used without them; an empty one, `cat` and
`--no-pager` mean none. LESS is `FRX` where it is not set.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

_DEFAULT = "less"
_LESS = "FRX"
_DRAWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\")
_LEAST_LESS_WITH_LINKS = 566
_LINK = re.compile(r"\x1b\]8;[^\x1b]*\x1b\\")


def pager_for(text: str) -> str | None:
    """The command line of the pager that should show a text; None where the text goes to standard output itself."""
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        return None
    size = shutil.get_terminal_size()
    return _chosen(os.environ) if _rows(text, size.columns) >= size.lines else None


def _chosen(environ: Mapping[str, str]) -> str | None:
    named = environ.get("DISPATCHLAB_PAGER", environ.get("PAGER"))
    if named is None:
        if environ.get("TERM", "dumb") == "dumb" or shutil.which(_DEFAULT) is None:
            return None
        return _DEFAULT
    return None if named.strip() in ("", "cat") else named


def _rows(text: str, columns: int) -> int:
    """How many rows of a screen a text takes."""
    lines = _DRAWN.sub("", text).splitlines()
    return sum(max(1, -(-len(line) // columns)) for line in lines)


# Note [A pager that ends early]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Whoever has read enough leaves the pager while it is still being written to, and Ctrl-C is the pager's own key.
# Neither is an error of the command: what was found stays found, and so does the exit code. So the pipe may break, and
# Ctrl-C is left to the pager while it runs.


def page(text: str, pager: str) -> bool:
    """Show a text with a pager and wait for it; whether there was one. See Note [A pager that ends early].

    Args:
        text: the text, with its control characters.
        pager: the command line of a shell.
    """
    environ = {**os.environ, "LESS": os.environ.get("LESS", _LESS), "LV": os.environ.get("LV", "-c")}
    shown = text if _shows_links(pager) else _LINK.sub("", text)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        process = subprocess.Popen(pager, shell=True, stdin=subprocess.PIPE, env=environ)
    except OSError:
        return False
    with _interrupts_ignored():
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(shown.encode(encoding, "backslashreplace"))
        return process.wait() != _NOT_FOUND


_NOT_FOUND = 127
"""What a shell ends with when it does not know a command."""


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _shows_links(pager: str) -> bool:
    """Whether a pager passes links on: `less` since 566 does, and others print them as text."""
    program = pager.split()[0] if pager.split() else ""
    if os.path.basename(program) != _DEFAULT or "R" not in os.environ.get("LESS", _LESS) + pager.upper():
        return False
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.SubprocessError, ValueError):
        return False
    found = re.match(r"less (\d+)", done.stdout)
    return found is not None and int(found[1]) >= _LEAST_LESS_WITH_LINKS
