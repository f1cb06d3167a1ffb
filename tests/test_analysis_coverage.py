"""Coverage of a backend, and what a registration would change."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import pytest

from dispatchlab.analysis.coverage import coverage_report
from dispatchlab.analysis.replay_on_lab import bench
from dispatchlab.analysis.sources import chosen
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey, UnknownKeyError
from dispatchlab.registry.coverage import CoverageReport, NoSlotError, Way, WhatIfError, parse_what_if
from dispatchlab.registry.file import open_bundled
from dispatchlab.render.coverage import coverage_json, coverage_text
from tests.command_line import run, run_raising

K = DispatchKey
RECORDED = open_bundled("torch-2.13-cpu")


def report(
    key: str = "PrivateUse1",
    *,
    operators: tuple[str, ...] = (),
    listed: tuple[str, ...] = (),
    what_if: tuple[str, ...] = (),
) -> CoverageReport:
    return coverage_report(
        RECORDED,
        DispatchKey[key],
        name="torch-2.13",
        operators=tuple(chosen(RECORDED, operators)),
        listed=tuple(map(Way, listed)),
        what_if=what_if,
    )


def test_every_operator_is_covered_in_one_way() -> None:
    found = report().coverage
    counts = {way: len(found.by(way)) for way in Way}
    assert counts == {Way.DIRECT: 19, Way.COMPOSITE: 2_447, Way.FALLBACK: 0, Way.AMBIGUOUS: 0, Way.MISSING: 1_132}
    assert dict(found.sources(Way.COMPOSITE)) == {
        K.CompositeExplicitAutograd: 1_218,
        K.CompositeImplicitAutograd: 787,
        K.CompositeExplicitAutogradNonFunctional: 442,
    }


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


def test_autograd_keys_are_covered_by_their_fallbacks() -> None:
    found = report("AutogradCPU", operators=("aten::relu", "aten::reshape")).coverage
    assert [(each.operator, each.filled.way) for each in found.operators] == [
        ("aten::relu", Way.COMPOSITE),
        ("aten::reshape", Way.COMPOSITE),
    ]
    assert report("Tracer", operators=("c10d::barrier",)).coverage.operators[0].filled.way is Way.FALLBACK


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


def test_a_kernel_that_makes_autogradother_ambiguous_is_reported() -> None:
    (found,) = report(what_if=("impl aten::chunk FPGA",)).suppositions
    assert "AutogradOther becomes ambiguous: a call with a gradient raises" in found.consequences
    assert not any(text.startswith("AutogradOther loses") for text in found.consequences)


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 'impl OPERATOR KEY'"),
        ("imp aten::relu CPU", "did you mean impl?"),
        ("impl aten::relu", "expected 'impl OPERATOR KEY'"),
        ("impl aten::relo CPU", r"did you mean aten::rea?l"),
        ("impl nobody::* CPU", r"no operator matches nobody::\*; its namespaces are"),
        ("fallback Autograd", "no slot of its own"),
    ],
)
def test_a_supposition_that_cannot_be_read_says_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(WhatIfError, match=message):
        parse_what_if(text, RECORDED.names)


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(UnknownKeyError, match="did you mean PrivateUse"):
        parse_what_if("impl aten::relu PrivateUse", RECORDED.names)
    with pytest.raises(NoSlotError, match="stands for a set of keys"):
        run_raising("coverage", "--key", "Autograd")


def test_the_text_has_counts_lists_and_consequences() -> None:
    text = coverage_text(
        report(operators=("aten::relu", "aten::reshape"), listed=("missing",), what_if=("impl relu PrivateUse1",))
    )
    assert text == (
        "PrivateUse1 in torch-2.13: 2 operators\n"
        "  direct: 0\n"
        "  composite: 1 (CompositeImplicitAutograd 1)\n"
        "  missing: 1\n"
        "\n"
        "aten::relu: missing\n"
        "\n"
        "what if impl relu PrivateUse1 (aten::relu):\n"
        "  PrivateUse1 had no kernel and has one\n"
        "  PrivateUse1: nothing -> your kernel [kernel]\n"
        "\n"
        "PrivateUse1 with all of it:\n"
        "  missing -> direct: 1 operator, such as aten::relu\n"
    )


def test_the_json_and_the_command_hold_the_same_counts() -> None:
    value = json.loads(coverage_json(report(what_if=("fallback PrivateUse1",))))
    assert (value["version"], value["counts"]["missing"], len(value["operators"])) == (2, 1_132, 3_598)
    assert value["moved"][0]["operators"] == 1_132
    result = run("coverage", "--key", "PrivateUse1", "--format", "rich")
    assert result.exit_code == 0
    assert "2,447" in result.stdout
