"""What packages register in Python: the field `python` of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dispatchlab.scenario.yaml_fields import (
    TEXT,
    Context,
    Entry,
    Field,
    Shape,
    Table,
    Wrong,
    did_you_mean,
    expected,
    scalar,
)
from dispatchlab.scenario.yaml_tree import Listing, Node

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonRegistration


def _registry_name(node: Node, context: Context) -> str:
    from dispatchlab.model.python_layer import REGISTRY_NAMED  # costs start-up, and few have any

    text = scalar(node, "a registry of Python").text
    if text not in REGISTRY_NAMED:
        raise expected("a registry of Python", node, did_you_mean(text, REGISTRY_NAMED))
    return text


_NAME = Shape("a registry of Python", _registry_name, {"type": "string", "minLength": 1})
_REGISTRY = Field("registry", _NAME, "The registry, by the name that `dispatchlab dump` has for it.", required=True)
_OPERATOR = Field(
    "operator", TEXT, "The operator, with its namespace; the default overload without a name.", required=True
)
_KEY = Field("key", TEXT, "What it is kept by besides: a dispatch key, a mode, a table, a device.")
_FUNCTION = Field("function", TEXT, "The function, as module:name.")
_SITE = Field("site", TEXT, "The line that registered it.")
_NEEDS = Field("needs", TEXT, "The module of PyTorch that has to be imported for it.")

PYTHON_FIELDS = (_OPERATOR, _KEY, _FUNCTION, _SITE, _NEEDS)
"""The fields of a registration of Python besides its registry."""

_TABLE = Table("a registration of Python", (_REGISTRY, *PYTHON_FIELDS))


def _read(node: Node, context: Context) -> tuple[PythonRegistration, ...]:
    if not isinstance(node, Listing) or not node.items:
        raise expected("a list of registrations of Python", node)
    return tuple(_registration(child, context) for child in node.items)


def _registration(node: Node, context: Context) -> PythonRegistration:
    from dispatchlab.model.python_layer import PythonRegistration  # costs start-up, and few have any

    entry = Entry.read(node, _TABLE, context)
    if entry.is_right:
        try:
            return _python_code(entry)
        except Wrong as wrong:
            context.report(wrong)
    return PythonRegistration("", "")  # every problem is reported already, and the scenario is not made


def _python_code(entry: Entry) -> PythonRegistration:
    """Return what an entry without problems registers.

    Raises:
        Wrong: no operator can have that name.
    """
    from dispatchlab.model.python_layer import PythonRegistration  # costs start-up, and few have any

    operator = entry[_OPERATOR]
    _check_operator(entry.node_of(_OPERATOR), operator)
    key, function, site, needs = (entry.get(field, "") for field in (_KEY, _FUNCTION, _SITE, _NEEDS))
    return PythonRegistration(entry[_REGISTRY], operator, key, function, site, needs)


def _check_operator(node: Node, operator: str) -> None:
    """Refuse a name without a namespace.

    Raises:
        Wrong: with what to write instead.
    """
    namespace, colons, name = operator.partition("::")
    if not colons or not namespace or not name:
        raise expected("the name of an operator with its namespace", node, "write namespace::name")


PYTHON = Field(
    "python",
    Shape(
        "a list of registrations of Python",
        _read,
        {"type": "array", "items": _TABLE.schema},
    ),
    "What the packages register in Python beside the dispatch tables, as `dispatchlab record` found it. Of two with "
    "one registry, operator and key, the later one has taken the place of the other.",
)


def python_fields(one: PythonRegistration) -> Iterator[tuple[str, str]]:
    """The fields of a registration as they are written, those alone that say something."""
    named = (("registry", one.registry), *((field.name, getattr(one, field.name)) for field in PYTHON_FIELDS))
    return ((name, text) for name, text in named if text)
