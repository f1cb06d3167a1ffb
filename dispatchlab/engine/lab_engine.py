"""The lab engine, as the explorer uses it: sandboxes, and spaces of states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.lab_space import LabSpace
from dispatchlab.engine.semantics import Semantics, semantics_named
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration


class LabEngine:
    """The commutative registration engine of this package.

    >>> from dispatchlab import LabEngine
    >>> with LabEngine("torch-2.13").sandbox() as dispatcher:
    ...     print(dispatcher)
    <Dispatcher torch-2.13 with 0 operators>

    Args:
        semantics: `strict`, `torch-2.13` or `pr35061`.

    Raises:
        UnknownSemanticsError: there are no semantics of that name.
    """

    name = "lab"

    def __init__(self, semantics: str | Semantics = "strict") -> None:
        self._semantics = semantics_named(semantics) if isinstance(semantics, str) else semantics

    def __repr__(self) -> str:
        return f"<LabEngine {self.semantics}>"

    @property
    def semantics(self) -> str:
        """The name of the semantics."""
        return self._semantics.name

    @property
    def knows_torch_library(self) -> bool:
        """Whether it follows the rules of `torch.library`; else it registers the content of such calls."""
        return self._semantics.torch_library

    @contextmanager
    def sandbox(self) -> Iterator[Dispatcher]:
        """A fresh dispatcher, as scenarios find it."""
        yield Dispatcher.for_scenario(self._semantics)

    def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> LabSpace:
        """The states that these registrations can reach."""
        return LabSpace(registrations, operators, self._semantics)
