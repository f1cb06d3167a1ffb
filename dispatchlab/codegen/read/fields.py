"""Read the fields of one entry: text, booleans and lists out of YAML nodes."""

from __future__ import annotations

from dispatchlab.codegen.read.problems import Rule, YamlProblem
from dispatchlab.errors import did_you_mean
from dispatchlab.model.registration import SourceLocation
from dispatchlab.yaml_tree import Listing, Mapping, Node, Scalar, quoted

FIELDS = (
    *("func", "variants", "dispatch", "structured", "structured_delegate", "structured_inherits", "precomputed"),
    *("ufunc_inner_loop", "autogen", "tags", "device_check", "device_guard", "cpp_no_default_args"),
    *("manual_kernel_registration", "manual_cpp_binding", "python_module", "category_override"),
    "use_const_ref_for_mutable_tensors",
)
"""Every field that an entry can have."""

_TRUE = frozenset(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE = frozenset(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))


class Fields:
    """One entry of the file, and the list to which its problems go.

    Args:
        nodes: the fields by name.
        file: what source locations call the file.
        problems: where problems are added.
    """

    __slots__ = ("file", "nodes", "problems")

    def __init__(self, nodes: dict[str, Scalar | Listing | Mapping], file: str, problems: list[YamlProblem]) -> None:
        self.nodes, self.file, self.problems = nodes, file, problems

    def report(self, rule: Rule, node: Node, message: str, hint: str = "", *, column: int | None = None) -> None:
        """Add a problem at a node, or at another column of its line."""
        where = SourceLocation(self.file, node.line, node.column if column is None else column)
        self.problems.append(YamlProblem(rule, where, message, hint))

    def report_field(self, rule: Rule, field: str, message: str, hint: str = "") -> None:
        """Add a problem at a field, or at the schema when the field is not there."""
        self.report(rule, self.nodes.get(field, self.nodes["func"]), message, hint)

    def scalar(self, field: str, wanted: str) -> Scalar | None:
        """The text of a field; None when it is not there or is no text."""
        node = self.nodes.get(field)
        return None if node is None else self.checked_scalar(node, wanted, field)

    def checked_scalar(self, node: Node, wanted: str, what: str) -> Scalar | None:
        """The node if it is text."""
        if not isinstance(node, Scalar):
            found = "a list" if isinstance(node, Listing) else "a mapping"
            self.report(Rule.WRONG_VALUE, node, f"{what} is {found}, and should be {wanted}")
        elif node.is_missing:
            self.report(Rule.NO_VALUE, node, f"{what} has no value, and should be {wanted}", "leave it out for none")
        else:
            return node
        return None

    def text(self, field: str, wanted: str) -> str | None:
        """The text of a field, which must be one word."""
        node = self.scalar(field, wanted)
        if node is None:
            return None
        if not node.text.replace("_", "a").replace(".", "a").isalnum() or (node.plain and is_boolean(node.text)):
            self.report(Rule.WRONG_VALUE, node, f"{field} is {quoted(node.text)}, and should be {wanted}")
            return None
        return node.text

    def flag(self, field: str, *, default: bool = False) -> bool:
        """A boolean as YAML 1.1 writes it."""
        node = self.nodes.get(field)
        if node is None:
            return default
        if isinstance(node, Scalar) and node.plain and node.text in _TRUE:
            return True
        if isinstance(node, Scalar) and node.plain and node.text in _FALSE:
            return False
        shown = quoted(node.text) if isinstance(node, Scalar) else "no single word"
        self.report(Rule.WRONG_VALUE, node, f"{field} is {shown}, and should be True or False")
        return default

    def words(self, field: str, wanted: str) -> tuple[Scalar, ...]:
        """The texts of a list; a single text counts as a list of one."""
        node = self.nodes.get(field)
        if node is None:
            return ()
        if isinstance(node, Mapping):
            self.report(Rule.WRONG_VALUE, node, f"{field} is a mapping, and should be {wanted}")
            return ()
        items: tuple[Node, ...] = node.items if isinstance(node, Listing) else (node,)
        found = (self.checked_scalar(item, wanted, field) for item in items)
        return tuple(one for one in found if one is not None)


def is_boolean(text: str) -> bool:
    """Whether YAML 1.1 takes the plain text for a boolean."""
    return text in _TRUE or text in _FALSE


def entry_of(node: Node, file: str, problems: list[YamlProblem]) -> Fields | None:
    """The fields of one entry; None when it is no mapping or has no `func`."""
    fields = Fields({}, file, problems)
    if not isinstance(node, Mapping):
        fields.report(Rule.NOT_AN_ENTRY, node, "found no mapping where an entry should be", "start it with `- func:`")
        return None
    nodes = fields.nodes
    for key, value in node.pairs:
        if not isinstance(key, Scalar):
            fields.report(Rule.UNKNOWN_FIELD, key, "found a name of a field that is no text")
        elif key.text in nodes:
            first = nodes[key.text].line
            fields.report(Rule.REPEATED_FIELD, key, f"{key.text} was given before, on line {first}", "keep one of them")
        elif key.text not in _KNOWN:
            hint = did_you_mean(key.text, FIELDS).removeprefix("; ") or f"the fields are {', '.join(FIELDS)}"
            fields.report(Rule.UNKNOWN_FIELD, key, f"{quoted(key.text)} is no field of a native function", hint)
        else:
            nodes[key.text] = value
    if "func" not in nodes:
        fields.report(Rule.NO_FUNC, node, "this entry has no func, the schema of the operator", "add `func: ...`")
        return None
    return fields


_KNOWN = frozenset(FIELDS)
