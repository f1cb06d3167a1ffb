"""Snapshots at every step: each state that registrations and releases lead to, with the changes of the step."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from dispatchlab.errors import RequestError
from dispatchlab.model.dump_format import DumpError, parse_table
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.keys import SLOT_OF_KEY
from dispatchlab.model.registration import describe
from dispatchlab.model.sequence import Step, format_sequence
from dispatchlab.model.short_names import short_names
from dispatchlab.model.snapshot import NOTHING_REGISTERED, TABLES, Snapshot
from dispatchlab.prover.chains import count_orders
from dispatchlab.prover.protocol import Engine, Forkable, Look
from dispatchlab.prover.states import ReachableStates
from dispatchlab.questions.sources.engines import engine_for
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.views.as_json import as_json

MOST_STATES: Final = 1024
"""More states are not shown, because no reader needs so many."""


class Way(NamedTuple):
    """A step to a snapshot: its origin, the step, and the reason if it was refused."""

    source: int
    step: Step
    refused: str


@as_json.register
def _(value: Way) -> dict[str, object]:
    return {**value._asdict(), "step": format_sequence((value.step,))}


@dataclass(frozen=True, slots=True)
class Moment:
    """An observation of an active set; a set has several if the observation depends on the order.

    Args:
        number: its number.
        registered: the active registrations.
        orders: the number of registration orders that lead to it; 0 if only releases lead to it.
        ways: the steps that lead to it, without the release that returns to the moment before a registration.
        look: the observation.
        same_as: the first equal snapshot; None for the first one itself.
    """

    number: int
    registered: tuple[int, ...]
    orders: int
    ways: tuple[Way, ...]
    look: Look
    same_as: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The snapshots of a scenario.

    Args:
        registrations: a text for each registration.
        names: a short name for each.
        keys: the rows of tables that are shown; all of them when there are none.
        moments: the snapshots, beginning without registrations.
        sequences: the number of sequences that they cover: orders of registration times orders of release.
    """

    registrations: tuple[str, ...]
    names: tuple[str, ...]
    keys: tuple[str, ...]
    moments: tuple[Moment, ...]
    sequences: int


def snapshots_of(engine: Engine, scenario: Scenario) -> Snapshots:
    """Return the snapshots of a scenario, in all orders of registration and release.

    Args:
        engine: the engine.
        scenario: the scenario.

    Raises:
        RequestError: there are too many states, or the engine's states cannot be read.
    """
    if not isinstance(engine, Forkable):
        raise RequestError(f"--snapshots: the states of {engine.name} cannot be read: leave it out")
    if scenario.modules:
        text = "they are of single registrations and releases, and the modules of the scenario come as a whole"
        raise RequestError(f"--snapshots: {text}: leave it out, or take `modules` out of the scenario")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that are overridden: that is what is looked at
        return _all(engine, scenario)


def snapshots_of_file(path: str, *, semantics: str | None, allow_import: bool = False) -> Snapshots:
    """Return the snapshots of a scenario file; the arguments are options of `permute`.

    Raises:
        DispatchLabError: the file or an option cannot be used, or see `snapshots_of`.
    """
    scenario = load_scenario(path, allow_import=allow_import)
    with engine_for("lab", asked=semantics, in_file=scenario.semantics) as engine:
        return snapshots_of(engine, scenario)


def _all(engine: Forkable, scenario: Scenario) -> Snapshots:
    """Walk through all states."""
    registrations = distinguished(scenario.registrations)
    count = len(registrations)
    space = engine.space(registrations, scenario.operators)
    stop = lambda states, _: "too many" if states > MOST_STATES else None  # noqa: E731
    found = ReachableStates(space, range(count), scenario.order, stop=stop)
    edges = list(found.edges())
    if found.stopped is not None:
        text = f"the {count:,} registrations have more than 1,024 states"
        raise RequestError(f"--snapshots: {text}: name a smaller scenario")
    looks = [(space.observe(state), space.violations(state)) for state in found.states]
    numbers: dict[tuple[int, Look], int] = {}
    of_node = [numbers.setdefault(seen, len(numbers)) for seen in zip(found.masks, looks, strict=True)]
    steps = {(edge.source, edge.step): edge.target for edge in edges}
    ways: list[dict[Way, None]] = [{} for _ in numbers]
    for source, step, target, refusal in edges:
        if step >= 0 or steps.get((target, ~step)) != source:
            ways[of_node[target]][Way(of_node[source], step, "" if refusal is None else refusal.message)] = None
    orders = [0] * len(numbers)
    for node, more in enumerate(_orders(found, count, steps)):
        orders[of_node[node]] += more
    first: dict[Look, int] = {}
    moments = []
    for (mask, look), number in numbers.items():
        registered = tuple(index for index in range(mask.bit_length()) if mask >> index & 1)
        same = first.setdefault(look, number)
        same_as = None if same == number else same
        moments.append(Moment(number, registered, orders[number], tuple(ways[number]), look, same_as))
    texts, names = tuple(map(describe, scenario.registrations)), tuple(short_names(scenario.registrations))
    keys = tuple(key.name for key in scenario.keys)
    return Snapshots(texts, names, keys, tuple(moments), count_orders(count, scenario.order))


def _orders(found: ReachableStates, count: int, steps: Mapping[tuple[int, Step], int]) -> list[int]:
    """Return the number of registration orders that lead to each state."""
    orders = [0] * len(found.states)
    orders[0] = 1
    for node in sorted(range(len(orders)), key=lambda node: found.masks[node].bit_count()):
        for index in range(count):
            target = steps.get((node, index))
            if target is not None and found.masks[target] != found.masks[node]:
                orders[target] += orders[node]
    return orders


# -- what a step changes


class Row(NamedTuple):
    """A line of a snapshot: `+` if it is new, `-` if it is gone, else a blank; and the key of a table's row."""

    mark: str
    text: str
    key: str = ""


def rows_between(before: Look | None, after: Look, keys: Collection[str]) -> list[Row]:
    """Return the observations after a step, with its changes.

    Args:
        before: the observation before the step; None to mark nothing.
        after: the observation after the step.
        keys: the rows of tables to use; empty for all.
    """
    rows: list[Row] = []
    for at, snapshot in enumerate(after[0]):
        rows += [Row(" ", "")] * bool(at)
        rows += _operator_rows(snapshot if before is None else before[0][at], snapshot, keys)
    broken = [[f"invariant broken: {violation}" for violation in look[1]] for look in (before or after, after)]
    return [*rows, *_line_rows(*broken)]


def _operator_rows(before: Snapshot, after: Snapshot, keys: Collection[str]) -> Iterator[Row]:
    dumps = (one.dump if one.exists else f"{NOTHING_REGISTERED} {one.operator}" for one in (before, after))
    yield from _line_rows(*(dump.splitlines() for dump in dumps))
    table = list(_table_rows(before.table, after.table, keys))
    yield from [Row(" ", "")] * bool(table)
    yield from table
    if any(one.slots not in (None, one.table) for one in (before, after)):
        slots = list(_table_rows(before.slots or "", after.slots or "", keys))
        yield from [Row(" ", ""), Row(" ", f"{TABLES[1]}:")] * bool(slots and slots != table)
        yield from slots if slots != table else ()
    lines = [one.python.splitlines() for one in (before, after)]
    yield from [Row(" ", "")] * any(lines)
    yield from _line_rows(*lines)


def _line_rows(before: Sequence[str], after: Sequence[str]) -> Iterator[Row]:
    for kind, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from (Row(" ", line) for line in after[j1:j2])
        else:
            yield from (Row("-", line) for line in before[i1:i2])
            yield from (Row("+", line) for line in after[j1:j2])


def _table_rows(before: str, after: str, keys: Collection[str]) -> Iterator[Row]:
    try:
        old, new = parse_table(before), parse_table(after)
    except DumpError:  # an engine of its own prints what it likes
        yield from _line_rows(before.splitlines(), after.splitlines())
        return
    for key in sorted({*old, *new}, key=SLOT_OF_KEY.__getitem__):
        if keys and key.name not in keys:
            continue
        one, other = old.get(key), new.get(key)
        if one == other:
            yield Row(" ", str(other), key.name)
            continue
        yield from (Row(mark, str(entry), key.name) for mark, entry in (("-", one), ("+", other)) if entry is not None)
