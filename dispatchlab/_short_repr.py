"""Short reprs of frozen values: the fields that differ from their defaults, as code that makes an equal value."""

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def short_repr(value: DataclassInstance) -> str:
    """Return the code of a value, such as `Impl(parse_name('test::foo'), DispatchKey.CPU, debug='fn')`."""
    parts: list[str] = []
    by_name = False
    for field in fields(value):
        held = getattr(value, field.name)
        if not field.compare or (field.default is not MISSING and held == field.default):
            by_name = True
            continue
        parts.append(f"{field.name}={held!r}" if by_name or field.kw_only else repr(held))
    return f"{type(value).__name__}({', '.join(parts)})"


def member_repr(member: Enum) -> str:
    """`DispatchKey.CPU`."""
    return f"{type(member).__name__}.{member.name}"


class CodeEnum(Enum):
    """An enumeration; the `repr` of a member is code."""

    __repr__ = member_repr


class WordEnum(StrEnum):
    """The words of a result or an option; its `repr` is code."""

    __repr__ = member_repr
