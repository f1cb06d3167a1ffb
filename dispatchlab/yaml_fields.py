"""Field readers for YAML mappings: one table of fields checks a mapping and makes its JSON Schema.

A shape is read by a function from a node to a value that raises `Wrong`. Lists report each bad item and go on, so that
one run tells all problems.

`Entry.read` checks a mapping against its table and reports every problem; what it gives back holds the values of the
fields that were right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, cast, overload

from dispatchlab.errors import DispatchLabError, ParseError, nearest
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import SourceLocation
from dispatchlab.model.schema import FunctionSchema, clone_with_name
from dispatchlab.model.schema_parser import parse_name, parse_schema, parse_schema_or_name
from dispatchlab.yaml_tree import Listing, Mapping, Node, Problem, Scalar, quoted

T = TypeVar("T")
JsonSchema = MappingType[str, object]


@dataclass(slots=True)
class Context:
    """What reading one file carries along.

    Args:
        file: what source locations call it.
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

    def location(self, node: Node) -> SourceLocation:
        """The source location of a node."""
        return SourceLocation(self.file, node.line, node.column)

    def report(self, wrong: Wrong) -> None:
        """Keep a problem and go on."""
        where = SourceLocation(self.file, wrong.node.line, wrong.column or wrong.node.column)
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
    """The problem of text that did not parse, at the character where the trouble starts.

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
        Wrong: with the column inside the text.
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


D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """A field of a mapping.

    Args:
        name: how it is written.
        shape: what can stand in it.
        doc: what it means, for editors and people.
        required: whether it has to be there.
    """

    name: str
    shape: Shape[T]
    doc: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """The fields of a mapping; the first one of a registration names its kind.

    Args:
        title: what messages call such a mapping: `an impl`.
        fields: in the order in which they are written.
    """

    title: str
    fields: tuple[Field[Any], ...]

    @property
    def head(self) -> str:
        """The name of the first field."""
        return self.fields[0].name

    def field(self, name: str) -> Field[Any] | None:
        """The field with this name."""
        return next((field for field in self.fields if field.name == name), None)


class Entry:
    """A mapping that was checked against a table: its values and where they stand."""

    __slots__ = ("_nodes", "_values", "is_right", "node")

    def __init__(self, node: Mapping, nodes: dict[str, Node], values: dict[str, object], *, is_right: bool) -> None:
        self.node = node
        self.is_right = is_right
        self._nodes = nodes
        self._values = values

    @classmethod
    def read(cls, node: Node, table: Table, context: Context) -> Entry:
        """Check a mapping and read its fields; every problem is reported to the context.

        Raises:
            Wrong: it is no mapping.
        """
        if not isinstance(node, Mapping):
            raise expected(table.title, node, f"a mapping with {_and(table)}")
        before = len(context.problems)
        keys: dict[str, Node] = {}
        nodes: dict[str, Node] = {}
        values: dict[str, object] = {}
        meant: set[str] = set()
        for key, child in node.pairs:
            try:
                field = _field(key, table, keys, meant)
                keys[field.name], nodes[field.name] = key, child
                values[field.name] = _value(field, key, child, context)
            except Wrong as wrong:
                context.report(wrong)
        for field in table.fields:
            if field.required and field.name not in nodes and field.name not in meant:
                hint = field.doc[0].lower() + field.doc[1:].rstrip(".")
                context.report(Wrong(node, f"`{field.name}` is missing in {table.title}", f"that is: {hint}"))
        return cls(node, nodes, values, is_right=len(context.problems) == before)

    @overload
    def get(self, field: Field[T]) -> T | None: ...
    @overload
    def get(self, field: Field[T], default: D) -> T | D: ...
    def get(self, field: Field[T], default: object = None) -> object:
        """The value of a field; the default when it is not there or wrong."""
        return self._values.get(field.name, default)

    def __getitem__(self, field: Field[T]) -> T:
        """The value of a field that is there and right."""
        return cast("T", self._values[field.name])

    def __contains__(self, field: Field[Any]) -> bool:
        """Whether the field is there, right or wrong."""
        return field.name in self._nodes

    def node_of(self, field: Field[Any]) -> Node:
        """Where a field's value stands; the whole mapping when the field is not there."""
        return self._nodes.get(field.name, self.node)


def _field(key: Node, table: Table, keys: dict[str, Node], meant: set[str]) -> Field[Any]:
    if not isinstance(key, Scalar):
        raise expected("the name of a field", key)
    field = table.field(key.text)
    if field is None:
        names = [field.name for field in table.fields]
        meant.update(nearest(key.text, names))
        hint = did_you_mean(key.text, names) or f"the fields are {', '.join(names)}"
        raise Wrong(key, f"{quoted(key.text)} is no field of {table.title}", hint)
    if key.text in keys:
        raise Wrong(key, f"`{key.text}` is here twice, first in line {keys[key.text].line}", "keep one of them")
    return field


def _value(field: Field[T], key: Node, child: Node, context: Context) -> T:
    if isinstance(child, Scalar) and child.is_missing:
        raise Wrong(key, f"expected {field.shape.wanted} but found nothing after `{field.name}:`")
    return field.shape.read(child, context)


def _and(table: Table) -> str:
    names = [f"`{field.name}`" for field in table.fields if field.required]
    return " and ".join(names) or f"any of {', '.join(field.name for field in table.fields)}"
