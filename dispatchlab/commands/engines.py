"""Which engine a command drives. The live one is imported when it is asked for, and torch only in its worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

from dispatchlab.errors import DispatchLabError

if TYPE_CHECKING:
    from dispatchlab.explore.protocol import Engine

EngineName: TypeAlias = Literal["lab", "torch"]


class SemanticsOfTorchError(DispatchLabError):
    """The semantics of the PyTorch that is installed cannot be chosen."""

    def __init__(self, asked: str) -> None:
        super().__init__(asked)
        self.asked = asked

    def __str__(self) -> str:
        return (
            f"--semantics {self.asked} is for the lab engine, --engine torch behaves as the PyTorch that is installed: "
            "leave one of the two out"
        )


@contextmanager
def engine_for(name: EngineName, *, asked: str | None, in_file: str | None) -> Iterator[Engine]:
    """The engine that a command asks for.

    Args:
        name: `lab` or `torch`.
        asked: the semantics of `--semantics`, if it was given.
        in_file: the semantics that the scenario names, if it does; the lab engine is `strict` without either.

    Raises:
        UnknownSemanticsError: there are no semantics of that name.
        SemanticsOfTorchError: semantics were asked of the live engine.
        TorchMissingError: there is no PyTorch here.
    """
    if name == "torch":
        if asked is not None:
            raise SemanticsOfTorchError(asked)
        from dispatchlab.live.engine import LiveEngine

        with LiveEngine() as live:
            yield live
        return
    from dispatchlab.engine.lab import LabEngine

    yield LabEngine(asked or in_file or "strict")
