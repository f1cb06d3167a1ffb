"""Which kernels ran in a trace, as plain text and as JSON.

version           see JSON_VERSION
calls, redispatches, unclear, operators, threads
kernels           [{operator, key, kernel, reason, source, count, raised, total_ns}], the most frequent first
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.call.trace_views import KernelUse, TraceSummary
from dispatchlab.escape import printable
from dispatchlab.model.dump_format import Provenance
from dispatchlab.render.as_json import json_text

_THROUGH = (
    (Provenance.FALLBACK, "backend fallbacks"),
    (Provenance.MATH, "decompositions (CompositeImplicitAutograd)"),
    (Provenance.DEFAULT_BACKEND, "kernels for all backends (CompositeExplicitAutograd)"),
    (Provenance.BATCHED, "decompositions of vmap (FuncTorchBatchedDecomposition)"),
)


def summary_text(found: TraceSummary) -> str:
    """A line for each kernel, with its count, and how much ran through what is no kernel of the operator's own."""
    return "".join(f"{line}\n" for line in _lines(found))


def _lines(found: TraceSummary) -> Iterator[str]:
    unclear = f" and {found.unclear:,} of either" if found.unclear else ""
    yield (
        f"{_counted(found.calls, 'call')} and {_counted(found.redispatches, 'redispatch', 'es')}{unclear}, of "
        f"{_counted(found.operators, 'operator')} in {_counted(found.threads, 'thread')}"
    )
    for reason, what in _THROUGH:
        uses = found.of(reason)
        if uses:
            names = sorted({use.operator for use in uses})
            yield f"{sum(use.count for use in uses):,} through {what}: {_some(names)}"
    if found.kernels:
        yield ""
        width = max(len(use.operator) for use in found.kernels)
        keys = max(len(use.key) for use in found.kernels)
        yield f"{'times':>9}  {'us':>10}  {'operator':{width}}  {'key':{keys}}  kernel"
        for use in found.kernels:
            raised = f", raised {use.raised:,} times" if use.raised else ""
            yield (
                f"{use.count:9,}  {use.total_ns / 1000:10,.0f}  {printable(use.operator):{width}}  {use.key:{keys}}  "
                f"{_kernel(use)}{raised}"
            )


def _kernel(use: KernelUse) -> str:
    if use.reason is None:
        return "none, or none that is known"
    at = "" if use.source == use.key else f" at {use.source}"
    return f"[{use.reason}]{at} {printable(use.kernel)}"


def _counted(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else ending}"


_MOST_NAMES = 12


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more operators" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(printable, names[:_MOST_NAMES])) + more


def summary_json(found: TraceSummary, notes: Sequence[str] = ()) -> str:
    """The same, as one object on one line."""
    from dispatchlab.render.as_json import fields_of

    return json_text({**fields_of(found), "notes": notes})
