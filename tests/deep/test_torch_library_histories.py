"""Calls of `torch.library` at length: 2,000 histories beside the running PyTorch, and all walks of the lab engine."""

from __future__ import annotations

import pytest

from tests.effort import share
from tests.torch_library_walks import check_walks


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
def test_all_walks_agree_on_calls_of_torch_library() -> None:
    seen = check_walks(0, share(200))
    assert min(seen["order-independent"], seen["order-dependent"], seen["orders"]) > share(80)


def test_two_thousand_histories_are_equal_on_the_lab_and_the_running_pytorch() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")
    from tests.live.torch_library_histories import check_histories

    seen = check_histories(10_000, 2000)
    kinds = "meta_beside_composite", "duplicate_rule", "duplicate_kernel", "not_functional", "library_destroyed"
    assert all(seen[kind] for kind in kinds)
