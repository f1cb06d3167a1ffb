"""Benchmarks of tables and registrations: the set-based table as a ratio to the one made key by key."""

from __future__ import annotations

import time

from benchmarks.workloads import FOO, KERNEL, sixteen
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.engine.introspection import fallbacks_in, operator_in
from dispatchlab.engine.precedence import computed_table
from dispatchlab.engine.semantics import SEMANTICS
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.registration import Impl
from dispatchlab.model.slot_set import KEY_BIT

TORCH_2_13 = SEMANTICS["torch-2.13"].precedence


class Engine:
    """One dispatcher with an operator of 16 registrations."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher(builtin_fallbacks=False)
        self.handles: list[RegistrationHandle] = [self.dispatcher.register(one) for one in sixteen()]
        entry = operator_in(self.dispatcher.state, FOO)
        assert entry is not None
        self.entry = entry
        self.fallbacks = fallbacks_in(self.dispatcher.state)

    def time_register_and_release(self) -> None:
        """A kernel comes and goes."""
        self.dispatcher.register(Impl(FOO, DispatchKey.MkldnnCPU, KERNEL, "fn")).release()

    def time_table(self) -> None:
        """The whole table, 137 slots, by sets of keys."""
        computed_table(TORCH_2_13, self.entry.present, self.entry.kernels, self.fallbacks)

    def time_dump(self) -> None:
        """Both dumps, as text."""
        self.dispatcher.dump(FOO)
        self.dispatcher.dump_table(FOO)

    def track_table_by_keys_to_table_by_sets(self) -> float:
        """How many times longer the table takes key by key."""
        present = {key for key in DispatchKey if KEY_BIT[key] & self.entry.present}
        none: set[DispatchKey] = set()
        started = time.perf_counter()
        rounds = 50
        for _ in range(rounds):
            rows = sum(
                next(TORCH_2_13.plain.candidates(key, present, none, none), None) is not None for key in RUNTIME_KEYS
            )
        by_keys = time.perf_counter() - started
        started = time.perf_counter()
        for _ in range(rounds):
            slots = computed_table(TORCH_2_13, self.entry.present, self.entry.kernels, self.fallbacks)
        by_sets = time.perf_counter() - started
        assert rows >= sum(bits.bit_count() for bits in slots.values()) > 70
        return by_keys / by_sets
