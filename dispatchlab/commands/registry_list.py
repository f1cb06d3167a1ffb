"""The listings of `dispatchlab dump`: the operators of a registry that are like this, or how many kernels each key has.

As JSON, one object on one line; a field is never renamed or dropped within a version:

    version           1
    source, torch     where the registry comes from, and the PyTorch that it is of
    operators         [{name, schema, dangling, kernels: [{key, debug, inferred, flags, active}]}]; the kernels at
                      the keys that were asked for, all of them when none were
    counts            [{key, operators, inactive, fallthrough, fallback}], with --counts in place of `operators`
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from dispatchlab.commands.output import chosen_format, note, out
from dispatchlab.commands.sources import UnknownOperatorError
from dispatchlab.model.keys import DispatchKey, parse_key
from dispatchlab.registry.find import find, find_names, key_counts

if TYPE_CHECKING:
    from dispatchlab.commands.registry_dump import RegistryDumpRequest
    from dispatchlab.registry.find import KeyCount
    from dispatchlab.registry.model import Recorded, RecordedKernel, RecordedOperator

_VERSION = 1


def list_registry(request: RegistryDumpRequest, recorded: Recorded) -> int:
    """List the operators that are asked for, or count their kernels.

    Returns:
        The exit code, 0; that nothing was found is told.

    Raises:
        UnknownKeyError: a key is none.
        UnknownOperatorError: no operator has this name, or matches this glob.
    """
    asked, keys = request.operator or "*", tuple(map(parse_key, request.keys))
    if asked != "*" and not find_names(recorded.names, asked):
        raise UnknownOperatorError(asked, tuple(recorded.names), request.source)
    found = list(find(recorded, asked, keys=keys, dangling=request.dangling, overridden=request.overridden))
    if request.counts:
        counts = [count for count in key_counts(recorded, found) if not keys or count.key in keys]
        out(_counts_json(request, recorded, counts) if _is_json(request) else "".join(_count_lines(counts)))
        return 0
    if _is_json(request):
        out(_operators_json(request, recorded, found, keys))
    else:
        out("".join(_line(operator, keys, overridden=request.overridden) for operator in found))
    if not found:
        note(f"no operator of {request.source} is like that")
    return 0


def _is_json(request: RegistryDumpRequest) -> bool:
    return chosen_format(request.format) == "json"


def _line(operator: RecordedOperator, keys: Sequence[DispatchKey], *, overridden: bool) -> str:
    kernels = [kernel for kernel in operator.kernels if not keys or kernel.key in keys]
    if overridden:
        told = "; ".join(_overrides(kernels))
    else:
        told = "; ".join(f"{kernel.key}: {kernel.debug}" for kernel in kernels if keys and kernel.active)
    return f"{operator.name}  {told}\n" if told else f"{operator.name}\n"


def _overrides(kernels: Sequence[RecordedKernel]) -> Iterator[str]:
    """Each kernel that took the place of another, with both."""
    for newer, older in pairwise(kernels):
        if not older.active:
            yield f"{newer.key}: {newer.debug or '(no debug text)'} over {older.debug or '(no debug text)'}"


def _count_lines(counts: Sequence[KeyCount]) -> Iterator[str]:
    width = max((len(str(count.key)) for count in counts), default=0)
    for count in counts:
        parts = [f"{count.operators:>5} operator{'' if count.operators == 1 else 's'}"]
        parts += [f"{count.inactive} overridden"] * bool(count.inactive)
        parts += [f"{count.fallthrough} fallthrough"] * bool(count.fallthrough)
        parts += ["a backend fallback"] * count.fallback
        yield f"{count.key!s:<{width}}  {', '.join(parts)}\n"


def _operators_json(
    request: RegistryDumpRequest, recorded: Recorded, found: Sequence[RecordedOperator], keys: Sequence[DispatchKey]
) -> str:
    operators = [
        {
            "name": str(operator.name),
            "schema": operator.schema,
            "dangling": operator.is_dangling,
            "kernels": [
                {
                    "key": str(kernel.key),
                    "debug": kernel.debug,
                    "inferred": kernel.inferred,
                    "flags": kernel.flags.split(),
                    "active": kernel.active,
                }
                for kernel in operator.kernels
                if not keys or kernel.key in keys
            ],
        }
        for operator in found
    ]
    return _json(request, recorded, {"operators": operators})


def _counts_json(request: RegistryDumpRequest, recorded: Recorded, counts: Sequence[KeyCount]) -> str:
    rows = [
        {
            "key": str(count.key),
            "operators": count.operators,
            "inactive": count.inactive,
            "fallthrough": count.fallthrough,
            "fallback": count.fallback,
        }
        for count in counts
    ]
    return _json(request, recorded, {"counts": rows})


def _json(request: RegistryDumpRequest, recorded: Recorded, value: dict[str, object]) -> str:
    head: dict[str, object] = {"version": _VERSION, "source": request.source, "torch": recorded.torch}
    return json.dumps(head | value, ensure_ascii=False) + "\n"
