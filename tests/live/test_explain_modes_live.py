"""What `explain --mode` predicts against what runs in PyTorch: wrappers where FakeTensorMode looks see the one mode,
probes in the dispatch tables the transforms and autocast.

The figures of 500 operators are in tests/deep/test_explain_modes.py, what is traced in test_traced_modes_live.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from dispatchlab.model.python_layer import Compiler, Mode
from dispatchlab.questions.explain.explain_operator import explain_operator
from dispatchlab.questions.explain.mode_facts import MODES
from dispatchlab.questions.explain.result import ImplementedBy
from tests.live import forked

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

TRANSFORMS = ("vmap", "grad", "functionalize", "autocast")


def compared(mode: str, count: int, seed: int, *, predict: str = "") -> Any:
    """Compare predictions with what runs, in a process of its own, since the calls import most of PyTorch."""
    module = "transform_calls" if mode in ("casts", "each", "nested", "alike", *TRANSFORMS) else "mode_calls"
    return output_of(f"tests.live.{module}", mode, str(count), str(seed), predict)


def output_of(module: str, *arguments: str) -> Any:
    """What a module writes in its last line, as JSON."""
    done = forked.module(module, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


ASKED = (*((mode, "inductor") for mode, facts in MODES.items() if facts.registries), ("compile", "aot_eager"))


@pytest.mark.parametrize(("mode", "compiler"), ASKED)
def test_a_fresh_engine_has_what_a_mode_asks_for(mode: Mode, compiler: Compiler) -> None:
    found = explain_operator("aten::mul.Tensor", [], engine="torch", mode=mode, compiler=compiler)
    assert found.under is not None
    assert found.under.call.hops or found.under.chain


def test_what_is_predicted_runs() -> None:
    found = compared("fake", 80, 7)
    assert found["agree"] == 80
    assert not found["differences"]


def test_a_wrong_prediction_is_seen() -> None:
    assert len(compared("fake", 40, 7, predict="compile")["differences"]) > 10


def test_every_hop_that_is_predicted_is_taken() -> None:
    found = compared("each", 40, 7)
    assert {*found} == {*TRANSFORMS}
    for each in found.values():
        assert each["differences"] == []
        assert each["agree"] >= 36
        assert each["agree"] + len(each["refused"]) + len(each["unseen"]) == 40


def test_a_wrong_transform_is_seen() -> None:
    assert len(compared("grad", 40, 7, predict="vmap")["differences"]) > 30


def test_autocast_casts_what_the_policy_says() -> None:
    found = compared("casts", 60, 7)
    assert found["looked"] >= 15
    assert found["wrong"] == []


def test_a_rule_of_a_package_is_found_on_the_live_engine() -> None:
    module = "tests.live.transform_operators"
    found = explain_operator("transformed::full", [], source="live", imports=(module,), mode="vmap").under
    assert found is not None
    assert found.runs.kind is ImplementedBy.LIBRARY_VMAP
    assert found.runs.function == f"{module}:full_in_vmap"
