"""Tables of fields: what a mapping may hold, checked here and turned into the JSON Schema elsewhere.

`Entry.read` checks a mapping against its table and reports every problem; what it gives back holds the values of the
fields that were right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, overload

from dispatchlab.errors import nearest
from dispatchlab.scenario.problems import quoted
from dispatchlab.scenario.shapes import Context, Shape, Wrong, did_you_mean, expected
from dispatchlab.scenario.tree import Mapping, Node, Scalar

T = TypeVar("T")
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
