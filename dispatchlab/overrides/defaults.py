"""Leave out arguments that equal their default, and fill them in again.

A handler that was written before an argument with a default was added does not see it until somebody uses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from dispatchlab.call.call_signature import MISSING, CallSignature
from dispatchlab.model.schema import FunctionSchema


@lru_cache(maxsize=4096)
def _signature(schema: FunctionSchema) -> CallSignature:
    return CallSignature(schema)


def without_defaults(schema: FunctionSchema, values: Sequence[object]) -> tuple[tuple[object, ...], dict[str, object]]:
    """Every argument of a call as the positional ones and those by name, without what equals its default.

    Of positional ones only the last are left out, for the others keep the positions; of keyword-only ones, each.

    Args:
        schema: the operator's.
        values: one for each argument.
    """
    positional, named = _signature(schema).as_python_call(values)
    return tuple(positional), named


def normalize(
    schema: FunctionSchema, args: Sequence[object], kwargs: Mapping[str, object] | None = None
) -> tuple[object, ...]:
    """Every argument of an incomplete call, in the order of the schema, defaults filled in.

    Args:
        schema: the operator's.
        args: positional arguments.
        kwargs: arguments by name.

    Raises:
        CallError: an argument without a default is missing, or there is one too many, or one of a wrong type.
    """
    signature = _signature(schema)
    count = signature.positional
    held: list[object] = [*args[:count], *[MISSING] * (len(schema.arguments) - min(count, len(args)))]
    return signature.bind(held, args[count:], kwargs or {})
