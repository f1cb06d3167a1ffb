"""The long tests of tests/test_records_overlay.py, which the quick tier leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatchlab.model.keys import DispatchKey
from dispatchlab.questions.sources.find_sources import own_operators
from dispatchlab.registries.file import open_bundled
from dispatchlab.registries.model import RecordedKernel, registry_of


def test_a_cpu_build_of_a_version_is_compared_without_the_kernels_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatchlab.registries.builds.bundled_for", lambda torch: "torch-2.13")
    cpu = open_bundled("torch-2.13-cpu")
    names = ("aten::mul.Tensor", "aten::relu", "aten::_cudnn_rnn", "c10d::send")
    operators = [operator for operator in map(cpu.operator, names) if operator is not None]
    mine = replace(operators[1], kernels=(*operators[1].kernels, RecordedKernel(DispatchKey.QuantizedCUDA, "mine")))
    recorded = registry_of("2.13.0+cpu", [operators[0], mine, *operators[2:]], cpu.fallbacks)
    found = own_operators(recorded, "today.dlreg")
    assert [str(one.name) for one in found.operators] == ["aten::_cudnn_rnn", "aten::relu"]
    assert (found.left_out, found.against) == (2, "torch-2.13")
    on_cuda = own_operators(replace(recorded, torch="2.13.0+cu130"), "today.dlreg")
    assert [str(one.name) for one in on_cuda.operators] == ["aten::_cudnn_rnn", "aten::mul.Tensor", "aten::relu"]
