"""The long tests of tests/test_engine_import_api_2020.py, which the quick tier leaves out."""

from __future__ import annotations

import gc

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.registration_2020 import Import
from tests.engine_shorthand import each_semantics, state


@each_semantics
def test_a_forgotten_block_releases_its_registrations(semantics: str) -> None:
    dispatcher = Dispatcher.for_scenario(semantics)
    before = state(dispatcher)
    other: Import | None = Import("test", dispatcher=dispatcher).def_("foo(Tensor x) -> Tensor")
    assert other is not None
    other = None
    gc.collect()
    assert state(dispatcher) == before
