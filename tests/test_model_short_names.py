"""Each registration has a short name of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab.model.short_names import short_names
from dispatchlab.scenario import parse_scenario
from dispatchlab.scenario.load import load_scenario
from tests.scenario_texts import FIVE, OVERLOADS, TWICE, TWO_DEFS

SCENARIOS = Path(__file__).parent.parent / "scenarios"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (FIVE, ("def", "CompositeImplicitAutograd", "CPU", "Autograd", "AutogradCPU")),
        (TWICE, ("CPU fn_a", "CPU fn_b")),
        (TWO_DEFS, ("def def_a", "def def_b", "CPU")),
        (OVERLOADS, ("def foo", "def foo.out", "def bar.one", "def baz.one", "def baz.two")),
        (
            "claim: c\nregistrations:\n"
            + "  - impl: foo\n    dispatch: CPU\n    debug: registered at /a/b/x.cpp:1\n" * 2
            + "  - fallback: boxed\n    dispatch: CPU\n  - name: foo\n",
            ("CPU #0", "CPU #1", "fallback CPU", "name"),
        ),
        (
            "claim: c\nregistrations:\n"
            "  - impl: foo\n    dispatch: CPU\n    debug: a\n  - impl: foo\n    dispatch: CPU\n    debug: a\n"
            '  - impl: foo\n    dispatch: "CPU"\n    debug: "#1"\n',
            ("CPU #0", "CPU #1", "CPU #2"),
        ),
    ],
)
def test_a_name_is_as_short_as_tells_registrations_apart(text: str, names: tuple[str, ...]) -> None:
    found = short_names(parse_scenario(text).registrations)
    assert len({*found}) == len(found)
    assert found == names


def test_all_names_of_all_scenarios_differ_and_are_short() -> None:
    checked = 0
    for path in sorted(SCENARIOS.rglob("*.yaml")):
        names = short_names(load_scenario(str(path)).registrations)
        assert len({*names}) == len(names), path
        assert all(0 < len(name) <= 34 for name in names), (path, names)
        checked += len(names)
    assert checked > 500
