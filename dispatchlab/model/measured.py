"""The installed PyTorch: its version, and what is measured of it, once, where nothing of it comes with dispatchlab.

See Note [Measured once].
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple

from dispatchlab.escape import printable
from dispatchlab.model.keys import FORMER_KEYS, DispatchKey
from dispatchlab.model.profile import (
    TORCH,
    Profile,
    ProfileError,
    bundled_profile,
    bundled_profiles,
    nearest_profile,
    read_profile,
    version_of,
)

# Note [Measured once]
# ~~~~~~~~~~~~~~~~~~~~
# Commands of dispatchlab measure, in a process of their own. What they print is kept in the user's cache. The name of a
# file there has two digests:
#
# - of the build: of torch/version.py, which has the version, the commit and the CUDA or ROCm; and of the names, sizes
#   and times of its libraries. Those have gigabytes, and reading them would take longer than measuring; a library that
#   is built again has another time.
# - of the content, so that a file that was changed is not read, and what it should be is measured again.
#
# A file is moved into its place as a whole. Who measures holds a lock, on which others wait, and then they find the
# file; where there are no locks, both measure the same. A cache that cannot be written is replaced by a temporary
# folder, which this process names to those that it starts, and removes.

CACHE = "DISPATCHLAB_CACHE"
"""The environment variable that names the folder of the cache; ~/.cache/dispatchlab without it."""

NO_MEASURE = "DISPATCHLAB_NO_MEASURE"
"""The environment variable that forbids measuring, as `--no-measure` does; what has been measured is used."""

_VERSION = r"""^__version__\s*(?::\s*str\s*)?=\s*['"]([^'"\s]{1,100})['"]"""
_HEAD = 2**16  # characters of version.py, which has a few lines
_LIMIT_S = 600.0
_LIBRARY = (".so", ".dylib", ".dll", ".pyd")
_MEASURES = {"profile": (".json", ("profile",)), "registry": (".dlreg", ("record", "--all", "-o", "/dev/stdout"))}


def installed_torch() -> str | None:
    """The version of the PyTorch that `import torch` would find, such as `2.13.0+cpu`; None when there is none."""
    folder = installed_torch_folder()
    return None if folder is None else _version_in(os.path.join(folder, "version.py"))


def installed_torch_folder() -> str | None:
    """The folder of the PyTorch that `import torch` would find; None when there is none."""
    from importlib.util import find_spec

    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):  # a module in its place that says nothing of where it comes from
        return None
    if spec is None or spec.origin is None:
        return None
    return os.path.dirname(spec.origin)


def _version_in(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            found = re.search(_VERSION, stream.read(_HEAD), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else found[1]


def model_for(torch: str | None) -> str:
    """The profile of a PyTorch: of its version or the nearest, and the newest where there is no version.

    Of the installed PyTorch, when its version is not bundled, it is what is measured.

    Args:
        torch: its version, such as `2.13.0+cpu`, or a semantics, such as `torch-2.13`.
    """
    version = None if torch is None else version_of(torch)
    if version is None:
        return bundled_profiles()[-1]
    name = "torch-{}.{}".format(*version)
    return name if is_known(name) else nearest_profile(version)


def is_known(name: str) -> bool:
    """Whether there is a profile of this name, bundled or of the installed PyTorch, which is measured then."""
    return name in bundled_profiles() or measured_profile(name) is not None


def known_profile(name: str) -> Profile:
    """The profile of a name that `is_known` knows."""
    return measured_profile(name) or bundled_profile(name)


@cache
def other_keys_of_calls(name: str) -> tuple[str, ...]:
    """The keys that a profile has, lacks, or has elsewhere in the order than the key sets of calls do."""
    from difflib import ndiff

    found = ndiff([key.name for key in DispatchKey if key not in FORMER_KEYS], [*known_profile(name).keys])
    return tuple(dict.fromkeys(line[2:] for line in found if line[0] in "+-"))


def resolved_semantics(name: str) -> str:
    """The semantics that a name stands for: of `torch`, the model of the installed PyTorch, else the newest."""
    if name != TORCH:
        return name
    return model_for(installed_torch())


class Build(NamedTuple):
    """An installed PyTorch of which no profile comes with dispatchlab.

    Args:
        torch: its version, such as `2.16.0+cu134`.
        name: what its model and its registry are called, such as `torch-2.16`.
        digest: of what tells it from other builds.
    """

    torch: str
    name: str
    digest: str


class Kept(NamedTuple):
    """What was measured of a build.

    Args:
        path: its file; empty where there is none.
        missing: why there is none.
    """

    path: str
    missing: str = ""


def unknown_build() -> Build | None:
    """The installed PyTorch, when no profile of its version comes along; None otherwise, and where there is none."""
    torch = installed_torch()
    version = None if torch is None else version_of(torch)
    if torch is None or version is None or (name := "torch-{}.{}".format(*version)) in bundled_profiles():
        return None
    return Build(torch, name, _digest(installed_torch_folder() or ""))


def measured_profile(name: str) -> Profile | None:
    """The profile of the installed PyTorch, measured when it is first needed.

    Args:
        name: what its model is called.

    Returns:
        The profile; None for another name than that of `unknown_build`, and where nothing can be or may be measured.
    """
    kept = kept_of("profile", name)
    return None if kept is None or not kept.path else _profile_in(kept.path)


def measured_registry(name: str) -> str:
    """The file of the registry of the installed PyTorch, likewise; empty where there is none."""
    kept = kept_of("registry", name)
    return "" if kept is None else kept.path


def kept_of(what: str, name: str) -> Kept | None:
    """What was measured of the installed PyTorch, which is done when it is first needed.

    Args:
        what: `profile` or `registry`.
        name: what its model and its registry are called; None is returned for another name than that.
    """
    if not name.startswith("torch-") or name in bundled_profiles():  # so that nothing is looked up for a known one
        return None
    build = unknown_build()
    return _kept(what, build) if build is not None and build.name == name else None


_wants_notes: ContextVar[bool] = ContextVar("wants_notes", default=True)


@contextmanager
def without_notes() -> Iterator[None]:
    """Write no notes on what is measured, until the block ends."""
    token = _wants_notes.set(False)
    try:
        yield
    finally:
        _wants_notes.reset(token)


def tell(text: str) -> None:
    """Write a note to standard error, where it is open and notes are wanted."""
    if not _wants_notes.get():
        return
    with suppress(OSError, AttributeError):
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()


def measured_facts(name: str) -> tuple[str, ...]:
    """What was measured of the installed PyTorch, how long ago, and what could not be; a line each.

    Nothing is measured for it. There are no lines for another name than that of `unknown_build`.
    """
    build = unknown_build()
    if build is None or build.name != name:
        return ()
    lines = []
    for what, (suffix, _) in _MEASURES.items():
        path = _found(_cache_folder(), f"{build.name}-{build.digest}", suffix)
        profile = _profile_in(path) if path and what == "profile" else None
        if path:
            lines.append(f"{what}: measured on this PyTorch {_ago(os.stat(path).st_mtime)}, {path}")
        else:
            lines.append(f"{what}: not measured; it is when it is first needed")
        if profile is not None and profile.not_probed:
            lines.append(f"not in the profile, since nothing shows it: {', '.join(profile.not_probed)}")
    return tuple(lines)


def _ago(then: float) -> str:
    from time import time

    seconds = max(0, int(time() - then))
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}{'s' if seconds >= 2 * length else ''} ago"
    return "just now"


def not_measured(name: str) -> str:
    """Why there is no profile of a PyTorch, a clause."""
    kept = kept_of("profile", name)
    return "another PyTorch is installed" if kept is None else f"it was not measured: {kept.missing}"


@cache
def _kept(what: str, build: Build) -> Kept:
    suffix = _MEASURES[what][0]
    beginning = f"{build.name}-{build.digest}"
    path = _found(_cache_folder(), beginning, suffix)
    kept = Kept(path) if path else _measured(what, build, beginning, suffix)
    if kept.missing:
        tell(f"the {what} of PyTorch {build.torch} was not measured: {kept.missing}; that of the nearest answers")
    else:
        tell(f"{'model' if what == 'profile' else what}: measured on this PyTorch, {build.torch}")
    return kept


def _measured(what: str, build: Build, beginning: str, suffix: str) -> Kept:
    """Measure, and keep the result; or wait until another process has done it."""
    from dispatchlab.files.atomic_write import WriteError, write_file
    from dispatchlab.processes.own_command import printed_by

    if os.environ.get(NO_MEASURE):
        return Kept("", "--no-measure was given")
    folder = _writable_folder()
    with _only_one(os.path.join(folder, f"{beginning}{suffix}.lock")):
        path = _found(folder, beginning, suffix)
        if path:
            return Kept(path)
        tell(f"measuring the {what} of PyTorch {build.torch}, once; it is kept in {folder}")
        data, missing = printed_by(_MEASURES[what][1], {NO_MEASURE: "1"}, _LIMIT_S)
        if not data:
            return Kept("", missing)
        path = os.path.join(folder, f"{beginning}-{_sha256(data)}{suffix}")
        try:
            write_file(path, data)
        except WriteError as error:
            return Kept("", str(error))
        return Kept(path)


@contextmanager
def _only_one(path: str) -> Iterator[None]:
    """Hold the lock of a file, and wait for it; nothing is locked where there are no locks."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(stack.enter_context(open(path, "a")), fcntl.LOCK_EX)
        yield


def _found(folder: str, beginning: str, suffix: str) -> str:
    """The file of a build in the cache, if its content is what its name says; else an empty text."""
    from dispatchlab.files.bounded_read import ReadError, read_file

    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(f"{beginning}-") and name.endswith(suffix):
                path = os.path.join(folder, name)
                with suppress(OSError, ReadError):
                    data = read_file(path, limit=_LARGEST, what="measured files")
                    if name == f"{beginning}-{_sha256(data)}{suffix}" and (suffix != ".json" or _profile_in(path)):
                        return path
                with suppress(OSError):
                    os.unlink(path)  # it was changed, and would be read for nothing each time
    return ""


_LARGEST = 2**23


@cache
def _profile_in(path: str) -> Profile | None:
    try:
        return read_profile(path)
    except ProfileError:  # of another format
        return None


def _cache_folder() -> str:
    named = os.environ.get(CACHE)
    if named:
        return os.path.abspath(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "dispatchlab")


def _writable_folder() -> str:
    """The folder of the cache, made if need be; a temporary one where it cannot be written."""
    folder = _cache_folder()
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except OSError:
        pass
    import atexit
    from shutil import rmtree
    from tempfile import mkdtemp

    folder = os.environ[CACHE] = mkdtemp(prefix="dispatchlab-")
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


def _digest(folder: str) -> str:
    """The digest of a build. See Note [Measured once]."""
    from dispatchlab._version import __version__

    parts = [__version__, *Profile.__dataclass_fields__]  # another dispatchlab measures something else
    with suppress(OSError):
        with open(os.path.join(folder, "version.py"), encoding="utf-8", errors="replace") as stream:
            parts.append(stream.read(2**16))
        for inside in (folder, os.path.join(folder, "lib")):
            for entry in sorted(os.scandir(inside), key=lambda each: each.name):
                if entry.name.endswith(_LIBRARY) or ".so." in entry.name:
                    found = entry.stat()
                    parts.append(f"{entry.name} {found.st_size} {found.st_mtime_ns}")
    return _sha256("\n".join(parts).encode())


def _sha256(data: bytes) -> str:
    from hashlib import sha256

    return sha256(data).hexdigest()[:16]
