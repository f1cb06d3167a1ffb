"""`precomputed`: what meta hands to impl, one line for each argument that it replaces.

    precomputed:
    - kernel_size -> int poolSizeT, int poolSizeH, int poolSizeW
    - int numBatch, int numPlanes          # the last line may add values beside the arguments

Source: torchgen/model.py (`Precompute`).
"""

from __future__ import annotations

import re

from dispatchlab.codegen.fields import Fields
from dispatchlab.codegen.native_function import Precompute, Precomputed
from dispatchlab.codegen.problems import Rule
from dispatchlab.codegen.schema_parts import SchemaParts
from dispatchlab.errors import ParseError, did_you_mean
from dispatchlab.model.schema_parser import parse_inferred
from dispatchlab.model.schema_types import SimpleType
from dispatchlab.scenario.problems import quoted
from dispatchlab.scenario.tree import Listing, Scalar

_VALUE = re.compile(r"(\S+) ([^\W\d]\w*)", re.ASCII)
_FORM = "write `argument -> type name, type name`, and on the last line alone `type name`"


def read_precomputed(fields: Fields, parts: SchemaParts, *, structured: bool) -> Precompute | None:
    """What `precomputed` says; None when it is not there."""
    node = fields.nodes.get("precomputed")
    if node is None:
        return None
    if not structured:
        fields.report(
            Rule.PRECOMPUTED_UNSTRUCTURED,
            node,
            "precomputed hands values from meta to impl, which only structured functions have",
            "add `structured: True`",
        )
    if not isinstance(node, Listing) or not node.items:
        fields.report(Rule.WRONG_VALUE, node, "precomputed should be a list of replacements", _FORM)
        return None
    known = {argument.name for argument in parts.inputs}
    replace: dict[str, tuple[Precomputed, ...]] = {}
    add: tuple[Precomputed, ...] = ()
    for at, item in enumerate(node.items):
        line = fields.checked_scalar(item, "a replacement", "a line of precomputed")
        if line is None:
            continue
        argument, arrow, values = line.text.rpartition(" -> ")
        if not arrow and at < len(node.items) - 1:
            fields.report(
                Rule.PRECOMPUTED_FORM, line, f"{quoted(line.text)} replaces nothing and is not the last line", _FORM
            )
        elif not arrow:
            add = _values(fields, line, values)
        elif argument not in known:
            hint = did_you_mean(argument, known).removeprefix("; ")
            fields.report(
                Rule.PRECOMPUTED_ARGUMENT, line, f"{quoted(argument)} is no argument of the function", hint or _FORM
            )
        elif argument in replace:
            fields.report(Rule.PRECOMPUTED_ARGUMENT, line, f"{argument} was replaced before", "keep one of the lines")
        else:
            replace[argument] = _values(fields, line, values)
    return Precompute(tuple(replace.items()), add)


def _values(fields: Fields, line: Scalar, text: str) -> tuple[Precomputed, ...]:
    found = []
    for part in text.split(","):
        match = _VALUE.fullmatch(part.strip())
        value = None if match is None else _value(match[1], match[2])
        if value is None:
            fields.report(Rule.PRECOMPUTED_FORM, line, f"{quoted(part.strip())} is no type and name", _FORM)
        elif value.name == value.name.upper():
            fields.report(
                Rule.PRECOMPUTED_UPPERCASE,
                line,
                f"{value.name} is written in capitals, as the names that generated code gives to types are",
                "use a small letter somewhere",
            )
        else:
            found.append(value)
    return tuple(found)


def _value(type_: str, name: str) -> Precomputed | None:
    # NB: a DimVector is what C++ keeps an int[] in; no schema has it
    if type_ == "DimVector":
        return Precomputed(SimpleType(type_), name)
    try:
        return Precomputed(parse_inferred(f"({type_} {name}) -> ()").arguments[0].type, name)
    except ParseError:
        return None
