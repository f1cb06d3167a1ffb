"""Programs: modules whose registrations run in program order, and the orders in which they can be imported.

A module body runs from its first line to its last. Where it imports another module, that module runs to its end first,
unless it has run or is running. So the registrations of two modules interleave in no other way.
"""

# Note [Orders that a program can have]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A package registers line 6 before line 16, always, and it releases nothing while it is imported. What changes between
# one program and another is which module is imported first. So the modules that register may come in any order that
# their imports allow, those of one package as well: a formatter reorders import lines, and so does a new entry point.
# Modules that register nothing constrain nothing; what they import counts as imported by those who import them.
#
# What a body imports before its first registration has run before it, all of it: the module needs these. What it
# imports after a registration runs there, unless it has run. A module whose package registers before it imports the
# module needs the package to have begun. Registrations that no module lists were there before, and come first.
#
# Of modules that import each other in a circle, the one with the first registration in the file goes first, as it did
# when they were recorded.

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from math import factorial
from typing import Final, TypeAlias

from dispatchlab.explore.prng import SplitMix64
from dispatchlab.model.sequence import StepSequence

_FEW: Final = 100  # orders that are counted one by one


@dataclass(frozen=True, slots=True)
class Module:
    """A module body: what it registers and imports, from its first line to its last.

    Args:
        name: its full name, `package.module`.
        body: a number for each registration, and the name of each module that is imported there.
    """

    name: str
    body: tuple[int | str, ...]


_Item: TypeAlias = int | frozenset[str]  # a registration, or the modules that have run after imports
_Rest: TypeAlias = tuple[_Item, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a program is. Equal positions have equal futures.

    Args:
        stack: what is left of the bodies that have begun, the innermost last.
        begun: the modules that have begun.
    """

    stack: tuple[_Rest, ...]
    begun: frozenset[str]


@dataclass(frozen=True, slots=True)
class Program:
    """The registrations of some modules, in every order in which programs make them.

    >>> from dispatchlab.explore.program import Module, Program
    >>> list(Program.of(3, [Module("one", (0, 1)), Module("other", (2,))]).orders())
    [(0, 1, 2), (2, 0, 1)]

    Args:
        count: how many registrations there are.
        before: those that were there before any module.
        bodies: by module that registers, its body without what it needs.
        needs: by module, those that have begun before it begins.
    """

    count: int
    before: _Rest
    bodies: Mapping[str, _Rest]
    needs: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, count: int, modules: Sequence[Module]) -> Program:
        """The program of modules, in any order that their imports allow."""
        plain = {module.name: module.body for module in registering(modules)}
        listed = {item for body in plain.values() for item in body if isinstance(item, int)}
        bodies, leading = {}, {}
        for name, body in plain.items():
            items = [_closure(item, plain, name) if isinstance(item, frozenset) else item for item in _grouped(body)]
            first = next(at for at, item in enumerate(items) if isinstance(item, int))
            leading[name] = frozenset().union(*(item for item in items[:first] if isinstance(item, frozenset)))
            bodies[name] = tuple(items[first:])
        needs = {name: _needs(name, leading) for name in plain}
        return cls(count, tuple(index for index in range(count) if index not in listed), bodies, needs)

    @property
    def names(self) -> tuple[str, ...]:
        """The modules that register something."""
        return tuple(self.bodies)

    def count_orders(self) -> int:
        """How many orders there are; where they are many, a bound: the orders of as many modules that need nothing."""
        few = sum(1 for _ in islice(self.orders(), _FEW + 1))
        return few if few <= _FEW else factorial(len(self.bodies))

    @property
    def start(self) -> Position:
        """Before the first registration."""
        return Position((self.before,), frozenset())

    def next_steps(self, position: Position) -> dict[int, Position]:
        """The registrations that can come next, ascending, each with the position after it; empty at the end."""
        found: dict[int, Position] = {}
        todo = [position]
        while todo:
            stack, begun = self._left(todo.pop())
            following = stack[-1][0] if stack else frozenset(self.bodies)
            if isinstance(following, int):
                found[following] = Position((*stack[:-1], stack[-1][1:]), begun)
                continue
            for name in self._ready(following - begun, begun):
                todo.append(Position((*stack, self.bodies[name]), begun | {name}))
        return dict(sorted(found.items()))

    def _left(self, position: Position) -> tuple[tuple[_Rest, ...], frozenset[str]]:
        """The stack without what has nothing left to run."""
        stack, begun = list(position.stack), position.begun
        while stack:
            rest = stack[-1]
            while rest and isinstance(rest[0], frozenset) and rest[0] <= begun:
                rest = rest[1:]
            if rest:
                stack[-1] = rest
                break
            stack.pop()
        return tuple(stack), begun

    def _ready(self, names: Collection[str], begun: frozenset[str]) -> list[str]:
        """The modules that can begin; of those that only wait for each other, the first."""
        ready = [name for name in names if self.needs[name] <= begun]
        return ready or [name for name in self.bodies if name in names][:1]

    def orders(self) -> Iterator[StepSequence]:
        """Every order, each once; the first is that of the file where that is an order of the program."""
        stack: list[tuple[Position, StepSequence]] = [(self.start, ())]
        while stack:
            position, before = stack.pop()
            steps = self.next_steps(position)
            if not steps:
                yield before
            stack += [(after, (*before, index)) for index, after in reversed(steps.items())]

    def random_order(self, random: SplitMix64) -> StepSequence:
        """One order, chosen at random step by step."""
        order: list[int] = []
        position = self.start
        while steps := self.next_steps(position):
            indices = list(steps)
            index = indices[random.below(len(indices))]
            order.append(index)
            position = steps[index]
        return tuple(order)

    def allows(self, sequence: StepSequence) -> bool:
        """Whether some order of the program begins with these registrations."""
        position = self.start
        for step in sequence:
            after = self.next_steps(position).get(step)
            if after is None:
                return False
            position = after
        return True

    def without(self, name: str) -> Program | None:
        """The program without a module; None when another one imports it."""
        for other, body in self.bodies.items():
            groups = [item for item in body if isinstance(item, frozenset)]
            if name in self.needs[other] or any(name in group for group in groups):
                return None
        bodies = {other: body for other, body in self.bodies.items() if other != name}
        return replace(self, bodies=bodies)

    def restricted_to(self, members: Sequence[int]) -> Program:
        """The program of some of the registrations, numbered anew in the order of `members`."""
        number = {member: at for at, member in enumerate(members)}
        kept = frozenset(
            name for name, body in self.bodies.items() if any(isinstance(item, int) and item in number for item in body)
        )

        def left(body: _Rest) -> Iterator[_Item]:
            for item in body:
                if isinstance(item, frozenset):
                    yield item & kept
                elif item in number:
                    yield number[item]

        return Program(
            len(members),
            tuple(left(self.before)),
            {name: tuple(left(body)) for name, body in self.bodies.items() if name in kept},
            {name: needs & kept for name, needs in self.needs.items() if name in kept},
        )


def registering(modules: Sequence[Module]) -> tuple[Module, ...]:
    """The modules that register; they import what the others import on their way to them. By first registration."""
    bodies = {module.name: module.body for module in modules}
    making = {name for name, body in bodies.items() if any(isinstance(item, int) for item in body)}
    found = []
    for name in making:
        body: list[int | str] = []
        imported = {name}
        for item in bodies[name]:
            if isinstance(item, int):
                body.append(item)
                continue
            for other in _first_making(item, bodies, making, name):
                if other not in imported:
                    imported.add(other)
                    body.append(other)
        found.append(Module(name, tuple(body)))
    return tuple(sorted(found, key=lambda module: min(item for item in module.body if isinstance(item, int))))


def modules_of(modules: Sequence[Module], members: Sequence[int]) -> tuple[Module, ...]:
    """The modules with some of their registrations, numbered anew in the order of `members`, as a file can write them.

    Imports that a left-out registration kept in order may come in any order in the result.
    """
    number = {member: at for at, member in enumerate(members)}
    return registering(
        [
            Module(
                module.name,
                tuple(
                    item if isinstance(item, str) else number[item]
                    for item in module.body
                    if isinstance(item, str) or item in number
                ),
            )
            for module in modules
        ]
    )


def _grouped(body: Iterable[int | str]) -> Iterator[_Item]:
    """Imports that follow one another as one item."""
    for is_import, run in groupby(body, key=lambda item: isinstance(item, str)):
        if is_import:
            yield frozenset(item for item in run if isinstance(item, str))
        else:
            yield from (item for item in run if isinstance(item, int))


def _first_making(
    name: str, bodies: Mapping[str, tuple[int | str, ...]], making: set[str], importer: str
) -> Iterator[str]:
    """The modules that register and that an import comes to first, over modules that register nothing."""
    seen = set(_with_parents(importer))
    todo = [*reversed(list(_with_parents(name)))]
    while todo:
        each = todo.pop()
        if each in seen or each not in bodies:
            continue
        seen.add(each)
        if each in making:
            yield each
            continue
        for item in reversed(bodies[each]):
            if isinstance(item, str):
                todo += reversed(list(_with_parents(item)))


def _closure(names: Iterable[str], bodies: Mapping[str, tuple[int | str, ...]], importer: str) -> frozenset[str]:
    """All modules that have run after an import by another module, the packages around them included."""
    passed = set(_with_parents(importer))  # which have begun
    found: set[str] = set()
    todo = [parent for name in names for parent in _with_parents(name)]
    while todo:
        each = todo.pop()
        if each in found or each in passed or each not in bodies:
            continue
        found.add(each)
        todo += [parent for item in bodies[each] if isinstance(item, str) for parent in _with_parents(item)]
    return frozenset(found)


def _needs(name: str, leading: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """What has begun before a module: what it imports first, and packages that register before they import it."""
    needs = leading[name]
    for parent in _with_parents(name):
        if parent != name and parent in leading and name not in leading[parent]:
            needs |= leading[parent] | {parent}
    return needs - {name}


def _with_parents(name: str) -> Iterator[str]:
    """The packages around a module, the outermost first, then the module."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])
