"""A device that stands in for one at PrivateUse1: runs a program there, on the CPU's memory, and notes its calls."""

from __future__ import annotations

import ctypes
import runpy
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.program_run import AUTOCAST, FALLBACK, MISSING, OWN, ProgramRun
from dispatchlab.pytorch.bridge.torch import torch

# Note [The stand-in]
# ~~~~~~~~~~~~~~~~~~~
# What a program calls depends on its device: a dropout, a convolution and an optimizer take other ways on a device than
# on the CPU. So the program runs on tensors of PrivateUse1 whose memory is the CPU's, and PyTorch takes those ways
# itself. DLPack makes such a tensor of one of the CPU, and the reverse: only the device in its structure is written.
#
# A fallback at PrivateUse1 takes each call that finds no kernel, notes it and has the CPU's kernel do it. The operators
# that the backend has kernels for get one here, too, so that they hide the composites that the backend's kernels hide.
# A fallback of the backend's is taken to be `at::native::cpu_fallback`, whose steps `_Device.fall_back` repeats.

_RAISING = ("convolution_overrideable", "convolution_backward_overrideable")
"""Operators whose composite kernel only raises: a fallback does not serve them."""

_CPU_DEVICE, _EXTENSION_DEVICE = 1, 12
_DEVICE_OFFSET = 8
"""Where `DLTensor` has its device, behind the address of the data."""


class StandInError(DispatchLabError):
    """This PyTorch has no way to stand in for a device."""

    version: str

    template = "PyTorch {version} cannot stand in for a device: coverage --program needs PyTorch 2.10 or newer"


def run_on_stand_in(
    path: str,
    arguments: Sequence[str],
    name: str,
    kernels: Sequence[str],
    options: Collection[str] = (),
    note: Callable[[str, str], None] | None = None,
) -> ProgramRun:
    """Run a program where a device of that name stands in for one at PrivateUse1; once in a process.

    Args:
        path: the program.
        arguments: its `sys.argv[1:]`.
        name: what it calls the device.
        kernels: the operators, with overload, that the backend has kernels for; `AUTOCAST` for that fallback.
        options: `fallback` where the backend has a fallback to the CPU, `default` to begin with
            `torch.set_default_device(name)`, `above` to note the operators whose calls lead to the device, and `parts`
            to note what decompositions call.
        note: is called for each call that reaches the device, with the operator and what serves it.

    Raises:
        StandInError: this PyTorch cannot.
    """
    calls: dict[tuple[str, str], int] = {}

    def count(operator: str, served: str) -> None:
        calls[operator, served] = calls.get((operator, served), 0) + 1
        if note is not None:
            note(operator, served)

    device = _Device(frozenset(kernels), count, fallback="fallback" in options, decompose="parts" in options)
    device.register(name)
    if "default" in options:
        torch().set_default_device(name)
    if "above" not in options:
        return ProgramRun(run_file(path, arguments), device.unserved, calls, (), device.parts)
    made, settings = import_module("torch.autograd.profiler").profile, import_module("torch._C._profiler")
    with made(experimental_config=settings._ExperimentalConfig(capture_overload_names=True)) as profile:
        error = run_file(path, arguments)
    above = _above(profile.function_events, {name for name, _ in calls})
    return ProgramRun(error, device.unserved, calls, tuple(sorted(above)), device.parts)


def _above(events: Sequence[Any], reached: Collection[str]) -> set[str]:
    """The operators of these events in which, at any depth, one of those operators is called."""
    seen: set[int] = set()
    found: set[str] = set()
    for event in events:
        if _name_of(event) in reached:
            while (event := event.cpu_parent) is not None and event.id not in seen:
                seen.add(event.id)
                found.add(_name_of(event))
    return {name for name in found - set(reached) if "::" in name}


def _name_of(event: Any) -> str:
    return f"{event.name}.{event.overload_name}" if event.overload_name else str(event.name)


class _NotMovedError(Exception):
    """A tensor cannot be one of the other device."""


class _Module:
    """What PyTorch asks of `torch.npu`: one device, whose random numbers are the CPU's."""

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def _nothing(self, *_: object) -> None:
        pass

    manual_seed = manual_seed_all = synchronize = set_device = empty_cache = _lazy_init = _nothing

    def get_amp_supported_dtype(self) -> list[Any]:
        return [torch().float16, torch().bfloat16]

    def get_rng_state(self, _device: object = None) -> Any:
        return torch().get_rng_state()

    def set_rng_state(self, state: Any, _device: object = None) -> None:
        torch().set_rng_state(state)

    @contextmanager
    def device(self, _device: object) -> Iterator[None]:
        yield


class _Device:
    """The kernels of the device. See Note [The stand-in]."""

    def __init__(
        self, kernels: frozenset[str], note: Callable[[str, str], None], *, fallback: bool, decompose: bool = False
    ) -> None:
        module: Any = torch()
        self._given_note = note
        self.parts: dict[str, tuple[str, ...]] = {}
        self._decompositions = dict(import_module("torch._decomp").decomposition_table) if decompose else {}
        self.unserved, self._name = "", ""
        self._generators: list[str] = []
        self._kernels, self._has_fallback = kernels, fallback
        self._cpu = module._C.DispatchKeySet(module._C.DispatchKey.CPU)
        self._set = module.ops.aten.set_.source_Storage_storage_offset
        self._watched: Callable[[bool], None] = module._C._autograd._enable_record_function
        self._has_kernel: Callable[[str, str], bool] = module._C._dispatch_has_computed_kernel_for_dispatch_key
        self._libraries: list[Any] = []
        self._local = threading.local()
        self._pointer = ctypes.pythonapi.PyCapsule_GetPointer
        self._pointer.restype, self._pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

    def register(self, name: str) -> None:
        """Have the device in this process.

        Raises:
            StandInError: this PyTorch cannot.
        """
        module: Any = torch()
        made = getattr(
            import_module("torch.utils.backend_registration"), "_setup_privateuseone_for_python_backend", None
        )
        if made is None:
            raise StandInError(module.__version__)
        made(None if name == "privateuseone" else name, _Module())
        self._name = name
        everywhere = module.library.Library("_", "IMPL")
        everywhere.fallback(self.called, "PrivateUse1")
        has_autocast = AUTOCAST in self._kernels or module._C._dispatch_has_backend_fallback(
            getattr(module._C.DispatchKey, AUTOCAST)
        )
        everywhere.fallback(module.library.fallthrough_kernel if has_autocast else self._without_autocast, AUTOCAST)
        self._libraries.append(everywhere)
        known = set(module._C._dispatch_get_all_op_names())
        is_there = module._C._dispatch_has_kernel_for_dispatch_key
        for operator in sorted({*self._kernels, *(f"aten::{each}" for each in _RAISING)} & known):
            if is_there(operator, "PrivateUse1"):  # PyTorch's own
                continue
            namespace, _, rest = operator.partition("::")
            library = module.library.Library(namespace, "IMPL")
            base, _, overload = rest.partition(".")
            one = getattr(getattr(getattr(module.ops, namespace), base), overload or "default")
            library.impl(rest, _bound(self.called, one), "PrivateUse1")
            self._libraries.append(library)
        lazy = module.library.Library("aten", "IMPL")
        for key in ("Conjugate", "Negative"):
            lazy.impl("_copy_from", self._copy_of_lazy, key)
        lazy.impl("_pin_memory", lambda one, _device=None: one.clone(), "CPU")
        self._libraries.append(lazy)
        self._replace_constructors()

    def _replace_constructors(self) -> None:
        """Make storages and generators of the device, which PyTorch asks C++ for."""
        module: Any = torch()
        storage, generator, name, moved = module.UntypedStorage, module.Generator, self._name, self._moved
        allocate, generators = storage.__new__, self._generators

        def new_storage(cls: type, *given: Any, device: Any = None, **named: Any) -> Any:
            if device is None or module.device(device).type != name:
                return allocate(cls, *given, **named, **({} if device is None else {"device": device}))
            memory = module.empty(0, dtype=module.uint8, device="cpu").set_(allocate(cls, *given, **named))
            return moved(memory, _EXTENSION_DEVICE).untyped_storage()

        class AnyGenerator(type(generator)):  # type: ignore[misc]  # a class of C
            def __instancecheck__(cls, one: object) -> bool:
                return isinstance(one, generator)

        class Generator(generator, metaclass=AnyGenerator):  # type: ignore[misc, valid-type]  # a class of C
            def __new__(cls, device: Any = "cpu") -> Any:
                if module.device(device).type != name:
                    return generator(device)
                generators.append(name)
                return super().__new__(cls, "cpu")

            @property
            def device(self) -> Any:
                return module.device(name, 0)

        storage.__new__ = staticmethod(new_storage)
        module.Generator = Generator
        module.accelerator.synchronize = _Module().synchronize

    def _copy_of_lazy(self, source: Any, to: Any, *_non_blocking: bool) -> Any:
        """A copy from or to a conjugate or negative: its fallback clones, which copies, and so on without end.

        A kernel for `copy_` takes such a copy before that.
        """
        if not getattr(self._local, "quiet", False) and "aten::copy_" not in self._kernels:
            self._note("aten::copy_", MISSING)
        return self._copy_from(source, to)

    def called(self, op: Any, *positional: Any, **named: Any) -> Any:
        """A call that reached the device."""
        if getattr(self._local, "quiet", False):  # of this device's own doing
            return op.redispatch(self._cpu, *positional, **named)
        name, watched = str(op._name), self._watched
        running: list[str] = self._local.__dict__.setdefault("running", [])
        if name in self._kernels:
            self._note(name, OWN)
        elif (
            not self._has_fallback
            or name in running  # which would go on for ever
            or name.removeprefix("aten::") in _RAISING
            or name.startswith("aten::set_.source_Storage")  # the CPU's takes no storage of the device
            or (self._generators and any(isinstance(one, torch().Generator) for one in named.values()))  # nor that
            or not self._has_kernel(name, "CPU")
        ):
            self._note(name, MISSING)
            if op in self._decompositions:
                self._decompose(op, name, positional, named)
        else:
            self._note(name, FALLBACK)
            running.append(name)
            try:
                return self.fall_back(op, _without_numbers(op, positional), named)
            finally:
                running.pop()
        changes_memory = not _is_view(op) and (name == "aten::set_.source_Tensor" or not name.startswith("aten::set_."))
        if not changes_memory:  # a kernel that may call others on the device, as that of unfold does
            return op.redispatch(self._cpu, *positional, **named)
        self._local.quiet = True
        watched(False)  # noqa: FBT003  # a function of C
        try:
            return self._serve(op, name, _without_numbers(op, positional), named)
        except _NotMovedError:
            self.unserved = self.unserved or name
            raise NotImplementedError(f"{name} has tensors that the CPU cannot stand in for") from None
        finally:
            watched(True)  # noqa: FBT003  # a function of C
            self._local.quiet = False

    def _note(self, name: str, served: str) -> None:
        parts: set[str] | None = getattr(self._local, "parts", None)
        if parts is None:
            self._given_note(name, served)
        else:
            parts.add(name)

    def _decompose(self, op: Any, name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Note what a decomposition calls on the device, the first time; it runs on copies of what it writes."""
        module, decomposition = torch(), self._decompositions.pop(op, None)
        if decomposition is None or getattr(self._local, "parts", None) is not None:
            return
        parts: set[str] = set()
        schema = op._schema.arguments
        try:
            self._local.parts = set()
            given = [_copy(one) if _is_written(schema[at]) else one for at, one in enumerate(positional)]
            written = {one.name for one in schema if _is_written(one)}
            by_name = {key: _copy(one) if key in written else one for key, one in named.items()}
            self._local.parts = parts
            with module.random.fork_rng(devices=[]):
                decomposition(*given, **by_name)
        except Exception:  # whatever it is: no answer
            return
        finally:
            self._local.parts = None
        if name not in parts:
            self.parts[name] = tuple(sorted(parts))

    def _without_autocast(self, op: Any, *positional: Any, **named: Any) -> Any:
        """A call under autocast that finds nothing there."""
        self._note(AUTOCAST, MISSING)
        key = torch()._C.DispatchKey
        with torch()._C._ExcludeDispatchKeyGuard(torch()._C.DispatchKeySet(getattr(key, AUTOCAST))):
            return op(*positional, **named)

    # -- the CPU's kernels on memory of the device

    def _serve(self, op: Any, name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        module: Any = torch()
        special: dict[str, Callable[..., Any]] = {
            "aten::_copy_from": self._copy_from,
            "aten::_copy_from_and_resize": self._copy_from_and_resize,
            "aten::resize_": self._resize,
            "aten::set_.source_Tensor": self._set_tensor,
        }
        if name in special:
            return special[name](*positional, **named)
        if name == "aten::_efficientzerotensor":  # which has no memory
            return op.redispatch(self._cpu, *positional, **{**named, "device": module.device(self._name, 0)})
        written = _WRITTEN.get(name.removeprefix("aten::"))
        if written is None and not self._has_kernel(name, "CPU"):
            self.unserved = self.unserved or name
            raise NotImplementedError(f"{name} has no kernel for the CPU, which stands in for the device")
        pairs = [(one, self._copied(one)) for one in _outputs(op, named)]
        given = [self._on_cpu(one, pairs) for one in positional]
        by_name = {key: self._on_cpu(one, pairs) for key, one in named.items()}
        found = op.redispatch(self._cpu, *given, **by_name) if written is None else written(*given, **by_name)
        for device, cpu in pairs:
            if device.data_ptr() == cpu.data_ptr() and (device.shape, device.stride()) != (cpu.shape, cpu.stride()):
                self._set_tensor(device, self._moved(cpu, _EXTENSION_DEVICE))
            elif device.data_ptr() != cpu.data_ptr():
                self._grow(device, cpu.shape, cpu.stride())
                self._moved(device, _CPU_DEVICE).copy_(cpu)
        return self._back(found, pairs)

    def _copied(self, one: Any) -> Any:
        """A tensor of the CPU with the same content, whose memory can grow, as some kernels let that of an output."""
        made = torch().empty_strided(tuple(one.shape), one.stride(), dtype=one.dtype, device="cpu")
        return made.copy_(self._moved(one, _CPU_DEVICE)) if one.untyped_storage().nbytes() else made

    def _on_cpu(self, one: Any, pairs: list[tuple[Any, Any]]) -> Any:
        module: Any = torch()
        if isinstance(one, module.Tensor):
            if one.device.type == "cpu":
                return one
            for device, cpu in pairs:
                if device is one:
                    return cpu
            empty = not one.untyped_storage().nbytes()  # memory that DLPack made cannot grow
            made = self._copied(one) if empty else self._moved(one, _CPU_DEVICE)
            pairs.append((one, made))
            return made
        if isinstance(one, list | tuple):
            return [self._on_cpu(each, pairs) for each in one]
        if isinstance(one, module.device) and one.type != "cpu":
            return module.device("cpu")
        return one

    def _back(self, one: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
        module: Any = torch()
        if isinstance(one, module.Tensor):
            for device, cpu in pairs:
                if cpu is one:
                    return device
            return self._moved(one, _EXTENSION_DEVICE) if one.device.type == "cpu" else one
        if isinstance(one, list | tuple):
            return type(one)(self._back(each, pairs) for each in one)
        return one

    def _moved(self, tensor: Any, kind: int) -> Any:
        """A tensor of the other device over the same memory."""
        module: Any = torch()
        try:
            capsule = module._C._to_dlpack(tensor)
        except (BufferError, RuntimeError):  # sparse, quantized, of a layout that has no memory of its own
            raise _NotMovedError from None
        device = (ctypes.c_int32 * 2).from_address(self._pointer(capsule, b"dltensor") + _DEVICE_OFFSET)
        device[0], device[1] = kind, 0
        made = module._C._from_dlpack(capsule)
        made = made.conj() if tensor.is_conj() else made
        return module._neg_view(made) if tensor.is_neg() else made

    def _copy_from(self, source: Any, to: Any, *_non_blocking: bool) -> Any:
        pairs: list[tuple[Any, Any]] = []
        self._on_cpu(to, pairs).copy_(self._on_cpu(source, pairs))
        return to

    def _copy_from_and_resize(self, source: Any, to: Any) -> Any:
        return self._copy_from(source, self._resize(to, tuple(source.shape)))

    def _resize(self, tensor: Any, size: Sequence[int], *, memory_format: Any = None) -> Any:
        if tuple(tensor.shape) == tuple(size):
            return tensor
        like = torch().empty(size, dtype=tensor.dtype, device="meta", memory_format=memory_format)
        return self._grow(tensor, size, like.stride())

    def _grow(self, tensor: Any, shape: Sequence[int], stride: Sequence[int]) -> Any:
        """Give a tensor this shape, in its own memory where that is large enough."""
        module: Any = torch()
        if (tensor.shape, tensor.stride()) == (tuple(shape), tuple(stride)):
            return tensor
        storage, offset = tensor.untyped_storage(), tensor.storage_offset()
        last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        wanted = 0 if 0 in shape else (offset + last + 1) * tensor.element_size()
        if storage.nbytes() < wanted:
            memory = module.empty(wanted, dtype=module.uint8, device="cpu")
            if storage.nbytes():
                ctypes.memmove(memory.data_ptr(), storage.data_ptr(), storage.nbytes())
            storage = self._moved(memory, _EXTENSION_DEVICE).untyped_storage()
        return self._set.redispatch(self._cpu, tensor, storage, offset, tuple(shape), tuple(stride))

    def _set_tensor(self, tensor: Any, source: Any) -> Any:
        return self._set.redispatch(
            self._cpu, tensor, source.untyped_storage(), source.storage_offset(), tuple(source.shape), source.stride()
        )

    # -- the fallback of the backend

    def fall_back(self, op: Any, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """What `at::native::cpu_fallback` does, with the calls that it makes on the device."""
        module: Any = torch()
        schema = op._schema.arguments
        values = [*positional, *(named.get(one.name, one.default_value) for one in schema[len(positional) :])]
        target = None
        lists: dict[int, list[Any]] = {}
        for at, value in enumerate(values):
            if isinstance(value, list | tuple) and any(isinstance(one, module.Tensor) for one in value):
                lists[at] = _to_cpu(value)
            elif isinstance(value, module.device):
                target = value
        tensors = {at: value for at, value in enumerate(values) if isinstance(value, module.Tensor)}
        on_cpu = dict(zip(tensors, _to_cpu(list(tensors.values())), strict=True))
        given = [
            module.device("cpu") if isinstance(one, module.device) else lists.get(at, on_cpu.get(at, one))
            for at, one in enumerate(values)
        ]
        by_name = {one.name: given[at] for at, one in enumerate(schema) if at >= len(positional)}
        found = op.redispatch(self._cpu, *given[: len(positional)], **by_name)
        for at, tensor in tensors.items():
            if _is_written(schema[at]):
                module._copy_from_and_resize(on_cpu[at], tensor)
        for at, made in lists.items():
            if _is_written(schema[at]):
                for cpu, tensor in zip(made, values[at], strict=True):
                    if cpu is not None:
                        module._copy_from_and_resize(cpu, tensor)
        if target is None:
            all_of = (*tensors.values(), *(one for at in lists for one in values[at] if one is not None))
            target = next((tensor.device for tensor in all_of), None)
        written = {id(on_cpu[at]): tensors[at] for at in tensors if _is_written(schema[at])}

        def back(one: Any) -> Any:
            if isinstance(one, module.Tensor):
                return written[id(one)] if id(one) in written else one if target is None else one.to(target)
            return type(one)(map(back, one)) if isinstance(one, list | tuple) else one

        return back(found)


def _bound(function: Callable[..., Any], op: Any) -> Callable[..., Any]:
    return lambda *positional, **named: function(op, *positional, **named)


def _without_numbers(op: Any, positional: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make a tensor of each number that was one: PyTorch hands the tensors that it made of numbers over as numbers."""
    wrong = [at for at, one in enumerate(positional) if isinstance(one, int | float | complex) and _is_tensor(op, at)]
    if not wrong:
        return positional
    module: Any = torch()
    wide = any(
        isinstance(one, module.Tensor) and one.dtype in (module.float64, module.complex128) for one in positional
    )
    made = list(positional)
    for at in wrong:
        is_whole = isinstance(made[at], int)
        kind = None if is_whole or not wide else module.complex128 if isinstance(made[at], complex) else module.float64
        made[at] = module.tensor(made[at], dtype=kind, device="cpu")
    return tuple(made)


@cache
def _is_tensor(op: Any, at: int) -> bool:
    return str(op._schema.arguments[at].type) in ("Tensor", "Optional[Tensor]")


@cache
def _is_view(op: Any) -> bool:
    return any(one.alias_info is not None and not one.alias_info.is_write for one in op._schema.returns)


def _copy(one: Any) -> Any:
    return [each.clone() for each in one] if isinstance(one, list | tuple) else one.clone()


@cache
def _output_names(op: Any) -> tuple[str, ...]:
    return tuple(one.name for one in op._schema.arguments if one.kwarg_only and _is_written(one))


def _outputs(op: Any, named: Mapping[str, Any]) -> list[Any]:
    """The tensors of the device that a call names as its outputs, each once."""
    found: dict[int, Any] = {}
    for name in _output_names(op):
        given = named.get(name)
        for one in given if isinstance(given, list | tuple) else (given,):
            if one is not None and one.device.type != "cpu":
                found[id(one)] = one
    return list(found.values())


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _to_cpu(tensors: Sequence[Any]) -> list[Any]:
    there = iter(torch()._to_cpu([one for one in tensors if one is not None]))
    return [None if one is None else next(there) for one in tensors]


# -- operators for devices alone, which the CPU has no kernel for


def _convolution(*positional: Any, **named: Any) -> Any:
    return torch().convolution(*positional, **named)


def _convolution_backward(gradient: Any, input: Any, weight: Any, *rest: Any, **named: Any) -> Any:
    return torch().ops.aten.convolution_backward(gradient, input, weight, [gradient.shape[1]], *rest, **named)


def _lstm_cell(input: Any, hidden: Any, cell: Any, *biases: Any) -> Any:
    gates = sum((one for one in biases if one is not None), input + hidden)
    into, forget, new, out = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + into.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell, gates


def _lstm_cell_backward(gradient: Any, of_cell: Any, before: Any, cell: Any, gates: Any, has_bias: bool) -> Any:  # noqa: FBT001
    backward = torch().ops.aten._thnn_differentiable_lstm_cell_backward
    found, _, to_cell, *_ = backward(gradient, of_cell, gates, gates.new_zeros(()), None, None, before, cell)
    return found, to_cell, found.sum(0) if has_bias else None


def _gru_cell(input: Any, hidden: Any, state: Any, *biases: Any) -> Any:
    input, hidden = (
        one if bias is None else one + bias for one, bias in zip((input, hidden), biases or (None, None), strict=True)
    )
    (reset, update, new), (of_reset, of_update, of_new) = input.chunk(3, 1), hidden.chunk(3, 1)
    new = (new + (reset + of_reset).sigmoid() * of_new).tanh()
    return new + (update + of_update).sigmoid() * (state - new), torch().cat([input, hidden, state], 1)


def _gru_cell_backward(gradient: Any, workspace: Any, has_bias: bool) -> Any:  # noqa: FBT001
    width = gradient.shape[1]
    backward = torch().ops.aten._thnn_differentiable_gru_cell_backward
    found = backward(gradient, *workspace.split([3 * width, 3 * width, width], 1), None, None)[:3]
    return (*found, *((one.sum(0) if has_bias else None) for one in found[:2]))


_WRITTEN: Mapping[str, Callable[..., Any]] = {
    "convolution_overrideable": _convolution,
    "convolution_backward_overrideable": _convolution_backward,
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
}


def run_file(path: str, arguments: Sequence[str] = ()) -> str:
    """Run a Python file as a program, and say what it raised; nothing when it came to its end.

    Args:
        path: the file.
        arguments: its `sys.argv[1:]`.
    """
    before = sys.argv
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit:
        pass
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        sys.argv = before
    return ""
