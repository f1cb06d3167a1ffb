"""Import packages in other orders than the recorded one, and find what is not the same then."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dispatchlab.prover.program import import_orders
from dispatchlab.pytorch.introspection.function_content import ORDER_OF_KEYS
from dispatchlab.pytorch.recording.end_state import EndState
from dispatchlab.pytorch.recording.order_runs import OrderRun, OrderServer
from dispatchlab.pytorch.recording.state_kind import Kind
from dispatchlab.scenario.import_orders import ImportOrders, OrderFinding

# Note [What counts as different]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# What differs after two orders need not come of the order: a package may register what it draws at random, or the time.
# So an order that differs runs once more, and so does the first one, and only what is the same in both runs of each is
# held against the other. What is not is reported, and nothing is proved about it.
#
# The globals of a module that no registered code names (Note [What a function can reach]), the order of the keys of a
# dictionary and of equal values in a list, and seeds differ often, and mostly no call can tell. Such a difference is no
# violation, and no proof is made where there is one.

_MOST_FINDINGS: Final = 12
_LONGEST: Final = 2_000


def check_orders(
    server: OrderServer,
    packages: Sequence[str],
    entries: Sequence[str],
    imports: Mapping[str, Sequence[str]],
    most: int,
) -> ImportOrders:
    """Run the orders in which the packages and their modules can be imported, and compare them.

    Args:
        server: runs them.
        packages: the modules that were recorded, in the order of the record.
        entries: the modules that register something.
        imports: by module, what its body imports, in program order.
        most: see `import_orders`.
    """
    orders, are_all = _orders(packages, entries, imports, most)
    of = len(orders) if are_all else 0
    if len(orders) == 1:
        return ImportOrders(1, of)
    runs = server.run(orders)
    trouble = _trouble(runs[0])
    if trouble:  # then all orders may agree in nothing but that
        return ImportOrders(len(orders), of, open=(trouble,))
    findings, open_points = compare_runs(server, runs)
    shown = (
        replace(one, before=one.before[:_LONGEST], after=one.after[:_LONGEST]) for one in findings[:_MOST_FINDINGS]
    )
    return ImportOrders(len(orders), of, tuple(shown), open_points)


def compare_runs(server: OrderServer, runs: Sequence[OrderRun]) -> tuple[list[OrderFinding], tuple[str, ...]]:
    """Compare what orders of imports leave behind with what the first of them does.

    Args:
        server: runs those once more that differ. See Note [What counts as different].
        runs: the runs.

    Returns:
        What differs, what says most first; and what could not be compared, a sentence each.
    """
    suspects = [run for run in runs[1:] if _differing(runs[0], run)]
    open_points = tuple(_open_points(runs))
    findings: dict[str, OrderFinding] = {}
    if suspects:
        unlike = _unlike_suspects(runs[0], suspects)
        first, *seconds = server.run([runs[0].order, *(run.order for run in unlike)])
        unstable = _differing(runs[0], first)
        for run, second in zip(unlike, seconds, strict=True):
            unstable |= _differing(run, second)
            different = _differing(runs[0], run) - unstable
            possible = _reordered(different, runs[0], run)
            for what in sorted(_outermost(different, runs[0], run), key=_rank):
                certain = what not in possible and not what.startswith(_POSSIBLE) and ORDER_OF_KEYS not in what
                findings.setdefault(what, _finding(what, runs[0], run, certain=certain))
        if unstable:
            shown = ", ".join(sorted(unstable, key=_rank)[:3])
            open_points = (*open_points, f"not the same in two runs of one order: {shown}")
    return sorted(findings.values(), key=lambda one: (not one.certain, _rank(one.what))), open_points


def only_order(
    packages: Sequence[str], entries: Sequence[str], imports: Mapping[str, Sequence[str]]
) -> ImportOrders | None:
    """The order of the record where there is no other, which ran when it was recorded; else None.

    Args:
        packages: see `check_orders`, as for the other arguments.
        entries: likewise.
        imports: likewise.
    """
    orders, are_all = _orders(packages, entries, imports, 1)
    return ImportOrders(1, 1) if are_all and len(orders) == 1 else None


def _orders(
    packages: Sequence[str], entries: Sequence[str], imports: Mapping[str, Sequence[str]], most: int
) -> tuple[list[tuple[str, ...]], bool]:
    """The orders of the packages, and of their modules that register; and whether they are all."""
    tops = {package.partition(".")[0] for package in packages}
    others = sorted(name for name in entries if name.partition(".")[0] in tops)
    return import_orders(imports, tuple(dict.fromkeys((*packages, *others))), most=most)


def _trouble(recorded: OrderRun) -> str:
    """Why the order of the record, which could be imported, cannot be compared with others; empty where it can."""
    failures = {} if recorded.state is None else recorded.state.failures
    reason = "; ".join(f"{module}: {error}" for module, error in failures.items()) or recorded.ended
    if not reason:
        return ""
    return f"{', '.join(recorded.order)} cannot be imported once more in a forked process, as orders are: {reason}"


def _open_points(runs: Sequence[OrderRun]) -> Iterator[str]:
    """What the runs of orders cannot tell, a sentence each."""
    states = [run.state for run in runs if run.state is not None]
    if any(state.is_cut for state in states):
        yield "the functions that are registered reach more values than are compared"
    yield from sorted({sentence for state in states for sentence in state.hidden})
    written = sorted({path for state in states for path in state.written})
    if written:
        more = f" and {len(written) - 1:,} more" if len(written) > 1 else ""
        yield f"files are written or programs started by the imports, and the next order finds it: {written[0]}{more}"


def _unlike_suspects(first: OrderRun, suspects: Sequence[OrderRun]) -> list[OrderRun]:
    """Runs in which all is found that differs in any: each has something that the ones before it have not."""
    unlike: list[OrderRun] = []
    known: set[str] = set()
    for run in suspects:
        if not known.issuperset(different := _differing(first, run)):
            known |= different
            unlike.append(run)
    return unlike


def _differing(one: OrderRun, other: OrderRun) -> set[str]:
    """What is not the same after two runs."""
    if one.state is None or other.state is None:
        return set() if (one.state, one.ended) == (other.state, other.ended) else {_PROCESS}
    found = {
        f"{_IMPORT}{module}"
        for module in {*one.state.failures, *other.state.failures}
        if one.state.failures.get(module) != other.state.failures.get(module)
    }
    texts = one.state.texts, other.state.texts
    return found | {path for path in {*texts[0], *texts[1]} if texts[0].get(path) != texts[1].get(path)}


def _outermost(different: set[str], one: OrderRun, other: OrderRun) -> set[str]:
    """What differs, without the parts of what is there after one of the runs alone."""
    if one.state is None or other.state is None:
        return different
    alone = {what for what in different if (what in one.state.texts) is not (what in other.state.texts)}
    return {what for what in different if alone.isdisjoint(what[: each.start()] for each in _STEP.finditer(what))}


_STEP: Final = re.compile(": |, ")
_NOTHING: Final = "nothing"
_PROCESS: Final = "process"
_IMPORT: Final = "import of "


def _finding(what: str, expected: OrderRun, actual: OrderRun, *, certain: bool) -> OrderFinding:
    before, after = (_text(what, run) for run in (expected, actual))
    sites = tuple(dict.fromkeys(site for run in (expected, actual) for site in _sites(what, run.state)))
    return OrderFinding(what, expected.order, actual.order, before, after, sites, certain=certain)


def _text(what: str, run: OrderRun) -> str:
    if run.state is None:
        return f"{run.ended}{f', in the import of {run.module}' if run.module else ''}"
    if what.startswith(_IMPORT):
        return run.state.failures.get(what.removeprefix(_IMPORT), "imported")
    return run.state.texts.get(what, _NOTHING)


def _sites(what: str, state: EndState | None) -> tuple[str, ...]:
    """The lines that registered what this is about."""
    if state is None:
        return ()
    return state.sites.get(max((subject for subject in state.sites if _names(what, subject)), key=len, default=""), ())


def _names(what: str, subject: str) -> bool:
    """Whether a text names an operator, or one of its overloads."""
    start = what.find(subject)
    return start >= 0 and not what[start + len(subject) : start + len(subject) + 1].isidentifier()


def _reordered(different: Collection[str], one: OrderRun, other: OrderRun) -> set[str]:
    """What lies in lists that have the same values in another order: many a function takes them in any order."""
    if one.state is None or other.state is None:
        return set()
    lists: dict[str, list[str]] = {}
    for what in different:
        if (place := _PLACE.sub("[]", what)) != what:
            lists.setdefault(place, []).append(what)
    texts = one.state.texts, other.state.texts
    return {
        what
        for paths in lists.values()
        if Counter(texts[0].get(path) for path in paths) == Counter(texts[1].get(path) for path in paths)
        for what in paths
    }


_PLACE: Final = re.compile(r"\[\d+\]")
_POSSIBLE: Final = (Kind.MODULE, Kind.ENVIRONMENT, Kind.PROCESS, Kind.RNG, Kind.SEED, Kind.STATE)
"""What only some functions can tell."""

_RANKS: Final = (_PROCESS, _IMPORT, Kind.KERNEL, Kind.FALLBACK, Kind.OVERLOADS, Kind.REPLACED, Kind.DUMP)
_LATE: Final = (Kind.TABLE, Kind.MODULE, Kind.ENVIRONMENT, Kind.SETTING, Kind.STATE)


def _rank(what: str) -> tuple[int, str]:
    """What says most comes first."""
    rank = next((at for at, start in enumerate(_RANKS) if what.startswith(start)), len(_RANKS))
    return rank + len(_RANKS) * what.startswith(_LATE), what
