"""The journal of a sandbox: its sequence so far, which another process can read after a crash of this one."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from pathlib import Path

from dispatchlab.model.sequence import StepSequence

# Note [The journal]
# ~~~~~~~~~~~~~~~~~~
# A call on a destroyed library ends the process, and with it everything that could say why. So each step is written
# into a file that is mapped into memory, before it is made: 50 ns, and the pages outlive the process. The file holds
# the number of steps since the sandbox was opened and the steps themselves, two bytes each; of a sequence that is
# longer than the file the last steps are kept.
#
# The file has no name where another process can be handed an open file: so nothing is left of it when all that have it
# open have ended, however they ended.

_HEAD = 8
_CAPACITY = 1 << 19


class Journal:
    """A file with the steps of the current sandbox.

    Args:
        file: the file, as a descriptor or a path. `Journal.create` makes it.
    """

    def __init__(self, file: int | str) -> None:
        self.file = file
        with open(file, "r+b", closefd=isinstance(file, str)) as opened:
            self._map = mmap.mmap(opened.fileno(), 0)
        self._steps = memoryview(self._map)[_HEAD:].cast("h")
        self._count = memoryview(self._map)[:_HEAD].cast("q")

    @classmethod
    def create(cls) -> Journal:
        """Return a new, empty journal in the directory for temporary files."""
        descriptor, path = tempfile.mkstemp(prefix="dispatchlab-", suffix=".journal")
        try:
            os.truncate(descriptor, _HEAD + 2 * _CAPACITY)
            if os.name == "posix":
                os.unlink(path)
                return cls(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return cls(path)

    def restart(self) -> None:
        """Begin an empty sequence for a new sandbox."""
        self._count[0] = 0

    def write(self, step: int) -> None:
        """Note that this step comes next."""
        at = self._count[0]
        self._steps[at % _CAPACITY] = step
        self._count[0] = at + 1

    def sequence(self) -> tuple[StepSequence, int]:
        """Return the kept steps, oldest first, and the number of older steps."""
        count: int = self._count[0]
        kept = min(count, _CAPACITY)
        steps = tuple(self._steps[at % _CAPACITY] for at in range(count - kept, count))
        return steps, count - kept

    def close(self) -> None:
        """Close and remove the file."""
        self._steps.release()
        self._count.release()
        self._map.close()
        if isinstance(self.file, int):
            os.close(self.file)
        else:
            Path(self.file).unlink(missing_ok=True)


assert struct.calcsize("h") == 2
