"""What can stand in a field: for each shape how it is read, what is wanted when it is wrong, and its JSON Schema.

A shape is read by a function from a node to a value that raises `Wrong`. Lists report each bad item and go on, so that
one run tells all problems.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from dispatchlab.errors import DispatchLabError, ParseError, nearest
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Place
from dispatchlab.model.schema import FunctionSchema, clone_with_name
from dispatchlab.model.schema_parser import parse_name, parse_schema, parse_schema_or_name
from dispatchlab.scenario.problems import Problem, quoted
from dispatchlab.scenario.tree import Listing, Mapping, Node, Scalar

T = TypeVar("T")
JsonSchema = MappingType[str, object]


@dataclass(slots=True)
class Context:
    """What reading one file carries along.

    Args:
        file: what places call it.
        allow_import: whether references to functions may be imported.
        functions: functions by reference, which need no import.
        problems: what was found to be wrong so far.
        parsed: what texts were parsed to, by parser and text.
    """

    file: str
    allow_import: bool = False
    functions: MappingType[str, Callable[..., object]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    parsed: dict[tuple[object, str], object] = field(default_factory=dict)

    def place(self, node: Node) -> Place:
        """The place of a node."""
        return Place(self.file, node.line, node.column)

    def report(self, wrong: Wrong) -> None:
        """Keep a problem and go on."""
        where = Place(self.file, wrong.node.line, wrong.column or wrong.node.column)
        self.problems.append(Problem(where, wrong.message, wrong.hint))


class Wrong(DispatchLabError):
    """A node is not what was expected; never leaves this package, where it becomes a `Problem`."""

    def __init__(self, node: Node, message: str, hint: str = "", column: int | None = None) -> None:
        super().__init__(node, message, hint, column)
        self.node, self.message, self.hint, self.column = node, message, hint, column


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """What can stand in a field.

    Args:
        wanted: what messages say was expected: `a dispatch key`.
        read: the value of a node; raises `Wrong`.
        schema: the JSON Schema of it.
    """

    wanted: str
    read: Callable[[Node, Context], T]
    schema: JsonSchema


def found(node: Node) -> str:
    """What a node is, for "expected X but found Y"."""
    match node:
        case Scalar():
            return "nothing" if node.is_missing else quoted(node.text)
        case Listing():
            return "a list"
        case Mapping():
            return "a mapping"


def expected(wanted: str, node: Node, hint: str = "") -> Wrong:
    """The problem that a node is something else than `wanted`."""
    return Wrong(node, f"expected {wanted} but found {found(node)}", hint)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or nothing when nothing is near."""
    near = nearest(word, known)
    return f"did you mean {near[0]}?" if near else ""


def scalar(node: Node, wanted: str) -> Scalar:
    """The node, when there is text in it."""
    if not isinstance(node, Scalar) or node.is_missing:
        raise expected(wanted, node)
    return node


def at_error(node: Scalar, error: ParseError, shift: int = 0) -> Wrong:
    """The problem of text that did not parse, at the place inside it where the trouble starts.

    Args:
        node: where the text stands.
        error: what the parser said.
        shift: how many characters the parsed text had in front that the node has not.
    """
    at = min(max(0, error.at - shift), len(node.text))
    return Wrong(node, f"{error.sentence} in {quoted(node.text)}", column=node.column_of(at))


def parsed(node: Scalar, parse: Callable[[str], T], context: Context, *, prefix: str = "") -> T:
    """What `parse` makes of the node's text with `prefix` in front; equal texts of a file are parsed once.

    Raises:
        Wrong: with the place inside the text.
    """
    key = (parse, prefix + node.text)
    value = context.parsed.get(key)
    if value is None:
        try:
            value = context.parsed[key] = parse(prefix + node.text)
        except ParseError as error:
            raise at_error(node, error, len(prefix)) from None
    return value  # type: ignore[return-value]  # the key has the function that made it


def _text(node: Node, context: Context) -> str:
    return scalar(node, "text").text


def _sentence(node: Node, context: Context) -> str:
    text = scalar(node, "a sentence").text
    if not text.strip():
        raise expected("a sentence", node)
    return text


def word(wanted: str, values: MappingType[str, T]) -> Shape[T]:
    """One of a few words, each with its value."""

    def read(node: Node, context: Context) -> T:
        text = scalar(node, wanted).text
        if text not in values:
            raise expected(wanted, node, did_you_mean(text, values) or f"the words are {', '.join(values)}")
        return values[text]

    return Shape(wanted, read, {"enum": list(values)})


def list_of(item: Shape[T], wanted: str, *, empty: bool = False, repeats: bool = False) -> Shape[tuple[T, ...]]:
    """A list of one shape.

    Args:
        item: the shape of each item.
        wanted: what messages call the list.
        empty: whether it may be empty.
        repeats: whether two items may be equal.
    """

    def read(node: Node, context: Context) -> tuple[T, ...]:
        if not isinstance(node, Listing):
            raise expected(wanted, node)
        if not node.items and not empty:
            raise Wrong(node, f"expected {wanted} but found an empty list", "leave the field out for its default")
        seen: dict[T, Node] = {}
        values: list[T] = []
        for child in node.items:
            try:
                value = item.read(child, context)
                if value in seen and not repeats:
                    raise Wrong(child, f"{found(child)} is here twice, first in line {seen[value].line}")
                seen.setdefault(value, child)
                values.append(value)
            except Wrong as wrong:
                context.report(wrong)
        return tuple(values)

    schema: dict[str, object] = {"type": "array", "items": item.schema}
    if not empty:
        schema["minItems"] = 1
    if not repeats:
        schema["uniqueItems"] = True
    return Shape(wanted, read, schema)


def _key(node: Node, context: Context) -> DispatchKey | None:
    text = scalar(node, "a dispatch key").text
    try:
        return DispatchKey[text] or None
    except KeyError:
        hint = did_you_mean(text, DispatchKey.__members__) if text else "leave the field out for no key"
        raise expected("a dispatch key", node, hint) from None


def _row(node: Node, context: Context) -> DispatchKey:
    key = _key(node, context) or DispatchKey.Undefined
    if not key.is_runtime:
        why = "an alias key stands for several rows" if key.is_alias else "there is one row for each of its backends"
        raise Wrong(node, f"expected a key that has a row in the table but found {key}", why)
    return key


_NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _namespace(node: Node, context: Context) -> str:
    text = scalar(node, "a namespace").text
    if not _NAMESPACE.fullmatch(text):
        raise expected("a namespace", node, "a namespace is letters, digits and _, and starts with no digit")
    return text


def _library(node: Node, context: Context) -> str | None:
    namespace = _namespace(node, context)
    return None if namespace == "_" else namespace


def _operator(node: Node, context: Context) -> OperatorName:
    return parsed(scalar(node, "the name of an operator"), parse_name, context)


def _definition(node: Node, context: Context) -> FunctionSchema | OperatorName:
    # As in a library block: `tensor` is a slip and no type variable, which aten:: and prim:: alone may have.
    return parsed(scalar(node, "a schema"), partial(parse_schema_or_name, typevars=False), context)


def _index(node: Node, context: Context) -> int:
    text = scalar(node, "the number of a registration").text
    if not re.fullmatch("[0-9]{1,9}", text):
        raise expected("the number of a registration, from 0", node)
    return int(text)


def anonymous_schema(node: Scalar, context: Context) -> FunctionSchema:
    """The schema of a function without a name, `(Tensor _0) -> Tensor _0`; its operator name is empty."""
    return parsed(node, _parse_anonymous, context, prefix=_PREFIX)


_PREFIX = "_"
"""Stands for the missing name while the parser is at work."""


def _parse_anonymous(text: str) -> FunctionSchema:
    return clone_with_name(parse_schema(text), OperatorName("", ""))


TEXT = Shape("text", _text, {"type": ["string", "number", "boolean"]})
SENTENCE = Shape("a sentence", _sentence, {"type": "string", "minLength": 1})
KEY = Shape("a dispatch key", _key, {"$ref": "#/$defs/key"})
ROW = Shape("a dispatch key", _row, {"enum": [key.name for key in RUNTIME_KEYS]})
NAMESPACE = Shape("a namespace", _namespace, {"type": "string", "pattern": f"^{_NAMESPACE.pattern}$"})
LIBRARY = Shape("a namespace or _", _library, NAMESPACE.schema)
OPERATOR = Shape("the name of an operator", _operator, {"type": "string", "minLength": 1})
DEFINITION = Shape("a schema", _definition, {"type": "string", "minLength": 1})
INDEX = Shape("the number of a registration", _index, {"type": "integer", "minimum": 0})
