"""The local engine: the running PyTorch of this process, as an engine that hands out sandboxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dispatchlab.live.bridge import torch as live_torch
from dispatchlab.live.bridge.registration_calls import NativeKernels
from dispatchlab.live.introspection.builtin_fallbacks import builtin_fallbacks
from dispatchlab.live.introspection.kernel_identity import KernelNames
from dispatchlab.live.sandbox.journal import Journal
from dispatchlab.live.sandbox.observation import ObservationCache
from dispatchlab.live.sandbox.sandbox import LiveSandbox
from dispatchlab.model.registration import Registration


class LocalEngine:
    """The PyTorch that runs here.

    Args:
        registrations: the registrations that the journal knows, by their index.
        journal: where the sequence of the current sandbox is written.
        parse_keys: hand dispatch keys over as text, of which PyTorch refuses 42; else as numbers.
        native: C++ kernels of an extension.
        memory: read the slots from memory where that is possible. See Note [Reading the slots].
        every_table: read the table after every step. See Note [When the table is read].
    """

    name = "torch"

    def __init__(
        self,
        registrations: Sequence[Registration] = (),
        *,
        journal: Journal | None = None,
        parse_keys: bool = True,
        native: NativeKernels | None = None,
        memory: bool = True,
        every_table: bool = True,
    ) -> None:
        live_torch.bindings()
        self._indices = {id(registration): index for index, registration in enumerate(registrations)}
        self._registrations = tuple(registrations)  # whose ids stay their own for as long
        self._journal, self._parse_keys, self._native, self._memory = journal, parse_keys, native, memory
        self._every_table = every_table
        self._names: KernelNames | None = None
        self._cache: ObservationCache = {}

    @property
    def semantics(self) -> str:
        """`torch-2.13` and the like, after the PyTorch that is running."""
        return live_torch.semantics()

    @contextmanager
    def sandbox(self) -> Iterator[LiveSandbox]:
        """Fresh namespaces; what is still in force is released at the end."""
        sandbox = LiveSandbox(
            *self._shared(),
            indices=self._indices,
            journal=self._journal,
            parse_keys=self._parse_keys,
            native=self._native,
            memory=self._memory,
            every_table=self._every_table,
        )
        try:
            yield sandbox
        finally:
            sandbox.close()

    def _shared(self) -> tuple[KernelNames, ObservationCache]:
        """What sandboxes share: everything when the registrations are known beforehand, else nothing."""
        builtin = builtin_fallbacks()
        if not self._registrations:
            return KernelNames(builtin), {}
        if self._names is None or self._names.builtin is not builtin:
            self._names, self._cache = KernelNames(builtin), {}
        return self._names, self._cache
