"""All of the bundled registry, replayed under both semantics."""

from __future__ import annotations

from dispatchlab.analysis.replay_on_lab import for_registry, registry_on
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.registry.replay import replay
from tests.registry_cases import part
from tests.test_registry_replay import EVERYTHING, pytorch, replayed, shown


def test_every_dump_and_every_table_is_pytorchs_to_the_character() -> None:
    defs, kernels, fallbacks = 3598, 17168, 38
    assert len(replayed().handles) == defs + kernels + fallbacks
    assert shown(replayed().dispatcher) == EVERYTHING


def test_every_dump_and_every_table_is_pytorchs_to_the_character_under_torch() -> None:
    assert shown(replayed("torch-2.13").dispatcher) == EVERYTHING


def test_a_registry_replayed_under_torch_reads_back_equal() -> None:
    assert registry_on(replayed("torch-2.13").dispatcher, pytorch().torch) == pytorch()


def test_fallbacks_may_come_last() -> None:
    dispatcher = Dispatcher(for_registry("strict"), builtin_fallbacks=False)
    handles = replay(part(), dispatcher.register, fallbacks_first=False)
    assert len(handles) == len(part()) + part().kernel_count + 38
    whole = replayed().dispatcher
    assert [name for name in part().names if dispatcher.dump_table(name) != whole.dump_table(name)] == []
    assert [name for name in part().names if dispatcher.dump_slots(name) != whole.dump_table(name)] == []
    assert len(part()) == 180
