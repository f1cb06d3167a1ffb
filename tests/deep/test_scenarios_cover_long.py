"""The long tests of tests/test_scenarios_cover.py, which the quick tier leaves out."""

from __future__ import annotations

from tests.test_scenarios_cover import _is_as_expected, _scenarios


def test_a_scenario_with_semantics_holds_for_them() -> None:
    named = {name: scenario.semantics for name, scenario in _scenarios().items() if scenario.semantics is not None}
    assert [name for name, semantics in named.items() if not _is_as_expected(name, semantics)] == []
    assert set(named.values()) == {"strict", "torch-2.9", "torch-2.13", "pr35061"}
