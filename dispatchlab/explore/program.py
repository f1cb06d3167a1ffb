"""Programs: modules whose registrations run in program order, and the orders in which they can be imported.

A module body runs from its first line to its last. Where it imports another module, that module runs to its end first,
unless it has run or is running. So the registrations of two modules interleave in no other way.
"""

# Note [Orders that a program can have]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A package registers line 6 before line 16, always, and it releases nothing while it is imported. What changes between
# one program and another is which module is imported first. So the modules may be imported in any order, those of one
# package as well, and each import runs as Python runs it: the packages around a module first, then its body, from the
# first line to the last, unless it has begun. Import lines that follow one another may come in any order: a formatter
# reorders them. What they import before they register anything may come among them as lines of its own. Registrations
# that no module lists were there before, and come first.
#
# Modules that register nothing constrain nothing; what they import counts as imported by those who import them, and a
# package that registers nothing is one more import line before its module. This holds as long as such a module is not
# imported by what it imports. A circle of imports runs in another order from each module that a program begins with:
# the modules of a circle count like those that register. Where more than a few modules are in circles, they wait for
# nothing that they import: these are more orders than there are, and never fewer.
#
# Where such a module registers nothing itself, it makes no difference when it begins: it is left out, and who imports
# it may import what it leads to, or not. Otherwise each of them would double the positions.
#
# One sequence of registrations can come of several imports, which may leave a program in different positions. So a
# position is the set of all that there can be.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile, groupby, islice
from math import factorial, prod
from typing import Final, TypeAlias

from dispatchlab.explore.prng import SplitMix64
from dispatchlab.model.sequence import StepSequence

_FEW: Final = 100  # orders that are counted one by one
_FEW_IN_CIRCLES: Final = 6  # modules in circles whose positions are followed one by one
_OPTIONAL: Final = "?"  # behind the name of an import that may be skipped


@dataclass(frozen=True, slots=True)
class Module:
    """A module body: what it registers and imports, from its first line to its last.

    Args:
        name: its full name, `package.module`.
        body: a number for each registration, and the name of each module that is imported there.
    """

    name: str
    body: tuple[int | str, ...]


_Item: TypeAlias = int | frozenset[str]  # a registration, or imports in any order
_Rest: TypeAlias = tuple[_Item, ...]
_Run: TypeAlias = tuple[tuple[_Rest, ...], frozenset[str]]
"""What is left of the bodies that have begun, the innermost last; and the modules that have begun."""

Position: TypeAlias = frozenset[_Run]
"""Where a program is after some registrations. Equal positions have equal futures."""


@dataclass(frozen=True, slots=True)
class Program:
    """The registrations of some modules, in every order in which programs make them.

    >>> from dispatchlab.explore.program import Module, Program
    >>> list(Program.of(3, [Module("one", (0, 1)), Module("other", (2,))]).orders())
    [(0, 1, 2), (2, 0, 1)]

    Args:
        count: how many registrations there are.
        before: those that were there before any module.
        bodies: by module, what it registers and imports.
        followed: the same of the modules that are followed, without those of circles that register nothing.
        chains: by module, what Python imports for it: packages around it that register, the outermost first, and it.
        tracked: the modules of which a program remembers that they have begun; the others may run again, which does
            nothing then. A program may import each of them itself.
        circles: by module that is imported by what it imports, what it imports among such modules.
        loose: those of them that wait for nothing, where there are too many to follow one by one.
    """

    count: int
    before: _Rest
    bodies: Mapping[str, _Rest]
    followed: Mapping[str, _Rest]
    chains: Mapping[str, tuple[str, ...]]
    tracked: frozenset[str]
    circles: Mapping[str, frozenset[str]]
    loose: frozenset[str]

    @classmethod
    def of(cls, count: int, modules: Sequence[Module]) -> Program:
        """The program of modules, in any order in which Python runs them."""
        bodies = {module.name: tuple(_grouped(module.body)) for module in registering(modules)}
        making = _making(bodies)
        chains = {
            name: tuple(each for each in _with_parents(name) if each in making or each == name) for name in bodies
        }
        listed = {item for body in bodies.values() for item in body if isinstance(item, int)}
        return cls._kept(count, tuple(index for index in range(count) if index not in listed), bodies, chains)

    @classmethod
    def _kept(
        cls, count: int, before: _Rest, bodies: Mapping[str, _Rest], chains: Mapping[str, tuple[str, ...]]
    ) -> Program:
        """The program of the modules that come to a registration."""
        making = _making(bodies)
        edges = {
            name: frozenset(each for other in (*_imports(body), name) for each in chains[other]) - {name}
            for name, body in bodies.items()
        }
        kept, more = set(making), set(making)
        while more:
            more = {name for name, others in edges.items() if name not in kept and others & kept}
            kept |= more
        chains = {name: tuple(each for each in chains[name] if each in kept) for name in kept}
        packages = {each for name in kept for each in chains[name] if each != name}
        circles = _circles({name: edges[name] & kept for name in kept})
        # The packages around a module have begun when it runs, so that it does not import them.
        loose = frozenset(_circles({name: others - {*chains[name]} for name, others in circles.items()}))
        if len(loose) <= _FEW_IN_CIRCLES:
            loose = frozenset()
        left = {
            name: tuple(item if isinstance(item, int) else item & kept for item in body)
            for name, body in bodies.items()
            if name in kept
        }
        idle = frozenset(name for name in loose - making if loose.issuperset(chains[name][:-1]))
        beyond = _beyond(idle, left, chains)
        followed = {
            name: tuple(item if isinstance(item, int) else _followed(item, name, beyond) for item in body)
            for name, body in left.items()
            if name not in idle
        }
        circles = {
            name: (others - idle).union(*(beyond[each] for each in others & idle))
            for name, others in circles.items()
            if name not in idle
        }
        tracked = frozenset({*making, *packages, *circles})
        return cls(count, before, left, followed, chains, tracked, circles, loose)

    @property
    def names(self) -> tuple[str, ...]:
        """The modules that register something."""
        making = _making(self.bodies)
        return tuple(name for name in self.bodies if name in making)

    def count_orders(self) -> int:
        """How many orders there are; where they are many, a bound: the orders of as many modules without imports.

        Where some wait for nothing, it is the number of ways to interleave the modules.
        """
        few = sum(1 for _ in islice(self.orders(), _FEW + 1))
        if few <= _FEW:
            return few
        if not self.loose:
            return factorial(len(self.names))
        lengths = (sum(isinstance(item, int) for item in body) for body in self.bodies.values())
        return factorial(self.count - len(self.before)) // prod(map(factorial, lengths))

    @property
    def start(self) -> Position:
        """Before the first registration."""
        return frozenset({self._left((self.before,), frozenset())})

    def next_steps(self, position: Position) -> dict[int, Position]:
        """The registrations that can come next, ascending, each with the position after it; empty at the end."""
        found: dict[int, set[_Run]] = {}
        todo = list(position)
        seen = set(todo)
        while todo:
            stack, begun = todo.pop()
            item = stack[-1][0] if stack else self.tracked
            if isinstance(item, int):
                found.setdefault(item, set()).add(self._left((*stack[:-1], stack[-1][1:]), begun))
                continue
            following = [((*stack, body), begun | {name}) for name, body in self._next_modules(item, begun)]
            if stack and all(name.endswith(_OPTIONAL) for name in item):
                following.append(((*stack[:-1], stack[-1][1:]), begun))
            for after in (self._left(*each) for each in following):
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        return {index: frozenset(found[index]) for index in sorted(found)}

    def _next_modules(self, names: Iterable[str], begun: frozenset[str]) -> Iterator[tuple[str, _Rest]]:
        """The modules that can begin next where some are imported, and what each of them has to run.

        These are the ones that need nothing more, and those of circles. For any other module it makes no difference
        whether it has begun while what it needs is imported.
        """
        circles = _circles({name: others - begun for name, others in self.circles.items() if name not in begun})
        todo = [each.removesuffix(_OPTIONAL) for name in names for each in self._rest(name, begun)]
        seen = set(todo)
        while todo:
            name = todo.pop()
            packages = [each for each in self.chains[name][:-1] if each not in begun]
            waits = [each for each in packages if each not in self.loose]
            needs, is_waiting = (waits[:1], True) if waits else self._needs(name, begun)
            if name in self.loose and not waits:
                body = tuple(dropwhile(lambda item: not isinstance(item, int), self.followed[name]))
                yield name, tuple(item if isinstance(item, int) else _optional(item) for item in body)
                needs = [*packages, *needs]
            elif not is_waiting:
                yield name, self.followed[name]
            elif name in circles and not waits:
                yield name, self.followed[name]
                continue
            todo += [each for each in needs if each not in seen]
            seen.update(needs)

    def _needs(self, name: str, begun: frozenset[str]) -> tuple[list[str], bool]:
        """What a module imports first, where that does something; and whether it waits for any of that."""
        needs: list[str] = []
        for item in self.followed[name]:
            if isinstance(item, int):
                break
            rest = [each for other in item for each in self._rest(other, begun)]
            needs += [each.removesuffix(_OPTIONAL) for each in rest]
            if not all(each.endswith(_OPTIONAL) for each in rest):
                return needs, True
        return needs, False

    def _left(self, stack: tuple[_Rest, ...], begun: frozenset[str]) -> _Run:
        """Without imports of what has begun, so that equal futures are equal."""
        left = []
        for rest in stack:
            items = (
                item if isinstance(item, int) else frozenset(each for name in item for each in self._rest(name, begun))
                for item in rest
            )
            kept = tuple(item for item in items if isinstance(item, int) or item)
            if kept:
                left.append(kept)
        return tuple(left), begun

    def _rest(self, name: str, begun: frozenset[str]) -> frozenset[str]:
        """What is left to import where a module is imported: itself, or what may follow; nothing when it is done."""
        if name.endswith(_OPTIONAL):
            return _optional(self._rest(name.removesuffix(_OPTIONAL), begun))
        if name in self.tracked:
            return frozenset() if name in begun else frozenset((name,))
        rest = frozenset(each for other in _imports(self.followed[name]) for each in self._rest(other, begun))
        if begun.issuperset(self.chains[name][:-1]) and all(each.endswith(_OPTIONAL) for each in rest):
            return rest
        return frozenset((name,))

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
        """The program without a module; None when another one imports it or is in it."""
        for other, body in self.bodies.items():
            if other != name and (name in self.chains[other] or name in _imports(body)):
                return None
        bodies = {other: body for other, body in self.bodies.items() if other != name}
        return Program._kept(self.count, self.before, bodies, self.chains)

    def restricted_to(self, members: Sequence[int]) -> Program:
        """The program of some of the registrations, numbered anew in the order of `members`."""
        number = {member: at for at, member in enumerate(members)}

        def left(body: _Rest) -> _Rest:
            return tuple(
                number[item] if isinstance(item, int) else item
                for item in body
                if not isinstance(item, int) or item in number
            )

        bodies = {name: left(body) for name, body in self.bodies.items()}
        return Program._kept(len(members), left(self.before), bodies, self.chains)


def _optional(item: frozenset[str]) -> frozenset[str]:
    return frozenset(name if name.endswith(_OPTIONAL) else f"{name}{_OPTIONAL}" for name in item)


def _beyond(
    idle: frozenset[str], bodies: Mapping[str, _Rest], chains: Mapping[str, tuple[str, ...]]
) -> dict[str, frozenset[str]]:
    """By module that is left out, the others that it leads to over those that are left out, too."""
    found = {}
    for name in idle:
        seen, todo = {name}, [name]
        while todo:
            each = todo.pop()
            following = {other for item in (*_imports(bodies[each]), each) for other in chains[item]} - seen
            seen |= following
            todo += following & idle
        found[name] = frozenset(seen - idle)
    return found


def _followed(item: frozenset[str], importer: str, beyond: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Imports, with what follows those modules that are left out in place of them."""
    needed = item - beyond.keys()
    following = frozenset(each for name in item & beyond.keys() for each in beyond[name])
    return needed | _optional(following - needed - {importer})


def _making(bodies: Mapping[str, Iterable[object]]) -> set[str]:
    """The modules that register something."""
    return {name for name, body in bodies.items() if any(isinstance(item, int) for item in body)}


def _imports(body: _Rest) -> Iterator[str]:
    for item in body:
        if not isinstance(item, int):
            yield from item


def _circles(edges: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """The nodes of circles, and those on ways from one circle to another; with the edges between them."""
    while True:
        leads = {name for name, others in edges.items() if not others.isdisjoint(edges)}
        follows = {other for name in leads for other in edges[name]}
        found = leads & follows
        if len(found) == len(edges):
            return {name: others & found for name, others in edges.items()}
        edges = {name: edges[name] for name in found}


def registering(modules: Sequence[Module]) -> tuple[Module, ...]:
    """The modules that register, and those of a circle of imports. By first registration.

    They import what the others import on their way to them.
    """
    bodies = {module.name: module.body for module in modules}
    making = _making(bodies)
    loads = {
        name: frozenset(
            each
            for other in (name, *(item for item in body if isinstance(item, str)))
            for each in _with_parents(other)
            if each in bodies and each != name and (each in making or each not in _with_parents(name))
        )
        for name, body in bodies.items()
    }
    kept = making.union(_circles(loads))
    while True:
        found = [Module(name, tuple(_body(name, bodies, kept))) for name in bodies if name in kept]
        empty = {module.name for module in found if not module.body}
        if not empty:
            break
        kept -= empty
    end = 1 + max((item for module in found for item in module.body if isinstance(item, int)), default=0)
    return tuple(
        sorted(found, key=lambda module: min((item for item in module.body if isinstance(item, int)), default=end))
    )


def _body(name: str, bodies: Mapping[str, tuple[int | str, ...]], kept: set[str]) -> Iterator[int | str]:
    """A body that imports kept modules alone."""
    imported = {name}
    for item in bodies[name]:
        if isinstance(item, int):
            yield item
            continue
        for other in _first_kept(item, bodies, kept, name):
            if other not in imported:
                imported.add(other)
                yield other


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


def _first_kept(name: str, bodies: Mapping[str, tuple[int | str, ...]], kept: set[str], importer: str) -> Iterator[str]:
    """The kept modules that an import comes to first, over those that are not kept."""
    seen = set(_with_parents(importer))
    todo = [*reversed(list(_with_parents(name)))]
    while todo:
        each = todo.pop()
        if each in seen or each not in bodies:
            continue
        seen.add(each)
        if each in kept:
            yield each
            continue
        for item in reversed(bodies[each]):
            if isinstance(item, str):
                todo += reversed(list(_with_parents(item)))


def _with_parents(name: str) -> Iterator[str]:
    """The packages around a module, the outermost first, then the module."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])
