"""All of PyTorch 2.13, certified."""

from __future__ import annotations

from dispatchlab.commands.certify import certification_of
from dispatchlab.registry.bundled import open_bundled
from dispatchlab.registry.certify import Cause, Certified


def test_every_operator_of_pytorch_is_proved_or_told_with_its_owners() -> None:
    found = certification_of(open_bundled(), name="torch-2.13", jobs=2)
    assert len(found.certificates) == 3_598
    assert not found.of(Certified.NOT_DECIDED)
    assert (len(found.of(Certified.PROVED)), len(found.of(Certified.ORDER_MATTERS))) == (2_962, 636)
    assert len(found.because(Cause.OVERRIDE)) == 636
    assert (found.patterns, found.registrations) == (389, 20_804)
    for certificate in found.of(Certified.ORDER_MATTERS):
        for reason in certificate.reasons:
            assert reason.winner is not None
            assert all(owner.debug for owner in (reason.winner, *reason.losers))


def test_the_operators_of_pytorch_whose_slots_depend_on_order() -> None:
    found = certification_of(open_bundled(), name="torch-2.13", jobs=2, semantics="torch-2.13")
    assert not found.of(Certified.NOT_DECIDED)
    assert len(found.of(Certified.ORDER_MATTERS)) == 644
    assert [each.operator for each in found.because(Cause.STALE, in_force=True)] == [
        "aten::linear",
        "aten::matmul",
        "aten::matmul.out",
        "aten::narrow",
        "aten::silu_backward",
        "aten::value_selecting_reduction_backward",
    ]
    assert [each.operator for each in found.because(Cause.STALE, in_force=False)] == [
        "aten::_test_autograd_multiple_dispatch.ntonly",
        "aten::chunk",
    ]
