"""What can be wrong with the file of a registry."""

from __future__ import annotations

from dispatchlab.errors import DispatchLabError


class RegistryFileError(DispatchLabError):
    """A file is not a recorded registry, not a whole one, or not one that can be read here.

    Args:
        path: the file.
        reason: a clause that says what was found, what was wanted and what to do.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class RegistryTooLargeError(DispatchLabError):
    """A registry has more in it than a file may hold.

    Args:
        what: the part that is too large.
        size: its size.
        limit: the largest size that is read back.
    """

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(what, size, limit)
        self.what, self.size, self.limit = what, size, limit

    def __str__(self) -> str:
        return (
            f"the registry cannot be written, for no file of it would be read: {self.what} come to {self.size:,}, "
            + (f"and {self.limit:,} is the most")
        )
