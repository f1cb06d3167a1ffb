"""Calls that two overloads compete for: many pairs, and every walk finds those whose order matters."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.overloads import common_call
from dispatchlab.model.registration import Def, Impl, Registration
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Verdict
from dispatchlab.prover.walk_options import WalkOptions
from tests.engine_shorthand import BOXED
from tests.overload_cases import USUAL, random_overload
from tests.test_model_overloads import check_pairs


def test_whenever_two_of_many_overloads_compete_for_a_call_one_is_found() -> None:
    check_pairs(6, 6000)


def test_every_walk_finds_where_the_order_of_overloads_matters() -> None:
    rng = random.Random(7)
    verdicts: Counter[tuple[Verdict, bool]] = Counter()
    for number in range(60):
        schemas = [random_overload(rng, "t::f", overload, USUAL) for overload in "abc"]
        matters = any(common_call(*pair) for pair in combinations(schemas, 2))
        registrations: list[Registration] = [Def(schema, debug=str(schema.name)) for schema in schemas]
        if number % 3:
            registrations += [
                Impl(schema.name, key, BOXED, debug=f"{schema.name} {key}")
                for schema in schemas
                for key in (DispatchKey.CPU, DispatchKey.CUDA)
            ]
        operators = [schema.name for schema in schemas]
        for engine in (LabEngine("torch-2.13"), LabEngine("strict")):
            found = explore(engine, registrations, operators).verdict
            matters_there = matters and engine.semantics != "strict"
            assert found is (Verdict.ORDER_DEPENDENT if matters_there else Verdict.ORDER_INDEPENDENT), registrations
            verdicts[found, len(registrations) > 3] += 1
            if number % 3 == 0:
                walked = explore(engine, registrations, operators, WalkOptions(walk="graph"))
                assert walked.verdict is found
    assert len(verdicts) == 4, verdicts
