"""Field readers for YAML: a table of fields checks a mapping and makes its JSON Schema.

A shape is read by a function from a node to a value that raises `Wrong`. Lists report each bad item and go on, so that
one run reports all problems.

`Entry.read` checks a mapping against its table and reports every problem; its result has the values of the
fields that were right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar, cast, overload

from dispatchlab._short_repr import WordEnum
from dispatchlab.errors import DispatchLabError, ParseError, nearest
from dispatchlab.model.registration import SourceLocation
from dispatchlab.scenario.yaml_tree import (
    MOST_PROBLEMS,
    Listing,
    Mapping,
    Node,
    Problem,
    Scalar,
    YamlError,
    in_order,
    quoted,
)

T = TypeVar("T")
JsonSchema = MappingType[str, object]


@dataclass(slots=True)
class Context:
    """The state of reading one file.

    Args:
        file: its name in source locations.
        find: imports the function of a reference; None if imports are not allowed.
        functions: functions by reference that need no import; None for an unknown function.
        problems: the problems so far.
        parsed: the results of parsed texts, by parser and text.
        classes: custom classes that schemas may name besides those of PyTorch.
    """

    file: str
    find: Callable[[str], Any] | None = None
    functions: MappingType[str, Callable[..., object] | None] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    parsed: dict[tuple[object, str], object] = field(default_factory=dict)
    classes: frozenset[str] = frozenset()

    def location(self, node: Node) -> SourceLocation:
        """Return the source location of a node."""
        return SourceLocation(self.file, node.line, node.column)

    def report(self, wrong: Wrong) -> None:
        """Keep a problem and go on.

        Raises:
            YamlError: there are so many problems that reading on is of no use.
        """
        where = SourceLocation(self.file, wrong.node.line, wrong.column or wrong.node.column)
        self.problems.append(Problem(where, wrong.message, wrong.hint, wrong.rule))
        if len(self.problems) >= MOST_PROBLEMS:
            raise YamlError(in_order(self.problems))


class FieldRule(WordEnum):
    """The rules that every table of fields has; a format may have more."""

    NOT_A_MAPPING = "not_a_mapping"
    UNKNOWN_FIELD = "unknown_field"
    REPEATED_FIELD = "repeated_field"
    MISSING_FIELD = "missing_field"
    NO_VALUE = "no_value"
    WRONG_VALUE = "wrong_value"


class Wrong(DispatchLabError):
    """A node has an unexpected value; the reader of the file makes a `Problem` of this error."""

    node: Node
    message: str
    hint: str = ""
    column: int | None = None
    rule: str = FieldRule.WRONG_VALUE

    template = "{message}"


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """The possible content of a field.

    Args:
        wanted: the expectation in messages, such as `a dispatch key`.
        read: the value of a node; raises `Wrong`.
        schema: the JSON Schema of it.
    """

    wanted: str
    read: Callable[[Node, Context], T]
    schema: JsonSchema


def found(node: Node) -> str:
    """Return the kind of a node, for "expected X but found Y"."""
    match node:
        case Scalar():
            return "nothing" if node.is_missing else quoted(node.text)
        case Listing():
            return "a list"
        case Mapping():
            return "a mapping"


def expected(wanted: str, node: Node, hint: str = "") -> Wrong:
    """Return the problem of a node that is not `wanted`."""
    missing = isinstance(node, Scalar) and node.is_missing
    rule = FieldRule.NO_VALUE if missing else FieldRule.WRONG_VALUE
    return Wrong(node, f"expected {wanted} but found {found(node)}", hint, rule=rule)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean X?`, or empty text if no name is similar."""
    near = nearest(word, known)
    return f"did you mean {near[0]}?" if near else ""


def scalar(node: Node, wanted: str) -> Scalar:
    """Return the node, when there is text in it."""
    if not isinstance(node, Scalar) or node.is_missing:
        raise expected(wanted, node)
    return node


def parsed(node: Scalar, parse: Callable[[str], T], context: Context, *, prefix: str = "") -> T:
    """Return the parsed text of the node with `prefix` in front; equal texts of a file are parsed once.

    Raises:
        Wrong: with the column inside the text.
    """
    key = (parse, prefix + node.text)
    value = context.parsed.get(key)
    if value is None:
        try:
            value = context.parsed[key] = parse(prefix + node.text)
        except ParseError as error:
            at = min(max(0, error.at - len(prefix)), len(node.text))
            sentence = f"{error.sentence} in {quoted(node.text)}"
            raise Wrong(node, sentence, column=node.column_of(at)) from None
    return value  # type: ignore[return-value]  # the key has the function that made it


def one_of(wanted: str, values: MappingType[str, T], *, schema: JsonSchema | None = None) -> Shape[T]:
    """Return the shape of a few texts, each with its value.

    Args:
        wanted: its name in messages.
        values: the texts and their values.
        schema: its JSON Schema; default: the texts.
    """

    def read(node: Node, context: Context) -> T:
        text = scalar(node, wanted).text
        if text not in values:
            raise expected(wanted, node, did_you_mean(text, values) or f"the values are {', '.join(values)}")
        return values[text]

    return Shape(wanted, read, schema or {"enum": list(values)})


def list_of(item: Shape[T], wanted: str, *, empty: bool = False) -> Shape[tuple[T, ...]]:
    """Return the shape of a list whose items have one shape.

    Args:
        item: the shape of each item.
        wanted: the name of the list in messages.
        empty: whether it may be empty.
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
                if value in seen:
                    raise Wrong(child, f"{found(child)} appears twice, first on line {seen[value].line}")
                seen[value] = child
                values.append(value)
            except Wrong as wrong:
                context.report(wrong)
        return tuple(values)

    bounds = ({} if empty else {"minItems": 1}) | {"uniqueItems": True}
    return Shape(wanted, read, {"type": "array", "items": item.schema, **bounds})


TEXT = Shape("text", lambda node, context: scalar(node, "text").text, {"type": ["string", "number", "boolean"]})
"""Any text."""

NODE: Shape[Node] = Shape("a value", lambda node, context: node, {})
"""Anything; what asks for the value reads it."""


def text_node(wanted: str) -> Shape[Scalar]:
    """Return a text with its source location, for a reader of its content."""
    return Shape(wanted, lambda node, context: scalar(node, wanted), {"type": ["string", "number", "boolean"]})


D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """A field of a mapping.

    Args:
        name: how it is written.
        shape: the allowed values.
        doc: its meaning, for editors and people.
        required: whether it is required.
    """

    name: str
    shape: Shape[T]
    doc: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """The fields of a mapping; the first one of a registration names its kind.

    Args:
        title: the name of such a mapping in messages: `an impl`.
        fields: in the order in which they are written.
    """

    title: str
    fields: tuple[Field[Any], ...]
    _by_name: MappingType[str, Field[Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {field.name: field for field in self.fields})

    @property
    def head(self) -> str:
        """The name of the first field."""
        return self.fields[0].name

    @property
    def schema(self) -> dict[str, object]:
        """The JSON schema of such a mapping."""
        return {
            "type": "object",
            "properties": {each.name: {"description": each.doc, **each.shape.schema} for each in self.fields},
            "required": [each.name for each in self.fields if each.required],
            "additionalProperties": False,
        }

    def field(self, name: str) -> Field[Any] | None:
        """Return the field with this name."""
        return self._by_name.get(name)


class Entry:
    """A mapping that was checked against a table: its values and their source locations."""

    __slots__ = ("_nodes", "_values", "is_right", "node")

    def __init__(self, node: Mapping, nodes: dict[str, Node], values: dict[str, object], *, is_right: bool) -> None:
        self.node = node
        self.is_right = is_right
        self._nodes = nodes
        self._values = values

    @classmethod
    def read(cls, node: Node, table: Table, context: Context) -> Self:
        """Check a mapping and read its fields; every problem is reported to the context.

        Raises:
            Wrong: it is not a mapping.
        """
        if not isinstance(node, Mapping):
            needed = " and ".join(f"`{field.name}`" for field in table.fields if field.required)
            needed = needed or f"any of {', '.join(field.name for field in table.fields)}"
            wrong = expected(table.title, node, f"write a mapping with {needed}")
            wrong.rule = FieldRule.NOT_A_MAPPING
            raise wrong
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
                message = f"`{field.name}` is missing in {table.title}"
                context.report(Wrong(node, message, f"that is: {hint}", rule=FieldRule.MISSING_FIELD))
        return cls(node, nodes, values, is_right=len(context.problems) == before)

    @overload
    def get(self, field: Field[T]) -> T | None: ...
    @overload
    def get(self, field: Field[T], default: D) -> T | D: ...
    def get(self, field: Field[T], default: object = None) -> object:
        """Return the value of a field; the default when it is not there or wrong."""
        return self._values.get(field.name, default)

    def __getitem__(self, field: Field[T]) -> T:
        """The value of a field that is there and right."""
        return cast("T", self._values[field.name])

    def __contains__(self, field: Field[Any]) -> bool:
        """Return whether the field is there, right or wrong."""
        return field.name in self._nodes

    def node_of(self, field: Field[Any]) -> Node:
        """Return the node of a field's value; the whole mapping when the field is not there."""
        return self._nodes.get(field.name, self.node)


def _field(key: Node, table: Table, keys: dict[str, Node], meant: set[str]) -> Field[Any]:
    if not isinstance(key, Scalar):
        raise Wrong(key, f"expected the name of a field but found {found(key)}", rule=FieldRule.UNKNOWN_FIELD)
    field = table.field(key.text)
    if field is None:
        names = [field.name for field in table.fields]
        meant.update(nearest(key.text, names))
        hint = did_you_mean(key.text, names) or f"the fields are {', '.join(names)}"
        message = f"{quoted(key.text)} is not a field of {table.title}"
        raise Wrong(key, message, hint, rule=FieldRule.UNKNOWN_FIELD)
    if key.text in keys:
        message = f"`{key.text}` appears twice, first on line {keys[key.text].line}"
        raise Wrong(key, message, "keep one of them", rule=FieldRule.REPEATED_FIELD)
    return field


def _value(field: Field[T], key: Node, child: Node, context: Context) -> T:
    if isinstance(child, Scalar) and child.is_missing:
        message = f"expected {field.shape.wanted} but found nothing after `{field.name}:`"
        raise Wrong(key, message, rule=FieldRule.NO_VALUE)
    return field.shape.read(child, context)
