"""The long tests of tests/test_certify.py, which the quick tier leaves out."""

from __future__ import annotations

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.prover.explore import explore
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.certify.certificate import Certified
from dispatchlab.registries.replay import fallback_registration, operator_registrations
from tests.effort import share
from tests.test_certify import CEA, CIA, FALLBACKS, K, certified, operator, registry


def test_verdicts_are_those_of_the_whole_graph_on_small_operators() -> None:
    pool = (K.CPU, K.SparseCPU, K.NestedTensorCPU, K.AutogradNestedTensor, K.AutogradOther, K.Autograd, CIA, CEA)
    seen: set[tuple[str, Certified]] = set()
    for seed in range(share(40)):
        random = SplitMix64(seed)
        keys = sorted({pool[random.below(len(pool))] for _ in range(4)})
        one = operator("foo", *keys, defined=bool(random.below(2)))
        for semantics in ("strict", "torch-2.13"):
            (found,) = certified(registry(one), semantics).certificates
            engine = LabEngine(semantics)
            fallbacks = () if semantics == "torch-2.13" else tuple(map(fallback_registration, FALLBACKS[:1]))
            whole = explore(engine, [*operator_registrations(one), *fallbacks], [one.name])
            expected = (
                Certified.ORDER_INDEPENDENT if whole.verdict is Verdict.ORDER_INDEPENDENT else Certified.ORDER_DEPENDENT
            )
            assert found.verdict is expected, (keys, semantics)
            seen.add((semantics, found.verdict))
    assert seen == {
        ("strict", Certified.ORDER_INDEPENDENT),
        ("torch-2.13", Certified.ORDER_INDEPENDENT),
        ("torch-2.13", Certified.ORDER_DEPENDENT),
    }
