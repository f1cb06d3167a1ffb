"""`explain` against the running PyTorch for every operator of PyTorch 2.13."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

from dispatchlab.live.introspection.registry_reader import record_operators
from dispatchlab.questions.sources.find_sources import recorded_from
from dispatchlab.questions.sources.replay_on_lab import bench
from tests.effort import share, some
from tests.live import test_explain_live as live


def test_every_hop_of_every_operator_names_the_kernel_that_the_running_pytorch_holds() -> None:
    if not live.torch.__version__.startswith("2.13."):
        pytest.skip(f"the bundled registry is of PyTorch 2.13, and this is {live.torch.__version__}")
    recorded = recorded_from("torch-2.13-cpu")
    replayed = bench(recorded, semantics="torch-2.13")
    there = set(live.C._dispatch_get_all_op_names()) - set(live.C._dispatch_find_dangling_impls())
    calls = hops = 0
    names = there.intersection(recorded.names)
    # What another test has imported may have registered kernels that the record does not have.
    now = record_operators(names)
    for name in some(sorted(name for name in names if now.operator(name) == recorded.operator(name))):
        view = replayed.dispatcher.explain(name)
        if view is None or view.schema is None:
            continue
        for kind in live.KINDS:
            found, kinds = live.explained(view, kind)
            keys = live.live_keys(name, kinds)
            assert [str(key) for key in found.hops[0].order] == keys, (name, kind)
            for hop in found.hops:
                assert live.explained_kernel(hop) == live.live_kernel(name, str(hop.key)), (name, kind, hop.key)
            calls += 1
            hops += len(found.hops)
    assert calls > share(10_000)
    assert hops > share(20_000)
