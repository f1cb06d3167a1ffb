"""What packages register in Python, in a scenario file: a kind of registration, and the field `python` of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dispatchlab.errors import ErrorKind, ParseError
from dispatchlab.files.yaml_fields import (
    TEXT,
    Context,
    Entry,
    Field,
    Shape,
    Table,
    Wrong,
    at_error,
    did_you_mean,
    expected,
    scalar,
)
from dispatchlab.files.yaml_tree import Listing, Node, Scalar
from dispatchlab.model.schema_parser import parse_name

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonRegistration, WriteEffect


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

_CALL = Field("call", TEXT, "The function of PyTorch that was called to register it, or `assignment`.")


def _effect_of(node: Node, context: Context) -> WriteEffect:
    from dispatchlab.model.python_layer import WRITE_EFFECTS  # as above

    text = scalar(node, "refused, removed or used").text
    found = next((one for one in WRITE_EFFECTS if one == text), None)
    if found is None:
        raise expected("refused, removed or used", node, did_you_mean(text, WRITE_EFFECTS))
    return found


_EFFECT = Field(
    "effect",
    Shape("refused, removed or used", _effect_of, {"enum": ["refused", "removed", "used"]}),
    "What it did, where it registered nothing: `refused`, since there is such an entry, `removed`, since it took "
    "the entry out of the registry, or `used`, since its code may look the entry up or take it out.",
)

PYTHON_FIELDS = (_OPERATOR, _KEY, _FUNCTION, _SITE, _NEEDS, _CALL, _EFFECT)
"""The fields of a registration of Python besides its registry."""

PYTHON_REGISTRY = Field(
    "python",
    _NAME,
    "Registers Python code in this registry of Python, by the name that `dispatchlab dump` has for it.",
    required=True,
)

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
            return python_code(entry, _REGISTRY)
        except Wrong as wrong:
            context.report(wrong)
    return PythonRegistration("", "")  # every problem is reported already, and the scenario is not made


def python_code(entry: Entry, registry: Field[str], namespace: str = "") -> PythonRegistration:
    """What an entry without problems registers.

    Args:
        entry: the entry.
        registry: the field that names the registry.
        namespace: of an operator without one.

    Raises:
        Wrong: no operator can have that name.
    """
    from dispatchlab.model.python_layer import PythonRegistration  # costs start-up, and few have any

    operator = entry[_OPERATOR]
    if namespace and "::" not in operator:
        operator = f"{namespace}::{operator}"
    _check_operator(entry.node_of(_OPERATOR), operator, entry[registry])
    key, function, site, needs, call = (entry.get(field, "") for field in (_KEY, _FUNCTION, _SITE, _NEEDS, _CALL))
    effect: WriteEffect = entry.get(_EFFECT, "")
    return PythonRegistration(entry[registry], operator, key, function, site, needs, call=call, effect=effect)


def _check_operator(node: Node, operator: str, registry: str) -> None:
    """Refuse a name that no operator has: what is registered for it would meet nothing.

    What goes by any text, as torch.library has it, is not explored, and is kept as it was found.

    Raises:
        Wrong: with what to write instead.
    """
    from dispatchlab.model.python_layer import EVERY_OVERLOAD, FUNCTIONS, HIGHER_ORDER, REGISTRY_NAMED  # as above

    assert isinstance(node, Scalar)
    namespace, colons, name = operator.partition("::")
    if not colons or not namespace or not name:
        raise expected("the name of an operator with its namespace", node, "write namespace::name")
    if namespace in (FUNCTIONS, HIGHER_ORDER) or REGISTRY_NAMED[registry].rule is None:
        return
    named = operator.removesuffix(f".{EVERY_OVERLOAD}")
    try:
        parse_name(named)
    except ParseError as error:
        wrong = at_error(node, error, len(operator) - len(node.text))
        plain = named.removesuffix(".default")
        if error.kind is ErrorKind.ILLEGAL_OVERLOAD and plain != named:
            wrong.hint = f"write {plain}: the default overload has no name"
        raise wrong from None


PYTHON = Field(
    "python",
    Shape(
        "a list of registrations of Python",
        _read,
        {"type": "array", "items": _TABLE.schema},
    ),
    "What the packages register in Python beside the dispatch tables, as `dispatchlab record` found it. Of two with "
    "one registry, operator and key, the later one has taken the place of the other. Their numbers follow those of "
    "`registrations`.",
)


def python_fields(one: PythonRegistration, registry: str = "registry") -> Iterator[tuple[str, str]]:
    """The fields of a registration as they are written, those alone that say something."""
    named = ((registry, one.registry), *((field.name, getattr(one, field.name)) for field in PYTHON_FIELDS))
    return ((name, text) for name, text in named if text)
