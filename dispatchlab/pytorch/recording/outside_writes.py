"""What imports leave outside of their process: files that change, and programs that may change some."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from itertools import islice
from types import FrameType
from typing import Any, Final

# Note [What the next order finds]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A process that is forked for each order keeps its memory to itself, but not its files. An audit hook sees the files
# that Python opens, renames and removes. It sees that a program is started, and not what that does, so that counts as a
# change, as a fork does. It does not see what C writes, as `torch.save` and `dbm` do: so the files beside the packages
# are listed before and after, with their sizes and times. One that only grew meanwhile is left out there, since it may
# be a log of another process. No audit event shows what is written into a pipe, a socket or a file without a name, so
# each of these that was opened and is still open is named.


class OutsideWrites:
    """Notes changes from its making on, in a process that makes one and ends.

    Args:
        modules: the modules that will be imported; the files beside them are listed.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._folders = tuple(dict.fromkeys(_folders(modules)))
        self._before = dict(_listed(self._folders))
        self._open = frozenset(_descriptors())
        self._written: dict[str, bool] = {}
        files = [str(getattr(sys.modules.get(name), "__file__", "")) for name in _OF_C]
        self._own = tuple(file.removesuffix("__init__.py") for file in files if file)
        self._started: dict[str, None] = {}
        self.foreign: dict[str, None] = {}
        """The functions of C that packages have looked up through ctypes."""
        sys.addaudithook(self._note)

    def opened(self) -> list[str]:
        """What is open now that is no file with a name."""
        targets = {target.partition(":")[0] for one in _descriptors() if one not in self._open for target in one[1:]}
        return sorted(targets)

    def lasting(self) -> list[str]:
        """The files that are not as they were, and the programs that were started."""
        written = [path for path, was_there in list(self._written.items()) if was_there or os.path.lexists(path)]
        after = dict(_listed(self._folders))
        changed = [path for path in {*self._before, *after} if _differ(self._before.get(path), after.get(path))]
        return sorted({*self._started, *written, *changed})

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STARTS:
            if not _is_of(sys._getframe(1), ("os.py", "subprocess.py"), _ASKING):
                program = arguments[0] if arguments else event
                self._started[os.fsdecode(program) if isinstance(program, str | bytes) else event] = None
            return
        if event == "ctypes.dlsym":
            if not _is_of(sys._getframe(1), _CTYPES, self._own):
                self.foreign[str(arguments[1])] = None
            return
        if event == "open":
            mode, flags = str(arguments[1] or ""), arguments[2]
            if not (flags & _WRITING or set(mode) & {"w", "a", "x", "+"}):
                return
        for path in arguments[: _CHANGES.get(event, 0)]:
            self._write(event, path)

    def _write(self, event: str, path: object) -> None:
        text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if not text or "__pycache__" in text or (text.startswith(("/dev/", "/proc/")) and "/dev/shm/" not in text):
            return
        text = os.path.abspath(text)
        was_there = os.path.lexists(text)
        if not (was_there and event == "os.mkdir") and not (
            event == "open" and os.path.isdir(text)
        ):  # neither changes it
            self._written.setdefault(text, was_there)


_STARTS: Final = frozenset(
    {"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.spawn", "os.fork", "os.forkpty"}
)
_CHANGES: Final = {
    **dict.fromkeys(("open", "os.mkdir", "os.rmdir", "os.remove", "os.truncate", "sqlite3.connect"), 1),
    **dict.fromkeys(("os.utime", "os.chmod", "os.chown", "os.setxattr", "os.removexattr"), 1),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), 2),
}
"""The events of changes, each with how many of its first arguments are paths."""
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ASKING: Final = tuple(
    os.path.join(os.path.dirname(os.__file__), *each) for each in (("platform.py",), ("ctypes", "util.py"))
)
"""Parts of the standard library that start programs which only answer."""
_CTYPES: Final = (os.path.join("ctypes", "__init__.py"),)
_OF_C: Final = ("torch", "numpy", "ctypes", "uuid", "multiprocessing")
"""Modules that call functions of C whose state is compared, or is of no importance."""
_MOST_FILES: Final = 20_000


def _is_of(frame: FrameType | None, between: tuple[str, ...], files: tuple[str, ...]) -> bool:
    """Whether code in some files has called through some others."""
    while frame is not None and frame.f_code.co_filename.endswith(between):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(files)


def _folders(modules: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The folders that modules lie in, and whether what is below belongs to them, too."""
    yield os.getcwd(), False
    for top in dict.fromkeys(module.partition(".")[0] for module in modules):
        with suppress(ImportError, ValueError):
            spec = PathFinder.find_spec(top)
            if spec is not None and spec.submodule_search_locations is not None:
                yield from ((folder, True) for folder in spec.submodule_search_locations)
            elif spec is not None and spec.origin is not None:
                yield os.path.dirname(spec.origin), False


def _listed(folders: Sequence[tuple[str, bool]]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The files in some folders, each with what changes when it is written."""
    for folder, is_deep in folders:
        walked = os.walk(folder) if is_deep else islice(os.walk(folder), 1)
        paths = (os.path.join(at, name) for at, _, names in walked if "__pycache__" not in at for name in names)
        for path in islice(paths, _MOST_FILES):
            with suppress(OSError):
                found = os.lstat(path)
                yield path, (found.st_size, found.st_mtime_ns, found.st_ino)


def _descriptors() -> Iterator[tuple[str, str]]:
    """The open pipes, sockets and files without a name, each with its number; none where there is no /proc."""
    with suppress(OSError):
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # that of the listing itself is gone by now
                target = os.readlink(f"/proc/self/fd/{number}")
                if not target.startswith("/") or target.startswith(("/memfd:", "/dev/shm/")):
                    yield number, target
                elif target.endswith(" (deleted)"):
                    yield number, "a file without a name"


def _differ(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> bool:
    """Whether a file is not as it was, and did not only grow."""
    if before is None or after is None:
        return before is not after
    return before != after and (before[2] != after[2] or after[0] <= before[0])
