"""Whose handlers are asked, and in which order? One argument for each type that has a handler.

From left to right, but a subclass before its superclasses. Source: torch/csrc/utils/python_arg_parser.cpp
(`append_overloaded_arg`); the rule is that of NEP 18.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dispatchlab.call.handlers import disabled

# Note [Where a new argument goes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A new type goes before the first one that it is a subclass of, and that is a scan with `issubclass`. When all types
# so far are of the metaclass `type`, a superclass of the new type is in its `__mro__`; a set of the types seen tells
# at once that none is, and the scan is left out. A list of 10,000 arguments costs one look into the set for each.


def collected(arguments: Iterable[object], protocol: str) -> list[Any]:
    """The arguments whose handlers are to be asked, in that order.

    Args:
        arguments: those that count, from left to right.
        protocol: the name of the handler, such as `__torch_function__`.
    """
    seen: set[type] = set()
    found: list[Any] = []
    types: list[type] = []
    plain = True
    last: type | None = None
    for argument in arguments:
        kind = type(argument)
        if kind is last or kind in seen:
            continue
        last = kind
        handler = getattr(kind, protocol, None)
        if handler is None or handler is disabled:
            seen.add(kind)
            continue
        at = len(found)
        if at:
            plain = plain and type(kind) is type
            # See Note [Where a new argument goes]
            if not plain or not seen.isdisjoint(kind.__mro__):
                for place, other in enumerate(types):
                    if issubclass(kind, other):
                        at = place
                        break
        else:
            plain = type(kind) is type
        seen.add(kind)
        found.insert(at, argument)
        types.insert(at, kind)
    return found
