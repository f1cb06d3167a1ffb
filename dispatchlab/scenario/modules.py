"""The field `modules` of a scenario file: what each module body registers and imports, in program order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from dispatchlab.files.yaml_fields import Context, Shape, Wrong, did_you_mean, expected, scalar
from dispatchlab.files.yaml_tree import Listing, Mapping, Node, Scalar
from dispatchlab.prover.program import Module

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_NUMBERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_WANTED = "the number of a registration, several as `0-3`, or the name of a module"


def _modules(node: Node, context: Context) -> tuple[Module, ...]:
    if not isinstance(node, Mapping):
        raise expected("a mapping from modules to what they register and import", node)
    if not node.pairs:
        raise Wrong(node, "expected at least one module but found none", "leave the field out for free orders")
    modules: dict[str, Module] = {}
    for key, child in node.pairs:
        try:
            name = _name(scalar(key, "the name of a module"))
            if name in modules:
                raise Wrong(key, f"the module {name} appears twice")
            modules[name] = Module(name, tuple(_body(child, context)))
        except Wrong as wrong:
            context.report(wrong)
    return tuple(modules.values())


def _name(node: Scalar) -> str:
    if not _NAME.fullmatch(node.text):
        raise expected("the name of a module", node, "a module is named as `import` names it: package.module")
    return node.text


def _body(node: Node, context: Context) -> Iterator[int | str]:
    if not isinstance(node, Listing):
        raise expected("a list of registrations and imports", node)
    for child in node.items:
        try:
            yield from _items(scalar(child, _WANTED))
        except Wrong as wrong:
            context.report(wrong)


def _items(node: Scalar) -> Iterable[int | str]:
    numbers = _NUMBERS.fullmatch(node.text)
    if numbers is None:
        if not _NAME.fullmatch(node.text):
            raise expected(_WANTED, node)
        return (node.text,)
    first, last = int(numbers[1]), int(numbers[2] or numbers[1])
    if last < first or last - first > _MOST:
        raise expected(_WANTED, node, "the first number is the smaller one")
    return range(first, last + 1)


_MOST = 1_000_000

MODULE_BODIES = Shape(
    "a mapping from modules to what they register and import",
    _modules,
    {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": "array", "items": {"type": ["integer", "string"]}},
    },
)


def check_modules(node: Node, modules: tuple[Module, ...], count: int, context: Context) -> None:
    """Report numbers that no registration has or that appear twice, and imports of modules that are not there."""
    if not isinstance(node, Mapping):
        return
    names = {module.name for module in modules}
    seen: set[int] = set()
    bodies = [child for _, child in node.pairs if isinstance(child, Listing)]
    for child in (child for body in bodies for child in body.items if isinstance(child, Scalar)):
        try:
            items = _items(child)
        except Wrong:
            continue  # which was reported when it was read
        for item in items:
            if isinstance(item, str):
                if item not in names:
                    hint = did_you_mean(item, names) or "a module that registers nothing is left out"
                    context.report(Wrong(child, f"there is no module {item} here", hint))
                continue
            if item >= count:
                hint = "the only one is 0" if count == 1 else f"they are 0 to {count - 1}"
                context.report(Wrong(child, f"there is no registration {item}", hint))
                break
            if item in seen:
                context.report(Wrong(child, f"the registration {item} appears twice", "one module makes it"))
                break
            seen.add(item)


def module_texts(modules: Iterable[Module]) -> Iterator[tuple[str, list[str]]]:
    """Each module with the items of its body as they are written; numbers that follow one another are one item."""
    for module in modules:
        texts: list[str] = []
        for _, run in groupby(enumerate(module.body), key=_run_of):
            items = [item for _, item in run]
            texts.append(str(items[0]) if len(items) == 1 else f"{items[0]}-{items[-1]}")
        yield module.name, texts


def _run_of(item: tuple[int, int | str]) -> tuple[str, int]:
    """Equal for numbers that follow one another, different for every name."""
    at, value = item
    return ("", value - at) if isinstance(value, int) else (value, at)
