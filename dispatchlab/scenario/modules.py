"""The fields `order` and `modules` of a scenario file: chains that keep an order, and what comes as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from dispatchlab.prover.chains import Module, normal, shortest
from dispatchlab.scenario.registrations import INDEX
from dispatchlab.scenario.yaml_fields import Context, Shape, Wrong, expected, list_of, scalar
from dispatchlab.scenario.yaml_tree import Listing, Mapping, Node, Scalar

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_NUMBERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_CHAIN = list_of(INDEX, "a list of numbers of registrations", empty=True)
_CHAIN_LIST = list_of(_CHAIN, "a list of chains")


def _chains(node: Node, context: Context) -> tuple[tuple[int, ...], ...]:
    if isinstance(node, Listing) and any(isinstance(child, Listing) for child in node.items):
        chains = _CHAIN_LIST.read(node, context)
    else:
        chains = (_CHAIN.read(node, context),)
    try:
        return normal(chains)
    except ValueError as circle:
        raise _in_circle(node, circle) from None


def _in_circle(node: Node, circle: ValueError) -> Wrong:
    return Wrong(node, f"the order goes in a circle: {', '.join(map(str, circle.args))}", "leave one of the chains out")


def _modules(node: Node, context: Context) -> tuple[Module, ...]:
    if not isinstance(node, Mapping):
        raise expected("a mapping from modules to what they register", node)
    if not node.pairs:
        raise Wrong(node, "expected at least one module but found none", "leave the field out for free orders")
    modules: dict[str, Module] = {}
    for key, child in node.pairs:
        try:
            name = scalar(key, "the name of a module")
            if not _NAME.fullmatch(name.text):
                raise expected("the name of a module", name, "a module is named as `import` names it: package.module")
            if name.text in modules:
                raise Wrong(key, f"the module {name.text} appears twice")
            if not isinstance(child, Listing):
                raise expected("a list of registrations", child)
            numbers = tuple(number for item in child.items for number in _numbers(scalar(item, _WANTED)))
            modules[name.text] = Module(name.text, numbers)
        except Wrong as wrong:
            context.report(wrong)
    return tuple(modules.values())


def _numbers(node: Scalar) -> range:
    numbers = _NUMBERS.fullmatch(node.text)
    if numbers is None:
        raise expected(_WANTED, node)
    first, last = int(numbers[1]), int(numbers[2] or numbers[1])
    if last < first or last - first > _MOST:
        raise expected(_WANTED, node, "the first number is the smaller one")
    return range(first, last + 1)


_WANTED = "the number of a registration, or several as `0-3`"
_MOST = 1_000_000

ORDER_CHAINS = Shape("a list of numbers, or of lists of them", _chains, {"anyOf": [_CHAIN.schema, _CHAIN_LIST.schema]})
MODULE_BODIES = Shape(
    "a mapping from modules to what they register",
    _modules,
    {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": "array", "items": {"type": ["integer", "string"]}},
    },
)


def check_numbers(node: Node, count: int, context: Context) -> None:
    """Report numbers of chains that no registration has."""
    for child in node.items if isinstance(node, Listing) else ():
        check_numbers(child, count, context)
    if isinstance(node, Scalar) and node.text.isdecimal() and len(node.text) < 10 and int(node.text) >= count:
        context.report(_missing(node, int(node.text), count))


def check_modules(
    node: Node, modules: tuple[Module, ...], order: tuple[tuple[int, ...], ...], count: int, context: Context
) -> None:
    """Report numbers that no registration has or that appear twice, and chains that whole modules cannot keep."""
    from dispatchlab.prover.modules import chains_of

    seen: set[int] = set()
    for module in modules:
        for number in module.registrations:
            if number >= count:
                context.report(_missing(node, number, count))
                break
            if number in seen:
                context.report(Wrong(node, f"the registration {number} appears twice", "one module makes it"))
            seen.add(number)
    try:
        chains_of(modules, order)
    except ValueError as circle:
        names = [modules[at].name for at in circle.args]
        context.report(_in_circle(node, ValueError(*names)))


def _missing(node: Node, number: int, count: int) -> Wrong:
    hint = "the only one is 0" if count == 1 else f"they are 0 to {count - 1}"
    return Wrong(node, f"there is no registration {number}", hint)


def order_text(order: tuple[tuple[int, ...], ...]) -> str:
    """The value of `order` as it is written."""
    chains = [f"[{', '.join(map(str, chain))}]" for chain in shortest(order)]
    return chains[0] if len(chains) == 1 else f"[{', '.join(chains)}]"


def module_texts(modules: Iterable[Module]) -> Iterator[tuple[str, list[str]]]:
    """Each module with its numbers as they are written; those that follow one another are one item."""
    for module in modules:
        starts = [0, *(at for at, (one, other) in enumerate(pairwise(module.registrations), 1) if other != one + 1)]
        runs = [module.registrations[a:b] for a, b in pairwise([*starts, len(module.registrations)])]
        yield module.name, [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs if run]
