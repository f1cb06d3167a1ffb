"""The long tests of tests/test_slot_neighbourhoods.py, which the quick tier leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.semantics import SEMANTICS, Semantics
from dispatchlab.model.profile import bundled_profiles
from dispatchlab.model.slot_set import KEY_BIT
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkOptions
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.certify.certificate import Certification, Certified
from dispatchlab.questions.certify.certify_registry import certification_of
from dispatchlab.registries.model import RecordedOperator, Registry, registry_of
from dispatchlab.registries.replay import fallback_registration, operator_registrations
from tests import test_slot_neighbourhoods
from tests.effort import share
from tests.test_certify import CEA, CIA, FALLBACKS, K, operator
from tests.test_slot_neighbourhoods import POOL, STRICT, verdicts

planted = test_slot_neighbourhoods.planted


def random_registry(seed: int) -> Registry:
    random = SplitMix64(seed)
    operators = [operator("explicit", CIA, CEA), operator("twice", K.Meta, K.Meta, CIA)]
    for number in range(3):
        keys = [POOL[random.below(len(POOL))] for _ in range(3 + random.below(4))]
        operators.append(operator(f"op{number}", *keys, defined=bool(random.below(3))))
    return registry_of("none", operators, FALLBACKS)


def with_faults(semantics: Semantics, seed: int) -> Semantics:
    """A few keys do not refresh a slot that they should."""
    random = SplitMix64(seed)
    refresh, released = dict(semantics.refresh), dict(semantics.released)
    for _ in range(1 + random.below(3)):
        key = POOL[random.below(len(POOL))]
        slots = [bit for bit in KEY_BIT.values() if bit & refresh[key]]
        lost = slots[random.below(len(slots))]
        for table in ((refresh,), (released,), (refresh, released))[random.below(3)]:
            table[key] &= ~lost
    return replace(semantics, refresh=refresh, refresh_on_release=released)


def of_whole_graph(one: RecordedOperator, semantics: Semantics) -> Certified:
    """What a walk of all states says of an operator and the fallbacks."""
    registrations = (*operator_registrations(one), *map(fallback_registration, FALLBACKS))
    engine = LabEngine(replace(semantics, fallbacks=()))
    found = explore(engine, registrations, [one.name], WalkOptions(walk="graph"))
    is_proved = found.verdict is Verdict.ORDER_INDEPENDENT
    return Certified.ORDER_INDEPENDENT if is_proved else Certified.ORDER_DEPENDENT


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
@pytest.mark.parametrize("semantics", ["strict", "torch-2.4", "torch-2.9", "torch-2.13", bundled_profiles()[-1]])
def test_certificates_are_those_of_whole_graphs(semantics: str) -> None:
    seen: set[Certified] = set()
    for seed in range(share(14)):
        recorded = random_registry(seed)
        found = certification_of(recorded, name="a registry", semantics=semantics)
        for one, certificate in zip(recorded, found.certificates, strict=True):
            assert certificate.verdict is of_whole_graph(one, SEMANTICS[semantics]), seed
        seen.update(verdicts(found))
    assert Certified.NOT_DECIDED not in seen
    assert len(seen) == 2


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
def test_tables_with_faults_have_the_certificates_of_whole_graphs(planted: Callable[..., Certification]) -> None:
    seen: list[Certified] = []
    for seed in range(share(27)):
        recorded, semantics = random_registry(1000 + seed), with_faults(STRICT, seed)
        found = planted(recorded, semantics)
        for one, certificate in zip(recorded, found.certificates, strict=True):
            whole = of_whole_graph(one, semantics)
            assert certificate.verdict in (whole, Certified.NOT_DECIDED), (seed, str(one.name))
        seen += verdicts(found)
    assert {*seen} == {*Certified}
