"""The tables of all fields of scenario files in docs/scenario_format.md, made from the JSON Schema."""

from __future__ import annotations

import json
from typing import Any

from dispatchlab.scenario.load import json_schema


def scenario_fields() -> str:
    """Tables of all fields of scenario files, made from the JSON Schema."""
    schema = json.loads(json.dumps(json_schema()))
    kinds = schema["$defs"]
    parts = ["### The file\n\n", _fields_table(schema)]
    for each in kinds["registration"]["oneOf"]:
        name = each["$ref"].rpartition("/")[2]
        title = kinds[name]["title"]
        parts += [f"\n### {title[0].upper()}{title[1:]}\n\n", _fields_table(kinds[name])]
        for field, shape in kinds[name]["properties"].items():
            if "properties" in shape:
                parts += [f"\n#### `{field}` of {title}\n\n", _fields_table(shape)]
    return "".join(parts)


def _fields_table(shape: dict[str, Any]) -> str:
    rows = ["| field | is | meaning |\n|---|---|---|\n"]
    for name, field in shape["properties"].items():
        required = ", required" if name in shape.get("required", ()) else ""
        meaning = field.get("description", "").replace("|", "\\|")
        rows.append(f"| `{name}` | {_kind(field)}{required} | {meaning} |\n")
    return "".join(rows)


_FEW = 15


def _several(kind: str) -> str:
    """The plural of a kind."""
    plurals = {
        "text": "texts",
        "a [dispatch key](concepts.md#dispatch-keys)": "[dispatch keys](concepts.md#dispatch-keys)",
    }
    plurals["a def, an impl or a fallback"] = "defs, impls and fallbacks"
    if kind.startswith("a list of "):
        return f"lists of {kind.removeprefix('a list of ')}"
    return plurals.get(kind) or f"{kind.removeprefix('a ')}s"


def _kind(field: dict[str, Any]) -> str:
    """What stands in a field, in words."""
    match field:
        case {"$ref": str(where)} if where.endswith("key"):
            return "a [dispatch key](concepts.md#dispatch-keys)"
        case {"$ref": str(where)} if where.endswith("nested"):
            return "a def, an impl or a fallback"
        case {"$ref": _}:
            return "a registration"
        case {"enum": [*values]} if len(values) <= _FEW:
            return " \\| ".join(f"`{value}`" for value in values)
        case {"enum": _}:
            return "a [dispatch key](concepts.md#dispatch-keys)"
        case {"anyOf": [*several]}:
            return ", or ".join(dict.fromkeys(_kind(one) for one in several))
        case {"type": "array", "items": items}:
            return f"a list of {_several(_kind(items))}"
        case {"type": "object"}:
            return "a mapping"
        case {"type": "integer"}:
            return "a number"
        case {"type": "boolean"}:
            return "`true` \\| `false`"
        case _:
            return "text"
