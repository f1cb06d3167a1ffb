"""JSON for programs: values become objects field by field, here and nowhere else.

A dataclass or a named tuple is an object with its fields, a tuple a list, a dispatch key or a name its text. A value
that is shown in another way is registered by the module that shows it, with `as_json.register`; `fields_of` helps with
the rest of it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import singledispatch

from dispatchlab.escape import json_document
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName

JSON_VERSION = 5
"""The version of all JSON that commands print. Within a version a field is never renamed or dropped."""


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return an object as text that ends its line, with the version of its fields in front.

    Args:
        value: a dataclass or a mapping.
        indent: the indentation of fields on separate lines; None for one line.
    """
    with deep_nesting():
        converted = as_json(value)
        assert isinstance(converted, dict)
        return plain_json_text({"version": JSON_VERSION, **converted}, indent=indent)


@contextmanager
def deep_nesting() -> Iterator[None]:
    """Allow more frames: a call of a trace takes seven frames, and several hundred calls can be nested."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


_FRAMES = 8000
"""Half of them are frames of C as well, and as many fit into a stack of 8 MiB."""


def plain_json_text(value: object, *, indent: int | None = None) -> str:
    """Return the text of JSON in another format, which has its own version."""
    return json_document(value, indent=indent) + "\n"


@singledispatch
def as_json(value: object) -> object:
    """Return the value as `json.dumps` takes it."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return as_json(value._asdict())
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return fields_of(value)


def fields_of(value: object, *, without: Collection[str] = (), **other: object) -> dict[str, object]:
    """Return the fields of a dataclass.

    Args:
        value: the dataclass.
        without: fields to leave out.
        other: values that replace fields, or are added at the end.
    """
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} has no form in JSON: register one with as_json")
    names = [field.name for field in fields(value) if field.name not in without]
    found = {name: other.pop(name) if name in other else getattr(value, name) for name in names}
    return {name: as_json(each) for name, each in {**found, **other}.items()}


@as_json.register
def _(value: DispatchKey) -> str:
    return value.name


@as_json.register
def _(value: OperatorName) -> str:
    return str(value)


@as_json.register
def _(value: DispatchKeySet) -> dict[str, object]:
    # As bits, as upstream's `raw_repr()` has them, in digits as JSON's numbers are too small; and as runtime keys,
    # highest priority first.
    return {"raw": str(value.bits), "keys": [key.name for key in reversed(list(value))]}
