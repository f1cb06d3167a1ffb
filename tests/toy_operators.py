"""A toy engine of many operators, each a toy of its own, and fallbacks that reach them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Fallback, Impl, Registration
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.protocol import StateVariable
from tests.toy_engines import State, ToySandbox, ToySpace

MultiOperatorState: TypeAlias = tuple[tuple[State, ...], bool]


def operator_name(number: int) -> OperatorName:
    """The name of the operator with this number."""
    return OperatorName("toy", f"operator{number}")


def operator_number(name: OperatorName) -> int:
    """The number of the operator with this name."""
    return int(name.name.removeprefix("operator"))


@dataclass
class MultiOperatorSpace:
    """The states of some operators; the registrations of an operator are `Impl`s that have their number in `debug`."""

    engine: MultiOperatorEngine
    registrations: Sequence[Registration]
    operators: Sequence[OperatorName]
    seen: set[StateVariable] = field(default_factory=set)

    def __post_init__(self) -> None:
        names = {one.operator for one in self.registrations if isinstance(one, Impl)} | set(self.operators)
        self.present = [name for name in self.engine.operators if name in names]
        self.position = {name: at for at, name in enumerate(self.present)}

    def toy(self, name: OperatorName) -> ToySpace:
        return self.engine.toys[operator_number(name)]

    def targets(self, index: int) -> list[tuple[OperatorName, int]]:
        """The operators that a registration reaches, and its number at each."""
        one = self.registrations[index]
        if isinstance(one, Impl):
            return [(one.operator, int(one.debug))]
        assert isinstance(one, Fallback)
        return [(name, self.toy(name).count - 1 - int(one.debug)) for name in self.present]

    def empty(self) -> MultiOperatorState:
        return tuple(self.toy(name).empty() for name in self.present), False

    def register(self, state: MultiOperatorState, index: int, /) -> tuple[MultiOperatorState, Refusal | None]:
        states, was_read = list(state[0]), state[1]
        for name, local in self.targets(index):
            self.seen.add(str(name))
            states[self.position[name]], refusal = self.toy(name).register(states[self.position[name]], local)
            if refusal is not None:
                return (tuple(states), was_read), refusal
            if self.engine.undeclared_read and name == self.engine.operators[0]:
                neighbour = self.engine.operators[1]
                self.seen.add(str(neighbour))
                was_read = neighbour in self.position and states[self.position[neighbour]][0] != 0
        return (tuple(states), was_read), None

    def release(self, state: MultiOperatorState, index: int, /) -> MultiOperatorState:
        states = list(state[0])
        for name, local in self.targets(index):
            self.seen.add(str(name))
            states[self.position[name]] = self.toy(name).release(states[self.position[name]], local)
        return tuple(states), state[1]

    def observe(self, state: MultiOperatorState, /) -> tuple[Snapshot, ...]:
        self.seen.update(map(str, self.operators))
        shown = "undeclared read" if state[1] else None
        return tuple(
            replace(self.toy(name).observe(state[0][self.position[name]])[0], operator=name, schema=shown)
            for name in self.operators
        )

    def violations(self, state: MultiOperatorState, /) -> tuple[Violation, ...]:
        return tuple(
            replace(broken, operator=name)
            for name in self.operators
            for broken in self.toy(name).violations(state[0][self.position[name]])
        )

    def why(self, _expected: MultiOperatorState, _actual: MultiOperatorState, /) -> tuple[str, ...]:
        return ("the toys know",)

    def written_variables(self, index: int, /) -> frozenset[StateVariable]:
        return frozenset() if self.is_broadcast(index) else frozenset({str(self.targets(index)[0][0])})

    def is_broadcast(self, index: int, /) -> bool:
        return isinstance(self.registrations[index], Fallback)

    def shared_variables(self) -> frozenset[StateVariable]:
        return frozenset({"fallbacks"})

    def touched(self) -> frozenset[StateVariable]:
        return frozenset(self.seen)


@dataclass(frozen=True)
class MultiOperatorEngine:
    """Operators, each with a number of registrations of its own and after them the fallbacks that reach all.

    Args:
        toys: one for each operator; each counts the fallbacks as its last registrations.
        fallbacks: how many registrations reach every operator.
        undeclared_read: registering at operator 0 reads operator 1, which is none of its variables.
    """

    toys: tuple[ToySpace, ...]
    fallbacks: int = 0
    undeclared_read: bool = False
    name: str = "toys"
    semantics: str = "toy"

    @property
    def operators(self) -> tuple[OperatorName, ...]:
        return tuple(operator_name(number) for number in range(len(self.toys)))

    @property
    def registrations(self) -> tuple[Registration, ...]:
        own = [
            Impl(operator_name(number), debug=str(local))
            for number, toy in enumerate(self.toys)
            for local in range(toy.count - self.fallbacks)
        ]
        return (*own, *(Fallback(None, debug=str(number)) for number in range(self.fallbacks)))

    def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> MultiOperatorSpace:
        return MultiOperatorSpace(self, tuple(registrations), tuple(operators))

    @contextmanager
    def sandbox(self) -> Iterator[ToySandbox]:
        yield ToySandbox(self.space(self.registrations, self.operators), self.registrations, self.operators)
