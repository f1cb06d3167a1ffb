"""What one call on the bindings is: how it is made, its number, and the registration that it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, Def, Impl, Kernel, Registration

# Note [One number for each call]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Debug texts belong to the user: two kernels may have the same one, or none, and the bindings only let a library name
# a file and a line. So every call has a number here and its library says `registered at {mark}:{number}`; whoever shows
# a text puts the user's debug text back. A block becomes one library for each of its calls for the same reason; they
# are released in the order in which they were made, as one library does it.


class Library(Protocol):
    """What a step leaves behind: something that takes the registration back."""

    def reset(self) -> None:
        """Release it."""


Open: TypeAlias = Callable[[], Library]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a number comes from, and what to show in its place.

    Args:
        registration: the registration as it stands in its block.
        debug: the user's debug text.
        key: the key of its kernel, None for none.
        kernel: its kernel, if it has one.
    """

    registration: Registration
    debug: str
    key: DispatchKey | None = None
    kernel: Kernel | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One call.

    Args:
        open: makes it.
        number: its number. See Note [One number for each call].
        origin: what it was made from.
        leaves: the number of an earlier step that stays in force when this one is refused, if any: upstream does
            not take a def back whose kernel is refused in the same call.
    """

    open: Open
    number: int
    origin: Origin
    leaves: int | None = None

    @property
    def is_layered(self) -> bool:
        """Whether `torch.library` makes the call, and any number of kernels with it."""
        registration = self.origin.registration
        return isinstance(registration, Block) and registration.made_by is not None

    @property
    def operator(self) -> OperatorName | None:
        """The operator that it touches; None for a fallback and a claim."""
        registration = self.origin.registration
        return registration.operator if isinstance(registration, Def | Impl) else None
