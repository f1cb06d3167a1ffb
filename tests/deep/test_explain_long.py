"""The long tests of tests/test_explain.py, which the quick tier leaves out."""

from __future__ import annotations

from dispatchlab import trace
from dispatchlab.lab import Lab
from tests.call_cases import CASES, run, tensors
from tests.test_explain import explained


def test_the_hops_of_every_operator_of_the_layers_are_those_of_its_call() -> None:
    lab = Lab()
    compared = 0
    for case in CASES:
        if case.operator == "matmul":
            continue
        name = f"aten::{case.operator}"
        for specs, device in (("cpu requires_grad", "cpu"), ("cuda", "cuda"), ("meta", "meta")):
            schema = lab(case.operator).schema
            deciding = [one for at, one in enumerate(schema.arguments) if schema.dispatch_arguments() >> at & 1]
            described = [f"{one.name}={'list:' if str(one.type) == 'Tensor[]' else ''}{specs}" for one in deciding]
            found = explained(lab.dispatcher, name, *described)
            given = tensors(case.arrays(), device=device)
            with trace() as seen:
                run(lab, case, given)
            made = [call for call in seen.calls if call.operator == name]
            # Where an argument is cloned first, the clone makes calls of its own, and the call of the case is the last.
            start = max(at for at, call in enumerate(made) if "redispatch" not in call.kind) if case.writes else 0
            chain = made[start : start + 1] + [call for call in made[start + 1 :] if "redispatch" in call.kind]
            assert [hop.keys for hop in found.hops] == [call.keys for call in chain][: len(found.hops)], (case, specs)
            assert len(chain) == len(found.hops)
            compared += len(chain)
    assert compared > 350
