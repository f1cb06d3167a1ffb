"""What the explorer asks of an engine. The smallest protocols it needs; it never knows which engine it drives.

`Engine` and `Sandbox` are what every engine has: register, release, look. An engine whose whole state is a value offers
`Forkable` as well, and one that can say which parts of its state a registration touches offers `Footprints`; the
explorer asks for these with `isinstance` and never guesses. One that can say what each part of its state depends on
offers `Dependences`; what it says is checked wherever the explorer goes, see docs/proof.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation


class EngineCrashed(DispatchLabError):
    """A sandbox died, as a live dispatcher in a worker process can.

    Args:
        text: what is known of its end, a sentence.
    """

    exit_code = 5

    text: str

    template = "{text}"


class Handle(Protocol):
    """A registration that is in force."""

    def release(self) -> None:
        """Undo it; a second release is harmless."""


class Sandbox(Protocol):
    """One isolated dispatcher, or one fresh namespace of a live one."""

    def register(self, registration: Registration, /) -> Handle:
        """Register, or raise a `RegistrationError`."""

    def snapshot(self, operator: OperatorName, /) -> Snapshot:
        """Return the observable state of the operator."""

    def violations(self, operator: OperatorName, /) -> tuple[Violation, ...]:
        """Return the invariants that do not hold now; empty for an operator that does not exist."""


@runtime_checkable
class Engine(Protocol):
    """A kind of dispatcher with any number of isolated instances."""

    @property
    def name(self) -> str:
        """`lab` or `torch`."""

    @property
    def semantics(self) -> str:
        """The dispatcher that it behaves as: `strict`, `torch-2.13`, ..."""

    def sandbox(self) -> AbstractContextManager[Sandbox]:
        """Return a fresh sandbox; leaving the context takes it down."""


if TYPE_CHECKING:
    from dispatchlab.model.dependence import Dependence

Look: TypeAlias = tuple[tuple[Snapshot, ...], tuple[Violation, ...]]
"""What is observed of all operators, and the invariants that do not hold."""

S = TypeVar("S", bound=Hashable)
StateVariable: TypeAlias = Hashable


class StateSpace(Protocol[S]):
    """The registrations of one scenario on an engine whose whole state is a value.

    Two equal states have the same future: equality of states is the complete key on which the explorer merges.
    """

    def empty(self) -> S:
        """Return the state in which nothing is registered."""

    def register(self, state: S, index: int, /) -> tuple[S, Refusal | None]:
        """Return the state after registering `index`; when refused, the state that the attempt leaves behind."""

    def release(self, state: S, index: int, /) -> S:
        """Return the state after releasing `index`, which is registered in `state`."""

    def observe(self, state: S, /) -> tuple[Snapshot, ...]:
        """Return the observable state of every observed operator, in their order."""

    def violations(self, state: S, /) -> tuple[Violation, ...]:
        """Return the invariants that do not hold in `state`."""

    def why(self, expected: S, actual: S, /) -> tuple[str, ...]:
        """Return why two states that should be alike differ, in the engine's terms; empty when it does not know."""


@runtime_checkable
class Forkable(Protocol):
    """An engine whose state can be kept, compared and continued from."""

    def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> StateSpace[Any]:
        """Return the states that these registrations can reach, observed on these operators."""


@runtime_checkable
class Footprints(Protocol):
    """A state space that knows, and records, which variables of its state are read and written."""

    def written_variables(self, index: int, /) -> frozenset[StateVariable]:
        """Return the variables that registration `index` should write; broadcasts write more, see `is_broadcast`."""

    def is_broadcast(self, index: int, /) -> bool:
        """Return whether it reaches every operator, as a fallback does; then it is part of every component."""

    def shared_variables(self) -> frozenset[StateVariable]:
        """Return the variables that broadcasts write and all registrations may read."""

    def touched(self) -> frozenset[StateVariable]:
        """Return the variables that were read or written since the space was made, observations included."""


@runtime_checkable
class Dependences(Protocol):
    """A state space whose state has variables, and which declares the dependences of each."""

    def dependences(self) -> Mapping[StateVariable, Dependence] | str:
        """Return the dependences of each variable; or a sentence on why they are not known."""

    def values(self, state: Any, /) -> Mapping[StateVariable, Hashable]:
        """Return the values of the variables; a missing variable has none.

        What is observed, and which invariants hold, follows from those that are not hidden, each variable by itself.
        """

    def deciders(self) -> Sequence[int]:
        """Return for each registration those that may decide about its acceptance, itself if it is at fault."""

    def restricted(self, indices: Sequence[int], operators: Sequence[OperatorName], /) -> StateSpace[Any]:
        """Return the states that some registrations can reach, with their numbers there, observed on these operators.

        Values are equal to those of the whole.
        """
