"""The live engine beside a bare loop over the same bindings: register or release, dump, table."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Def, Impl, Registration
from dispatchlab.model.schema_parser import parse_schema

FOO = OperatorName("test", "foo")
KEYS = ("CPU", "CUDA", "XLA", "AutogradCPU", "Autograd", "CompositeExplicitAutograd", "Meta", "Batched", "Tracer")
REGISTRATIONS: tuple[Registration, ...] = (
    Def(parse_schema("test::foo(Tensor x) -> Tensor"), debug="def"),
    *(Impl(FOO, DispatchKey[key], debug=key) for key in KEYS),
)


def bare_edges_per_second(edges: int = 20_000) -> float:
    """Toggle registrations at random through the bindings, and read the dump and the table after each."""
    import torch

    c: Any = torch._C
    libraries = [c._dispatch_library("FRAGMENT", "dlabbare", "", "bare", index) for index in range(len(REGISTRATIONS))]
    calls: list[Callable[[], object]] = [partial(libraries[0].define, "foo(Tensor x) -> Tensor", "FROM_SCHEMA")]
    calls += [
        partial(libraries[index].impl, "foo", c._parse_dispatch_key(key), print)
        for index, key in enumerate(KEYS, start=1)
    ]
    active, below = [False] * len(libraries), random.Random(0).randrange
    started = perf_counter()
    for _ in range(edges):
        index = below(len(libraries))
        if active[index]:
            libraries[index].reset()
        else:
            calls[index]()
        active[index] = not active[index]
        c._dispatch_dump("dlabbare::foo")
        c._dispatch_dump_table("dlabbare::foo")
    elapsed = perf_counter() - started
    for library in libraries:
        library.reset()
    return edges / elapsed


def engine_edges_per_second() -> float:
    """Walk two passes, with everything that is observed."""
    from dispatchlab.live.sandbox.sandbox import LocalEngine
    from dispatchlab.prover.explore import explore
    from dispatchlab.prover.limits import WalkOptions

    found = explore(LocalEngine(REGISTRATIONS), REGISTRATIONS, [FOO], WalkOptions(passes=2))
    return found.edges / found.elapsed_s


class Live:
    """Edges a second."""

    def setup(self) -> None:
        warnings.simplefilter("ignore")

    def track_bare(self) -> float:
        """The loop over the bindings."""
        return bare_edges_per_second()

    def track_engine(self) -> float:
        """The engine, as `permute --engine torch` drives it."""
        return engine_edges_per_second()

    def track_share(self) -> float:
        """The share of the bare loop that the engine reaches, both in one run."""
        return engine_edges_per_second() / bare_edges_per_second()
