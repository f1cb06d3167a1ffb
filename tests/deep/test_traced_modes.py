"""What `explain` predicts for 500 operators that are traced, or called with DTensors, against what runs in PyTorch.

The classes of what is not compared:

- refused: PyTorch itself refuses the call. Dynamo takes no sparse tensors and no result that depends on data;
  FakeTensorMode has no rule for some operators; AOTAutograd takes no `resize_`; a rule of DTensor refuses the
  arguments, or an operator that a composite kernel calls has no rule.
- unseen: a pass of Inductor takes the operator out of the graph before the lowering.
"""

from __future__ import annotations

import pytest

from tests.effort import only_whole, share
from tests.live.test_traced_modes_live import compared

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


@pytest.mark.parametrize(
    ("paths", "count", "least"),
    [
        ("make_fx none,make_fx all,symbolic make_fx inductor", 500, 486),
        ("make_fx core_aten,make_fx pre_autograd,dtensor", 500, 484),
        pytest.param("aot_eager", 500, 491, marks=only_whole()),
        pytest.param("inductor", 500, 488, marks=only_whole()),
        pytest.param("export", 250, 240, marks=only_whole()),
        ("strict export,inductor code", 12, 10),
    ],
)
def test_what_is_predicted_runs(paths: str, count: int, least: int) -> None:
    others, count = count - least, share(count)
    for path, found in compared(paths, count, 1).items():
        assert found["differences"] == [], path
        assert found["agree"] >= count - others, path
        assert found["agree"] + len(found["refused"]) + len(found["unseen"]) == count


def test_placements_do_not_decide_which_rule_of_dtensor_runs() -> None:
    """A rule may refuse a placement, but no other one is asked then."""
    refusals = {
        "Shard(0)": "unevenly sharded tensor",
        "Shard(1)": "unevenly sharded tensor",
        "Partial()": "Partial(sum)",
    }
    for path, found in compared(",".join(f"dtensor {one}" for one in refusals), 200, 1).items():
        assert found["differences"] == [], path
        assert found["agree"] >= 190, path
        assert found["agree"] + len(found["refused"]) + len(found["unseen"]) == 200
        # The tensors do have the placement, as some rules say.
        assert any(refusals[path.removeprefix("dtensor ")] in text for text in found["refused"]), path
