"""All of PyTorch 2.13, certified."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.keys import DispatchKey
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkOptions
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.certify.certificate import Cause, Certificate, Certified, pattern_of
from dispatchlab.questions.certify.certify_registry import certification_of
from dispatchlab.questions.certify.operator_neighbourhoods import patterns_with_stale_slots
from dispatchlab.questions.sources.replay_on_lab import for_registry
from dispatchlab.registries.file import bundled_names, open_bundled
from dispatchlab.registries.replay import fallback_registration, operator_registrations
from tests.effort import some


def test_every_operator_of_pytorch_is_proved_or_names_the_owners_of_its_kernels() -> None:
    found = certification_of(open_bundled("torch-2.13-cpu"), name="torch-2.13-cpu", semantics="strict")
    assert len(found.certificates) == 3_598
    verdicts = {each: len(found.of(each)) for each in Certified}
    assert verdicts == {Certified.ORDER_INDEPENDENT: 2_962, Certified.ORDER_DEPENDENT: 636, Certified.NOT_DECIDED: 0}
    assert len(found.because(Cause.OVERRIDE)) == 636
    assert (found.patterns, found.registrations) == (389, 20_804)
    assert found.largest == 6
    assert found.neighbourhoods < 300
    for certificate in found.of(Certified.ORDER_DEPENDENT):
        for reason in certificate.reasons:
            assert reason.winner is not None
            assert all(owner.debug for owner in (reason.winner, *reason.losers))


def test_the_operators_of_pytorch_whose_slots_depend_on_order() -> None:
    found = certification_of(open_bundled("torch-2.13-cpu"), name="torch-2.13-cpu", semantics="torch-2.13")
    assert not found.of(Certified.NOT_DECIDED)
    assert len(found.of(Certified.ORDER_DEPENDENT)) == 644
    shows = {
        each.operator: any(reason.cause is Cause.STALE and reason.in_force for reason in each.reasons)
        for each in found.because(Cause.STALE)
    }
    assert [operator for operator, at_the_end in shows.items() if at_the_end] == [
        "aten::linear",
        "aten::matmul",
        "aten::matmul.out",
        "aten::narrow",
        "aten::silu_backward",
        "aten::value_selecting_reduction_backward",
    ]
    assert [operator for operator, at_the_end in shows.items() if not at_the_end] == [
        "aten::_test_autograd_multiple_dispatch.ntonly",
        "aten::chunk",
    ]


def test_the_slot_of_linear_that_pytorch_leaves_stale_is_refreshed_under_strict() -> None:
    recorded = open_bundled("torch-2.13-cpu")
    linear = recorded.operator("aten::linear")
    assert linear is not None
    strict, torch = (
        certification_of(recorded, name="torch-2.13-cpu", operators=[linear], semantics=semantics).certificates[0]
        for semantics in ("strict", "torch-2.13")
    )
    assert strict.verdict is Certified.ORDER_INDEPENDENT
    assert torch.reasons[0].keys == (DispatchKey.AutogradNestedTensor,)


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
def test_whole_graphs_of_operators_have_the_verdict_of_their_certificate(semantics: str) -> None:
    recorded = open_bundled("torch-2.13-cpu")
    some = [operator for operator in recorded if len(operator.kernels) == 9][:12]
    some += [operator for name in ("aten::chunk", "aten::narrow") if (operator := recorded.operator(name)) is not None]
    found = certification_of(recorded, name="torch-2.13-cpu", semantics=semantics, operators=some)
    fallbacks = tuple(map(fallback_registration, recorded.fallbacks))
    engine = LabEngine(replace(for_registry(semantics), fallbacks=fallbacks))
    edges, seen = 0, set()
    for operator, certificate in zip(some, found.certificates, strict=True):
        whole = explore(engine, operator_registrations(operator), [operator.name], WalkOptions(walk="graph"))
        assert (whole.verdict is Verdict.ORDER_INDEPENDENT) == (certificate.verdict is Certified.ORDER_INDEPENDENT)
        edges += whole.edges
        seen.add(certificate.verdict)
    assert edges > 30_000
    assert seen == {Certified.ORDER_INDEPENDENT, Certified.ORDER_DEPENDENT}


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
@pytest.mark.parametrize(
    ("semantics", "name"),
    [("its own", name) for name in some(bundled_names()[3:])] + [("strict", name) for name in some(bundled_names())],
)
def test_certificates_of_every_version_are_those_of_whole_graphs(semantics: str, name: str) -> None:
    recorded = open_bundled(name)
    own = name.removesuffix("-cpu") if semantics == "its own" else semantics
    dispatcher = for_registry(own, torch=recorded.torch)
    stale = patterns_with_stale_slots(dispatcher, {pattern_of(operator) for operator in recorded})
    small = [operator for operator in recorded if len(operator.kernels) <= 9]
    some = small[::30] + [operator for operator in small if pattern_of(operator) in stale]
    found = certification_of(recorded, name=name, semantics=own, operators=some)
    fallbacks = tuple(map(fallback_registration, recorded.fallbacks))
    engine = LabEngine(replace(dispatcher, fallbacks=fallbacks))
    for operator, certificate in zip(some, found.certificates, strict=True):
        if len(operator.kernels) <= 7:
            whole = explore(engine, operator_registrations(operator), [operator.name], WalkOptions(walk="graph"))
            assert (whole.verdict is Verdict.ORDER_INDEPENDENT) == (certificate.verdict is Certified.ORDER_INDEPENDENT)
    assert len(found.certificates) > 100
    assert {Certified.ORDER_INDEPENDENT, Certified.ORDER_DEPENDENT} == {one.verdict for one in found.certificates}


def of_pytorch(name: str) -> Certificate:
    recorded = open_bundled("torch-2.13-cpu")
    found = recorded.operator(name)
    assert found is not None
    (certificate,) = certification_of(
        recorded, name="torch-2.13-cpu", semantics="strict", operators=[found]
    ).certificates
    return certificate


def test_relu_of_pytorch_is_proved() -> None:
    assert of_pytorch("aten::relu").verdict is Certified.ORDER_INDEPENDENT


def test_floor_of_pytorch_depends_on_the_order_of_a_kernel_of_its_meta_registrations() -> None:
    floor = of_pytorch("aten::floor")
    assert floor.verdict is Certified.ORDER_DEPENDENT
    assert floor.reasons[0].winner is not None
    assert "_meta_registrations.py" in floor.reasons[0].winner.debug
