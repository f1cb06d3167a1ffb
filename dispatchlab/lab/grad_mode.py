"""Grad mode: whether calls of this thread are recorded on the autograd graph, and the guards that switch it."""

from __future__ import annotations

from dispatchlab.call.local_key_set import thread


def is_grad_enabled() -> bool:
    """Return whether calls of this thread are recorded."""
    return thread.grad_enabled


class set_grad_enabled:
    """Record calls of this thread, or do not, for the length of a `with` block.

    >>> from dispatchlab.lab import is_grad_enabled, no_grad, set_grad_enabled
    >>> with no_grad(), set_grad_enabled(True):
    ...     is_grad_enabled()
    True
    """

    def __init__(self, enabled: bool) -> None:  # noqa: FBT001 - torch's signature
        self.enabled = enabled
        self._found: list[bool] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'on' if self.enabled else 'off'}>"

    def __enter__(self) -> None:
        self._found.append(thread.grad_enabled)
        thread.grad_enabled = self.enabled

    def __exit__(self, *error: object) -> None:
        thread.grad_enabled = self._found.pop()


class no_grad(set_grad_enabled):
    """Do not record calls of this thread.

    >>> from dispatchlab import Lab, tensor
    >>> from dispatchlab.lab import no_grad
    >>> lab, x = Lab(), tensor([1.0], requires_grad=True)
    >>> with no_grad():
    ...     lab.neg(x).requires_grad
    False
    """

    def __init__(self) -> None:
        super().__init__(enabled=False)
