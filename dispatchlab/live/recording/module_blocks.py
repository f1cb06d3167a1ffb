"""Make modules of a scenario from module bodies, with the order that their imports need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from dispatchlab.prover.chains import Module

# Note [Modules as blocks]
# ~~~~~~~~~~~~~~~~~~~~~~~~
# Python runs a module body when the module is first imported, and before it the packages around it. So a module comes
# after those that its body imports: importing these first, one by one, is an order that any program can make. Modules
# that import one another in a circle, such as a package and the modules that its __init__ imports, run in the one order
# in which their bodies reach each other: they are one block, in the order in which they ran. Modules that register
# nothing are left out, and what they import is imported by their importers.


Blocks: TypeAlias = tuple[tuple[Module, ...], tuple[tuple[int, int], ...]]
"""Modules, and chains of their registrations."""


def blocks_of(bodies: Mapping[str, Sequence[int | str]]) -> Blocks:
    """Return the modules that register, and the chains that their imports need. See Note [Modules as blocks].

    >>> blocks_of({"a": [0], "b": ["a", 1, 2], "c": [3]})
    ((Module(name='a', registrations=(0,)), Module(name='b', registrations=(1, 2)), Module(name='c', \
registrations=(3,))), ((0, 1),))

    Args:
        bodies: for each module, the numbers of its registrations and the modules that it imports, in program order.
    """
    imports = {name: _imported(name, body, bodies) for name, body in bodies.items()}
    groups = _circles(imports)
    group_of = {name: at for at, group in enumerate(groups) for name in group}
    numbers = [
        tuple(sorted(item for name in group for item in bodies[name] if isinstance(item, int))) for group in groups
    ]
    before: list[set[int]] = []  # for each group, those that register and come before it; groups come behind imports
    for at, group in enumerate(groups):
        others = {group_of[other] for name in group for other in imports[name]} - {at}
        before.append({each for other in others for each in (before[other] | ({other} if numbers[other] else set()))})
    registering = sorted((at for at in range(len(groups)) if numbers[at]), key=lambda at: numbers[at][0])
    modules = tuple(Module(min(groups[at], key=lambda name: name.count(".")), numbers[at]) for at in registering)
    chains = ((numbers[other][-1], numbers[at][0]) for at in registering for other in sorted(before[at]))
    return modules, tuple(sorted(chains))


def _imported(name: str, body: Sequence[int | str], bodies: Mapping[str, object]) -> list[str]:
    """Return the modules that run before the end of a body: its imports and the packages around them."""
    loaded = [each for item in body if isinstance(item, str) for each in _with_parents(item)]
    return [each for each in dict.fromkeys([*_with_parents(name), *loaded]) if each in bodies and each != name]


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _circles(imports: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the strongly connected components of a graph of imports, each after its own imports."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_ones: list[str] = []
    found: list[list[str]] = []
    for start in imports:
        todo = [(start, iter(imports[start]))] if start not in number else []
        while todo:
            name, others = todo[-1]
            if name not in number:
                number[name] = lowest[name] = len(number)
                open_ones.append(name)
            other = next(others, None)
            if other is None:
                todo.pop()
                if todo:
                    lowest[todo[-1][0]] = min(lowest[todo[-1][0]], lowest[name])
                if lowest[name] == number[name]:
                    at = open_ones.index(name)
                    found.append(open_ones[at:])
                    del open_ones[at:]
            elif other not in number:
                todo.append((other, iter(imports[other])))
            elif other in open_ones:
                lowest[name] = min(lowest[name], number[other])
    return found
