"""A toy engine of many operators: a town of houses, each a toy of its own, and broadcasts that reach them all."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dispatchlab.explore.protocol import StateVariable
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Fallback, Impl, Registration
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from tests.toy_engines import State, ToySandbox, ToySpace

TownState: TypeAlias = tuple[tuple[State, ...], bool]


def house(number: int) -> OperatorName:
    """The operator of a house."""
    return OperatorName("town", f"house{number}")


@dataclass
class TownSpace:
    """The states of some houses; registrations of a house are `Impl`s that say which one in `debug`."""

    town: Town
    registrations: Sequence[Registration]
    operators: Sequence[OperatorName]
    seen: set[StateVariable] = field(default_factory=set)

    def __post_init__(self) -> None:
        names = {one.operator for one in self.registrations if isinstance(one, Impl)} | set(self.operators)
        self.houses = [name for name in self.town.operators if name in names]
        self.place = {name: at for at, name in enumerate(self.houses)}

    def toy(self, name: OperatorName) -> ToySpace:
        return self.town.houses[self.town.operators.index(name)]

    def targets(self, index: int) -> list[tuple[OperatorName, int]]:
        """The houses that a registration goes to, and its number there."""
        one = self.registrations[index]
        if isinstance(one, Impl):
            return [(one.operator, int(one.debug))]
        assert isinstance(one, Fallback)
        return [(name, self.toy(name).count - 1 - int(one.debug)) for name in self.houses]

    def empty(self) -> TownState:
        return tuple(self.toy(name).empty() for name in self.houses), False

    def register(self, state: TownState, index: int, /) -> tuple[TownState, Refusal | None]:
        homes, gossip = list(state[0]), state[1]
        for name, local in self.targets(index):
            self.seen.add(str(name))
            homes[self.place[name]], refusal = self.toy(name).register(homes[self.place[name]], local)
            if refusal is not None:
                return (tuple(homes), gossip), refusal
            if self.town.gossip and name == self.town.operators[0]:
                neighbour = self.town.operators[1]
                self.seen.add(str(neighbour))
                gossip = neighbour in self.place and homes[self.place[neighbour]][0] != 0
        return (tuple(homes), gossip), None

    def release(self, state: TownState, index: int, /) -> TownState:
        homes = list(state[0])
        for name, local in self.targets(index):
            self.seen.add(str(name))
            homes[self.place[name]] = self.toy(name).release(homes[self.place[name]], local)
        return tuple(homes), state[1]

    def observe(self, state: TownState, /) -> tuple[Snapshot, ...]:
        self.seen.update(map(str, self.operators))
        shown = "gossip" if state[1] else None
        return tuple(
            replace(self.toy(name).observe(state[0][self.place[name]])[0], operator=name, schema=shown)
            for name in self.operators
        )

    def violations(self, state: TownState, /) -> tuple[Violation, ...]:
        return tuple(
            replace(broken, operator=name)
            for name in self.operators
            for broken in self.toy(name).violations(state[0][self.place[name]])
        )

    def why(self, _expected: TownState, _actual: TownState, /) -> tuple[str, ...]:
        return ("the town knows",)

    def written_variables(self, index: int, /) -> frozenset[StateVariable]:
        return frozenset() if self.is_broadcast(index) else frozenset({str(self.targets(index)[0][0])})

    def is_broadcast(self, index: int, /) -> bool:
        return isinstance(self.registrations[index], Fallback)

    def shared_variables(self) -> frozenset[StateVariable]:
        return frozenset({"broadcasts"})

    def touched(self) -> frozenset[StateVariable]:
        return frozenset(self.seen)

    def pattern(self, indices: Sequence[int], /) -> Hashable:
        names: dict[object, int] = {}
        told: list[Hashable] = []
        for index in indices:
            one = self.registrations[index]
            if isinstance(one, Impl):
                told.append((names.setdefault(one.operator, len(names)), one.debug))
                if not self.town.hides_differences:
                    told.append(self.toy(one.operator))
            else:
                told.append(one.debug if isinstance(one, Fallback) else "")
        return tuple(told)


@dataclass(frozen=True)
class Town:
    """Houses, each with a number of registrations of its own and after them `broadcasts` that all have.

    Args:
        houses: the toys; each counts the broadcasts as its last registrations.
        broadcasts: how many registrations reach every house.
        gossip: registering in house 0 looks into house 1, which is none of its variables.
        hides_differences: patterns are equal although the houses are not.
    """

    houses: tuple[ToySpace, ...]
    broadcasts: int = 0
    gossip: bool = False
    hides_differences: bool = False
    name: str = "town"
    semantics: str = "toy"

    @property
    def operators(self) -> tuple[OperatorName, ...]:
        return tuple(house(number) for number in range(len(self.houses)))

    @property
    def registrations(self) -> tuple[Registration, ...]:
        own = [
            Impl(house(number), debug=str(local))
            for number, toy in enumerate(self.houses)
            for local in range(toy.count - self.broadcasts)
        ]
        return (*own, *(Fallback(None, debug=str(number)) for number in range(self.broadcasts)))

    def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> TownSpace:
        return TownSpace(self, tuple(registrations), tuple(operators))

    @contextmanager
    def sandbox(self) -> Iterator[ToySandbox]:
        yield ToySandbox(self.space(self.registrations, self.operators), self.registrations, self.operators)
