"""`CallRecorder` records the calls of PyTorch's operators inside of a `with` block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from time import monotonic_ns
from typing import Any, Self

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.record_function import CallObserver, Value
from dispatchlab.live.bridge.running_keys import raw_bits
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.bridge.wrapped_functions import WrappedFunctions
from dispatchlab.live.introspection.queries import look_at
from dispatchlab.live.introspection.site_log import registrations_logged
from dispatchlab.model.key_set import DispatchKeySet, functionality_bit
from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.model.names import name_of
from dispatchlab.model.snapshot import Snapshot

# Note [Where calls are seen]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A `CallObserver` sees each call with the key sets of a plain run, and the redispatches of Python are seen where Python
# makes them. Other redispatches follow the rules of PyTorch's own kernels. A call that finds no kernel is not observed;
# if Python makes it by name, it is seen where it fails.
#
# Where calls cannot be observed, a `TorchDispatchMode` sees them: it runs at the key Python, below autograd. PyTorch
# has kept what the thread included and excluded at the call, so the whole set of the call is known there. While the
# mode has a call, it is off: the calls of kernels are not seen, nor what has decomposed above the mode.


class TorchTraceError(DispatchLabError):
    """The calls of this PyTorch cannot be traced."""

    reason: str

    template = "the calls of this PyTorch cannot be traced: {reason}"


@dataclass(slots=True)
class RecordedCall:
    """A call of an operator, or a redispatch that Python makes.

    Args:
        operator: its name, with the overload.
        each: the keys of each argument that has keys, by the name of the argument.
        included, excluded: the keys that the thread included and excluded at the call.
        handed: the key set that a redispatch handed over; None for a call.
        backend: the backend that the options choose; None if it is not known.
        began_ns, ended_ns: the time since the recording began; no end while the call is running.
        error: its exception, as `kind: message` on one line.
        inside: the calls that it made.
    """

    operator: str
    each: Mapping[str, DispatchKeySet]
    included: DispatchKeySet
    excluded: DispatchKeySet
    handed: DispatchKeySet | None = None
    backend: DispatchKey | None = None
    began_ns: int = 0
    ended_ns: int | None = None
    error: str | None = None
    inside: list[RecordedCall] = field(default_factory=list)


class CallRecorder:
    """A recorder of one thread's calls inside a `with` block. See Note [Where calls are seen].

    It looks at each operator of a program at its first call, because the program can release the operator.

    Args:
        limit: the number of calls to keep; later calls are only counted.
        by_mode: whether a mode sees the calls, also where they can be observed.
    """

    def __init__(self, limit: int, *, by_mode: bool = False) -> None:
        self.calls: list[RecordedCall] = []
        self.looked_at: dict[str, Snapshot] = {}
        self.count = 0
        self.by_mode = by_mode
        self.thread = threading.current_thread()
        self._limit = limit
        self._started_ns = monotonic_ns()
        self._open: list[RecordedCall | None] = []  # None for what is not an operator
        self._raised: list[RecordedCall] = []
        self._wrapped, self._log = WrappedFunctions(), registrations_logged()
        self._observer = CallObserver(self._began, self._ended, self._failed)
        modes: Any = (torch(), import_module("torch.utils._python_dispatch"))[1].TorchDispatchMode

        def seen(_: object, *of: Any) -> object:
            return self._seen(*of)

        methods = {"__torch_dispatch__": seen, "supports_higher_order_operators": True}
        self._mode = type("Mode", (modes,), methods)()

    def __enter__(self) -> Self:
        if _running:
            raise TorchTraceError("another trace is on, and there can be one at a time")
        _running.append(self)
        self.thread = threading.current_thread()
        self._log.__enter__()
        self.by_mode = self.by_mode or not self._observer.start()
        if self.by_mode:
            self._mode.__enter__()
        else:
            self._wrapped.wrap(torch()._ops.OpOverload, "redispatch", self._redispatched)
            for kind in (torch()._ops.OpOverload, torch()._ops.OpOverloadPacket):
                self._wrapped.wrap(kind, "__call__", self._called)
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()
        if self.by_mode:
            self._mode.__exit__(*error)
        self._log.__exit__(None, None, None)
        self._wrapped.put_back()
        _running.clear()

    def stop(self) -> None:
        """Observe no further call."""
        self._observer.stop()

    # -- calls that are observed

    def _began(self, name: str, overload: str, last_values: Callable[[int], list[Value]]) -> None:
        names = _argument_names(name, overload)
        if names is None:
            self._open.append(None)
            return
        full_name = f"{name}.{overload}" if overload else name
        if not name.startswith("aten::") and full_name not in self.looked_at:
            ((self.looked_at[full_name], _),) = look_at((name_of(full_name),))
        values = dict(zip(names, last_values(len(names)), strict=True))
        each = {name: keys for name, value in values.items() if (keys := model_set(self._observer.keys(value)))}
        self._begin(RecordedCall(full_name, each, *_thread_keys(), backend=_backend_of(values)))

    def _ended(self, *, raised: bool) -> None:
        call = self._open.pop()
        if call is not None:
            call.ended_ns = monotonic_ns() - self._started_ns
            if raised:
                self._raised.append(call)

    def _failed(self, error: BaseException | None) -> None:
        while self._raised:
            self._raised.pop().error = "an exception that C++ caught" if error is None else _error_text(error)

    def _called(self, original: Callable[..., Any], called: Any, /, *arguments: Any, **named: Any) -> object:
        """Note a call by name that finds no kernel."""
        count = self.count
        try:
            return original(called, *arguments, **named)
        except (NotImplementedError, RuntimeError) as error:
            name = getattr(called, "_qualified_op_name", None) or called._schema.name
            unseen = self.count == count and threading.current_thread() is self.thread
            if unseen and not str(error).startswith(f"{name}()"):  # else the arguments do not fit its schema
                with suppress(AttributeError, RuntimeError, TypeError):
                    self._begin(_call_of(called, arguments, named, error=_error_text(error)))
                    self._open.pop()
            raise

    def _redispatched(
        self, original: Callable[..., Any], operator: Any, keys: Any, /, *of: Any, **named: Any
    ) -> object:
        if threading.current_thread() is not self.thread:
            return original(operator, keys, *of, **named)
        with self._during(RecordedCall(operator.name(), {}, *_thread_keys(), handed=model_set(raw_bits(keys)))):
            return original(operator, keys, *of, **named)

    # -- calls that a mode sees

    def _seen(
        self, operator: Any, _: object, arguments: tuple[object, ...] = (), named: Mapping[str, object] | None = None
    ) -> object:
        """Note a call that reached the mode, and pass it on."""
        named = named or {}
        if not isinstance(operator, torch()._ops.OpOverload):  # a higher-order operator, which has no key set
            return operator(*arguments, **named)
        with bindings()._RestorePythonTLSSnapshot():
            call = _call_of(operator, arguments, named)
        call.included -= DispatchKeySet.of(DispatchKey.Python, DispatchKey.PythonTLSSnapshot)
        with self._during(call):
            return operator(*arguments, **named)

    # -- both

    def _begin(self, call: RecordedCall) -> None:
        self.count += 1
        call.began_ns = monotonic_ns() - self._started_ns
        if self.count <= self._limit:
            around = next((each for each in reversed(self._open) if each is not None), None)
            (self.calls if around is None else around.inside).append(call)
        self._open.append(call)

    @contextmanager
    def _during(self, call: RecordedCall) -> Iterator[None]:
        self._begin(call)
        try:
            yield
        except BaseException as error:
            call.error = _error_text(error)
            raise
        finally:
            self._open.pop()
            call.ended_ns = monotonic_ns() - self._started_ns


_running: list[CallRecorder] = []


def _error_text(error: BaseException) -> str:
    first, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first}"


def _call_of(called: Any, arguments: Sequence[object], named: Mapping[str, object], error: str = "") -> RecordedCall:
    """Return a call that Python makes.

    Args:
        called: the operator, or a packet.
    """
    if hasattr(called, "_overload_names"):
        name, overloads = called._qualified_op_name, called._overload_names
        overload = overloads[0] if len(overloads) == 1 else bindings()._jit_resolve_packet(name, *arguments, **named)
        called = getattr(called, overload or "default")
    values = {**dict(zip((each.name for each in called._schema.arguments), arguments, strict=False)), **named}
    each = {name: keys for name, value in values.items() if (keys := _keys_of(value))}
    return RecordedCall(called.name(), each, *_thread_keys(), error=error or None)


def _thread_keys() -> tuple[DispatchKeySet, DispatchKeySet]:
    """Return the keys that the thread includes and excludes."""
    c = bindings()
    sets = c._dispatch_tls_local_include_set(), c._dispatch_tls_local_exclude_set()
    return model_set(raw_bits(sets[0])), model_set(raw_bits(sets[1]))


_names: dict[tuple[str, str], tuple[str, ...]] = {}


def _argument_names(name: str, overload: str) -> tuple[str, ...] | None:
    """Return the names of an operator's arguments; None if it is not an operator."""
    found = _names.get((name, overload))
    if found is None and "::" in name:
        try:
            schema = bindings()._dispatch_find_schema_or_throw(name, overload).schema()
        except RuntimeError:
            return None
        found = tuple(argument.name for argument in schema.arguments)
        if name.startswith("aten::"):  # a program can define another operator again, with other arguments
            _names[name, overload] = found
    return found


_DEVICES = {0: DispatchKey.CPU, 1: DispatchKey.CUDA, 14: DispatchKey.Meta}
_QUANTIZED = (12, 13, 14, 16, 17)


def _backend_of(values: Mapping[str, Value]) -> DispatchKey | None:
    """Return the backend that dtype, layout and device choose; None if it is not known."""
    given = {name: values[name][0] for name in ("dtype", "layout", "device") if values.get(name, (0, 0))[1]}
    if given.get("layout") or given.get("dtype") in _QUANTIZED:
        return None
    return _DEVICES.get(given.get("device", 0) & 0xFF)


def _keys_of(value: object) -> DispatchKeySet:
    """Return the keys of the tensors in a value."""
    if isinstance(value, torch().Tensor):
        return model_set(raw_bits(bindings()._dispatch_keys(value)))
    found = DispatchKeySet()
    for element in value if isinstance(value, list | tuple) else ():
        found |= _keys_of(element)
    return found


@cache
def model_set(bits: int) -> DispatchKeySet:
    """Return a key set of the running PyTorch, without keys that the model does not know.

    Args:
        bits: the result of its `raw_repr()`.
    """
    found = 0
    for bit, ours in _bits():
        if bits >> bit & 1:
            found |= ours
    return DispatchKeySet(found)


@cache
def _bits() -> tuple[tuple[int, int], ...]:
    """Return each bit of the running PyTorch with its key in the model, without keys that the model lacks.

    A key has the bit of its functionality, and a runtime key also has the bit of its backend. PyTorch 2.5 cannot make a
    set from bits, so the bits are read from the sets of keys.
    """
    c = bindings()
    backends = int(c._dispatch_num_backends()) if hasattr(c, "_dispatch_num_backends") else len(BACKENDS)
    found: dict[int, int] = {}
    for name, key in DispatchKey.__members__.items():
        theirs = c._parse_dispatch_key(name)
        if theirs is None:
            continue
        bits = raw_bits(c.DispatchKeySet(theirs))
        backend, functionality = bits & ((1 << backends) - 1), bits >> backends
        if name in BACKENDS and backend.bit_count() == 1:
            found[backend.bit_length() - 1] = 1 << BACKENDS.index(name)
        if functionality.bit_count() == 1:
            found[functionality.bit_length() - 1 + backends] = functionality_bit(key.functionality)
    return tuple(sorted(found.items()))
