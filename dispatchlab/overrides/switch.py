"""A way to switch `__torch_function__` off: for this thread, for the length of a `with` block."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


class _Thread(threading.local):
    off: int = 0


_thread = _Thread()

off: list[None] = []
"""One item for each block that is open in any thread: while it is empty, nobody has to look at the thread."""


def is_torch_function_enabled() -> bool:
    """Whether handlers are asked in this thread now."""
    return not _thread.off


class DisableTorchFunction:
    """Inside of it, public functions go straight to their implementations; it may be entered again inside."""

    def __enter__(self) -> Self:
        off.append(None)
        _thread.off += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _thread.off -= 1
        off.pop()
