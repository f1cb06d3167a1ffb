"""The long tests of tests/test_coverage.py, which the quick tier leaves out."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

from dispatchlab.model.keys import RUNTIME_KEYS
from dispatchlab.questions.coverage.blocks import coverage_view
from dispatchlab.questions.sources.replay_on_lab import bench
from dispatchlab.registries.backend_coverage import Way
from tests.command_line import run
from tests.test_coverage import RECORDED, K, report


def test_coverage_says_what_the_computed_tables_say() -> None:
    names = RECORDED.names[::60]
    on_bench = bench(RECORDED, operators=names)
    explained = cache(on_bench.dispatcher.explain)
    ways: Counter[Way] = Counter()
    for key in (key for key in RUNTIME_KEYS if key.slot % 5 == 0 or key is K.AutogradOther):
        for one in report(str(key), operators=tuple(names)).coverage.operators:
            view = explained(one.operator)
            assert view is not None
            row = next((row for row in view.table if row.key == str(key)), None)
            way = one.filled.way
            ways[way] += 1
            if row is None:
                assert way is Way.MISSING
            else:
                assert (str(one.filled.source) if way is not Way.AMBIGUOUS else "") == row.source
                assert one.filled.fallthrough is row.fallthrough
                assert one.debug == row.debug or way is Way.AMBIGUOUS
                assert (way is Way.DIRECT) == (row.reason == "kernel")
                assert (way is Way.FALLBACK) == (row.reason == "backend fallback")
    assert min(ways[way] for way in (Way.DIRECT, Way.COMPOSITE, Way.FALLBACK, Way.MISSING)) > 20


def test_a_kernel_on_a_composite_operator_reports_that_it_disables_the_decomposition() -> None:
    (found,) = report(what_if=("impl aten::reshape PrivateUse1",)).suppositions
    assert [row.key for row in found.rows] == ["PrivateUse1", "AutogradPrivateUse1"]
    assert found.consequences[0].startswith("it silently disables the decomposition for PrivateUse1")
    assert "nothing is recorded for gradients" in found.consequences[1]


def test_a_kernel_of_an_operator_without_composites_changes_one_row() -> None:
    (found,) = report(what_if=("impl aten::relu PrivateUse1",)).suppositions
    assert [(row.key, row.before, row.after) for row in found.rows] == [("PrivateUse1", "", "your kernel [kernel]")]
    assert found.consequences == ("PrivateUse1 had no kernel and has one",)


def test_a_kernel_at_a_key_that_has_one_overrides_it() -> None:
    (found,) = report(what_if=("impl aten::relu CPU",)).suppositions
    assert found.consequences[0].startswith("it overrides the CPU kernel from registered at")


def test_a_supposition_sees_those_before_it() -> None:
    found = report(what_if=("impl aten::relu PrivateUse1", "impl aten::relu PrivateUse1"))
    first, second = found.suppositions
    assert len(first.rows) == 1
    assert "it overrides the PrivateUse1 kernel from your kernel" in second.consequences[0]
    assert [(one.before, one.after, one.operators) for one in found.moved] == [(Way.MISSING, Way.DIRECT, 1)]


def test_a_fallback_covers_what_was_missing() -> None:
    (moved,) = report(what_if=("fallback PrivateUse1",)).moved
    assert (moved.before, moved.after, moved.operators) == (Way.MISSING, Way.FALLBACK, 1_132)


def test_a_second_fallback_is_refused() -> None:
    found = report(what_if=("fallback AutogradCPU",))
    assert "has a backend fallback already" in found.suppositions[0].refused
    assert found.moved == ()


def test_a_glob_supposes_each_operator_that_it_matches() -> None:
    found = report(what_if=("impl aten::relu* PrivateUse1 fallthrough",))
    assert [one.operator for one in found.suppositions] == [name for name in RECORDED.names if "aten::relu" in name]
    assert found.suppositions[0].rows[0].after == "fallthrough your kernel [kernel]"


def test_the_json_and_the_command_hold_the_same_counts() -> None:
    value = json.loads(coverage_view(report(what_if=("fallback PrivateUse1",))).json())
    assert (value["version"], value["counts"]["missing"], len(value["operators"])) == (4, 1_132, 3_598)
    assert value["moved"][0]["operators"] == 1_132
    result = run("coverage", "--key", "PrivateUse1", "--format", "rich")
    assert result.exit_code == 0
    assert "2,447" in result.stdout
