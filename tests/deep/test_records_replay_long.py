"""The long tests of tests/test_records_replay.py, which the quick tier leaves out."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from dispatchlab.model.installed_torch import model_for
from dispatchlab.questions.sources.replay_on_lab import Bench, bench, registry_on
from dispatchlab.registries.file import open_bundled
from dispatchlab.registries.model import Registry, dump_text
from tests.recorded_tables import PRINTED_SAMPLE, STEP, printed

OPERATORS = (Path(__file__).parents[1] / "data" / "torch-2.13-operators.txt").read_text()
"""Dump and table of five operators, as PyTorch 2.13 prints them."""


@cache
def pytorch() -> Registry:
    return open_bundled("torch-2.13-cpu").load()


@cache
def replayed(semantics: str = "strict") -> Bench:
    return bench(pytorch(), semantics=semantics)


@pytest.mark.parametrize("text", OPERATORS.split("\nname: "))
def test_five_operators_print_as_in_pytorch(text: str) -> None:
    expected_dump, expected_table = f"name: {text.removeprefix('name: ')}".rstrip("\n").split("\n\n")
    name = expected_dump.partition("\n")[0].removeprefix("name: ")
    alone = bench(open_bundled("torch-2.13-cpu"), operators=[name])
    assert alone.dispatcher.operators() == (replayed().dispatcher.find_op(name),)
    for dispatcher in (alone.dispatcher, replayed().dispatcher):
        assert dispatcher.dump(name) == f"{expected_dump}\n"
        assert dispatcher.dump_table(name) == f"{expected_table}\n"


@pytest.mark.parametrize("name", PRINTED_SAMPLE)
def test_a_sample_of_every_bundled_version_prints_as_in_its_pytorch(name: str) -> None:
    registry = open_bundled(name)
    sample = registry.names[::STEP]
    for semantics in ("strict", model_for(registry.torch)):
        held = bench(registry, semantics=semantics, operators=sample)
        assert len(held.dispatcher.operators()) == len(sample) > 10
        assert printed(held.dispatcher) == PRINTED_SAMPLE[name]


def test_a_replayed_registry_reads_back_equal() -> None:
    assert registry_on(replayed().dispatcher, pytorch().torch) == pytorch()


def test_the_dump_of_a_record_needs_no_engine() -> None:
    dispatcher = replayed().dispatcher
    assert [name for name in pytorch() if dump_text(name) != dispatcher.dump(name.name)] == []
