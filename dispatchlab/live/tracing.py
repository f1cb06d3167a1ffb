"""`CallRecorder` records the calls of PyTorch's operators inside of a `with` block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from time import monotonic_ns
from typing import Any, Self

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.running_keys import raw_bits
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.bridge.wrapped_functions import WrappedFunctions
from dispatchlab.live.introspection.site_log import registrations_logged
from dispatchlab.model.key_set import DispatchKeySet, functionality_bit
from dispatchlab.model.keys import BACKENDS, DispatchKey

# Note [Where calls are seen]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A call of `torch.ops` is seen where Python makes it. Every other call is seen by a `TorchDispatchMode`: it runs at the
# key Python, below autograd, and PyTorch keeps what the thread included and excluded when the call was made, so the
# whole set of the call is known there. The mode then hands the call on with the set that is left below Python, which
# is the set of the last hop. What has decomposed above the mode, as most operators with a kernel for
# CompositeImplicitAutograd do, is seen by its parts alone, unless Python has called it by name.
#
# While the mode has a call, it is off, and what PyTorch's own kernels call is not seen. A package's kernel runs under a
# `TorchFunctionMode`, which turns the other mode on for each function of PyTorch that the kernel calls. It cannot be on
# for the kernel itself: where a mode is on, PyTorch runs the Python kernel that was registered last for the key of
# the one in the slot, though it was released (python_registrations_ in torch/csrc/utils/python_dispatch.cpp).


class TorchTraceError(DispatchLabError):
    """The calls of this PyTorch cannot be traced."""

    reason: str

    template = "the calls of this PyTorch cannot be traced: {reason}"


@dataclass(slots=True)
class RecordedCall:
    """A call of an operator.

    Args:
        operator: its name, with the overload.
        each: the keys of each argument that has keys, by the name of the argument.
        included, excluded: the keys that the thread included and excluded at the call.
        began_ns, ended_ns: the time since the recording began; no end while the call is running.
        below: the key set of its last redispatch; None if the call did not reach the mode.
        error: its exception, as `kind: message` on one line.
        inside: the calls that it made.
    """

    operator: str
    each: Mapping[str, DispatchKeySet]
    included: DispatchKeySet
    excluded: DispatchKeySet
    began_ns: int
    ended_ns: int | None = None
    below: DispatchKeySet | None = None
    error: str | None = None
    inside: list[RecordedCall] = field(default_factory=list)


class CallRecorder:
    """A recorder of one thread's calls inside a `with` block. See Note [Where calls are seen].

    Args:
        limit: the number of calls to keep; later calls are only counted.
    """

    def __init__(self, limit: int) -> None:
        self.calls: list[RecordedCall] = []
        self.count = 0
        self.has_handlers = False
        self.thread = threading.current_thread()
        self._limit = limit
        self._started_ns = monotonic_ns()
        self._open: list[RecordedCall] = []
        self._handing_on: object = None
        self._by_name, self._log = WrappedFunctions(), registrations_logged()
        torch()
        self._modes: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode

        def seen(_: object, *of: Any) -> object:
            return self._seen(*of)

        def function(_: object, *of: Any) -> object:
            return self._function(*of)

        methods = {"__torch_dispatch__": seen, "supports_higher_order_operators": True}
        self._mode = type("Mode", (self._modes,), methods)()
        self._functions = type("Functions", (torch().overrides.TorchFunctionMode,), {"__torch_function__": function})()

    def __enter__(self) -> Self:
        if _running:
            raise TorchTraceError("another trace is on, and there can be one at a time")
        _running.append(self)
        self.thread = threading.current_thread()
        for kind, around in zip(_operators(), (self._called, self._packet_called), strict=True):
            self._by_name.wrap(kind, "__call__", around)
        self._by_name.wrap(self._modes, "__enter__", self._mode_entered)
        self._log.__enter__()
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)
        self._log.__exit__(None, None, None)
        self._by_name.put_back()
        _running.clear()

    def _mode_entered(self, original: Callable[..., Any], mode: Any) -> object:
        self.has_handlers |= mode is not self._mode and _is_of_program(type(mode))
        return original(mode)

    def _packet_called(self, original: Callable[..., Any], packet: Any, *arguments: Any, **named: Any) -> object:
        name = packet._qualified_op_name
        if self._handing_on is packet:
            self._handing_on = None
            return original(packet, *arguments, **named)
        try:
            overloads = packet._overload_names
            overload = (
                overloads[0] if len(overloads) == 1 else bindings()._jit_resolve_packet(name, *arguments, **named)
            )
            operator = getattr(packet, overload or "default")
        except (AttributeError, RuntimeError, TypeError):  # no overload takes these
            return original(packet, *arguments, **named)
        return self._noted(operator, lambda: original(packet, *arguments, **named), arguments, named)

    def _called(self, original: Callable[..., Any], operator: Any, *arguments: Any, **named: Any) -> object:
        return self._noted(operator, lambda: original(operator, *arguments, **named), arguments, named)

    def _noted(
        self, operator: Any, run: Callable[[], object], arguments: tuple[object, ...], named: Mapping[str, object]
    ) -> object:
        """Note a call that Python makes by name."""
        if self._handing_on is operator or threading.current_thread() is not self.thread:
            self._handing_on = None
            return run()
        inside = self._open and self._open[-1].below is not None
        with bindings()._RestorePythonTLSSnapshot() if inside else nullcontext():
            call = _new_call(operator, arguments, named)
        with self._during(call):
            return run()

    def _seen(
        self,
        operator: Any,
        types: Sequence[type],
        arguments: tuple[object, ...] = (),
        named: Mapping[str, object] | None = None,
    ) -> object:
        """Note a call that reached the mode, and pass it on."""
        named = named or {}
        self.has_handlers |= any(map(_is_of_program, types))
        if not isinstance(operator, torch()._ops.OpOverload):  # a higher-order operator, which has no key set
            return operator(*arguments, **named)
        below = _set_below(operator, arguments, named)
        if not self._is_of_last(operator):
            with bindings()._RestorePythonTLSSnapshot():
                call = _new_call(operator, arguments, named)
            with self._during(call):
                call.below = model_set(raw_bits(below))
                return self._handed_on(operator, types, below, arguments, named)
        self._open[-1].below = model_set(raw_bits(below))
        return self._handed_on(operator, types, below, arguments, named)

    def _is_of_last(self, operator: Any) -> bool:
        """Return whether the mode's call is the call that Python made by name."""
        last = self._open[-1] if self._open else None
        return last is not None and last.operator == operator.name() and last.below is None and not last.inside

    def _handed_on(
        self, operator: Any, types: object, below: Any, arguments: tuple[object, ...], named: Mapping[str, object]
    ) -> object:
        if types or operator.namespace in _OWN_NAMESPACES or not raw_bits(below):
            self._handing_on = operator
            return operator(*arguments, **named)
        with self._functions:
            return operator.redispatch(below, *arguments, **named)

    def _function(
        self,
        function: Any,
        types: object,
        arguments: tuple[object, ...] = (),
        named: Mapping[str, object] | None = None,
    ) -> object:
        """Call a function of PyTorch for a kernel of a package, with the mode on."""
        if isinstance(function, _operators()):  # which was noted where Python called it
            self._handing_on = function
        with self._mode:
            return function(*arguments, **(named or {}))

    @contextmanager
    def _during(self, call: RecordedCall) -> Iterator[None]:
        self.count += 1
        call.began_ns = monotonic_ns() - self._started_ns
        if self.count <= self._limit:
            (self._open[-1].inside if self._open else self.calls).append(call)
        self._open.append(call)
        try:
            yield
        except BaseException as error:
            first, *_ = str(error).splitlines() or [""]
            call.error = f"{type(error).__name__}: {first}"
            raise
        finally:
            self._open.pop()
            call.ended_ns = monotonic_ns() - self._started_ns


@cache
def _operators() -> tuple[type, ...]:
    return torch()._ops.OpOverload, torch()._ops.OpOverloadPacket


_running: list[CallRecorder] = []
_OWN_NAMESPACES = frozenset(("aten", "c10d", "prim", "prims", "profiler", "quantized", "mkldnn", "sparse"))
_OF_MODES = DispatchKeySet.of(DispatchKey.Python, DispatchKey.PythonTLSSnapshot)


def _is_of_program(kind: type) -> bool:
    return kind.__module__.partition(".")[0] != "torch"


def _new_call(operator: Any, arguments: tuple[object, ...], named: Mapping[str, object]) -> RecordedCall:
    c = bindings()
    names = [argument.name for argument in operator._schema.arguments]
    values = {**dict(zip(names, arguments, strict=False)), **named}
    each = {name: keys for name, value in values.items() if (keys := model_set(raw_bits(_keys_of(value))))}
    included, excluded = c._dispatch_tls_local_include_set(), c._dispatch_tls_local_exclude_set()
    here = model_set(raw_bits(included)) - _OF_MODES, model_set(raw_bits(excluded))
    return RecordedCall(operator.name(), each, *here, 0)


def _set_below(operator: Any, arguments: tuple[object, ...], named: Mapping[str, object]) -> Any:
    """Return the key set with which a call continues below the mode."""
    c = bindings()
    keys = c._dispatch_tls_local_include_set() | _keys_of((*arguments, *named.values()))
    keys = (keys - c._dispatch_tls_local_exclude_set()) & c._dispatch_keyset_full_after(c.DispatchKey.Python)
    selects = c._dispatch_has_kernel_for_dispatch_key(operator.name(), "BackendSelect")
    return keys if selects else keys - c.DispatchKeySet(c.DispatchKey.BackendSelect)


def _keys_of(value: object) -> Any:
    """Return the keys of the tensors in a value."""
    c = bindings()
    found = c.DispatchKeySet(c.DispatchKey.Undefined)
    for tensor in _tensors(value):
        found = found | c._dispatch_keys(tensor)
    return found


def _tensors(value: object) -> Iterator[object]:
    if isinstance(value, torch().Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _tensors(element)


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
