"""Orders of imports, run where PyTorch is, and what differs between what they leave behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dispatchlab.pytorch.bridge.torch import ImportTimeoutError, torch
from dispatchlab.pytorch.recording.order_check import compare_runs
from dispatchlab.pytorch.recording.order_runs import AGAIN, OrderServer
from dispatchlab.pytorch.recording.state_kind import Kind
from dispatchlab.scenario.import_orders import Order, OrderFinding


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """What some orders of imports lead to.

    Args:
        failed: what the import of a package raised, by package.
        ended: how the import of a package ended its process, after `it`, by package.
        operators: those that are new or changed after any of the orders.
        in_python: those of which a registry of Python is not as it was after any of them.
        loaded: each order, with the packages that others had loaded before their turn came.
        between_orders: what differs between the first order and another.
        imported_again: what differs between the first order and the same order twice.
        open: what could not be compared, a sentence each.
    """

    failed: Mapping[str, str]
    ended: Mapping[str, str]
    operators: frozenset[str]
    in_python: frozenset[str]
    loaded: tuple[tuple[Order, tuple[str, ...]], ...]
    between_orders: tuple[OrderFinding, ...]
    imported_again: tuple[OrderFinding, ...] = ()
    open: tuple[str, ...] = ()


def run_orders(orders: Sequence[Order], again: bool, limit_s: float, jobs: int) -> ImportOutcome:  # noqa: FBT001  # a message has no keywords
    """Import packages in some orders, each in a forked process, and compare.

    Args:
        orders: the orders; the others are compared with the first of them.
        again: import the packages of each order once more after it, and compare that with the order itself.
        limit_s: the bound on the seconds of one import.
        jobs: how many orders run at once.

    Raises:
        ImportTimeoutError: an order takes too long.
    """
    torch()
    with OrderServer(limit_s=limit_s, jobs=jobs) as server:
        runs = server.run(orders)
        for run in runs:
            if run.is_late:
                raise ImportTimeoutError(run.module or run.order[0], limit_s)
        between, open_points = compare_runs(server, runs)
        repeated: list[OrderFinding] = []
        for run, twice in zip(runs, server.run([(*one, AGAIN, *one) for one in orders]) if again else (), strict=False):
            found, _ = compare_runs(server, (run, twice))
            repeated += [one for one in found if not one.what.startswith(Kind.REFUSED)]  # what is there is refused
    states = [run.state for run in runs if run.state is not None]
    return ImportOutcome(
        {package: error for state in states for package, error in state.failures.items()},
        {run.module: run.ended for run in runs if run.ended},
        frozenset(
            what.removeprefix(Kind.DUMP) for state in states for what in state.texts if what.startswith(Kind.DUMP)
        ),
        frozenset(operator for state in states for operator in state.in_python),
        tuple((run.order, run.loaded) for run in runs),
        tuple(between),
        tuple(repeated),
        open_points,
    )
