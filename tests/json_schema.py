"""JSON Schema, as far as the schemas of SARIF and of commands need it; a keyword that is not known is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

_IGNORED = frozenset(("$schema", "$defs", "id", "title", "description", "default", "definitions"))
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


def errors(value: object, schema: Mapping[str, Any]) -> list[str]:
    """What is wrong with a value, each with its path; nothing when it is valid."""
    return list(_errors(value, schema, schema, "$"))


def _errors(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: str) -> Iterator[str]:
    if "$ref" in schema:
        yield from _errors(value, _resolved(schema["$ref"], root), root, path)
        return
    for keyword, wanted in schema.items():
        match keyword:
            case "type":
                types = [wanted] if isinstance(wanted, str) else wanted
                is_boolean = isinstance(value, bool) and "boolean" not in types
                if not any(isinstance(value, _TYPES[each]) for each in types) or is_boolean:
                    yield f"{path}: expected {wanted} but found {value!r}"
                    return
            case "enum" if value not in wanted:
                yield f"{path}: {value!r} is none of {wanted}"
            case "anyOf" if not any(not list(_errors(value, one, root, path)) for one in wanted):
                yield f"{path}: {value!r} is nothing of what is allowed"
            case "oneOf" if sum(not list(_errors(value, one, root, path)) for one in wanted) != 1:
                yield f"{path}: {value!r} is not exactly one of what is allowed"
            case "pattern" if isinstance(value, str) and not re.search(wanted, value):
                yield f"{path}: {value!r} does not match {wanted}"
            case "format" if isinstance(value, str):
                yield from _of_format(value, wanted, path)
            case "minimum" if isinstance(value, int | float) and value < wanted:
                yield f"{path}: {value} is less than {wanted}"
            case "maximum" if isinstance(value, int | float) and value > wanted:
                yield f"{path}: {value} is more than {wanted}"
            case "required" | "properties" | "additionalProperties" if not isinstance(value, dict):
                pass  # which is for objects
            case "items" if not isinstance(value, list):
                pass
            case "required":
                yield from (f"{path}: {name} is missing" for name in wanted if name not in value)
            case "properties":
                for name, one in wanted.items():
                    if name in value:
                        yield from _errors(value[name], one, root, f"{path}.{name}")
            case "additionalProperties":
                for name in value.keys() - schema.get("properties", {}).keys():
                    if wanted is False:
                        yield f"{path}: {name} is not allowed"
                    elif isinstance(wanted, dict):
                        yield from _errors(value[name], wanted, root, f"{path}.{name}")
            case "items":
                for at, each in enumerate(value):
                    yield from _errors(each, wanted, root, f"{path}[{at}]")
            case "minItems" if len(value) < wanted:
                yield f"{path}: expected {wanted} items or more"
            case "uniqueItems" if wanted and any(value.index(one) != at for at, one in enumerate(value)):
                yield f"{path}: an item is there twice"
            case "enum" | "anyOf" | "oneOf" | "pattern" | "format" | "minimum" | "maximum" | "minItems" | "uniqueItems":
                pass
            case _:
                if keyword not in _IGNORED:
                    raise NotImplementedError(f"the keyword {keyword} at {path}")


def _resolved(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    assert isinstance(found, dict)
    return found


def _of_format(value: str, wanted: str, path: str) -> Iterator[str]:
    match wanted:
        case "uri":
            is_good = bool(urlsplit(value).scheme) and " " not in value
        case "uri-reference":
            is_good = not re.search(r"[\s\\\"<>^`{|}]|%(?![0-9A-Fa-f]{2})", value)
        case "date-time":
            is_good = bool(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", value))
        case _:
            raise NotImplementedError(f"the format {wanted} at {path}")
    if not is_good:
        yield f"{path}: {value!r} is no {wanted}"
