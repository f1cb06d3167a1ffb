"""That a registration was refused, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.errors import ErrorKind, RegistrationError


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal that two orders can be compared by.

    Args:
        kind: why.
        facts: what the decision was made from, sorted by name.
        message: the engine's sentence.
    """

    kind: ErrorKind
    facts: tuple[tuple[str, str], ...]
    message: str

    @classmethod
    def of(cls, error: RegistrationError) -> Refusal:
        """The refusal that an error tells of."""
        return cls(error.kind, tuple(sorted(error.facts.items())), error.message)
