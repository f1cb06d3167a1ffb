"""The lab engine behind the seam that the explorer knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.semantics import Semantics, semantics_named
from dispatchlab.engine.space import LabSpace
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration


class LabEngine:
    """The commutative registration engine of this package.

    Args:
        semantics: `strict`, `torch-2.13` or `pr35061`.

    Raises:
        UnknownSemanticsError: there are no semantics of that name.
    """

    name = "lab"

    def __init__(self, semantics: str | Semantics = "strict") -> None:
        self._semantics = semantics_named(semantics) if isinstance(semantics, str) else semantics

    @property
    def semantics(self) -> str:
        """The name of the semantics."""
        return self._semantics.name

    @contextmanager
    def sandbox(self) -> Iterator[Dispatcher]:
        """A fresh dispatcher."""
        yield Dispatcher(self._semantics)

    def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> LabSpace:
        """The states that these registrations can reach."""
        return LabSpace(registrations, operators, self._semantics)
