"""Footprints of refreshes: none reads a key that decides about none of its slots, which certificates stand on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from dispatchlab.engine.lab_engine import LabSpace
from dispatchlab.engine.precedence import PR35061
from dispatchlab.engine.semantics import SEMANTICS, Semantics
from dispatchlab.model.slot_set import KEY_BIT, slots_of
from dispatchlab.prover.graph_walk import explore_graph
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.certify.certificate import Pattern, pattern_of
from dispatchlab.questions.certify.operator_neighbourhoods import NAME, Neighbourhood, scenario_of
from dispatchlab.questions.certify.slot_neighbourhoods import neighbourhoods_of
from dispatchlab.questions.sources.replay_on_lab import for_registry
from dispatchlab.registries.file import open_bundled
from dispatchlab.registries.replay import fallback_registration, operator_registrations
from tests.footprint import Footprint, reads_more
from tests.test_certify import CEA, CIA, FALLBACKS, STRICT, K, operator

WITH_FALLBACKS = replace(STRICT, fallbacks=tuple(map(fallback_registration, FALLBACKS)))


def wrong_in(semantics: Semantics, patterns: Iterable[Pattern]) -> set[str]:
    """What the footprints of the neighbourhoods of patterns show that they may not."""
    wrong: set[str] = set()
    wanted: set[Neighbourhood] = set()
    for some in neighbourhoods_of(semantics, sorted(patterns)).values():
        assert not isinstance(some, str), some
        wanted |= some
    for each in sorted(wanted, key=lambda one: one.rank):
        plain, registrations, order = scenario_of(semantics, each)
        footprint = Footprint(plain)
        explore_graph(LabSpace(registrations, [NAME], footprint.watched), len(registrations), order=order)
        reads = {window: mask for window, mask in footprint.reads.items() if window != semantics.precedence.slots}
        wrong |= footprint.strays
        if reads_more(semantics, reads):
            wrong.add("reads more")
    return wrong


def test_footprints_name_the_keys_that_a_refresh_looks_at() -> None:
    footprint = Footprint(replace(STRICT, fallbacks=tuple(map(fallback_registration, FALLBACKS))))
    one = operator("foo", K.CPU, K.SparseCPU, CIA)
    registrations = operator_registrations(one)
    found = explore_graph(LabSpace(registrations, [one.name], footprint.watched), len(registrations))
    assert found.verdict is Verdict.ORDER_INDEPENDENT
    assert not footprint.strays
    window = STRICT.refresh[K.CPU]
    read = footprint.reads[window]
    assert footprint.calls > found.edges // 3
    assert read & slots_of((K.CPU, K.AutogradCPU)) == slots_of((K.CPU, K.AutogradCPU))
    assert not read & slots_of((K.SparseCPU, K.Tracer, K.FPGA))


def test_a_precedence_that_looks_at_fallbacks_first_strays() -> None:
    footprint = Footprint(replace(WITH_FALLBACKS, precedence=PR35061))
    one = operator("foo", K.CPU)
    registrations = operator_registrations(one)
    explore_graph(LabSpace(registrations, [one.name], footprint.watched), len(registrations))
    assert footprint.strays == {"a refresh looked at the fallbacks of slots that kernels fill"}


def test_a_refresh_that_reads_what_decides_about_none_of_its_slots_is_seen() -> None:
    fill = STRICT.precedence.fill

    def nosy(slots: Any, wanted: int, present: int, kernels: Any, fallbacks: Any) -> None:
        if wanted == STRICT.refresh[K.CPU]:
            present & KEY_BIT[K.Tracer]
        fill(slots, wanted, present, kernels, fallbacks)

    looking = replace(WITH_FALLBACKS, precedence=STRICT.precedence._replace(fill=nosy))
    assert wrong_in(looking, [Pattern(defined=True, keys=(K.CPU, K.Meta, CIA))]) == {"reads more"}


@pytest.mark.parametrize("semantics", ["strict", *list(SEMANTICS)[1:-1]])
def test_no_refresh_reads_more_than_decides_about_its_slots(semantics: str) -> None:
    fallbacks = tuple(map(fallback_registration, FALLBACKS))
    patterns = [
        Pattern(defined=True, keys=keys)
        for keys in (
            (K.CPU, K.SparseCPU, K.NestedTensorCPU, K.Autograd, CIA, CEA),
            (K.CPU, K.CUDA, K.Meta, K.AutogradCPU, K.AutocastCPU, K.Tracer, CEA),
        )
    ]
    if semantics == "torch-2.13":
        recorded = open_bundled("torch-2.13-cpu")
        patterns += sorted({pattern_of(one) for one in recorded})[::20]
        fallbacks = tuple(map(fallback_registration, recorded.fallbacks))
    assert wrong_in(replace(for_registry(semantics), fallbacks=fallbacks), patterns) == set()
