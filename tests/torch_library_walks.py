"""Whether all walks of the lab engine agree on scenarios of calls of `torch.library`."""

from __future__ import annotations

import warnings
from collections import Counter
from random import Random

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkOptions
from dispatchlab.prover.result import Exploration, Verdict
from tests.torch_library_scenarios import OPERATORS, kernels, scenario, with_override

_MOST_WITH_ALL_ORDERS = 3


def check_walks(first: int, count: int, *, largest: int = 5, overrides: bool = False) -> Counter[str]:
    """Explore so many scenarios in every way, those of calls that say `allow_override`, too; what the verdicts were."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        random = Random(seed)
        registrations = scenario(random, random.randint(2, largest))
        if overrides:
            registrations = [with_override(each, random) for each in (*registrations[-2:], *kernels(random, 2))]
        for semantics in ("torch-2.13", "torch-2.11" if overrides else "strict"):
            engine = LabEngine(semantics)
            by_default = explore(engine, registrations, OPERATORS)
            everything = explore(engine, registrations, OPERATORS, WalkOptions(walk="graph"))
            assert _shown(by_default) == _shown(everything), (seed, semantics)
            seen[everything.verdict] += 1
            if len(registrations) <= _MOST_WITH_ALL_ORDERS:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    orders = explore(engine, registrations, OPERATORS, WalkOptions(walk="orders"))
                seen["orders"] += 1
                # NB: it registers nothing a second time, so it may miss what the others find.
                assert orders.verdict is not Verdict.ORDER_DEPENDENT or everything.verdict is orders.verdict, seed
    return seen


def _shown(found: Exploration) -> tuple[object, ...]:
    conflicts = tuple(sorted((one.members, one.kind) for one in found.conflicts))
    example = found.counterexample
    lengths = None if example is None else (len(example.expected_sequence), len(example.actual_sequence))
    return found.verdict, conflicts, found.never_accepted, lengths
