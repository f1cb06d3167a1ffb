"""Call sites: the source line that asked for a registration, found among the callers."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import FrameType

from dispatchlab.live.bridge.torch import torch
from dispatchlab.model.registration import TorchLibraryFunction

# Note [Call sites]
# ~~~~~~~~~~~~~~~~~
# PyTorch prints the line that made the library, which is one line of torch/library.py for everything that is registered
# without a library of one's own. Here a registration is where the code outside of `torch.library` made it. If that is
# in a function, a helper of the package say, the site is the line of the module that called it, and the lines on the
# way follow, the one that made the call last: `registered at my/ops.py:12 via my/loop.py:30 via my/utils.py:250`.
# Whether PyTorch registers for itself is decided by the first frame outside of `torch.library`: a package that imports
# a part of PyTorch makes it load, and did not write it.
#
# The standard library is passed over: `functools.partial`, a thread, a dataclass may stand between the code that wants
# something registered and the call that does it. A chain ends at the first line of a module, or at a function that a
# program runs for its own sake: a test, the `main` of a script.


@dataclass(frozen=True, slots=True)
class CallSite:
    """The source line that made a registration. See Note [Call sites].

    Args:
        file: the file.
        line: the line, from 1.
        module: the name of the module.
        via: the lines of functions between this line and the call, each as `file:line`.
        by_torch: whether PyTorch itself made the registration.
        on_import: whether the line is in the body of a module, which runs when the module is imported.
    """

    file: str
    line: int
    module: str
    via: tuple[str, ...] = ()
    by_torch: bool = False
    on_import: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


API_FILES = ("library.py", "_library/", "_custom_op/", "_custom_ops.py")
"""The registration API, below the folder of torch: it registers what others ask for."""


def is_api_file(file: str) -> bool:
    """Return whether a file belongs to PyTorch's registration API, whose lines PyTorch remembers."""
    return file.endswith((os.path.join("torch", "library.py"), os.path.join("_library", "custom_ops.py")))


_RUNNERS = frozenset(("__channelexec__", "_pytest", "dispatchlab", "execnet", "pluggy", "pytest", "xdist"))
_OUTER, _INNER = 3, 3
"""How many lines of a chain are kept at either end."""

_IN_IMPL = {
    "register_autograd": TorchLibraryFunction.REGISTER_AUTOGRAD,
    "register_vmap": TorchLibraryFunction.REGISTER_VMAP,
    "register_autocast": TorchLibraryFunction.REGISTER_AUTOCAST,
}


class CallSites:
    """Finds the call site of a registration among the callers outside of `dispatchlab.live`."""

    def __init__(self) -> None:
        self._torch = torch_folder()
        self._api = tuple(self._torch + path.replace("/", os.sep) for path in API_FILES)
        live = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
        self._passed = (live, functools.__file__, contextlib.__file__, "<frozen ")
        self._standard = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")})

    def here(self) -> CallSite:
        """Return the call site of the present registration. See Note [Call sites]."""
        outside = (frame for frame in self._frames() if not frame.f_code.co_filename.startswith(self._api))
        first = next(outside, None)
        if first is None:
            return CallSite("<unknown>", 0, "")
        if first.f_code.co_filename.startswith(self._torch):
            return replace(_site(first), by_torch=True)
        chain = [_site(first)]
        for frame in outside:
            module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if chain[-1].on_import or module in _RUNNERS:  # a program that runs other programs, such as pytest
                break
            site = _site(frame)
            if not site.file.startswith(self._torch) and site != chain[-1]:
                chain.append(site)
        last = chain.pop()
        inner = [str(site) for site in reversed(chain)]
        return replace(last, via=(*inner[:_OUTER], *inner[_OUTER:][-_INNER:]))

    def function(self) -> tuple[TorchLibraryFunction, tuple[str, ...]] | None:
        """Return the function of `torch.library` that called `impl`, and its subject; None for `impl` itself."""
        for frame in self._frames():
            if not frame.f_code.co_filename.startswith(self._api):
                return None
            found = _IN_IMPL.get(frame.f_code.co_qualname.partition(".")[0])
            if found is not None:
                device = frame.f_locals.get("device_type") if found is TorchLibraryFunction.REGISTER_AUTOCAST else None
                return found, () if device is None else (str(device),)
        return None

    def is_inside(self, function: str) -> bool:
        """Return whether a function of `torch.library` with this qualified name is among the callers."""
        for frame in self._frames():
            if not frame.f_code.co_filename.startswith(self._api):
                return False
            if frame.f_code.co_qualname == function:
                return True
        return False

    def is_standard(self, file: str) -> bool:
        """Return whether a file is of the standard library."""
        return file.startswith(self._standard) and "site-packages" not in file and "dist-packages" not in file

    def _frames(self) -> Iterator[FrameType]:
        """Return the callers, innermost first, without frames to skip."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith(self._passed) and not self.is_standard(file):
                yield frame
            frame = frame.f_back


def _site(frame: FrameType) -> CallSite:
    code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
    return CallSite(code.co_filename, frame.f_lineno, module, on_import=code.co_name == "<module>")


def torch_folder() -> str:
    """Return the folder of the installed torch, with its separator."""
    return os.path.join(os.path.dirname(torch().__file__), "")
