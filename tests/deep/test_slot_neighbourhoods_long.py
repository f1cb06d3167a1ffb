"""The long tests of tests/test_slot_neighbourhoods.py, which the quick tier leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dispatchlab.engine.semantics import Semantics
from dispatchlab.model.profile import bundled_profiles
from dispatchlab.model.slot_set import KEY_BIT
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.questions.certify.certificate import Certification, Certified
from dispatchlab.questions.certify.certify_registry import certification_of
from dispatchlab.registries.model import Registry, registry_of
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


@pytest.mark.parametrize("semantics", ["strict", "torch-2.4", "torch-2.9", "torch-2.13", bundled_profiles()[-1]])
def test_certificates_are_those_of_whole_windows(semantics: str) -> None:
    seen: set[Certified] = set()
    for seed in range(share(14)):
        recorded = random_registry(seed)
        found, whole = (
            certification_of(recorded, name="a registry", semantics=semantics, walk=walk) for walk in ("auto", "graph")
        )
        assert found.certificates == whole.certificates, seed
        assert (whole.by_window, whole.alike) == (whole.patterns, 0)
        assert found.by_window < found.patterns
        assert found.alike > 0
        seen.update(verdicts(found))
    assert Certified.NOT_DECIDED not in seen
    assert len(seen) == 2


def test_tables_with_faults_have_the_certificates_of_whole_windows(planted: Callable[..., Certification]) -> None:
    dependent = independent = 0
    for seed in range(share(27)):
        recorded, semantics = random_registry(1000 + seed), with_faults(STRICT, seed)
        found = planted(recorded, semantics)
        assert found.certificates == planted(recorded, semantics, walk="graph").certificates, seed
        dependent += found.by_window
        independent += found.patterns - found.by_window
    assert dependent > 0
    assert independent > 0
