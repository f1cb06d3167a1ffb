"""Watch a program while it runs: its events with their lines, and the exception with its chain and frames.

The watch only notes what the program does, and predicts nothing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import linecache
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from dispatchlab.files import module_spec
from dispatchlab.model.failure import Event, EventKind, Position, Raised

CHILDREN: Final = "DISPATCHLAB_WHY_EVENTS"
"""The environment variable that names the file in which processes that the program starts leave their events."""

OURS: Final = os.path.abspath(__file__).rpartition(os.path.join("live", "failure"))[0]
_BACKTRACE: Final = re.compile(r"\n(?:Exception raised from .*|frame #\d+: .*|C\+\+ CapturedTraceback:.*)", re.DOTALL)
_TRACED: Final = re.compile(r'^ *File "([^"]+)", line (\d+), in (\S+)$', re.MULTILINE)
_LONGEST: Final = 20_000
_REGISTERS: Final = ("define", "impl", "fallback", "custom_op", "register_fake", "register_autograd", "register_vmap")


_OF_CALLS: Final = (
    "entered mode",
    "called",
    "returned alias",
    "wrote undeclared",
    "wrong result",
    "got None",
    "other device",
)

STARTED: Final[list[ProgramWatch]] = []
"""What watches this process."""


class ProgramWatch:
    """Events of this process, in order.

    Args:
        folder: the folder of the user's files, without installed packages.
        packages: modules in any folder that also belong to the user.
    """

    def __init__(self, folder: str, packages: Sequence[str] = ()) -> None:
        self.folder = os.path.realpath(folder)
        self.owned = tuple(path for package in packages for path in _paths_of(package))
        self.events: list[Event] = []
        self.copied: Counter[str] = Counter()
        self.calls: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {}
        self.functions: dict[str, Any] = {}
        """The autograd.Functions of the program that were called."""
        self.states: set[tuple[str, str]] = set()
        self.unknown: set[str] = set()
        """The custom operators with `mutates_args="unknown"`."""
        self.wrote: set[str] = set()
        """The operators that changed an argument which their schema marks."""
        self.shown: BaseException | None = None
        """The latest exception that was caught while something was printed."""
        self.destroyed: set[str] = set()
        """What was released on purpose."""

    def note(self, kind: EventKind, subject: str, detail: str = "", at: Position | None = None) -> None:
        """Add an event; its default line is the line of the caller."""
        if kind in _REGISTERS and not self.registers(sys._getframe(1)):
            return
        event = Event(kind, subject, detail[:_LONGEST], at or self.position(sys._getframe(1)))
        self.events.append(event)
        if path := os.environ.get(CHILDREN):
            leave_event(path, event)

    def position(self, frame: FrameType | None) -> Position | None:
        """Return the innermost line of the user at or around a frame."""
        while frame is not None:
            if self.is_users(frame.f_code.co_filename):
                return position_of(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            frame = frame.f_back
        return None

    def is_users(self, file: str) -> bool:
        """Return whether a file belongs to the user, not to an installed package."""
        if file.startswith((*self.owned, "<ipython-input-")):
            return True
        generated = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or "torchinductor_"
        if file.startswith(("<", OURS)) or "site-packages" in file or generated in file:
            return False
        return not file.startswith((sys.base_prefix + os.sep, sys.prefix + os.sep)) or self.folder.startswith(
            sys.prefix
        )

    def forget_calls(self) -> None:
        """Forget what an earlier test did with modes and operators; what it registered stays, and so do imports."""
        self.copied.clear()
        self.states.clear()
        self.events[:] = [
            event
            for event in self.events
            if event.kind not in _OF_CALLS or event.at is None or event.at.function == "<module>"
        ]

    @classmethod
    def current(cls) -> ProgramWatch:
        """Return the watch of this process; an empty one if none was started."""
        return next(iter(STARTED), cls(os.getcwd()))

    def registers(self, frame: FrameType | None) -> bool:
        """Return whether a frame registers for a program, and not for PyTorch itself."""
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith((OURS, *_registering_files())):
                return not file.startswith(_torch_folder())
            frame = frame.f_back
        return True


def _paths_of(package: str) -> tuple[str, ...]:
    """Return the folders of a package, or the file of a module; empty if it is not found."""
    spec = module_spec(package.partition(".")[0])
    if spec is not None and spec.submodule_search_locations:
        return tuple(f"{folder}{os.sep}" for folder in spec.submodule_search_locations)
    return (spec.origin,) if spec is not None and spec.origin else ()


@functools.cache
def _torch_folder() -> str:
    return os.path.dirname(str(sys.modules["torch"].__file__)) + os.sep


@functools.cache
def _registering_files() -> tuple[str, ...]:
    """Return the files of PyTorch that register for other code."""
    folder = _torch_folder()
    own = (f"{folder}{part}" for part in ("library.py", f"_library{os.sep}", "_custom_op"))
    return (*own, "<", functools.__file__, contextlib.__file__)


def position_of(file: str, line: int, function: str) -> Position:
    """Return a position with the text of its line, and the shortest path."""
    shown = os.path.relpath(file) if os.path.isabs(file) and os.path.exists(file) else file
    shown = file if shown.startswith("..") else shown
    return Position(shown, line, function, linecache.getline(file, line).strip())


def leave_event(path: str, event: Event) -> None:
    """Append an event to the file that all processes of a program share."""
    at = event.at
    row = [event.kind, event.subject, event.detail, *((at.file, at.line, at.function, at.text) if at else ())]
    with suppress(OSError), open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def left_events(path: str) -> tuple[Event, ...]:
    """Return the events that the processes wrote to this file."""
    rows = []
    with suppress(OSError), open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return tuple(Event(row[0], row[1], row[2], Position(*row[3:]) if row[3:] else None) for row in rows)


def events_in_children(watch: ProgramWatch, path: str) -> Iterator[Event]:
    """Return the events of the child processes of the program."""
    own = list(watch.events)
    for event in left_events(path):
        if event in own:
            own.remove(event)
        else:
            yield event


def raised_of(error: BaseException) -> tuple[Raised, ...]:
    """Return an exception and its causes, each once, without C++ backtraces."""
    return tuple(
        Raised(f"{type(raised).__module__}.{type(raised).__qualname__}", plain_text(raised))
        for raised in raw_chain(error, hidden=False)
    )


def plain_text(error: BaseException) -> str:
    """Return the message of an exception, without a backtrace of C++."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"<its message raises {type(broken).__name__}>"
    return _BACKTRACE.sub("", text)[:_LONGEST].strip()


def raw_chain(error: BaseException, *, hidden: bool = True) -> Iterator[BaseException]:
    """Return an exception and all its causes, also those that `from None` hides."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ and not hidden else current.__context__)


def inner_frame(text: str, frames: Sequence[Position]) -> tuple[Position, ...]:
    """Return the innermost line that a message of Dynamo names, if its file is the file of a frame."""
    told = re.search(r"\nCaused by: .* \(\S*?([^\s/]+):(\d+) in (\S+)\)", text)
    files = [frame.file for frame in frames if told is not None and Path(frame.file).name == told[1]]
    return (position_of(files[0], int(told[2]), told[3]),) if told is not None and files else ()


def frames_of(error: BaseException, watch: ProgramWatch) -> tuple[tuple[Position, ...], tuple[str, ...]]:
    """Return the user's frames of the first exception in a chain that has such frames, and all functions on its stacks.

    After these frames come the lines that Dynamo names as the user's code, then the line that raised.
    """
    found: tuple[Position, ...] = ()
    inner: tuple[Position, ...] = ()
    functions: list[str] = []
    for current in raw_chain(error):
        frames = list(traceback.walk_tb(current.__traceback__))
        users = tuple(
            position_of(frame.f_code.co_filename, line, frame.f_code.co_name)
            for frame, line in frames
            if watch.is_users(frame.f_code.co_filename)
        )
        functions += [f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}" for frame, _ in frames[-200:]]
        found, inner = found or users, users or inner
    traced = tuple(
        position_of(match[1], int(match[2]), match[3])
        for match in _TRACED.finditer(plain_text(error).rpartition("from user code:")[2])
        if "from user code:" in plain_text(error) and watch.is_users(match[1])
    )
    hidden = len(list(raw_chain(error))) > len(list(raw_chain(error, hidden=False)))
    last = tuple(frame for frame in inner[-2:] if hidden and frame not in found)
    known = (*found, *traced, *last)
    return (*known, *inner_frame(plain_text(error), known)), tuple(functions)
