"""The fields of an entry of native_functions.yaml, as a table that the common field reader checks.

Fields whose value is more than a text, a word or a flag are left as nodes; `entry` and `kernel_fields` read on in them.
"""

from __future__ import annotations

from typing import Any

from dispatchlab.codegen.read.problems import Rule
from dispatchlab.model.registration import SourceLocation
from dispatchlab.scenario.yaml_fields import (
    NODE,
    Context,
    Entry,
    Field,
    Shape,
    Table,
    Wrong,
    expected,
    scalar,
    text_node,
)
from dispatchlab.scenario.yaml_tree import Listing, Node, Scalar

_TRUE = frozenset(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE = frozenset(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))


def is_boolean(text: str) -> bool:
    """Return whether YAML 1.1 takes the plain text for a boolean."""
    return text in _TRUE or text in _FALSE


def _read_flag(node: Node, context: Context) -> bool:
    text = node.text if isinstance(node, Scalar) and node.plain else ""
    if not is_boolean(text):
        raise expected("True or False", node)
    return text in _TRUE


FLAG = Shape("True or False", _read_flag, {"type": "boolean"})


def _word(wanted: str) -> Shape[str]:
    """Return a text of one word that YAML does not read as a boolean."""

    def read(node: Node, context: Context) -> str:
        found = scalar(node, wanted)
        if not found.text.replace("_", "a").replace(".", "a").isalnum() or (found.plain and is_boolean(found.text)):
            raise expected(wanted, node)
        return found.text

    return Shape(wanted, read, {"type": "string"})


def texts(wanted: str, *, single: bool = False) -> Shape[tuple[Scalar, ...]]:
    """Return the texts of a list; with `single`, a text alone counts as a list of one."""

    def read(node: Node, context: Context) -> tuple[Scalar, ...]:
        if isinstance(node, Scalar) and single:
            return (node,)
        if not isinstance(node, Listing):
            raise expected(wanted, node)
        found: list[Scalar] = []
        for item in node.items:
            try:
                found.append(scalar(item, wanted))
            except Wrong as wrong:
                context.report(wrong)
        return tuple(found)

    return Shape(wanted, read, {"type": ["array", "string"]})


FUNC = Field("func", text_node("the schema of an operator"), "The schema of the operator.", required=True)
VARIANTS = Field("variants", text_node("function, method, or both"), "Whether it is a function, a method, or both.")
DISPATCH = Field("dispatch", NODE, "The kernel at each key.")
STRUCTURED = Field("structured", FLAG, "Whether meta and impl are written separately.")
STRUCTURED_DELEGATE = Field("structured_delegate", text_node("the name of an operator"), "The structured out variant.")
STRUCTURED_INHERITS = Field(
    "structured_inherits", text_node("the name of a class"), "What the meta class inherits from."
)
PRECOMPUTED = Field("precomputed", NODE, "Values that meta hands to impl.")
UFUNC_INNER_LOOP = Field("ufunc_inner_loop", NODE, "The inner loops of a pointwise kernel.")
AUTOGEN = Field("autogen", text_node("names of operators with commas between them"), "Variants that are generated.")
TAGS = Field("tags", texts("a tag, or a list of tags", single=True), "Names of tags.")
DEVICE_CHECK = Field("device_check", text_node("NoCheck or ExactSame"), "Whether tensors must be on one device.")
DEVICE_GUARD = Field("device_guard", FLAG, "Whether kernels run with the device of the tensors as the current one.")
CPP_NO_DEFAULT_ARGS = Field(
    "cpp_no_default_args", texts("a list of names of arguments"), "Arguments without their defaults in C++."
)
MANUAL_KERNEL_REGISTRATION = Field("manual_kernel_registration", FLAG, "Whether kernels are registered by hand.")
MANUAL_CPP_BINDING = Field("manual_cpp_binding", FLAG, "Whether the C++ function is written by hand.")
PYTHON_MODULE = Field("python_module", _word("the name of a module"), "The module of the Python function.")
CATEGORY_OVERRIDE = Field("category_override", _word("a category"), "How the operator is sorted in listings.")
CONST_REF = Field("use_const_ref_for_mutable_tensors", FLAG, "Whether tensors that are written are const in C++.")

TABLE = Table(
    "a native function",
    (
        *(FUNC, VARIANTS, DISPATCH, STRUCTURED, STRUCTURED_DELEGATE, STRUCTURED_INHERITS, PRECOMPUTED),
        *(UFUNC_INNER_LOOP, AUTOGEN, TAGS, DEVICE_CHECK, DEVICE_GUARD, CPP_NO_DEFAULT_ARGS),
        *(MANUAL_KERNEL_REGISTRATION, MANUAL_CPP_BINDING, PYTHON_MODULE, CATEGORY_OVERRIDE),
        CONST_REF,
    ),
)


class Fields(Entry):
    """The fields of one entry of the file, checked against the table; problems are added to the context.

    Attributes:
        context: the state of reading the file.
        func: the source location of the schema.
    """

    __slots__ = ("context", "func")

    context: Context
    func: Scalar

    def node_of(self, field: Field[Any]) -> Node:
        """Return the node of a field's value; the schema when the field is not there."""
        return super().node_of(field) if field in self else self.func

    def location(self, node: Node) -> SourceLocation:
        """Return the source location of a node."""
        return self.context.location(node)

    def report(self, rule: Rule, node: Node, message: str, hint: str = "", *, column: int | None = None) -> None:
        """Add a problem at a node, or at another column of its line."""
        self.context.report(Wrong(node, message, hint, column, rule))

    def report_field(self, rule: Rule, field: Field[Any], message: str, hint: str = "") -> None:
        """Add a problem at a field, or at the schema when the field is not there."""
        self.report(rule, self.node_of(field), message, hint)

    def text(self, node: Node, wanted: str) -> Scalar | None:
        """Return the node if there is text in it; else None, after adding the problem."""
        try:
            return scalar(node, wanted)
        except Wrong as wrong:
            self.context.report(wrong)
            return None


def entry_of(node: Node, context: Context) -> Fields | None:
    """Return the fields of one entry; None, with a problem, if it is not a mapping or has no `func`."""
    try:
        fields = Fields.read(node, TABLE, context)
    except Wrong as wrong:
        context.report(wrong)
        return None
    func = fields.get(FUNC)
    if func is None:
        return None
    fields.context, fields.func = context, func
    return fields
