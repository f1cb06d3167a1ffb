"""The long tests of tests/test_prover_neighbourhoods.py, which the quick tier leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Block, BlockKind, Claim, Def, Impl, Kernel, KernelForm, NameOnly
from dispatchlab.model.schema_parser import parse_inferred, parse_name, parse_schema
from dispatchlab.prover import limits
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import Progress, WalkOptions
from dispatchlab.prover.partition import explore_forkable
from dispatchlab.prover.result import Verdict
from tests.random_scenarios import findings
from tests.test_prover_neighbourhoods import DEF, FOO, at_keys, without


def test_thirty_kernels_of_one_key_are_proved_in_a_fixed_order_and_refuted_in_any() -> None:
    kernels = [Impl(FOO, DispatchKey.CPU, debug=f"fn_{at}") for at in range(30)]
    engine = LabEngine("torch-2.13")
    fixed = explore_forkable(engine, [DEF, *kernels], [FOO], order=[range(1, 31)])
    assert (fixed.verdict, fixed.neighbourhoods > 100) == (Verdict.ORDER_INDEPENDENT, True)
    with without("near"):
        free = explore_forkable(engine, [DEF, *kernels], [FOO])
    assert free.counterexample is not None
    assert len(free.counterexample.actual_sequence) == 2


def test_registrations_that_are_refused_are_proved_among_many_kernels_of_a_torch_model() -> None:
    """What a refusal leaves behind there is declared, and is nothing that a later step could show."""
    twice = Def(parse_schema("test::foo(Tensor x) -> Tensor"), debug="twice")
    inferred = parse_inferred("(int _0) -> Tensor _0")
    unfit = Impl(FOO, DispatchKey.Meta, Kernel(KernelForm.UNBOXED, inferred, "int (int)"), "unfit")
    library = Block("test", BlockKind.FRAGMENT, (Impl(parse_name("foo"), None, debug="inner"), twice), debug="library")
    for refused in ([twice], [unfit], [twice, unfit], [library]):
        some = [*at_keys(4, "torch-2.13"), *refused]
        plain = explore(LabEngine("torch-2.13"), some, [FOO], WalkOptions(walk="graph"))
        with without("near"):
            small = explore_forkable(LabEngine("torch-2.13"), some, [FOO], least=0)
        assert findings(small) == findings(plain)
        assert small.neighbourhoods


def test_many_that_decide_about_one_another_are_explored_together_and_the_report_says_so() -> None:
    kernels = [
        Impl(FOO, one.key, Kernel(signature=f"int ({at % 2})"), one.debug)
        for at, one in enumerate(at_keys(17))
        if isinstance(one, Impl)
    ]
    names = [NameOnly(FOO) for _ in range(12)]
    claims = [Claim("ns", f"claim_{at}") for at in range(20)]
    found = explore(LabEngine("strict"), [DEF, *names, *kernels], [FOO])
    assert found.verdict is Verdict.ORDER_INDEPENDENT
    assert len(found.conflicts) == 64
    assert "16 of the 29 registrations act on one another, and were explored together" in found.notes
    found = explore_forkable(LabEngine("strict"), [*at_keys(16), *claims], [FOO])
    assert (found.verdict, len(found.conflicts)) == (Verdict.ORDER_INDEPENDENT, 190)


def test_progress_has_no_total_where_it_is_not_known_how_many_exclude_one_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "_REPORT_EVERY_S", 0.0)
    alike = [replace(one, kernel=Kernel(signature="int ()")) for one in at_keys(17) if isinstance(one, Impl)]
    unlike = [replace(one, kernel=Kernel(signature=f"int ({at % 2})")) for at, one in enumerate(alike)]
    for kernels, is_known in ((alike, True), (unlike, False)):
        seen: list[Progress] = []
        explore(LabEngine("strict"), [DEF, *(NameOnly(FOO) for _ in range(6)), *kernels], [FOO], progress=seen.append)
        assert (seen[-1].total_edges is not None) is is_known
