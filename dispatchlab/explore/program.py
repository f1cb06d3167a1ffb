"""Programs: modules whose registrations run in program order, and the orders in which their imports can be made.

A module body runs from its first line to its last. Where it imports another module, that module runs to its end first,
unless it has run or is running. So the registrations of two modules interleave in no other way. What is free is the
order of imports that follow one another with no registration between them; see Note [Orders that a program can have].
"""

# Note [Orders that a program can have]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A package registers line 6 before line 16, always, and it releases nothing while it is imported. What changes between
# one program and another is who is imported first: packages that know nothing of each other, and modules of a package
# whose import lines stand side by side, which a formatter or a new entry point reorders. Imports with a registration
# between them stay as they are: that registration is a line of the program, and may need what was imported above it.
# A module that imports another one cannot run before it, and the parents of a module (`a` of `a.b`) are imported first,
# as Python does it. Registrations that no module lists were there before: they come first, in the order of the file.
#
# A program under way is a stack of what is left of the bodies that have begun, and the set of modules that have begun.
# A position is the set of all such ways to the registrations so far, so that each order is found once.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from math import factorial
from typing import Final, TypeAlias

from dispatchlab.explore.prng import SplitMix64
from dispatchlab.model.sequence import StepSequence


@dataclass(frozen=True, slots=True)
class Module:
    """A module body: what it registers and imports, from its first line to its last.

    Args:
        name: its full name, `package.module`.
        body: a number for each registration, and the name of each module that is imported there.
    """

    name: str
    body: tuple[int | str, ...]


_Item: TypeAlias = int | frozenset[str]  # a registration, or imports that follow one another
_Rest: TypeAlias = tuple[_Item, ...]


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to come to a position: what is left of the bodies under way, the innermost last, and who has begun."""

    stack: tuple[_Rest, ...]
    begun: frozenset[str]


_FEW: Final = 100  # orders that are counted one by one

Position: TypeAlias = frozenset[_Way]
"""Where a program is: everything that its registrations so far leave open. Equal positions have equal futures."""


@dataclass(frozen=True, slots=True)
class Program:
    """The registrations of some modules, in every order in which programs make them.

    >>> from dispatchlab.explore.program import Module, Program
    >>> list(Program.of(3, [Module("one", (0, 1)), Module("other", (2,))]).orders())
    [(0, 1, 2), (2, 0, 1)]

    Args:
        count: how many registrations there are.
        before: those that were there before any module.
        bodies: by module, its registrations and the groups of its imports that follow one another.
        roots: the modules that are imported by the program itself, in any order.
    """

    count: int
    before: _Rest
    bodies: Mapping[str, _Rest]
    roots: frozenset[str]

    @classmethod
    def of(cls, count: int, modules: Sequence[Module]) -> Program:
        """The program of modules: those that nobody imports are its roots, and what no module lists comes first."""
        listed = {item for module in modules for item in module.body if isinstance(item, int)}
        before = tuple(index for index in range(count) if index not in listed)
        bodies = {module.name: _compiled(module.body) for module in modules}
        return cls(count, before, bodies, frozenset(_roots(bodies)))

    @property
    def names(self) -> tuple[str, ...]:
        """The modules that register something."""
        return tuple(name for name, body in self.bodies.items() if any(isinstance(item, int) for item in body))

    def count_orders(self) -> int:
        """How many orders there are; of more than a few, the arrangements of imports, of which several may be alike."""
        few = sum(1 for _ in islice(self.orders(), _FEW + 1))
        return few if few <= _FEW else self._arrangements()

    def _arrangements(self) -> int:
        product = factorial(len(self.roots))
        for body in self.bodies.values():
            for item in body:
                if isinstance(item, frozenset):
                    product *= factorial(len(item))
        return product

    @property
    def start(self) -> Position:
        """Before the first registration."""
        return frozenset({_Way(((*self.before, self.roots),), frozenset())})

    def next_steps(self, position: Position) -> dict[int, Position]:
        """The registrations that can come next, ascending, each with the position after it; empty at the end."""
        found: dict[int, set[_Way]] = {}
        seen = set(position)
        todo = list(position)
        while todo:
            way = todo.pop()
            if not way.stack:
                continue
            *below, rest = way.stack
            if not rest:
                following = [_Way(tuple(below), way.begun)]
            elif isinstance(rest[0], int):
                found.setdefault(rest[0], set()).add(_Way((*below, rest[1:]), way.begun))
                continue
            else:
                following = list(self._imports(tuple(below), rest[0] - way.begun, rest[1:], way.begun))
            for each in following:
                if each not in seen:
                    seen.add(each)
                    todo.append(each)
        return {index: frozenset(found[index]) for index in sorted(found)}

    def _imports(
        self, below: tuple[_Rest, ...], names: frozenset[str], rest: _Rest, begun: frozenset[str]
    ) -> Iterator[_Way]:
        """The ways to go on with imports that follow one another, one of them first."""
        if not names:
            yield _Way((*below, rest), begun)
        for name in names:
            first = next(each for each in _with_parents(name) if each in self.bodies and each not in begun)
            yield _Way((*below, (names - {first}, *rest), self.bodies[first]), begun | {first})

    def orders(self) -> Iterator[StepSequence]:
        """Every order, each once; the first is that of the file where that is an order of the program."""
        yield from self._orders(self.start, ())

    def _orders(self, position: Position, before: StepSequence) -> Iterator[StepSequence]:
        stack = [(position, before)]
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

    def without(self, name: str) -> Program | None:
        """The program without the registrations of a module; None when another module that registers imports it."""
        for other in self.names:
            if other != name and name in _closure(other, self.bodies):
                return None
        gone = tuple(item for item in self.bodies[name] if isinstance(item, frozenset))
        return replace(self, bodies={**self.bodies, name: gone})

    def allows(self, sequence: StepSequence) -> bool:
        """Whether some order of the program begins with these registrations."""
        position = self.start
        for step in sequence:
            after = self.next_steps(position).get(step)
            if after is None:
                return False
            position = after
        return True

    def restricted_to(self, members: Sequence[int]) -> Program:
        """The program of some of the registrations, numbered anew in the order of `members`; the others are left out.

        Modules that come to none of them are left out as well. Imports stay in the groups that they were in.
        """
        number = {member: at for at, member in enumerate(members)}
        reaching = _reaching(self.bodies, number)

        def kept(body: _Rest) -> Iterator[_Item]:
            for item in body:
                if isinstance(item, frozenset):
                    if item & reaching:
                        yield item & reaching
                elif item in number:
                    yield number[item]

        bodies = {name: tuple(kept(body)) for name, body in self.bodies.items() if name in reaching}
        return Program(len(members), tuple(kept(self.before)), bodies, self.roots & reaching)


def modules_of(modules: Sequence[Module], members: Sequence[int]) -> tuple[Module, ...]:
    """The modules with some of their registrations, numbered anew in the order of `members`, as a file can write them.

    Imports that a left-out registration kept in order may come in any order in the result.
    """
    number = {member: at for at, member in enumerate(members)}
    reaching = _reaching({module.name: _compiled(module.body) for module in modules}, number)

    def kept(body: tuple[int | str, ...]) -> Iterator[int | str]:
        for item in body:
            if isinstance(item, str):
                if item in reaching:
                    yield item
            elif item in number:
                yield number[item]

    return tuple(Module(module.name, tuple(kept(module.body))) for module in modules if module.name in reaching)


def _compiled(body: Iterable[int | str]) -> _Rest:
    items: list[_Item] = []
    for is_import, run in groupby(body, key=lambda item: isinstance(item, str)):
        if is_import:
            items.append(frozenset(item for item in run if isinstance(item, str)))
        else:
            items += [item for item in run if isinstance(item, int)]
    return tuple(items)


def _with_parents(name: str) -> Iterator[str]:
    """The packages around a module, the outermost first, then the module."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])


def _roots(bodies: Mapping[str, _Rest]) -> Iterator[str]:
    """The modules that nobody imports; of modules that import each other in a circle, the first."""
    imported = {name for body in bodies.values() for item in body if isinstance(item, frozenset) for name in item}
    reached: set[str] = set()
    for name in (*(name for name in bodies if name not in imported), *bodies):
        if name not in reached:
            yield name
            reached |= _closure(name, bodies)


def _closure(name: str, bodies: Mapping[str, _Rest]) -> set[str]:
    """A module and all that runs when it is imported, the packages around it included."""
    found: set[str] = set()
    todo = [name]
    while todo:
        each = todo.pop()
        if each in found or each not in bodies:
            continue
        found.add(each)
        todo += [other for item in bodies[each] if isinstance(item, frozenset) for other in item]
        todo += _with_parents(each)
    return found


def _reaching(bodies: Mapping[str, _Rest], members: Mapping[int, int]) -> frozenset[str]:
    """The modules that make some registration of `members`, or import a module that does."""
    making = {name for name, body in bodies.items() if any(isinstance(item, int) and item in members for item in body)}
    return frozenset(name for name in bodies if not making.isdisjoint(_closure(name, bodies)))
