"""Registries as text and as JSON: listings and counts.

As JSON, one object on one line; a field is never renamed or dropped within a version:

    version           see JSON_VERSION
    source, torch     where the registry comes from, and the PyTorch that it is of
    operators         [{name, schema, dangling, kernels: [{key, debug, inferred, flags, active}]}]; the kernels at
                      the keys that were asked for, all of them when none were
    counts            [{key, operators, inactive, fallthrough, fallback}], with --counts in place of `operators`
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from dispatchlab.model.keys import DispatchKey
from dispatchlab.registry.find import KeyCount
from dispatchlab.registry.model import Recorded, RecordedKernel, RecordedOperator
from dispatchlab.render.as_json import as_json, fields_of, json_text


def operators_text(
    operators: Sequence[RecordedOperator], *, keys: Collection[DispatchKey] = (), overridden: bool = False
) -> str:
    """A line for each operator, with the kernels that the listing is about.

    Args:
        operators: the operators.
        keys: show the active kernels at these.
        overridden: show the kernels that override another instead.
    """
    return "".join(_line(operator, keys, overridden=overridden) for operator in operators)


def counts_text(counts: Sequence[KeyCount]) -> str:
    """A line for each key."""
    return "".join(_count_lines(counts))


def operators_json(
    operators: Sequence[RecordedOperator], recorded: Recorded, *, source: str, keys: Collection[DispatchKey] = ()
) -> str:
    """The operators with their kernels, one line."""
    values = [
        {
            "name": operator.name,
            "schema": operator.schema,
            "dangling": operator.is_dangling,
            "kernels": [kernel for kernel in operator.kernels if not keys or kernel.key in keys],
        }
        for operator in operators
    ]
    return json_text({"source": source, "torch": recorded.torch, "operators": values})


@as_json.register
def _(value: RecordedKernel) -> dict[str, object]:
    return fields_of(value, flags=value.flags.split())


def counts_json(counts: Sequence[KeyCount], recorded: Recorded, *, source: str) -> str:
    """The counts, one line."""
    return json_text({"source": source, "torch": recorded.torch, "counts": counts})


def _line(operator: RecordedOperator, keys: Collection[DispatchKey], *, overridden: bool) -> str:
    kernels = [kernel for kernel in operator.kernels if not keys or kernel.key in keys]
    if overridden:
        shown = "; ".join(_overrides(kernels))
    else:
        shown = "; ".join(f"{kernel.key}: {kernel.debug}" for kernel in kernels if keys and kernel.active)
    return f"{operator.name}  {shown}\n" if shown else f"{operator.name}\n"


def _overrides(kernels: Sequence[RecordedKernel]) -> Iterator[str]:
    """Each kernel that overrides another, with both."""
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
