"""Every bundled registry on the model of its version: all dumps and all tables are those that its PyTorch printed."""

from __future__ import annotations

import pytest

from dispatchlab.model.installed_torch import model_for
from dispatchlab.questions.sources.replay_on_lab import bench
from dispatchlab.registries.file import bundled_names, newest_bundled, open_bundled
from tests.effort import some
from tests.recorded_tables import PRINTED, printed


def test_what_every_bundled_version_prints_is_known() -> None:
    assert tuple(PRINTED) == bundled_names()


@pytest.mark.parametrize("name", some([*PRINTED]))
def test_every_dump_and_every_table_is_what_its_pytorch_printed(name: str) -> None:
    registry = open_bundled(name)
    held = bench(registry, semantics=model_for(registry.torch))
    assert len(held.dispatcher.operators()) == len(registry)
    assert printed(held.dispatcher) == PRINTED[name]


@pytest.mark.parametrize("name", ["torch-2.4", newest_bundled()])
def test_strict_has_the_tables_of_the_version_that_was_recorded(name: str) -> None:
    held = bench(open_bundled(name))
    assert printed(held.dispatcher) == PRINTED[name]
