"""5,000 generated calls over random registrations, on the running PyTorch and on the lab."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

from tests.effort import only_whole
from tests.live import test_call_sequences_live as live


@only_whole()
@pytest.mark.filterwarnings("ignore::UserWarning:", "ignore::DeprecationWarning")
def test_5000_generated_calls_run_the_kernels_that_pytorch_runs() -> None:
    found = live.compared(5_000, seed=2)
    assert found.different == []
    assert set(found.named) <= live.REASONS
    assert found.named.total() < 10
    assert (found.calls, set(live.ENDS) - set(found.ends)) == (5_000, set())
    assert found.kernels > 6_000
    assert len(found.keys) > 25
