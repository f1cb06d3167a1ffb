"""Certificates by roles and symmetry: the verdicts of whole windows, and that each check finds what it is there for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import pytest

from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.precedence import PR35061
from dispatchlab.engine.reference_precedence import Candidate, Plain, Source
from dispatchlab.engine.semantics import SEMANTICS, Semantics
from dispatchlab.model.dependence import Dependence
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.slot_set import KEY_BIT
from dispatchlab.prover import symmetry
from dispatchlab.prover.symmetry import Shaped, Symmetry
from dispatchlab.questions.certify import certify_registry, slot_neighbourhoods
from dispatchlab.questions.certify.blocks import certification_view
from dispatchlab.questions.certify.certificate import Certification, Certified, Pattern
from dispatchlab.questions.certify.certify_registry import certification_of
from dispatchlab.questions.certify.slot_neighbourhoods import slot_plan, undeclared
from dispatchlab.registries.model import RecordedFallback, Registry, registry_of
from dispatchlab.registries.replay import fallback_registration
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

    certify_registry._dispatcher_of.cache_clear()
    return certified


def verdicts(found: Certification) -> list[Certified]:
    return [one.verdict for one in found.certificates]


# -- each check finds what it is there for, and is missed when it is off


def lose(semantics: Semantics, key: DispatchKey, slot: DispatchKey) -> Semantics:
    return replace(semantics, refresh={**semantics.refresh, key: semantics.refresh[key] & ~KEY_BIT[slot]})


def without_looks(monkeypatch: pytest.MonkeyPatch, *, short: bool = True, far: bool = True) -> None:
    if short:
        monkeypatch.setattr(certify_registry, "look_at", lambda *_: "")
    if far:
        monkeypatch.setattr(certify_registry._Bench, "random_sequence", lambda *_: "")


def without_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take neighbourhoods for equal that have equally many members."""

    def shaped(self: Symmetry, members: Sequence[int], labels: Sequence[object] = ()) -> Shaped:
        return Shaped((len(members), tuple(labels)), tuple(members))

    monkeypatch.setattr(Symmetry, "shaped", shaped)


def test_a_key_that_breaks_the_symmetry_of_the_tables_is_explored_by_itself(
    planted: Callable[..., Certification], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = lose(STRICT, TWO, K.AutogradOther)
    expected = [Certified.ORDER_INDEPENDENT, Certified.ORDER_DEPENDENT]
    assert verdicts(planted(SPARSE, broken)) == expected
    with monkeypatch.context() as patched:
        without_looks(patched)
        assert verdicts(planted(SPARSE, broken)) == expected
    with monkeypatch.context() as patched:
        without_roles(patched)
        assert verdicts(planted(SPARSE, broken)) == expected  # a sequence of its own shows it
    without_roles(monkeypatch)
    without_looks(monkeypatch)
    assert verdicts(planted(SPARSE, broken)) == [Certified.ORDER_INDEPENDENT] * 2


def test_what_the_tables_do_not_show_is_found_by_a_sequence_over_each_equal_neighbourhood_and_each_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = OperatorEntry.with_kernels

    def forgets(self: OperatorEntry, bit: int, at_key: Any, wanted: int, fill: Any, fallbacks: Any) -> OperatorEntry:
        lost = KEY_BIT[K.AutogradOther] if bit == KEY_BIT[TWO] else 0
        return honest(self, bit, at_key, wanted & ~lost, fill, fallbacks)

    monkeypatch.setattr(OperatorEntry, "with_kernels", forgets)

    def found() -> list[Certified]:
        return verdicts(certification_of(SPARSE, name="a registry"))

    expected = [Certified.ORDER_INDEPENDENT, Certified.NOT_DECIDED]
    for short, far in ((True, False), (False, True)):
        with monkeypatch.context() as patched:
            without_looks(patched, short=short, far=far)
            assert found() == expected
    without_looks(monkeypatch)
    assert found() == [Certified.ORDER_INDEPENDENT] * 2


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
    assert not slot_plan(looking, [pattern]).wanted
    monkeypatch.setattr(slot_neighbourhoods, "undeclared", lambda *_: "")
    together = [each for each in slot_plan(looking, [pattern]).wanted[pattern] if each.keys & KEY_BIT[K.Tracer]]
    assert together
    assert not any(each.keys & KEY_BIT[CIA] and each.keys & KEY_BIT[K.CPU] for each in together)  # so it is missed


def test_a_slot_of_the_same_groups_with_another_winner_is_not_taken() -> None:
    other = plain_that_looks_at(K.XPU, CIA)
    looking = replace(STRICT, precedence=STRICT.precedence._replace(plain=other))
    assert undeclared(looking, (K.CPU, K.XPU, CIA)) == "the kernel of XPU depends on more than its groups"


@pytest.mark.parametrize(("few", "expected"), [(2, "explored by windows"), (4, "not decided")])
def test_a_refresh_that_reads_what_decides_about_none_of_its_slots_proves_nothing(
    planted: Callable[..., Certification], monkeypatch: pytest.MonkeyPatch, *, few: int, expected: str
) -> None:
    fill = STRICT.precedence.fill

    def nosy(slots: Any, wanted: int, present: int, kernels: Any, fallbacks: Any) -> None:
        if wanted == STRICT.refresh[K.CPU] and int(present).bit_count() >= few:
            present & KEY_BIT[K.Tracer]
        fill(slots, wanted, present, kernels, fallbacks)

    looking = replace(STRICT, precedence=STRICT.precedence._replace(fill=nosy))
    recorded = registry_of("none", [operator("foo", K.CPU, K.Meta, K.Conjugate, CIA)], FALLBACKS)
    found = planted(recorded, looking)
    if expected == "not decided":  # it shows on the whole operator alone
        assert found.certificates[0].not_decided == "a refresh reads keys that decide about none of its slots"
    assert (found.by_window == 1) == (expected == "explored by windows")
    monkeypatch.setattr(slot_neighbourhoods, "reads_more", lambda *_: False)
    monkeypatch.setattr(certify_registry, "reads_more", lambda *_: False)
    missed = planted(recorded, looking)
    assert (verdicts(missed), missed.by_window) == ([Certified.ORDER_INDEPENDENT], 0)


def test_semantics_that_declare_no_groups_are_explored_by_windows() -> None:
    silent = replace(
        STRICT,
        precedence=PR35061._replace(plain=Plain(PR35061.plain.candidates, PR35061.plain.slots, lambda: iter(()))),
    )
    assert not slot_plan(silent, [Pattern(defined=True, keys=(K.CPU,))]).wanted


def test_a_backend_that_joins_with_the_kernels_of_another_adds_nothing_to_explore() -> None:
    fallbacks = tuple(
        RecordedFallback(DispatchKey[f"Autograd{one}"], fallthrough=True, debug="autograd fallback")
        for one in ("CPU", "CUDA", "XPU")
    )

    def plan(*backends: str) -> tuple[int, int]:
        keys = [DispatchKey[f"{kind}{one}"] for one in backends for kind in ("", "Sparse", "Autograd")]
        semantics = replace(STRICT, fallbacks=tuple(map(fallback_registration, fallbacks)))
        found = slot_plan(semantics, [Pattern(defined=True, keys=(*keys, CIA, CEA))])
        return len(found.explored), len(found.alike)

    two, three = plan("CPU", "CUDA"), plan("CPU", "CUDA", "XPU")
    assert three[0] <= two[0]  # fewer fallbacks are at backends without kernels
    assert two[1] < three[1]


def test_a_registration_that_keeps_a_variable_is_another_part_than_one_that_does_not() -> None:
    variables: dict[Hashable, Dependence] = {
        "a": Dependence((1, 2), {0: "x", 1: "y"}, holders=1 | 4, kind="slot"),
        "b": Dependence((8, 16), {3: "x", 4: "y"}, holders=8 | 32, kind="slot"),
        "c": Dependence((64, 128), {6: "x", 7: "y"}, holders=64, kind="slot"),
        "d": Dependence((256,), {8: "x"}),
    }
    shapes = Symmetry(variables)

    def shape(*members: int) -> object:
        shaped = shapes.shaped(members)
        return None if shaped is None else shaped.shape

    assert shape(0, 1, 2) == shape(3, 4, 5) == shape(4, 5, 3)
    assert shape(0, 1) == shape(6, 7)
    assert shape(0, 1, 2) != shape(6, 7, 2)
    assert shape(8) is None
    assert shapes.shaped((0, 1), (1, 2)) != shapes.shaped((0, 1), (2, 1))


def test_a_fallback_at_a_key_that_the_semantics_do_not_have_is_left_out_and_named() -> None:
    foreign = RecordedFallback(K.AutocastMTIA, fallthrough=True, debug="autocast fallback")
    recorded = registry_of("made up", [operator("foo", K.CPU, CIA)], (*FALLBACKS, foreign))
    found = certification_of(recorded, name="made up", semantics="torch-2.4")
    assert [one.key for one in found.unknown] == [K.AutocastMTIA]
    assert (
        "not covered: the fallback of AutocastMTIA, a key that torch-2.4 does not have\n"
        in certification_view(found).text()
    )
    assert symmetry.Symmetry({}).shaped(()) is not None
