"""Programs: modules whose registrations run in program order, and the orders in which they can be imported.

A module body runs from its first line to its last. Where it imports another module, that module runs to its end first,
unless it has run or is running. So the registrations of two modules interleave in no other way.
"""

# Note [Orders that a program can have]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A package always registers line 6 before line 16, and it releases nothing while it is imported. Programs differ in
# which module they import first. So modules may be imported in any order, those of one package as well, and each import
# runs as Python runs it: first the packages around the module, then its body from the first line to the last, unless it
# has begun. Consecutive import lines may run in any order, since a formatter reorders them; what they import before
# they register anything may be imported between them. Registrations that no module lists were there before, and come
# first.
#
# The graph of imports is contracted to the modules that matter. A module that registers nothing constrains nothing: its
# importers import what it imports, and a package that registers nothing is one more import line before its module. A
# module in an import cycle cannot be contracted so: a cycle runs in another order from each module that a program
# begins with. The modules of cycles stay, as those that register do. Where more than a few modules are cyclic, they are
# relaxed: they wait for none of their imports. That allows more orders than Python has, and never fewer.
#
# A relaxed module that registers nothing may begin at any time and changes nothing: it is contracted after all, and its
# importers may import what is reachable through it, or not. Otherwise each such module would double the positions.
#
# One sequence of registrations can come from several imports, which may leave a program in different positions. So a
# position is the set of all runs that are possible.

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile, groupby, islice
from math import factorial, prod
from typing import Final, TypeAlias

from dispatchlab.model.sequence import StepSequence
from dispatchlab.prover.prng import SplitMix64

_MAX_COUNTED_ORDERS: Final = 100
_MAX_CYCLIC: Final = 6  # of more cyclic modules, positions are not followed module by module
_OPTIONAL: Final = "?"  # behind the name of an import that may be skipped


def import_orders(
    imports: Mapping[str, Sequence[str]], entries: Sequence[str], *, most: int, seed: int = 0
) -> tuple[list[tuple[str, ...]], bool]:
    """The orders in which modules can be imported, one for each sequence in which bodies begin and end.

    A body that runs at the same place of the same sequence finds the same, so one order stands for all with its
    sequence. Of more than `most` orders some are chosen: the given one, its reverse, each module first, random ones.

    >>> from dispatchlab.prover.program import import_orders
    >>> import_orders({"b": ["a"]}, ["a", "b", "c"], most=10)
    ([('a', 'b', 'c'), ('a', 'c', 'b'), ('b', 'c'), ('c', 'a', 'b'), ('c', 'b')], True)

    Args:
        imports: by module, what its body imports, in program order.
        entries: the modules that a program may import, in the order that comes first.
        most: how many orders are given.
        seed: of the random ones.

    Returns:
        The orders, without the imports that do nothing; and whether they are all.
    """
    found: dict[tuple[str, ...], tuple[str, ...]] = {}

    def imported(name: str, trace: list[str], begun: set[str]) -> None:
        for module in _with_parents(name):
            if module not in begun:
                begun.add(module)
                trace.append(f"+{module}")
                for other in imports.get(module, ()):
                    if other not in begun:  # else the packages around it have begun, too
                        imported(other, trace, begun)
                trace.append(f"-{module}")

    def take(order: Sequence[str]) -> None:
        trace, begun, needed = list[str](), set[str](), list[str]()
        for name in order:
            if name not in begun:
                needed.append(name)
                imported(name, trace, begun)
        found.setdefault(tuple(trace), tuple(needed))

    def take_all(order: list[str], begun: set[str]) -> None:
        left = [name for name in entries if name not in begun]
        if not left:
            take(order)
        ways: dict[tuple[str, ...], tuple[str, set[str]]] = {}
        done: dict[str, tuple[set[str], list[str]]] = {"": (begun, [])}  # packages, which may import all the others
        for name in left:
            for module in _with_parents(name):
                if module not in done:
                    after, trace = done[module.rpartition(".")[0]]
                    if module not in after:
                        after, trace = set(after), list(trace)
                        imported(module, trace, after)
                    done[module] = after, trace
            after, trace = done[name]
            ways.setdefault(tuple(trace), (name, after))
        for name, after in ways.values():
            if len(found) <= most:
                take_all([*order, name], after)

    take_all([], set())
    if len(found) <= most:
        return list(found.values()), True
    found.clear()
    random = SplitMix64(seed)
    take(entries)
    for first in (entries[-1], *entries):
        if len(found) < most:
            take([first, *(entry for entry in reversed(entries) if entry != first)])
    for _ in range(4 * most):
        if len(found) < most:
            left = list(entries)
            take([left.pop(random.below(len(left))) for _ in entries])
    return list(found.values()), False


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
_Body: TypeAlias = tuple[_Item, ...]
_Run: TypeAlias = tuple[tuple[_Body, ...], frozenset[str]]
"""The remaining lines of the bodies that have begun, the innermost last; and the modules that have begun."""

Position: TypeAlias = frozenset[_Run]
"""Where a program is after some registrations. Equal positions have equal futures."""


@dataclass(frozen=True, slots=True)
class Program:
    """The registrations of some modules, in every order in which programs make them.

    >>> from dispatchlab.prover.program import Module, Program
    >>> list(Program.of(3, [Module("one", (0, 1)), Module("other", (2,))]).orders())
    [(0, 1, 2), (2, 0, 1)]

    Args:
        count: how many registrations there are.
        before: those that were there before any module.
        bodies: by module, what it registers and imports.
        contracted: the same after the contraction of relaxed modules that register nothing.
        chains: by module, what Python imports for it: packages around it that register, the outermost first, and it.
        tracked: the modules of which a program remembers that they have begun; the others may run again, which does
            nothing then. A program may import each of them itself.
        cyclic: by module of the cyclic core of the graph of imports, its imports there.
        relaxed: those of them that wait for none of their imports, where there are too many to follow one by one.
    """

    count: int
    before: _Body
    bodies: Mapping[str, _Body]
    contracted: Mapping[str, _Body]
    chains: Mapping[str, tuple[str, ...]]
    tracked: frozenset[str]
    cyclic: Mapping[str, frozenset[str]]
    relaxed: frozenset[str]

    @classmethod
    def of(cls, count: int, modules: Sequence[Module]) -> Program:
        """The program of modules, in any order in which Python runs them."""
        bodies = {module.name: tuple(_grouped(module.body)) for module in contract(modules)}
        names = _registering(bodies)
        chains = {
            name: tuple(package for package in _with_parents(name) if package in names or package == name)
            for name in bodies
        }
        listed = {item for body in bodies.values() for item in body if isinstance(item, int)}
        return cls._reduced(count, tuple(index for index in range(count) if index not in listed), bodies, chains)

    @classmethod
    def _reduced(
        cls, count: int, before: _Body, bodies: Mapping[str, _Body], chains: Mapping[str, tuple[str, ...]]
    ) -> Program:
        """The program of the modules from which a registration can be reached."""
        names = _registering(bodies)
        edges = {
            name: frozenset(loaded for other in (*_imports(body), name) for loaded in chains[other]) - {name}
            for name, body in bodies.items()
        }
        useful, more = set(names), set(names)
        while more:
            more = {name for name, others in edges.items() if name not in useful and others & useful}
            useful |= more
        chains = {name: tuple(loaded for loaded in chains[name] if loaded in useful) for name in useful}
        packages = {loaded for name in useful for loaded in chains[name] if loaded != name}
        edges = {name: edges[name] & useful for name in useful}
        cyclic = _cyclic_core(edges)
        # The packages around a module have begun when it runs, so that it does not import them.
        relaxed = frozenset(_cyclic_core({name: others - {*chains[name]} for name, others in cyclic.items()}))
        if len(relaxed) <= _MAX_CYCLIC:
            relaxed = frozenset()
        bodies = {
            name: tuple(item if isinstance(item, int) else item & useful for item in body)
            for name, body in bodies.items()
            if name in useful
        }
        inert = frozenset(name for name in relaxed - names if relaxed.issuperset(chains[name][:-1]))
        reachable = _reachable_through(inert, edges)
        contracted = {
            name: tuple(item if isinstance(item, int) else _contract_imports(item, name, reachable) for item in body)
            for name, body in bodies.items()
            if name not in inert
        }
        cyclic = {
            name: (others - inert).union(*(reachable[other] for other in others & inert))
            for name, others in cyclic.items()
            if name not in inert
        }
        tracked = frozenset({*names, *packages, *cyclic})
        return cls(count, before, bodies, contracted, chains, tracked, cyclic, relaxed)

    @property
    def names(self) -> tuple[str, ...]:
        """The modules that register something."""
        names = _registering(self.bodies)
        return tuple(name for name in self.bodies if name in names)

    def count_orders(self) -> int:
        """How many orders there are; where they are many, a bound: the orders of as many modules without imports.

        Where modules are relaxed, it is the number of ways to interleave the modules.
        """
        count = sum(1 for _ in islice(self.orders(), _MAX_COUNTED_ORDERS + 1))
        if count <= _MAX_COUNTED_ORDERS:
            return count
        if not self.relaxed:
            return factorial(len(self.names))
        lengths = (sum(isinstance(item, int) for item in body) for body in self.bodies.values())
        return factorial(self.count - len(self.before)) // prod(map(factorial, lengths))

    @property
    def start(self) -> Position:
        """Before the first registration."""
        return frozenset({self._canonical((self.before,), frozenset())})

    def next_steps(self, position: Position) -> dict[int, Position]:
        """The registrations that can come next, ascending, each with the position after it; empty at the end."""
        steps: dict[int, set[_Run]] = {}
        todo = list(position)
        seen = set(todo)
        while todo:
            stack, begun = todo.pop()
            item = stack[-1][0] if stack else self.tracked
            if isinstance(item, int):
                steps.setdefault(item, set()).add(self._canonical((*stack[:-1], stack[-1][1:]), begun))
                continue
            following = [((*stack, body), begun | {name}) for name, body in self._next_modules(item, begun)]
            if stack and all(name.endswith(_OPTIONAL) for name in item):
                following.append(((*stack[:-1], stack[-1][1:]), begun))
            for run in (self._canonical(*after) for after in following):
                if run not in seen:
                    seen.add(run)
                    todo.append(run)
        return {index: frozenset(steps[index]) for index in sorted(steps)}

    def _next_modules(self, names: Iterable[str], begun: frozenset[str]) -> Iterator[tuple[str, _Body]]:
        """The modules that can begin next where some are imported, and what each of them has to run.

        These are the ones that need nothing more, and the cyclic ones. For any other module it makes no difference
        whether it has begun while what it needs is imported.
        """
        cyclic = _cyclic_core({name: others - begun for name, others in self.cyclic.items() if name not in begun})
        todo = [other.removesuffix(_OPTIONAL) for name in names for other in self._pending(name, begun)]
        seen = set(todo)
        while todo:
            name = todo.pop()
            packages = [package for package in self.chains[name][:-1] if package not in begun]
            waits = [package for package in packages if package not in self.relaxed]
            needs, is_waiting = (waits[:1], True) if waits else self._needs(name, begun)
            if name in self.relaxed and not waits:
                body = tuple(dropwhile(lambda item: not isinstance(item, int), self.contracted[name]))
                yield name, tuple(item if isinstance(item, int) else _optional(item) for item in body)
                needs = [*packages, *needs]
            elif not is_waiting:
                yield name, self.contracted[name]
            elif name in cyclic and not waits:
                yield name, self.contracted[name]
                continue
            todo += [other for other in needs if other not in seen]
            seen.update(needs)

    def _needs(self, name: str, begun: frozenset[str]) -> tuple[list[str], bool]:
        """What a module imports first, where that does something; and whether it waits for any of that."""
        needs: list[str] = []
        for item in self.contracted[name]:
            if isinstance(item, int):
                break
            pending = [other for imported in item for other in self._pending(imported, begun)]
            needs += [other.removesuffix(_OPTIONAL) for other in pending]
            if not all(other.endswith(_OPTIONAL) for other in pending):
                return needs, True
        return needs, False

    def _canonical(self, stack: tuple[_Body, ...], begun: frozenset[str]) -> _Run:
        """A run without imports of what has begun, so that runs with equal futures are equal."""
        bodies = []
        for body in stack:
            items = (
                item
                if isinstance(item, int)
                else frozenset(other for name in item for other in self._pending(name, begun))
                for item in body
            )
            pending = tuple(item for item in items if isinstance(item, int) or item)
            if pending:
                bodies.append(pending)
        return tuple(bodies), begun

    def _pending(self, name: str, begun: frozenset[str]) -> frozenset[str]:
        """What an import of a module still has to import: it, or its own imports; nothing when it is done."""
        if name.endswith(_OPTIONAL):
            return _optional(self._pending(name.removesuffix(_OPTIONAL), begun))
        if name in self.tracked:
            return frozenset() if name in begun else frozenset((name,))
        pending = frozenset(
            other for imported in _imports(self.contracted[name]) for other in self._pending(imported, begun)
        )
        if begun.issuperset(self.chains[name][:-1]) and all(other.endswith(_OPTIONAL) for other in pending):
            return pending
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
        return Program._reduced(self.count, self.before, bodies, self.chains)

    def restricted_to(self, members: Sequence[int]) -> Program:
        """The program of some of the registrations, numbered anew in the order of `members`."""
        numbers = {member: number for number, member in enumerate(members)}

        def restricted(body: _Body) -> _Body:
            return tuple(
                numbers[item] if isinstance(item, int) else item
                for item in body
                if not isinstance(item, int) or item in numbers
            )

        bodies = {name: restricted(body) for name, body in self.bodies.items()}
        return Program._reduced(len(members), restricted(self.before), bodies, self.chains)


def _optional(item: frozenset[str]) -> frozenset[str]:
    return frozenset(name if name.endswith(_OPTIONAL) else f"{name}{_OPTIONAL}" for name in item)


def _reachable_through(inert: frozenset[str], edges: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """By inert module, the other modules that are reachable from it through inert modules alone."""
    importers: dict[str, list[str]] = {}
    for name in inert:
        for other in edges[name]:
            importers.setdefault(other, []).append(name)
    reachable: dict[str, set[str]] = {name: set() for name in inert}
    for other in importers.keys() - inert:  # backwards from each, since most are inert
        todo = list(importers[other])
        while todo:
            name = todo.pop()
            if other not in reachable[name]:
                reachable[name].add(other)
                todo += importers.get(name, ())
    return {name: frozenset(found) for name, found in reachable.items()}


def _contract_imports(item: frozenset[str], importer: str, reachable: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Imports, with what is reachable through inert modules in place of these."""
    needed = item - reachable.keys()
    following = frozenset(other for name in item & reachable.keys() for other in reachable[name])
    return needed | _optional(following - needed - {importer})


def _registering(bodies: Mapping[str, Iterable[object]]) -> set[str]:
    """The modules that register something."""
    return {name for name, body in bodies.items() if any(isinstance(item, int) for item in body)}


def _imports(body: _Body) -> Iterator[str]:
    for item in body:
        if not isinstance(item, int):
            yield from item


def _cyclic_core(edges: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """A graph without its sources and sinks, again and again, until there are none.

    What remains are the strongly connected components of several nodes and the paths from one of them to another.
    """
    while True:
        tails = {name for name, others in edges.items() if not others.isdisjoint(edges)}
        heads = {other for name in tails for other in edges[name]}
        core = tails & heads
        if len(core) == len(edges):
            return {name: others & core for name, others in edges.items()}
        edges = {name: edges[name] for name in core}


def contract(modules: Sequence[Module], reading: Collection[str] = ()) -> tuple[Module, ...]:
    """Contract a graph of imports to the modules that register and those of import cycles, by first registration.

    They import what the others import on the way to them. A cycle from which no module is reached that registers or
    reads something has no part in any order, and is left out.

    Args:
        modules: the modules.
        reading: the names of those that read something.
    """
    bodies = {module.name: module.body for module in modules}
    names = _registering(bodies)
    bodies = _leading_to(names.union(reading), bodies)
    edges = {
        name: frozenset(
            loaded
            for other in (name, *(item for item in body if isinstance(item, str)))
            for loaded in _with_parents(other)
            if loaded in bodies and loaded != name and (loaded in names or loaded not in _with_parents(name))
        )
        for name, body in bodies.items()
    }
    nodes = names.union(_cyclic_core(edges))
    while True:
        contracted = [Module(name, tuple(_contract_body(name, bodies, nodes))) for name in bodies if name in nodes]
        empty = {module.name for module in contracted if not module.body}
        if not empty:
            break
        nodes -= empty
    end = 1 + max((item for module in contracted for item in module.body if isinstance(item, int)), default=0)
    return tuple(
        sorted(contracted, key=lambda module: min((item for item in module.body if isinstance(item, int)), default=end))
    )


def _leading_to(
    names: Collection[str], bodies: Mapping[str, tuple[int | str, ...]]
) -> dict[str, tuple[int | str, ...]]:
    """The bodies of these modules, and of those whose import imports one of them."""
    importers: dict[str, list[str]] = {}
    for name, body in bodies.items():
        for other in {name, *(item for item in body if isinstance(item, str))}:
            for loaded in _with_parents(other):
                importers.setdefault(loaded, []).append(name)
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += importers.get(name, ())
    return {name: body for name, body in bodies.items() if name in found}


def _contract_body(name: str, bodies: Mapping[str, tuple[int | str, ...]], nodes: set[str]) -> Iterator[int | str]:
    """A body that imports nodes of the contraction alone."""
    imported = {name}
    for item in bodies[name]:
        if isinstance(item, int):
            yield item
            continue
        for other in _first_nodes(item, bodies, nodes, name):
            if other not in imported:
                imported.add(other)
                yield other


def modules_of(modules: Sequence[Module], members: Sequence[int]) -> tuple[Module, ...]:
    """The modules with some of their registrations, numbered anew in the order of `members`, as a file can write them.

    Imports that a left-out registration kept in order may come in any order in the result.
    """
    numbers = {member: number for number, member in enumerate(members)}
    return contract(
        [
            Module(
                module.name,
                tuple(
                    item if isinstance(item, str) else numbers[item]
                    for item in module.body
                    if isinstance(item, str) or item in numbers
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


def _first_nodes(
    imported: str, bodies: Mapping[str, tuple[int | str, ...]], nodes: set[str], importer: str
) -> Iterator[str]:
    """The nodes of the contraction that an import comes to first, through modules that are none."""
    seen = set(_with_parents(importer))
    todo = [*reversed(list(_with_parents(imported)))]
    while todo:
        name = todo.pop()
        if name in seen or name not in bodies:
            continue
        seen.add(name)
        if name in nodes:
            yield name
            continue
        for item in reversed(bodies[name]):
            if isinstance(item, str):
                todo += reversed(list(_with_parents(item)))


def _with_parents(name: str) -> Iterator[str]:
    """The packages around a module, the outermost first, then the module."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])
