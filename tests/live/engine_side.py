"""One of two engines that take the same sequence of registrations and releases."""

from __future__ import annotations

from collections.abc import Mapping

from dispatchlab.errors import RegistrationError
from dispatchlab.model.registration import Registration
from dispatchlab.prover.protocol import Handle, Sandbox


class Side:
    """One engine on its way through a sequence."""

    def __init__(self, sandbox: Sandbox, scenario: list[Registration]) -> None:
        self.sandbox, self.scenario = sandbox, scenario
        self.handles: dict[int, Handle] = {}
        self.facts: Mapping[str, str] = {}

    def toggle(self, index: int) -> str:
        """Register or release; returns `registered`, `released` or the kind of the refusal."""
        handle = self.handles.pop(index, None)
        if handle is not None:
            handle.release()
            return "released"
        try:
            self.handles[index] = self.sandbox.register(self.scenario[index])
        except RegistrationError as error:
            self.facts = error.facts
            return str(error.kind)
        return "registered"
