"""Do an implementation and its dispatcher take the same arguments?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from dispatchlab.overrides.errors import SignatureMismatchError, name_of_function


def verify_matching_signatures(implementation: Callable[..., Any], dispatcher: Callable[..., Any]) -> None:
    """Check that a dispatcher takes exactly what its implementation takes, with None for every default.

    Raises:
        SignatureMismatchError: it does not; the message shows both signatures and the first difference.
    """
    wanted, found = inspect.signature(implementation), inspect.signature(dispatcher)
    difference = _difference(wanted, found)
    if difference:
        message = (
            f"the dispatcher of {name_of_function(implementation)} does not take what the implementation takes: "
            f"{difference}\n  implementation: {wanted}\n  dispatcher:     {found}"
        )
        raise SignatureMismatchError(message)


def _difference(wanted: inspect.Signature, found: inspect.Signature) -> str:
    ours, theirs = [*wanted.parameters.values()], [*found.parameters.values()]
    for one, other in zip(ours, theirs, strict=False):
        if one.name != other.name:
            return f"it has {other.name!r} where {one.name!r} stands"
        if one.kind != other.kind:
            return f"{one.name!r} is {other.kind.description} there and {one.kind.description} here"
        if (one.default is one.empty) != (other.default is other.empty):
            which = "no default" if other.default is other.empty else "a default"
            return f"{one.name!r} has {which} there"
        if other.default is not other.empty and other.default is not None:
            return f"the default of {one.name!r} has to be None there, and is {other.default!r}"
    if len(ours) != len(theirs):
        missing = len(ours) > len(theirs)
        names = [one.name for one in (ours if missing else theirs)[min(len(ours), len(theirs)) :]]
        return f"{', '.join(map(repr, names))} {'missing' if missing else 'too many'}"
    return ""
