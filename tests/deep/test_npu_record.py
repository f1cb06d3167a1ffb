"""A backend in C++ has the same dumps, coverage, differences and findings in its record as live.

Another PyTorch is asked by the Python that has it, after `OTHER/bin/pip install torch==2.9.1 -e '.[dev]'`:
`OTHER/bin/python -m pytest -n 0 --whole tests/deep/test_npu_record.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.measured import model_for
from dispatchlab.pytorch.registry import live_registry
from dispatchlab.questions.coverage.coverage_on_lab import Fill, coverage_report
from dispatchlab.questions.lint.rule import Subject
from dispatchlab.questions.lint.rules import selected
from dispatchlab.questions.lint.run import lint
from dispatchlab.records.compare import compare
from dispatchlab.records.model import Recorded, dump_text
from dispatchlab.sources.find_sources import recorded_from
from dispatchlab.sources.replay_on_lab import for_registry
from tests.command_line import run
from tests.live.npu_backend import environment

KERNELS = (
    *("empty.memory_format", "empty_strided", "_copy_from", "_copy_from_and_resize", "as_strided", "view", "resize_"),
    *("add.out", "mul.out", "relu", "threshold_backward.grad_input", "_local_scalar_dense", "linear"),
    *("AutogradPrivateUse1 linear", "AutogradPrivateUse1 relu", "CPU neg", "PrivateUse2 abs"),
)
FALLBACKS = (DispatchKey.PrivateUse1, DispatchKey.AutocastPrivateUse1)


def _registered() -> set[tuple[str, str]]:
    """What the extension registers, apart from fallbacks: operators, and where."""
    split = (f"PrivateUse1 {name}".split()[-2:] for name in KERNELS)
    own = {("npu::twice", "PrivateUse1"), ("npu::twice", "Meta")}
    return own | {(f"aten::{name}", key) for key, name in split}


def _kernels(found: Recorded) -> dict[tuple[str, str], tuple[str, ...]]:
    """The kernels by operator and key, the active one first, as texts."""
    kernels: dict[tuple[str, str], tuple[str, ...]] = {}
    for one in found:
        for kernel in one.kernels:
            at = str(one.name), str(kernel.key)
            kernels[at] = (*kernels.get(at, ()), kernel.debug)
    return kernels


def test_a_record_and_the_live_backend_agree_on_all_that_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path, (*KERNELS, "AutocastPrivateUse1"), fallback=True).items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "npu.yaml"
    assert run("record", "npu_device", "--once", "-o", str(file)).exit_code == 0
    before, recorded = recorded_from("live"), recorded_from(str(file))
    live = live_registry(["npu_device"])
    assert (recorded.torch, recorded.privateuse1) == (live.torch, live.privateuse1) == (before.torch, "npu")

    there = _kernels(before)
    kernels = {at: texts for at, texts in _kernels(live).items() if texts != there.get(at)}
    assert {*kernels} == _registered()
    assert kernels == {at: texts for at, texts in _kernels(recorded).items() if texts != there.get(at)}
    assert live.fallbacks == recorded.fallbacks
    assert {one.key for one in live.fallbacks} - {one.key for one in before.fallbacks} == {*FALLBACKS}
    dumps = {str(one.name): dump_text(one) for one in recorded}
    assert len(dumps) > 3000
    assert {str(one.name): dump_text(one) for one in live} == dumps

    changes = compare(before, live)
    assert compare(before, recorded) == changes
    assert {change.operator for change in changes.changes} == {name for name, _ in _registered()} | {None}

    plain = replace(live, python=None)  # which no record of a package has
    semantics = for_registry(model_for(live.torch))
    for key in (DispatchKey.PrivateUse1, DispatchKey.CPU, DispatchKey.Meta):
        one, other = (coverage_report(each, key, name="npu", operators=tuple(each)) for each in (plain, recorded))
        assert one == other
    findings = [
        lint(Subject(each, Fill(semantics, each.fallbacks)), selected([]), source="npu", without_own=True).findings
        for each in (plain, recorded)
    ]
    assert findings[0] == findings[1]
    assert {(one.code, one.operator) for one in findings[0] if one.code != "DL019"} == {
        ("DL002", "aten::neg"),
        ("DL010", "npu::twice"),
        ("DL022", "aten::neg"),
        ("DL024", "aten::abs"),
    }
