"""A stand-in device at PrivateUse1: it runs a program in the memory of the CPU, and notes the calls."""

from __future__ import annotations

import ctypes
import runpy
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.torch import torch
from dispatchlab.model.program_run import FALLBACK, MISSING, OWN, ProgramRun

# Note [The stand-in]
# ~~~~~~~~~~~~~~~~~~~
# What a program calls depends on its device: a dropout, a convolution and an optimizer take other ways on a device than
# on the CPU. So the program runs on tensors of PrivateUse1 whose memory is the CPU's, and PyTorch takes those ways
# itself. DLPack makes such a tensor of one of the CPU, and the reverse: only the device in its structure is written.
#
# A fallback at PrivateUse1 takes each call that finds no kernel, notes it and has the CPU's kernel do it. The operators
# that the backend has kernels for get one here, too, so that they hide the composites that the backend's kernels hide.

_RAISING = ("convolution_overrideable", "convolution_backward_overrideable")
"""Operators whose composite kernel only raises: a fallback does not serve them."""

_CPU_DEVICE, _EXTENSION_DEVICE = 1, 12
_DEVICE_OFFSET = 8
"""Where `DLTensor` has its device, behind the address of the data."""


class StandInError(DispatchLabError):
    """This PyTorch cannot stand in for a device."""

    version: str

    template = "PyTorch {version} cannot stand in for a device: coverage --program needs PyTorch 2.10 or newer"


def run_on_stand_in(path: str, name: str, kernels: Sequence[str], fallback: bool) -> ProgramRun:  # noqa: FBT001  a worker takes no names
    """Run a program on a device of that name, a stand-in at PrivateUse1; only once in a process.

    Args:
        path: the program.
        name: the name of the device in the program.
        kernels: the operators, with overload, that the backend has kernels for.
        fallback: whether the backend has a fallback to the CPU.

    Raises:
        StandInError: this PyTorch cannot provide a stand-in device.
    """
    device = _Device(frozenset(kernels), fallback=fallback)
    device.register(name)
    return ProgramRun(run_file(path), device.unserved, device.calls)


class _NotMovedError(Exception):
    """A tensor cannot be moved to the other device."""


class _Module:
    """A module such as `torch.npu`: one device, with the random numbers of the CPU."""

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

    def __init__(self, kernels: frozenset[str], *, fallback: bool) -> None:
        module: Any = torch()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.unserved, self._name = "", ""
        self._kernels, self._has_fallback = kernels, fallback
        self._cpu = module._C.DispatchKeySet(module._C.DispatchKey.CPU)
        self._set = module.ops.aten.set_.source_Storage_storage_offset
        self._has_kernel: Callable[[str, str], bool] = module._C._dispatch_has_computed_kernel_for_dispatch_key
        self._libraries: list[Any] = []
        self._local = threading.local()
        self._pointer = ctypes.pythonapi.PyCapsule_GetPointer
        self._pointer.restype, self._pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

    def register(self, name: str) -> None:
        """Register the device in this process.

        Raises:
            StandInError: this PyTorch cannot provide a stand-in device.
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
        everywhere.fallback(module.library.fallthrough_kernel, "AutocastPrivateUse1")
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
            library.impl(rest, partial(self.called, one), "PrivateUse1")
            self._libraries.append(library)
        lazy = module.library.Library("aten", "IMPL")
        for key in ("Conjugate", "Negative"):  # whose fallback clones, which copies, and so on without end
            lazy.impl("_copy_from", self._copy_from, key)
        self._libraries.append(lazy)

    def called(self, op: Any, *positional: Any, **named: Any) -> Any:
        """Note a call that reached the device, and run the CPU kernel for it."""
        if getattr(self._local, "quiet", False):  # of this device's own doing
            return op.redispatch(self._cpu, *positional, **named)
        name = str(op._name)
        if name in self._kernels:
            served = OWN
        else:
            is_served = self._has_fallback and name.removeprefix("aten::") not in _RAISING
            served = FALLBACK if is_served and self._has_kernel(name, "CPU") else MISSING
        self.calls[name, served] += 1
        if _is_view(op) or (name.startswith("aten::set_.") and name != "aten::set_.source_Tensor"):
            return op.redispatch(self._cpu, *positional, **named)
        self._local.quiet = True
        try:
            return self._serve(op, name, _without_numbers(op, positional), named)
        except _NotMovedError:
            self.unserved = self.unserved or name
            raise NotImplementedError(f"{name} has tensors that the CPU cannot stand in for") from None
        finally:
            self._local.quiet = False

    # -- the CPU's kernels on memory of the device

    def _serve(self, op: Any, name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        special: dict[str, Callable[..., Any]] = {
            "aten::_copy_from": self._copy_from,
            "aten::_copy_from_and_resize": self._copy_from_and_resize,
            "aten::resize_": self._resize,
            "aten::set_.source_Tensor": self._set_tensor,
        }
        if name in special:
            return special[name](*positional, **named)
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
        """Return a CPU tensor with the same content, because some kernels resize the memory of an output."""
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
        """Return a tensor of the other device over the same memory."""
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
        """Give a tensor this shape, in its own memory if the memory is large enough."""
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


def _without_numbers(op: Any, positional: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert number arguments to tensors if the caller passed tensors, because PyTorch passes them as numbers."""
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


@cache
def _output_names(op: Any) -> tuple[str, ...]:
    of_out = (one for one in op._schema.arguments if one.kwarg_only and one.alias_info is not None)
    return tuple(one.name for one in of_out if one.alias_info.is_write)


def _outputs(op: Any, named: Mapping[str, Any]) -> list[Any]:
    """Return the tensors of the device that a call names as its outputs, each once."""
    found: dict[int, Any] = {}
    for name in _output_names(op):
        given = named.get(name)
        for one in given if isinstance(given, list | tuple) else (given,):
            if one is not None and one.device.type != "cpu":
                found[id(one)] = one
    return list(found.values())


# -- operators for devices alone, which the CPU has no kernel for


_WRITTEN: Mapping[str, Callable[..., Any]] = {
    "convolution_overrideable": lambda *positional, **named: torch().convolution(*positional, **named),
    "convolution_backward_overrideable": lambda gradient, input, weight, *rest, **named: (
        torch().ops.aten.convolution_backward(gradient, input, weight, [gradient.shape[1]], *rest, **named)
    ),
}


def run_file(path: str) -> str:
    """Run a Python file as a program, and return its exception; None if it succeeded."""
    before = sys.argv
    sys.argv = [path]
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
