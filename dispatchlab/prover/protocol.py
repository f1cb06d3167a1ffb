"""The smallest protocols that the explorer needs; the explorer does not know which engine it drives.

Every engine has `Engine` and `Sandbox`: register, release, observe. An engine whose whole state is a value also has
`Forkable`. An engine that knows which parts of its state a registration uses has `Footprints`. An engine that knows the
dependences of each part of its state has `Dependences`. The explorer finds these with `isinstance`, and checks the
dependences at every visited state, see docs/proof.md.
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
    """A sandbox died, for example a live dispatcher in a worker process.

    Args:
        text: a sentence about its end.
    """

    exit_code = 5

    text: str

    template = "{text}"


class Handle(Protocol):
    """A registration that is in force."""

    def release(self) -> None:
        """Release the registration; a second release is harmless."""


class Sandbox(Protocol):
    """One isolated dispatcher, or one fresh namespace of a live one."""

    def register(self, registration: Registration, /) -> Handle:
        """Register, or raise a `RegistrationError`."""

    def snapshot(self, operator: OperatorName, /) -> Snapshot:
        """Return the observable state of the operator."""

    def violations(self, operator: OperatorName, /) -> tuple[Violation, ...]:
        """Return the invariants that do not hold; empty for an operator that does not exist."""


@runtime_checkable
class Engine(Protocol):
    """A kind of dispatcher that can have many isolated instances."""

    @property
    def name(self) -> str:
        """`lab` or `torch`."""

    @property
    def semantics(self) -> str:
        """The name of the modelled dispatcher: `strict`, `torch-2.13`, ..."""

    def sandbox(self) -> AbstractContextManager[Sandbox]:
        """Return a new sandbox; the end of the context closes it."""


if TYPE_CHECKING:
    from dispatchlab.model.dependence import Dependence

Look: TypeAlias = tuple[tuple[Snapshot, ...], tuple[Violation, ...]]
"""What is observed of all operators, and the invariants that do not hold."""

S = TypeVar("S", bound=Hashable)
StateVariable: TypeAlias = Hashable


class StateSpace(Protocol[S]):
    """The registrations of one scenario on an engine whose whole state is a value.

    Equal states have equal futures, so the explorer merges equal states.
    """

    def empty(self) -> S:
        """Return the state without registrations."""

    def register(self, state: S, index: int, /) -> tuple[S, Refusal | None]:
        """Return the state after registering `index`; if it is refused, the state after the attempt."""

    def release(self, state: S, index: int, /) -> S:
        """Return the state after releasing `index`, which is registered in `state`."""

    def observe(self, state: S, /) -> tuple[Snapshot, ...]:
        """Return the observable state of every observed operator, in their order."""

    def violations(self, state: S, /) -> tuple[Violation, ...]:
        """Return the invariants that do not hold in `state`."""

    def why(self, expected: S, actual: S, /) -> tuple[str, ...]:
        """Return why two states that should be equal differ, in the engine's terms; empty if unknown."""


@runtime_checkable
class Forkable(Protocol):
    """An engine whose state can be kept and compared, and from which the explorer can continue."""

    def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> StateSpace[Any]:
        """Return the states that these registrations can reach, observed on these operators."""


@runtime_checkable
class Footprints(Protocol):
    """A state space that knows and records which variables of its state are read and written."""

    def written_variables(self, index: int, /) -> frozenset[StateVariable]:
        """Return the variables that registration `index` should write; broadcasts write more, see `is_broadcast`."""

    def is_broadcast(self, index: int, /) -> bool:
        """Return whether a registration applies to every operator, as a fallback does."""

    def shared_variables(self) -> frozenset[StateVariable]:
        """Return the variables that broadcasts write and all registrations may read."""

    def touched(self) -> frozenset[StateVariable]:
        """Return the variables that were read or written since the space was made, including observations."""


@runtime_checkable
class Dependences(Protocol):
    """A state space whose state has variables, and that declares the dependences of each variable."""

    def dependences(self) -> Mapping[StateVariable, Dependence] | str:
        """Return the dependences of each variable, or a sentence that says why they are unknown."""

    def values(self, state: Any, /) -> Mapping[StateVariable, Hashable]:
        """Return the values of the variables; a missing variable has none.

        The observations and invariants depend on the variables that are not hidden, each variable separately.
        """

    def deciders(self) -> Sequence[int]:
        """Return, for each registration, those that may decide about its acceptance; itself if it is wrong alone."""

    def restricted(self, indices: Sequence[int], operators: Sequence[OperatorName], /) -> StateSpace[Any]:
        """Return the states that some registrations can reach, with their numbers there, observed on these operators.

        Values are equal to those in the whole state space.
        """
