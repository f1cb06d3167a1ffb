"""Sandboxes: new namespaces in the running PyTorch, and the local engine that makes them.

This code runs in the process that has torch; `LocalEngine` makes sandboxes there. All output has the
user's names and debug texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.live.bridge import torch as live_torch
from dispatchlab.live.bridge.error_parser import refusal
from dispatchlab.live.bridge.registration_calls import BindingCall, CallBuilder, Libraries, Library, NativeKernels
from dispatchlab.live.bridge.reserved_namespaces import sandbox_prefix
from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.bridge.torch_library_calls import forget_operator, reset_custom_ops
from dispatchlab.live.introspection.builtin_fallbacks import builtin_fallbacks, put_back
from dispatchlab.live.introspection.kernel_identity import FIRST_CALL, KernelNames
from dispatchlab.live.sandbox.journal import Journal
from dispatchlab.live.sandbox.observation import ObservationCache, ObservedOperator, Observer
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Def, Fallback, Registration
from dispatchlab.model.snapshot import Snapshot, Violation

_number = count(1)


class LiveHandle:
    """A registration that is in force on the running PyTorch."""

    __slots__ = ("_libraries", "_prepared", "_sandbox")

    def __init__(self, sandbox: LiveSandbox, prepared: _Prepared, libraries: tuple[Library, ...]) -> None:
        self._sandbox, self._prepared, self._libraries = sandbox, prepared, libraries

    def release(self) -> None:
        """Release its calls in the order of registration; a second release is harmless."""
        libraries = self._libraries
        if libraries:
            self._libraries = ()
            self._sandbox._release(self._prepared, libraries)


class _Prepared:
    """A registration of one sandbox: its prepared calls, and its handle while the registration is active.

    Args:
        source: the registration.
        calls: its calls, in order.
        operators: the operators that the calls change.
        bit: its bit in active sets.
        index: its number in the journal; None if it has no number.
    """

    __slots__ = (
        *("bit", "calls", "fallbacks", "fallthroughs", "handle", "index", "kernels", "make"),
        *("operators", "source"),
    )

    def __init__(
        self,
        source: Registration,
        calls: tuple[BindingCall, ...],
        operators: list[ObservedOperator],
        bit: int,
        index: int | None,
    ) -> None:
        self.source = source
        self.calls, self.operators, self.bit, self.index = calls, operators, bit, index
        self.handle: LiveHandle | None = None
        self.make = calls[0].make if len(calls) == 1 else None
        self.kernels: list[int] = []
        self.fallthroughs: list[int] = []
        self.fallbacks: list[BindingCall] = []
        for call in calls:
            kernel = call.origin.kernel
            if kernel is not None:
                (self.fallthroughs if kernel.is_fallthrough else self.kernels).append(FIRST_CALL + call.number)
            if isinstance(call.origin.registration, Fallback):
                self.fallbacks.append(call)


class LiveSandbox:
    """A fresh set of namespaces; see `LocalEngine`."""

    def __init__(
        self,
        names: KernelNames,
        cache: ObservationCache,
        *,
        indices: Mapping[int, int],
        journal: Journal | None,
        parse_keys: bool,
        native: NativeKernels | None,
    ) -> None:
        self.prefix = sandbox_prefix(next(_number))
        self._names = names
        self._libraries = Libraries(self.prefix, names.mark, parse_keys=parse_keys)
        self._builder = CallBuilder(self._libraries, native=native)
        self._observer = Observer(self._libraries, names, cache)
        self._indices, self._journal = indices, journal
        self._latest: dict[int, _Prepared] = {}
        self._all: list[_Prepared] = []
        self._residue: list[Library] = []
        self._unnamed: list[ObservedOperator] = []
        self._in_row: dict[DispatchKey | None, int] = {}  # the fallbacks, no fallthroughs, that PyTorch still holds
        if journal is not None:
            journal.restart()

    def register(self, registration: Registration, /) -> LiveHandle:
        """Make a registration on the running PyTorch.

        Raises:
            RegistrationError: PyTorch refused; the message is PyTorch's text with the user's names.
            NotExpressibleError: the bindings have no call for it.
        """
        prepared = self._latest.get(id(registration))
        if self._journal is not None:
            index = self._indices.get(id(registration))
            if index is not None:
                self._journal.write(index)
        if prepared is None or prepared.handle is not None:
            prepared = self._prepare(registration)
        observer = self._observer
        objects = observer.objects
        if objects is not None:
            if objects.pending and self._unnamed:
                self._name_kernels()
            if objects.released:
                observer.forget_released()
        observer.version += 1
        if prepared.make is not None:
            try:
                libraries: tuple[Library, ...] = (prepared.make(),)
            except RuntimeError as error:
                self._refused(prepared)
                raise self._refusal(error, prepared.calls[0]) from None
            if prepared.fallbacks:
                self._took_row(prepared, prepared.calls[0])
        else:
            libraries = self._make(prepared)
        observer.active_set |= prepared.bit
        for operator in prepared.operators:
            operator.active += 1
        if objects is not None:
            if prepared.make is not None:
                objects.pending += prepared.kernels
            if prepared.fallthroughs:
                objects.fallthroughs += prepared.fallthroughs
            self._unnamed = prepared.operators
        handle = prepared.handle = LiveHandle(self, prepared, libraries)
        return handle

    def snapshot(self, operator: OperatorName, /) -> Snapshot:
        """Return PyTorch's present output about the operator, and the content of its slots."""
        return self._observer.snapshot(operator)

    def violations(self, operator: OperatorName, /) -> tuple[Violation, ...]:
        """Return the slots that differ from the computed table, and the results of PyTorch's own check."""
        return self._observer.violations(operator)

    def close(self) -> None:
        """Release the active registrations; after an error, the others are still released."""
        with ExitStack() as releases:
            if any(prepared.fallbacks for prepared in self._all):
                releases.callback(put_back, self._names.builtin)
            releases.callback(self._libraries.reset)
            if self._observer.reads_python:
                releases.callback(reset_custom_ops, self.prefix)
            for library in self._residue:
                releases.callback(library.reset)
            for prepared in reversed(self._all):
                if prepared.handle is not None:
                    releases.callback(prepared.handle.release)

    def _took_row(self, prepared: _Prepared, call: BindingCall) -> None:
        """If this is a fallback, note that PyTorch holds only this fallback at its key."""
        # See Note [Fallbacks that replace]
        if call in prepared.fallbacks:
            self._emptied_row(call)
            if FIRST_CALL + call.number in prepared.kernels:
                self._in_row[call.origin.key] = FIRST_CALL + call.number

    def _emptied_row(self, call: BindingCall) -> None:
        """If this is a fallback, note that PyTorch holds no fallback any more at its key."""
        if isinstance(call.origin.registration, Fallback):
            key, objects = call.origin.key, self._observer.objects
            held = self._in_row.pop(key, None)
            if objects is None or held == FIRST_CALL + call.number:
                return
            if held is not None:
                objects.lose(held)
            elif key is not None and not key.is_alias and (slot := running_keys().slot_of.get(key.name)) is not None:
                objects.lose_builtin(slot)

    def _prepare(self, registration: Registration) -> _Prepared:
        copy = sum(prepared.source is registration for prepared in self._all)
        calls = self._names.calls_of(registration, copy, self._builder)
        operators = [self._observer.operator(call.operator) for call in calls if call.operator is not None]
        bit, index = 1 << len(self._all), self._indices.get(id(registration))
        prepared = _Prepared(registration, calls, operators, bit, index)
        self._latest[id(registration)] = prepared
        self._all.append(prepared)
        if any(call.is_torch_library_call for call in calls):
            # NB: it makes several kernels under one number, which slots cannot distinguish.
            self._observer.stop_reading_slots()
            self._observer.read_python()
        objects = self._observer.objects
        if objects is not None:
            for call in calls:
                kernel = call.origin.kernel
                self._observer.every_table |= bool(prepared.fallbacks)
                if kernel is not None:
                    number, size = FIRST_CALL + call.number, self._names.size
                    objects.expect(number, size, falls_through=kernel.is_fallthrough)
        return prepared

    def _name_kernels(self) -> None:
        """Observe the last registration before new objects appear, unless it was observed."""
        unnamed, self._unnamed = self._unnamed, []
        for operator in unnamed:
            if operator.version != self._observer.version:
                self.snapshot(operator.name)

    def _make(self, prepared: _Prepared) -> tuple[Library, ...]:
        objects = self._observer.objects
        done: list[tuple[BindingCall, Library]] = []
        for call in prepared.calls:
            try:
                done.append((call, call.make()))
                if prepared.fallbacks:
                    self._took_row(prepared, call)
                if objects is not None and call.origin.kernel is not None:
                    if FIRST_CALL + call.number in prepared.kernels:
                        objects.pending.append(FIRST_CALL + call.number)
                    self._observer.version += 1
                    if call.operator is not None:
                        self.snapshot(call.operator)  # while the kernel before it can still be named
            except (RuntimeError, RegistrationError) as error:
                refused = error if isinstance(error, RegistrationError) else self._refusal(error, call)
                for before, library in done:
                    if before.number == call.leaves and before.operator is not None:
                        self._residue.append(library)
                        self._observer.operator(before.operator).active += 1
                        self._latest.pop(id(prepared.source), None)  # whose library is not its own any more
                    else:
                        library.reset()
                        self._emptied_row(before)
                        if objects is not None and FIRST_CALL + before.number in prepared.kernels:
                            objects.release(FIRST_CALL + before.number)
                self._observer.version += 1
                raise refused from None
        return tuple(library for _, library in done)

    def _release(self, prepared: _Prepared, libraries: tuple[Library, ...]) -> None:
        if self._journal is not None and prepared.index is not None:
            self._journal.write(~prepared.index)
        observer = self._observer
        observer.version += 1
        for library in libraries:
            library.reset()
        if prepared.fallbacks:
            for call in prepared.calls:
                self._emptied_row(call)
        if observer.reads_python:
            for call in prepared.calls:
                if isinstance(call.origin.registration, Def):
                    forget_operator(self._libraries.name_of(call.origin.registration.operator).qualified)
        prepared.handle = None
        observer.active_set ^= prepared.bit
        objects = observer.objects
        if objects is not None:
            for kernel in prepared.kernels:
                objects.release(kernel)
            for kernel in prepared.fallthroughs:
                objects.fallthroughs.remove(kernel)
        for operator in prepared.operators:
            operator.active -= 1
            if not operator.active:
                operator.slots = None

    def _refused(self, prepared: _Prepared) -> None:
        """Expect the rest of a refused fallback at an alias key: PyTorch keeps it at the keys before the taken key."""
        registration = prepared.source
        if isinstance(registration, Fallback) and registration.key is not None and registration.key.is_alias:
            self._latest.pop(id(prepared.source), None)  # whose library holds what is left
            objects = self._observer.objects
            if objects is not None:
                objects.pending += prepared.kernels
                objects.fallthroughs += prepared.fallthroughs

    def _refusal(self, error: RuntimeError, call: BindingCall) -> RegistrationError:
        found = refusal(str(error))
        facts = {name: self._observer.shown(value) for name, value in found.facts.items()}
        operator = call.operator
        if found.kind is ErrorKind.DUPLICATE_DEF and operator is not None:
            facts |= {
                "operator": str(operator),
                "other_schema": self._observer.schema_of(self._observer.operator(operator)) or "",
            }
        return RegistrationError(found.kind, self._observer.shown(found.message), facts)


class LocalEngine:
    """The PyTorch that runs here.

    Args:
        registrations: the registrations with a number in the journal.
        journal: the journal of the current sandbox.
        parse_keys: pass dispatch keys as text, as `torch.library` does; PyTorch refuses 42 of them; else pass
            numbers, as C++ does.
        native: the C++ kernels of an extension.
    """

    name = "torch"

    def __init__(
        self,
        registrations: Sequence[Registration] = (),
        *,
        journal: Journal | None = None,
        parse_keys: bool = False,
        native: NativeKernels | None = None,
    ) -> None:
        live_torch.bindings()
        self._indices = {id(registration): index for index, registration in enumerate(registrations)}
        self._registrations = tuple(registrations)  # whose ids stay their own for as long
        self._journal, self._parse_keys, self._native = journal, parse_keys, native
        self._names: KernelNames | None = None
        self._cache: ObservationCache = {}

    @property
    def semantics(self) -> str:
        """The name of the running PyTorch's model, such as `torch-2.13`."""
        return live_torch.semantics()

    @contextmanager
    def sandbox(self) -> Iterator[LiveSandbox]:
        """Return a sandbox with new namespaces; its active registrations are released at the end."""
        sandbox = LiveSandbox(
            *self._shared(),
            indices=self._indices,
            journal=self._journal,
            parse_keys=self._parse_keys,
            native=self._native,
        )
        try:
            yield sandbox
        finally:
            sandbox.close()

    def _shared(self) -> tuple[KernelNames, ObservationCache]:
        """Return the state that sandboxes share: everything if the registrations are known before, else nothing."""
        builtin = builtin_fallbacks()
        if not self._registrations:
            return KernelNames(builtin), {}
        if self._names is None or self._names.builtin is not builtin:
            self._names, self._cache = KernelNames(builtin), {}
        return self._names, self._cache
