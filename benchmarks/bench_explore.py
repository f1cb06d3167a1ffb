"""Benchmarks of walks: their counts asserted, and ratios to running every order as upstream does."""

from __future__ import annotations

import resource
import sys
import time

from benchmarks.workloads import FOO, many_operators, sixteen, upstreams_five
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.prover.all_orders import AllOrders
from dispatchlab.prover.driver import explore_walk
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkOptions, Watch
from dispatchlab.prover.result import Verdict
from dispatchlab.prover.run_sequence import on_sandboxes


class Explore:
    """The graph of states."""

    timeout = 300
    number = 1
    repeat = (1, 3, 60.0)

    def time_five_registrations(self) -> None:
        """Upstream's scenario: 14,400 orders."""
        found = explore(LabEngine(), upstreams_five(), [FOO])
        assert (found.verdict, found.sets, found.edges, found.orders) == (Verdict.ORDER_INDEPENDENT, 32, 160, 14_400)

    def track_edges_per_second_of_sixteen_registrations(self) -> float:
        """1,048,576 edges of one operator; wanted: 50,000 a second or more."""
        started = time.perf_counter()
        found = explore(LabEngine(), sixteen(), [FOO], WalkOptions(walk="graph"))
        elapsed = time.perf_counter() - started
        assert (found.verdict, found.sets, found.edges) == (Verdict.ORDER_INDEPENDENT, 65_536, 1_048_576)
        return found.edges / elapsed

    def track_megabytes_of_sixteen_registrations(self) -> float:
        """The whole process at its largest; wanted: under 150 MB."""
        found = explore(LabEngine(), sixteen(), [FOO], WalkOptions(walk="graph"))
        assert found.states == 65_536
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)

    def track_orders_to_graph(self) -> float:
        """How many times longer upstream's n!·n! sequences take than the graph, in one run; wanted: 100 or more."""
        sandboxes = on_sandboxes(LabEngine(), upstreams_five(), [FOO])
        orders = explore_walk(AllOrders(5), sandboxes, watch=Watch(WalkOptions()))
        graph = explore(LabEngine(), upstreams_five(), [FOO])
        assert (orders.edges, graph.edges) == (144_000, 160)
        return orders.elapsed_s / graph.elapsed_s

    def time_twelve_hundred_registrations(self) -> None:
        """200 operators and two fallbacks, factored; wanted: under 10 s."""
        registrations, names = many_operators(200)
        found = explore(LabEngine(), registrations, names)
        assert (found.verdict, found.components) == (Verdict.ORDER_INDEPENDENT, 200)
        assert (found.sets, found.edges) == (51_200, 409_600)
