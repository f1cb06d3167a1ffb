"""The generator of groups of modules, and the table that compares verdicts with the truth, do what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.import_truth import Group, Truth
from tests.live.package_groups import KINDS, generated
from tests.live.package_truth import Comparison, compared, table_of


def test_a_number_and_a_seed_give_a_group() -> None:
    assert generated(3, 1) == generated(3, 1)
    assert generated(3, 1).sources != generated(3, 2).sources


def test_each_kind_of_statement_is_drawn_and_is_python() -> None:
    drawn = set[str]()
    for number in range(1_000):
        group = generated(number, 0)
        drawn.update(group.why.split(", "))
        for module, text in group.sources.items():
            compile(text, module, "exec")
    assert drawn == {kind.kind for kind in KINDS}


_RUN = """
import json
from tests.live.import_truth import truths
from tests.live.package_groups import generated
found = [truth for group, truth in truths([generated(number, 0) for number in range(40)])]
print(json.dumps([[len(each.differences), len(each.dropped), each.is_stuck] for each in found]))
"""


def test_some_generated_groups_depend_on_the_order_and_some_do_not_and_each_result_is_the_same_twice() -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", _RUN],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    differ = sum(bool(differences) for differences, _, _ in found)
    assert 5 < differ < 35
    assert not any(dropped or is_stuck for _, dropped, is_stuck in found)


_ORDERS = ("left", "right"), ("right", "left")


@pytest.mark.parametrize(
    ("results", "dropped", "verdict"),
    [
        (({"x": "1"}, {"x": "1"}), (), "order-independent"),
        (({"x": "1"}, {"x": "2"}), (), "order-independent"),
        (({}, {}), ("x",), "not recorded"),
        (({"the process": "ended"}, {"the process": "ended"}), (), "not recorded"),
    ],
)
def test_a_group_whose_orders_could_not_be_compared_counts_neither_as_agreeing_nor_as_proved(
    results: tuple[dict[str, str], ...], dropped: tuple[str, ...], verdict: str
) -> None:
    group = Group("innocent/a", "", ("left", "right"), {"left": "", "right": ""}, ("x",))
    truth = Truth(dict(zip(_ORDERS, results, strict=True)), dropped, 0)
    (found,) = compared([(group, truth)], lambda folder, modules: {"verdict": "order-independent"})
    assert found.verdict == verdict


def test_a_proof_of_a_group_that_depends_on_the_order_is_a_false_one() -> None:
    rows = [
        Comparison("value/a", ("ops.t.bar(x): 1 after left; 2 after right",), "order-independent"),
        Comparison("value/b", ("ops.t.bar(x): 1 after left; 2 after right",), "order-dependent"),
        Comparison("innocent/c", (), "order-independent"),
        Comparison("innocent/d", (), "no violation found"),
        Comparison("innocent/e", (), "not recorded"),
    ]
    assert [row.is_false_proof for row in rows] == [True, False, False, False, False]
    assert [line.split() for line in table_of(rows)[1:]] == [
        ["value", "2", "2", "0", "1", "1", "0", "-", "0"],
        ["innocent", "3", "0", "3", "0", "0", "1", "50.0%", "1"],
        ["all", "5", "2", "3", "1", "1", "1", "50.0%", "1"],
    ]
