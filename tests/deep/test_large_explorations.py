"""The sizes that users have, with their counts: a speed-up cannot come from doing less."""

from __future__ import annotations

from benchmarks.workloads import FOO, many_operators, sixteen, upstreams_five
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkOptions
from dispatchlab.prover.result import Verdict


def test_sixteen_registrations_of_one_operator_are_proved() -> None:
    found = explore(LabEngine("strict"), sixteen(), [FOO], WalkOptions(walk="graph"))
    assert (found.verdict, found.sets, found.states) == (Verdict.ORDER_INDEPENDENT, 65_536, 65_536)
    assert found.edges == 16 * 2**16 == 1_048_576


def test_twelve_hundred_registrations_are_proved_in_parts_whose_footprints_are_checked() -> None:
    registrations, names = many_operators(200)
    found = explore(LabEngine("strict"), registrations, names)
    assert len(registrations) == 1_202
    assert (found.verdict, found.components) == (Verdict.ORDER_INDEPENDENT, 200)
    assert (found.sets, found.edges) == (200 * 2**8, 200 * 8 * 2**8)


def test_upstreams_orders_agree_with_the_graph() -> None:
    orders = explore(LabEngine("strict"), upstreams_five(), [FOO], WalkOptions(walk="orders"))
    graph = explore(LabEngine("strict"), upstreams_five(), [FOO])
    assert (graph.verdict, graph.sets, graph.edges, graph.orders) == (Verdict.ORDER_INDEPENDENT, 32, 160, 14_400)
    assert (orders.verdict, orders.sets, orders.edges) == (Verdict.ORDER_INDEPENDENT, 32, 144_000)
    assert orders.counterexample is graph.counterexample is None


def test_all_orders_of_six_registrations_are_run_and_are_a_proof() -> None:
    found = explore(LabEngine("strict"), sixteen()[:6], [FOO], WalkOptions(walk="orders"))
    assert (found.verdict, found.sets, found.edges) == (Verdict.ORDER_INDEPENDENT, 64, 518_400 * 12)
