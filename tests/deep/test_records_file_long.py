"""The long tests of tests/test_records_file.py, which the quick tier leaves out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dispatchlab.records.file import open_bundled, registry_bytes
from dispatchlab.records.shared_rows import SharedRows
from dispatchlab.records.stored import registry_in
from tests.registry_cases import SMALL, made_up, outcome
from tests.test_records_file import BUNDLED


def test_the_file_of_a_registry_is_small() -> None:
    assert len(registry_bytes(replace(BUNDLED.load(), python=None))) < 150_000
    assert len(registry_bytes(BUNDLED)) < 220_000


def test_one_operator_costs_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, blocks = registry_in(registry_bytes(BUNDLED)), []
    lines = SharedRows._lines

    def counted(self: SharedRows, block: int) -> Sequence[bytes]:
        blocks.append(block)
        return lines(self, block)

    monkeypatch.setattr(SharedRows, "_lines", counted)
    assert (len(registry), len(registry.names), blocks) == (3598, 3598, [])
    assert registry.operator("aten::no_such") is None
    assert blocks == []
    add = registry.operator("aten::add.Tensor")
    assert add is not None
    assert len(add.kernels) == 16
    assert len(blocks) == 1
    assert sum(1 for _ in registry) == 3598
    assert blocks[1:] == [*range(29)]


def test_files_made_up_with_right_checksums_are_refused_or_are_registries_themselves() -> None:
    rng, data = random.Random(2), registry_bytes(SMALL)
    outcomes = [outcome(made_up(data, rng)) for _ in range(600)]
    read = [found for found in outcomes if not isinstance(found, str)]
    assert 50 < len(read) < 550
    for registry in read:
        assert outcome(registry_bytes(registry)) == registry
    sentences = {found for found in outcomes if isinstance(found, str)}
    assert len(sentences) > 30


def test_the_registry_of_the_build_for_cuda_has_the_kernels_that_the_default_one_lacks() -> None:
    cuda, default = open_bundled("torch-2.13").load(), open_bundled("torch-2.13-cpu").load()
    assert (cuda.torch, len(cuda), cuda.imports) == ("2.13.0+cu130", 3599, ())
    assert len(set(cuda.names) & set(default.names)) == 3597
    for key, wanted in (("CUDA", (1331, 21)), ("SparseCUDA", (174, 1)), ("QuantizedCUDA", (51, 0)), ("CPU", None)):
        counts = tuple(
            sum(str(kernel.key) == key for operator in registry for kernel in operator.kernels)
            for registry in (cuda, default)
        )
        assert counts == wanted or (wanted is None and counts[0] == counts[1])
    assert [each.key for each in cuda.fallbacks] == [each.key for each in default.fallbacks]
