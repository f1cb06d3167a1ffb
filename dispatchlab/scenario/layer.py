"""The `made_by` of a library block: which call of `torch.library` registers what is inside."""

from __future__ import annotations

from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import LayerCall, LayerFunction
from dispatchlab.scenario.shapes import OPERATOR, TEXT, Context, Shape, Wrong, expected, list_of, word
from dispatchlab.scenario.tables import Entry, Field, Table
from dispatchlab.scenario.tree import Listing, Mapping, Node

# Note [Calls of torch.library]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `torch.library.register_fake` and its kin end in kernels and defs, which any engine can register, but on their way
# they have rules of their own: a fake before its def is refused, and so is a Meta kernel beside a composite one. So
# such a registration is a block of what it registers, for every engine, and says besides which call made it, for the
# running PyTorch, which makes that call again. What `custom_op` gives can be registered on further; upstream takes
# these back with the operator only, so they are parts of its block and no registrations of their own.

CALL = Field(
    "call",
    word("a function of torch.library", {str(each): each for each in LayerFunction}),
    "The function of torch.library that was called.",
    required=True,
)
OPERATOR_FIELD = Field("operator", OPERATOR, "The operator that it is about.", required=True)
ON = Field("on", list_of(TEXT, "a list of device types"), "Device types, or the class of a torch dispatch rule.")
DEBUG = Field("debug", TEXT, "Where it was called.")

PART_TABLE = Table("a part of a custom_op", (CALL, ON, DEBUG))


def _parts(node: Node, context: Context) -> tuple[Entry, ...]:
    if not isinstance(node, Listing):
        raise expected("a list of parts", node)
    return tuple(Entry.read(child, PART_TABLE, context) for child in node.items)


PARTS = Field(
    "parts",
    Shape("a list of parts", _parts, {"type": "array", "items": {"type": "object"}}),
    "What was registered on the operator that custom_op gives, in order.",
)
LAYER_TABLE = Table("a call of torch.library", (CALL, OPERATOR_FIELD, ON, PARTS))


def _made_by(node: Node, context: Context) -> LayerCall:
    if not isinstance(node, Mapping):
        raise expected("a call of torch.library", node, "a mapping with `call` and `operator`")
    entry = Entry.read(node, LAYER_TABLE, context)
    if not entry.is_right:
        return LayerCall(LayerFunction.DEFINE, OperatorName("", ""))
    function, operator = entry[CALL], entry[OPERATOR_FIELD]
    parts = tuple(
        LayerCall(part[CALL], operator, part.get(ON, ()), debug=part.get(DEBUG, "")) for part in entry.get(PARTS, ())
    )
    if parts and function is not LayerFunction.CUSTOM_OP:
        raise Wrong(entry.node_of(PARTS), f"only custom_op has parts, and this is {function}")
    return LayerCall(function, operator, entry.get(ON, ()), parts)


MADE_BY = Field(
    "made_by",
    Shape(
        "a call of torch.library",
        _made_by,
        {
            "type": "object",
            "properties": {
                field.name: {"description": field.doc, **field.shape.schema} for field in LAYER_TABLE.fields
            },
            "required": ["call", "operator"],
            "additionalProperties": False,
        },
    ),
    "The call of torch.library that registers all this; the running PyTorch makes it, other engines register what is "
    "inside.",
)
