"""Trials of operators: what came of running one operator in one way.

Values alone: `live/trials/` makes them where torch is, and `questions/check/` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from dispatchlab.model.failure import Event, Position, Raised

Status: TypeAlias = Literal["passed", "failed", "not needed", "no input", "open", "not tried"]
NO_KERNEL: Final = "no kernel for a device of this machine"
"""Why an operator was not called that has no kernel, or only kernels for other devices."""
BY_FALLBACK: Final = (
    "the fallback of the device serves the calls"  # the reason beside a trial of an operator of PyTorch
)
CPU_ALONE: Final = "makes tensors on the CPU alone"  # why a trial does not reach the kernels for another device


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRun:
    """The result of one trial of one operator.

    Args:
        operator: its full name.
        trial: the name of the trial.
        status: how it ended; `open` where it was not run to its end.
            `not tried` where it was left out.
        why: why it was not needed, had no input, stayed open or was left out, a clause; or `BY_FALLBACK`.
        device: the device of its calls; empty if it made none, or did not run to its end.
        inputs: the arguments of the call that failed.
        raised: the exception of a trial that failed, with what led to it.
        frames: the lines of the package in its traceback, the innermost last.
        stack: all functions of the traceback.
        events: what was noted while it ran.
    """

    operator: str
    trial: str
    status: Status
    why: str = ""
    device: str = ""
    inputs: str = ""
    raised: tuple[Raised, ...] = ()
    frames: tuple[Position, ...] = ()
    stack: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def error(self) -> str:
        """The exception in a line."""
        return self.raised[0].line if self.raised else ""
