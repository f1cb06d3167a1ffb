"""Pieces of Python text: brackets that break over lines, literals, and arguments with their annotations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dispatchlab.codegen.emit.generated_group import python_name
from dispatchlab.codegen.read.native_function import NativeFunction, Precomputed
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema import Argument, ListType, OptionalType, Type

WIDTH = 120
INDENT = "    "


def bracketed(
    head: str, items: Sequence[str], tail: str, *, indent: int = 0, loose: bool = False, single: bool = False
) -> Iterator[str]:
    """Return `head item, item tail` on one line, or the items on a separate line, or each item on a line.

    Args:
        head: up to and with the opening bracket.
        items: the texts between commas.
        tail: the closing bracket and the text after it.
        indent: how deep the line is.
        loose: whether the brackets are those of a tuple, which keeps a comma after its only item.
        single: whether the brackets have one item and never get a comma.
    """
    start = INDENT * indent
    comma = "," if loose and len(items) == 1 else ""
    line = f"{start}{head}{', '.join(items)}{comma}{tail}"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{start}{head}"
    inner = f"{start}{INDENT}{', '.join(items)}{comma}"
    if len(inner) <= WIDTH or single:
        yield inner
    else:
        for item in items:
            yield f"{start}{INDENT}{item},"
    yield f"{start}{tail}"


def indented(lines: Iterable[str], depth: int = 1) -> Iterator[str]:
    """Return the lines, `depth` levels further in."""
    for line in lines:
        yield f"{INDENT * depth}{line}" if line else ""


def calls_by_hand(comment: str, calls: Mapping[str, str]) -> Iterator[str]:
    """Return the table `BY_HAND` of a generated module: the functions by hand and how they are called.

    Args:
        comment: the comment above it.
        calls: each function's name, and a call of it.
    """
    yield f"# {comment}"
    yield "BY_HAND = {"
    for name, call in calls.items():
        entry = f"    {text_literal(name)}: {text_literal(call)},"
        if len(entry) <= WIDTH:
            yield entry
        else:
            yield f"    {text_literal(name)}: ("
            yield from long_text(call, indent=2)
            yield "    ),"
    yield "}"


def long_text(text: str, *, indent: int, tail: str = "") -> Iterator[str]:
    """Return the text as a literal, or as several literals that Python joins if it is too long for a line."""
    room = WIDTH - len(INDENT) * indent - 2
    pieces = []
    if len(text_literal(text)) + len(INDENT) * indent + len(tail) <= WIDTH:
        pieces, text = [text], ""
    while text:
        end = len(text) if len(text) <= room - len(tail) else text.rfind(" ", 0, room) + 1 or room
        pieces.append(text[:end])
        text = text[end:]
    for piece in pieces:
        yield f"{INDENT * indent}{text_literal(piece)}{tail if piece is pieces[-1] else ''}"


def text_literal(text: str) -> str:
    """Return the text as a Python literal, in double quotes unless it has some itself."""
    quoted = repr(text)
    if quoted.startswith('"') or '"' in text:
        return quoted
    return f'"{quoted[1:-1]}"'


def banner(text: str) -> Iterator[str]:
    """Return the line above a section, and two empty lines."""
    yield f"# -- {text}"
    yield ""
    yield ""


def register_source(
    defs: Sequence[tuple[NativeFunction, Iterable[str]]],
    libraries: Iterable[tuple[DispatchKey, Iterable[tuple[NativeFunction, Iterable[str]]]]],
) -> Iterator[str]:
    """Return the function `register` of a generated module.

    Args:
        defs: the functions, each with the lines of its debug text.
        libraries: a key, and the functions with a kernel there, each with the lines of the kernel and its debug text.
    """
    namespace = text_literal(defs[0][0].name.namespace)
    yield "def register(dispatcher: Dispatcher, kernels: object) -> ExitStack:"
    yield "    linked = link(dispatcher, kernels, BY_HAND)"
    yield "    with ExitStack() as undo:"
    yield f'        m = undo.enter_context(Library({namespace}, "FRAGMENT", dispatcher=dispatcher))'
    for function, debug in defs:
        yield "        m.define("
        yield from long_text(str(function.own_schema), indent=3, tail=",")
        tags = [text_literal(tag) for tag in sorted(function.tags)]
        if tags:
            yield from bracketed("tags=(", tags, "),", indent=3, loose=True)
        yield from debug
        yield "        )"
    for key, kernels in libraries:
        yield f'        m = undo.enter_context(Library({namespace}, "IMPL", "{key}", dispatcher=dispatcher))'
        for function, lines in kernels:
            yield "        m.impl("
            yield f"            {text_literal(function.short_name)},"
            yield from lines
            yield "        )"
    yield "        return undo.pop_all()"


def python_names(arguments: Iterable[Argument | Precomputed]) -> list[str]:
    """Return the names of the arguments in a call."""
    return [python_name(argument.name) for argument in arguments]


def python_parameters(arguments: Iterable[Argument | Precomputed]) -> list[str]:
    """Return the arguments of a def, with annotations."""
    return [f"{python_name(argument.name)}: {annotation(argument.type)}" for argument in arguments]


def annotation(type_: Type) -> str:
    """Return the type as an annotation from which the same type is inferred, except the size of a list."""
    match type_:
        case OptionalType(element):
            return f"{annotation(element)} | None"
        case ListType(element):
            return f"list[{annotation(element)}]"
        case _:
            return "list[int]" if str(type_) == "DimVector" else str(type_)
