"""All of the bundled registry, replayed under both semantics."""

from __future__ import annotations

from hashlib import sha256

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.model.registration import Fallback
from dispatchlab.questions.sources.replay_on_lab import for_registry, registry_on
from dispatchlab.registries.replay import registrations_of, run
from tests.deep.test_records_replay_long import pytorch, replayed
from tests.registry_cases import part

EVERYTHING = "ac26d93d3cffaed79b00b655640fd962cb4df3d591fbcf9fb6078d97d4e75a67"
"""SHA-256 of the dump and the table of every operator, by name, as PyTorch 2.13 prints them."""


def shown(dispatcher: Dispatcher) -> str:
    """The digest of all dumps and tables."""
    digest, names = sha256(), sorted(map(str, dispatcher.operators()))
    assert len(names) == 3598
    for name in names:
        digest.update(dispatcher.dump(name).encode())
        digest.update(dispatcher.dump_table(name).encode())
    return digest.hexdigest()


def test_every_dump_and_every_table_is_pytorchs_to_the_character() -> None:
    defs, kernels, fallbacks = 3598, 17168, 38
    assert len(replayed().handles) == defs + kernels + fallbacks
    assert shown(replayed().dispatcher) == EVERYTHING


def test_no_slot_is_stale_under_strict() -> None:
    dispatcher = replayed().dispatcher
    dispatcher.check_invariants()
    assert dispatcher.dump_slots("aten::add.Tensor") == dispatcher.dump_table("aten::add.Tensor")


def test_every_dump_and_every_table_is_pytorchs_to_the_character_under_torch() -> None:
    assert shown(replayed("torch-2.13").dispatcher) == EVERYTHING


def test_a_registry_replayed_under_torch_reads_back_equal() -> None:
    assert registry_on(replayed("torch-2.13").dispatcher, pytorch().torch) == pytorch()


def test_fallbacks_may_come_last() -> None:
    dispatcher = Dispatcher(for_registry("strict"), builtin_fallbacks=False)
    fallbacks_last = sorted(registrations_of(part()), key=lambda registration: isinstance(registration, Fallback))
    handles = run(fallbacks_last, dispatcher.register)
    assert len(handles) == len(part()) + part().kernel_count + 38
    whole = replayed().dispatcher
    assert [name for name in part().names if dispatcher.dump_table(name) != whole.dump_table(name)] == []
    assert [name for name in part().names if dispatcher.dump_slots(name) != whole.dump_table(name)] == []
    assert len(part()) == 180
