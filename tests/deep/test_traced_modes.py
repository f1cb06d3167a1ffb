"""What `explain` predicts for 500 operators that are traced, or called with DTensors, against what runs in PyTorch.

The classes of what is not compared:

- refused: PyTorch itself refuses the call. Dynamo takes no sparse tensors and no result that depends on data;
  FakeTensorMode has no rule for some operators; AOTAutograd takes no `resize_`; a rule of DTensor refuses the
  arguments, or an operator that a composite kernel calls has no rule.
- unseen: a pass of Inductor takes the operator out of the graph before the lowering.
"""

from __future__ import annotations

import pytest

from tests.live.test_traced_modes_live import compared

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


@pytest.mark.parametrize(
    ("paths", "count", "least"),
    [
        ("make_fx none,make_fx all,symbolic make_fx inductor", 500, 486),
        ("make_fx core_aten,make_fx pre_autograd,dtensor", 500, 484),
        ("aot_eager", 500, 491),
        ("inductor", 500, 488),
        ("export", 250, 240),
        ("strict export,inductor code", 12, 10),
    ],
)
def test_what_is_predicted_runs(paths: str, count: int, least: int) -> None:
    for path, found in compared(paths, count, 1).items():
        assert found["differences"] == [], path
        assert found["agree"] >= least, path
        assert found["agree"] + len(found["refused"]) + len(found["unseen"]) == count
