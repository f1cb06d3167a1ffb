"""What `explain --mode` predicts for 500 operators with real arguments against what runs in PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dispatchlab.cli import main
from tests.effort import only_whole, share
from tests.live.test_explain_modes_live import TRANSFORMS, compared, output_of

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


@pytest.mark.parametrize("mode", [pytest.param("fake", marks=only_whole()), "symbolic"])
def test_what_is_predicted_runs(mode: str) -> None:
    found = compared(mode, share(500), 1)
    assert found["differences"] == []
    assert found["agree"] + len(found["refused"]) + len(found["unseen"]) == share(500)
    # Without a size that can be symbolic are factories, and calls with tensors of one element or none.
    few = 29 if mode == "symbolic" else 0
    assert len(found["refused"]) + len(found["unseen"]) <= few


NOT_IN_THE_MODE = {
    # A rule of PyTorch itself raises: sparse tensors have no view, the mask is batched. The last two cannot be in a
    # batch: a list of numbers is read from a tensor, and CSR tensors have no strides.
    "vmap": ("to_sparse", "_to_sparse", "masked_select", "tensor_split.indices", "sparse_sampled_addmm"),
    # Autograd does not resize a tensor that requires grad, and CSR tensors have no strides to wrap.
    "grad": ("resize_", "resize_as_", "sparse_sampled_addmm"),
    "functionalize": (),
    "autocast": (),
}
"""The operators whose call PyTorch itself refuses in a mode after the hops that are compared, or before the first."""


@pytest.fixture(scope="module")
def each() -> dict[str, Any]:
    """What was compared in each of the transforms and in autocast, by one process."""
    found: dict[str, Any] = compared("each", share(500), 1)
    return found


@only_whole()
@pytest.mark.parametrize("mode", TRANSFORMS)
def test_every_hop_that_is_predicted_is_taken(mode: str, each: dict[str, Any]) -> None:
    found = each[mode]
    assert found["differences"] == []
    assert found["agree"] + len(found["refused"]) + len(found["unseen"]) == share(500)
    names = {text.partition(": ")[0].removeprefix("aten::") for text in (*found["refused"], *found["unseen"])}
    assert names <= {*NOT_IN_THE_MODE[mode]}
    assert share(100) < 100 or names == {*NOT_IN_THE_MODE[mode]}


@only_whole()
def test_autocast_casts_what_the_policy_says() -> None:
    found = compared("casts", share(500), 1)
    assert found["looked"] >= share(190) // 2
    assert found["wrong"] == []


def test_the_operators_of_a_recorded_package_take_the_hops_that_are_predicted(tmp_path: Path) -> None:
    record = tmp_path / "package.dlreg"
    call = ["record", "--all", "tests.live.transform_operators", "-o", str(record)]
    assert CliRunner().invoke(main, call).exit_code == 0
    assert output_of("tests.live.transform_calls", "package", str(record)) == []


def test_jvp_takes_the_hops_of_grad_and_each_chunk_of_vmap_those_of_vmap() -> None:
    found = compared("alike", share(200), 1)
    assert found["jvp"]["differences"] == found["wrong"] == []
    assert found["jvp"]["agree"] >= share(150)
    assert found["looked"] >= share(300)


def test_transforms_in_transforms_take_the_hops_that_are_predicted() -> None:
    found = compared("nested", share(100), 3)
    assert found["looked"] >= share(650) // 2
    assert found["wrong"] == []
