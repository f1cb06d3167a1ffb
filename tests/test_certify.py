"""Certificates: what is proved, what is not, and that nothing is proved which was not looked at."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.semantics import SEMANTICS, Semantics
from dispatchlab.errors import UnknownOperatorError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Impl, Kernel, Registration
from dispatchlab.model.slot_set import slots_of
from dispatchlab.prover.limits import Progress
from dispatchlab.prover.run_sequence import compare_sequences, on_sandboxes
from dispatchlab.questions.certify.blocks import certification_view
from dispatchlab.questions.certify.certificate import Cause, Certification, Certified, pattern_of
from dispatchlab.questions.certify.certify_registry import certification_of
from dispatchlab.questions.certify.operator_neighbourhoods import (
    Neighbourhood,
    explore_neighbourhood,
)
from dispatchlab.registries.model import (
    RecordedFallback,
    RecordedKernel,
    RecordedOperator,
    Registry,
    registry_of,
)
from dispatchlab.registries.replay import fallback_registration
from tests.command_line import run, run_raising

STRICT = SEMANTICS["strict"]

K = DispatchKey
CIA, CEA = K.CompositeImplicitAutograd, K.CompositeExplicitAutograd
FALLBACKS = (
    RecordedFallback(K.AutogradOther, fallthrough=False, debug="autograd fallback"),
    RecordedFallback(K.AutogradCPU, fallthrough=False, debug="autograd fallback"),
    RecordedFallback(K.AutocastCPU, fallthrough=True, debug="autocast fallback"),
)


def operator(name: str, *keys: DispatchKey, defined: bool = True) -> RecordedOperator:
    kernels = []
    for at, key in enumerate(sorted(keys)):
        kernels.append(RecordedKernel(key, f"{key} {at}", active=key not in sorted(keys)[:at]))
    parsed = OperatorName("test", name)
    schema = f"test::{name}(Tensor x) -> Tensor" if defined else None
    return RecordedOperator(parsed, schema, "the def" if defined else "", kernels=tuple(kernels))


def registry(*operators: RecordedOperator) -> Registry:
    return registry_of("none", operators, FALLBACKS)


def certified(recorded: Registry, semantics: str = "strict") -> Certification:
    return certification_of(recorded, name="a registry", semantics=semantics)


def test_an_operator_with_one_kernel_per_key_is_proved_under_strict() -> None:
    found = certified(registry(operator("foo", K.CPU, K.SparseCPU, K.NestedTensorCPU, K.Autograd, CIA, CEA)))
    assert [each.verdict for each in found.certificates] == [Certified.ORDER_INDEPENDENT]
    assert (found.patterns, found.registrations) == (1, 10)
    assert found.edges > 1_000
    assert found.exit_code == 0


def test_two_kernels_at_a_key_make_order_matter_by_an_override() -> None:
    found = certified(registry(operator("foo", K.Meta, K.Meta, K.CPU), operator("bar", K.CPU)))
    bar, foo = found.certificates
    assert bar.verdict is Certified.ORDER_INDEPENDENT
    assert foo.verdict is Certified.ORDER_DEPENDENT
    (reason,) = foo.reasons
    assert (reason.cause, reason.keys, reason.in_force) == (Cause.OVERRIDE, (K.Meta,), True)
    assert reason.winner is not None
    assert (reason.winner.debug, [each.debug for each in reason.losers]) == ("Meta 1", ["Meta 2"])
    assert found.exit_code == 1


@pytest.mark.parametrize(
    ("keys", "slots"),
    [
        ((CIA, K.SparseCPU), {"AutogradOther"}),
        ((CIA, K.NestedTensorCPU), {"AutogradNestedTensor"}),
        ((CIA, CEA), 34),
    ],
)
def test_stale_slots_of_pytorch_are_not_stale_under_strict(
    keys: tuple[DispatchKey, ...], slots: set[str] | int
) -> None:
    recorded = registry(operator("foo", *keys))
    (strict,) = certified(recorded).certificates
    assert strict.verdict is Certified.ORDER_INDEPENDENT
    (torch,) = certified(recorded, "torch-2.13").certificates
    assert torch.verdict is Certified.ORDER_DEPENDENT
    (reason,) = torch.reasons
    assert reason.in_force
    assert reason.cause is Cause.STALE
    assert (len(reason.keys) if isinstance(slots, int) else set(map(str, reason.keys))) == slots


def test_a_stale_slot_that_settles_when_all_are_registered_is_not_in_force() -> None:
    recorded = registry(operator("foo", CIA, K.NestedTensorCPU, K.AutogradNestedTensor))
    (found,) = certified(recorded, "torch-2.13").certificates
    assert [(reason.cause, reason.in_force) for reason in found.reasons] == [(Cause.STALE, False)]


def test_both_sequences_of_a_reason_lead_to_different_ends_on_the_operator() -> None:
    one = operator("foo", CIA, K.SparseCPU, K.Tracer, K.CPU)
    (found,) = certified(registry(one), "torch-2.13").certificates
    (reason,) = found.reasons
    registrations: list[Registration] = [
        Impl(one.name, owner.key, Kernel(), owner.debug) for owner in reason.registrations
    ]
    sessions = on_sandboxes(LabEngine("torch-2.13"), registrations, [one.name])
    assert compare_sequences(sessions, reason.expected_sequence, reason.actual_sequence) is not None
    assert len(registrations) == 2


def _with(semantics: Semantics, keys: tuple[DispatchKey, ...]) -> tuple[str, frozenset[int]]:
    dispatcher = replace(semantics, fallbacks=tuple(map(fallback_registration, FALLBACKS)))
    explored = explore_neighbourhood(dispatcher, Neighbourhood(tuple((key, 1) for key in keys)))
    return explored.trouble, explored.stale


def test_a_refresh_that_forgets_a_slot_is_not_proved() -> None:
    forgetful = dict(STRICT.refresh)
    forgetful[CEA] = slots_of(key for key in (K.Undefined, K.CPU))
    trouble, stale = _with(replace(STRICT, refresh=forgetful), (K.CPU, CEA))
    assert not trouble
    assert stale


def test_more_keys_than_are_explored_together_are_proved_by_their_roles() -> None:
    quantized = [key for key in K if key.functionality is K.Quantized and key.is_runtime]
    recorded = registry(operator("foo", CIA, *quantized, *[K.CPU, K.FPGA]))
    found = certified(recorded)
    assert found.certificates[0].verdict is Certified.ORDER_INDEPENDENT
    assert found.largest == 4


def test_more_kernels_of_one_key_than_are_explored_are_not_decided() -> None:
    found = certified(registry(operator("foo", *[K.CPU] * 18)))
    (one,) = found.certificates
    assert one.verdict is Certified.NOT_DECIDED
    assert "more than 16 are not explored" in one.not_decided
    assert found.exit_code == 3


def test_a_kernel_that_does_not_fit_its_def_is_not_decided() -> None:
    one = operator("foo", K.CPU)
    misfit = replace(one, kernels=(RecordedKernel(K.CPU, "two", "(Tensor _0, Tensor _1) -> Tensor _0"),))
    (found,) = certified(registry(misfit)).certificates
    assert found.verdict is Certified.NOT_DECIDED
    assert "was refused" in found.not_decided


def test_operators_of_one_pattern_share_their_neighbourhoods() -> None:
    one, other = operator("foo", K.CPU, CIA), operator("bar", K.CPU, CIA)
    alone, both = certified(registry(one)), certified(registry(one, other))
    assert pattern_of(one) == pattern_of(other)
    assert (both.patterns, both.edges) == (1, alone.edges)
    assert both.steps == 2 * alone.steps


def test_the_text_names_owners_and_says_what_is_not_covered() -> None:
    text = certification_view(certified(registry(operator("foo", K.Meta, K.Meta)))).text()
    assert text.startswith(
        "a registry under strict, an idealised dispatcher: 1 operator\norder-independent: 0\norder-dependent: 1\n"
    )
    assert "  test::foo  Meta: Meta 0 overrides Meta 1\n" in text
    assert text.splitlines()[-1] == "not covered: C++ signatures, which registries do not hold"
    assert "order-independent: 1\n" in certification_view(certified(registry(operator("foo", K.Meta)))).text()


def test_the_json_has_every_certificate() -> None:
    value = json.loads(certification_view(certified(registry(operator("foo", CIA, CEA)), "torch-2.13")).json())
    assert (value["version"], value["order_dependent"], value["not_decided"]) == (5, 1, 0)
    (reason,) = value["certificates"][0]["reasons"]
    assert (reason["cause"], reason["in_force"], len(reason["keys"])) == ("stale slots", True, 34)


def test_the_command_prints_and_ends_with_the_code_of_the_verdicts() -> None:
    several = ("--operator", "aten::_philox_normal_", "--operator", "_quantized::conv3d_relu")
    result = run("permute", *several, "--format", "text")
    assert result.exit_code == 1
    assert "torch-2.13-cpu under torch-2.13: 2 operators\n" in result.stdout
    ideal = run("permute", *several, "--semantics", "strict", "--format", "text")
    assert "torch-2.13-cpu under strict, an idealised dispatcher: 2 operators\n" in ideal.stdout
    result = run("permute", "--operator", "_quantized::conv3d_relu", "--format", "rich")
    assert result.exit_code == 0
    assert "order-independent  1" in result.stdout


def test_the_error_about_an_unknown_operator_names_the_nearest() -> None:
    with pytest.raises(UnknownOperatorError, match=r"did you mean .*aten::add\.Tensor"):
        run_raising("permute", "--operator", "aten::ad.Tensor")


def test_certify_reports_progress_up_to_the_last_edge() -> None:
    reports: list[Progress] = []
    certification_of(registry(operator("foo", CIA, CEA)), name="a registry", progress=reports.append)
    assert len(reports) > 1
    assert reports[-1].edges == reports[-1].total_edges
    assert all(one.edges <= (one.total_edges or 0) for one in reports)


WRITES = """claim: c.
registry: torch-2.13
packages: [mine]
registrations:
  - library: mine
    kind: FRAGMENT
    made_by: {call: custom_op, operator: f}
    debug: registered at mine/ops.py:9
    registrations:
      - def: "f(Tensor(a!) x) -> ()"
      - impl: f
        dispatch: ADInplaceOrView
      - impl: f
        dispatch: ADInplaceOrView
"""


def test_the_two_kernels_of_one_call_of_custom_op_have_one_order(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for text, code in ((WRITES, 0), (f"{WRITES}        debug: registered at mine/other.py:3\n", 1)):
        path.write_text(text)
        done = run("permute", str(path), "--operator", "mine::f")
        assert (done.exit_code, f"order-dependent: {code}\n" in done.stdout) == (code, True), done.output


@pytest.mark.parametrize(("semantics", "covered"), [("torch-2.13", False), ("torch-2.9", True), ("strict", True)])
def test_a_fallback_that_replaced_another_is_taken_as_in_force_and_named(semantics: str, *, covered: bool) -> None:
    mine = RecordedFallback(K.AutogradPrivateUse1, fallthrough=False, debug="registered at my_backend.cpp:1")
    recorded = registry_of("made up", [operator("foo", K.AutogradPrivateUse1)], [mine])
    found = certification_of(recorded, name="made up", semantics=semantics)
    assert found.certificates[0].verdict is Certified.ORDER_INDEPENDENT
    assert (found.replaced == ()) is covered
    assert found.registrations == 2 + covered
    assert ("the release of the fallback of AutogradPrivateUse1" in certification_view(found).text()) is not covered
    assert (len(json.loads(certification_view(found).json())["not_covered"]) == 1) is covered
