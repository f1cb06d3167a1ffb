"""Certificates by roles: each check finds what it is there for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import pytest

from dispatchlab.engine.precedence import PR35061
from dispatchlab.engine.reference_precedence import Candidate, Plain, Source
from dispatchlab.engine.semantics import SEMANTICS, Semantics
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.slot_set import KEY_BIT
from dispatchlab.questions.certify import certify_registry, slot_neighbourhoods
from dispatchlab.questions.certify.blocks import certification_view
from dispatchlab.questions.certify.certificate import Certification, Certified, Pattern
from dispatchlab.questions.certify.certify_registry import certification_of
from dispatchlab.questions.certify.slot_neighbourhoods import neighbourhoods_of, undeclared
from dispatchlab.registries.model import RecordedFallback, Registry, registry_of
from tests.test_certify import CEA, CIA, FALLBACKS, K, operator

STRICT = SEMANTICS["strict"]
POOL = (
    *(
        K.CPU,
        K.CUDA,
        K.XPU,
        K.SparseCPU,
        K.SparseCUDA,
        K.SparseCsrCPU,
        K.MkldnnCPU,
        K.NestedTensorCPU,
        K.NestedTensorCUDA,
    ),
    *(K.AutogradCPU, K.AutogradOther, K.AutogradNestedTensor, K.Autograd, K.Meta, K.Tracer, K.AutocastCPU),
    *(CIA, CEA, K.CompositeExplicitAutogradNonFunctional, K.CompositeImplicitAutogradNestedTensor),
)

SPARSE = registry_of("none", [operator("one", K.SparseCPU, CIA), operator("two", K.SparseCUDA, CIA)], FALLBACKS)
ONE, TWO = K.SparseCPU, K.SparseCUDA


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Certification]:
    """Certifies under semantics that have no name."""
    count = 0

    def certified(recorded: Registry, semantics: Semantics, **options: Any) -> Certification:
        nonlocal count
        count += 1
        monkeypatch.setattr(certify_registry, "for_registry", lambda *_, **__: replace(semantics, fallbacks=()))
        return certification_of(recorded, name="a registry", semantics=f"planted {id(options)} {count}", **options)

    return certified


def verdicts(found: Certification) -> list[Certified]:
    return [one.verdict for one in found.certificates]


# -- each check finds what it is there for, and is missed when it is off


def lose(semantics: Semantics, key: DispatchKey, slot: DispatchKey) -> Semantics:
    return replace(semantics, refresh={**semantics.refresh, key: semantics.refresh[key] & ~KEY_BIT[slot]})


def plain_that_looks_at(slot: DispatchKey, other: DispatchKey) -> Plain:
    """Whose slot holds nothing where a composite kernel and `other` have one, and says so to the invariants alone."""
    honest = STRICT.precedence.plain

    def candidates(
        key: DispatchKey,
        direct: AbstractSet[Source],
        fallbacks: AbstractSet[DispatchKey],
        fallthrough: AbstractSet[DispatchKey],
    ) -> Iterator[Candidate]:
        for one in honest.candidates(key, direct, fallbacks, fallthrough):
            if not (key is slot and other in direct and one.reason is Provenance.MATH):
                yield one

    def readers() -> Iterator[tuple[str, str]]:
        yield from honest.readers()
        yield other.name, slot.name

    return Plain(candidates, honest.slots, readers, honest.named_groups)


def test_groups_that_are_not_all_that_a_slot_depends_on_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = (K.CPU, K.Tracer, CIA)
    assert undeclared(STRICT, keys) == ""
    looking = replace(STRICT, precedence=STRICT.precedence._replace(plain=plain_that_looks_at(K.CPU, K.Tracer)))
    assert undeclared(looking, keys) == "the kernel of CPU depends on more than its groups"
    pattern = Pattern(defined=True, keys=keys)
    assert neighbourhoods_of(looking, [pattern]) == {pattern: "the kernel of CPU depends on more than its groups"}
    monkeypatch.setattr(slot_neighbourhoods, "undeclared", lambda *_: "")
    found = neighbourhoods_of(looking, [pattern])[pattern]
    assert not isinstance(found, str)
    together = [some for each in found if K.Tracer in (some := [key for key, _ in each.kernels])]
    assert together
    assert not any(CIA in each and K.CPU in each for each in together)  # so it is missed


def test_a_slot_of_the_same_groups_with_another_winner_is_not_taken() -> None:
    other = plain_that_looks_at(K.XPU, CIA)
    looking = replace(STRICT, precedence=STRICT.precedence._replace(plain=other))
    assert undeclared(looking, (K.CPU, K.XPU, CIA)) == "the kernel of XPU depends on more than its groups"


def test_semantics_that_declare_no_groups_prove_nothing() -> None:
    silent = replace(
        STRICT,
        precedence=PR35061._replace(plain=Plain(PR35061.plain.candidates, PR35061.plain.slots, lambda: iter(()))),
    )
    (found,) = neighbourhoods_of(silent, [Pattern(defined=True, keys=(K.CPU,))]).values()
    assert found == "the semantics strict do not say which keys decide about which slots"


def test_a_fallback_at_a_key_that_the_semantics_do_not_have_is_left_out_and_named() -> None:
    foreign = RecordedFallback(K.AutocastMTIA, fallthrough=True, debug="autocast fallback")
    recorded = registry_of("made up", [operator("foo", K.CPU, CIA)], (*FALLBACKS, foreign))
    found = certification_of(recorded, name="made up", semantics="torch-2.4")
    assert [one.key for one in found.unknown] == [K.AutocastMTIA]
    assert (
        "not covered: the fallback of AutocastMTIA, a key that torch-2.4 does not have\n"
        in certification_view(found).text()
    )
