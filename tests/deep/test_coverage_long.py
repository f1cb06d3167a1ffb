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
            if row is None or one.needs:
                assert way is Way.MISSING
                assert row is None or row.source == "CompositeExplicitAutogradNonFunctional"
            else:
                assert (str(one.filled.source) if way is not Way.AMBIGUOUS else "") == row.source
                assert one.filled.fallthrough is row.fallthrough
                assert one.debug == row.debug or way is Way.AMBIGUOUS
                assert (way is Way.DIRECT) == (row.reason == "kernel")
                assert (way is Way.FALLBACK) == (row.reason == "backend fallback")
    assert min(ways[way] for way in (Way.DIRECT, Way.COMPOSITE, Way.FALLBACK, Way.MISSING)) > 20


def test_the_json_and_the_command_hold_the_same_counts() -> None:
    value = json.loads(coverage_view(report()).json())
    assert (value["version"], value["counts"]["missing"], len(value["operators"])) == (5, 1_516, 3_598)
    result = run("coverage", "--key", "PrivateUse1", "--format", "rich")
    assert result.exit_code == 0
    assert "2,063" in result.stdout
