"""The field `python` of a scenario file: what the packages register in Python, which no engine explores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dispatchlab.yaml_fields import TEXT, Context, Entry, Field, Shape, Table, did_you_mean, expected
from dispatchlab.yaml_tree import Listing, Node

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonRegistration

_REGISTRY = Field("registry", TEXT, "The registry, by the name that `dispatchlab dump` has for it.", required=True)
_OPERATOR = Field("operator", TEXT, "The operator, with its namespace.", required=True)
_KEY = Field("key", TEXT, "What it is kept by besides: a dispatch key, a mode, a table, a device.")
_FUNCTION = Field("function", TEXT, "The function, as module:name.")
_SITE = Field("site", TEXT, "The line that registered it.")
_NEEDS = Field("needs", TEXT, "The module of PyTorch that has to be imported for it.")

_TABLE = Table("a registration of Python", (_REGISTRY, _OPERATOR, _KEY, _FUNCTION, _SITE, _NEEDS))


def _read(node: Node, context: Context) -> tuple[PythonRegistration, ...]:
    if not isinstance(node, Listing) or not node.items:
        raise expected("a list of registrations of Python", node)
    return tuple(_registration(child, context) for child in node.items)


def _registration(node: Node, context: Context) -> PythonRegistration:
    from dispatchlab.model.python_layer import REGISTRY_NAMED, PythonRegistration  # costs start-up, and few have any

    entry = Entry.read(node, _TABLE, context)
    if not entry.is_right:  # every problem is reported already, and the scenario is not made
        return PythonRegistration("", "")
    if entry[_REGISTRY] not in REGISTRY_NAMED:
        hint = did_you_mean(entry[_REGISTRY], REGISTRY_NAMED)
        context.report(expected("a registry of Python", entry.node_of(_REGISTRY), hint))
    registry, operator = entry[_REGISTRY], entry[_OPERATOR]
    key, function, site, needs = (entry.get(field, "") for field in (_KEY, _FUNCTION, _SITE, _NEEDS))
    return PythonRegistration(registry, operator, key, function, site, needs)


PYTHON = Field(
    "python",
    Shape(
        "a list of registrations of Python",
        _read,
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {field.name: {**field.shape.schema, "description": field.doc} for field in _TABLE.fields},
                "required": [field.name for field in _TABLE.fields if field.required],
                "additionalProperties": False,
            },
        },
    ),
    "What the packages register in Python beside the dispatch tables, as `dispatchlab record` found it. Of two with "
    "one registry, operator and key, the later one has taken the place of the other. No engine explores it, and no "
    "verdict is about it.",
)


def python_fields(registrations: Iterable[PythonRegistration]) -> Iterator[Iterator[tuple[str, str]]]:
    """The fields of each registration as they are written, those alone that say something."""
    for one in registrations:
        named = (
            ("registry", one.registry),
            ("operator", one.operator),
            ("key", one.key),
            ("function", one.function),
            ("site", one.site),
            ("needs", one.needs),
        )
        yield ((name, text) for name, text in named if text)
