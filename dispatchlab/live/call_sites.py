"""From where a registration is being made, and through which function of `torch.library`: what the stack tells."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType

from dispatchlab.live.torch import torch
from dispatchlab.live.watched_call import Site
from dispatchlab.model.registration import LayerFunction

# Note [Call sites]
# ~~~~~~~~~~~~~~~~~
# PyTorch prints the line that made the library, which is one line of torch/library.py for everything that is registered
# without a library of one's own. Here a registration is where the code outside of `torch.library` made it. If that is
# in a function, a decorator of the package say, the site is the line of the module that called it, and the function is
# told as well: `registered at my/ops.py:12 via my/utils.py:250`. Whether PyTorch registers for itself is decided by the
# first frame outside of `torch.library`: a package that imports a part of PyTorch makes it load, and did not write it.

_IN_IMPL = {
    "register_autograd": LayerFunction.REGISTER_AUTOGRAD,
    "register_vmap": LayerFunction.REGISTER_VMAP,
    "register_autocast": LayerFunction.REGISTER_AUTOCAST,
}


class CallSites:
    """Looks at who called.

    Args:
        file: the file of the functions that ask, whose frames are passed over.
    """

    def __init__(self, file: str) -> None:
        self._torch = os.path.join(os.path.dirname(torch().__file__), "")
        self._layer = (os.path.join(self._torch, "library.py"), os.path.join(self._torch, "_library", ""))
        self._passed = (file, __file__, functools.__file__, contextlib.__file__, "<frozen importlib")

    def here(self) -> Site:
        """The place that registers now. See Note [Call sites]."""
        outside = (frame for frame in self._frames() if not frame.f_code.co_filename.startswith(self._layer))
        first = next(outside, None)
        if first is None:
            return Site("<unknown>", 0, "")
        at = Site(first.f_code.co_filename, first.f_lineno, str(first.f_globals.get("__name__", "")))
        if at.file.startswith(self._torch):
            return replace(at, by_torch=True)
        if first.f_code.co_name == "<module>":
            return at
        for frame in outside:
            if frame.f_code.co_name == "<module>" and not frame.f_code.co_filename.startswith(self._torch):
                name = str(frame.f_globals.get("__name__", ""))
                if name == "__main__" or name.startswith("dispatchlab."):
                    break
                return Site(frame.f_code.co_filename, frame.f_lineno, name, via=str(at))
        return at

    def function(self) -> tuple[LayerFunction, tuple[str, ...]] | None:
        """The function of `torch.library` that led here, and on what, if it is one of those that end in an impl."""
        for frame in self._frames():
            if not frame.f_code.co_filename.startswith(self._layer):
                return None
            found = _IN_IMPL.get(frame.f_code.co_qualname.partition(".")[0])
            if found is not None:
                device = frame.f_locals.get("device_type") if found is LayerFunction.REGISTER_AUTOCAST else None
                return found, () if device is None else (str(device),)
        return None

    def is_inside(self, function: str) -> bool:
        """Whether a function of `torch.library` with this qualified name led here."""
        for frame in self._frames():
            if not frame.f_code.co_filename.startswith(self._layer):
                return False
            if frame.f_code.co_qualname == function:
                return True
        return False

    def _frames(self) -> Iterator[FrameType]:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if not frame.f_code.co_filename.startswith(self._passed):
                yield frame
            frame = frame.f_back
