"""Captured inputs: notes the arguments of operator calls while tests or programs run, and keeps them in a file."""

from __future__ import annotations

import ctypes
import json
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.bounded_read import read_file
from dispatchlab.files.file_kinds import INPUTS_FORMAT
from dispatchlab.pytorch.bridge.torch import torch

SUFFIX = ".safetensors"
"""How the name of a file of captured inputs ends."""

MAX_BYTES = 1 << 28
"""Larger files are refused unread."""

PER_OPERATOR = 8
"""How many calls of an operator are kept."""

_PER_CALL = 1 << 20
_MAX_VALUES = 1 << 20
_MAX_RANK = 64
_OWN = frozenset(
    (
        *("aten", "prim", "prims", "quantized", "_quantized", "symm_mem", "static_runtime", "c10d", "onednn", "mkldnn"),
        *("_c10d_functional", "_c10d_functional_autograd", "profiler", "sparse", "inductor", "_test", "onnx", "mkl"),
        *("quantization", "mkldnn_prepacked", "debugprims", "_dtensor", "inductor_prims", "rngprims", "_native"),
        *("export", "debug_mode_ops", "higher_order", "_inductor_test", "ao", "bucketing", "fsdp", "streams"),
        *("c10d_functional", "flex_lib", "onnx_symbolic", "quantized_decomposed"),
    )
)
"""The namespaces of PyTorch's own operators, which are not noted."""

# Note [Where calls are seen]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A torch dispatch mode sees calls late, changes what torch.compile does and makes every call of PyTorch slow. So the
# `__call__` of operators is replaced meanwhile: Python code calls operators through it, and so do graphs of
# torch.compile, the code that Inductor writes, backward functions and tensor subclasses. A call from C++ is not seen.
# Its arguments are read as bytes, without an operator, so that no mode of a test sees anything of it.
#
# Note [The file of captured inputs]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# It is a safetensors file: the memory of each call as bytes, and the calls as JSON in its metadata, with a checksum.
# Reading it runs no code. What the JSON says of a tensor is checked against the memory that is there.


class CaptureError(DispatchLabError):
    """A file of captured inputs cannot be read."""

    path: str
    reason: str

    template = "{path}: no captured inputs: {reason}; write it with pytest --dispatchlab-readiness={path}"


class CapturedCalls(NamedTuple):
    """The calls that were noted.

    Args:
        calls: operator -> its calls, encoded.
        memory: what the encoded tensors lie in.
        left_out: operator -> how many distinct calls could not be kept, because of their size or a value.
    """

    calls: dict[str, list[dict[str, Any]]]
    memory: list[bytes]
    left_out: dict[str, int]


class _NotKept(Exception):
    """A call that cannot be kept, or is no call with data."""


class Capture:
    """Notes the calls of operators that are not PyTorch's own. See Note [Where calls are seen]."""

    def __init__(self) -> None:
        self.found = CapturedCalls({}, [], {})
        self._names: dict[Any, str | None] = {}
        self._known: dict[str, set[object]] = {}
        self._originals: list[tuple[type, Any]] = []

    def __enter__(self) -> Capture:
        operators: Any = import_module("torch._ops")
        frames: Any = import_module("torch._C._dynamo.eval_frame")
        note = self._note
        for kind in (operators.OpOverload, operators.OpOverloadPacket):
            self._originals.append((kind, kind.__call__))
            kind.__call__ = _noting(kind.__call__, note, self._forget, frames)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for owner, original in self._originals:
            type.__setattr__(owner, "__call__", original)
        self._originals.clear()

    def file(self) -> bytes:
        """The file of what was noted."""
        return captures_bytes(self.found)

    def _forget(self, name: str, call: dict[str, Any]) -> None:
        """Leave out a call that raised."""
        self.found.calls[name] = [other for other in self.found.calls[name] if other is not call]

    def _note(self, op: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Keep a call; gives it with its operator where it is the first of its kind."""
        name = self._name(op, positional, named)
        if name is None:
            return None
        calls = self.found.calls.setdefault(name, [])
        if len(calls) >= PER_OPERATOR:
            return None
        try:
            key = (_keys(positional), tuple((one, _key(value)) for one, value in sorted(named.items())))
            known = self._known.setdefault(name, set())
            if key in known:
                return None
            known.add(key)
            if torch().cuda.is_available() and torch().cuda.is_current_stream_capturing():
                return None
            encoding = _Encoding(len(self.found.memory))
            call = encoding.call(positional, named)
        except _NotKept as error:
            if str(error):
                self.found.left_out[name] = self.found.left_out.get(name, 0) + 1
            return None
        calls.append(call)
        self.found.memory.extend(encoding.memory)
        return name, call

    def _name(self, op: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> str | None:
        """The operator's name; None for those that are not noted."""
        try:
            return self._names[op]
        except KeyError:
            pass
        if hasattr(op, "_schema"):
            full = op._schema.name + (f".{op._schema.overload_name}" if op._schema.overload_name else "")
        else:
            full = op._qualified_op_name
            overloads = op.overloads()
            if len(overloads) == 1:
                full += "" if overloads[0] == "default" else f".{overloads[0]}"
            elif full.partition("::")[0] not in _OWN:
                with suppress(Exception):
                    chosen = torch()._C._jit_resolve_packet(full, *positional, **named)
                    return full if chosen in ("", "default") else f"{full}.{chosen}"
                return None
        name = None if full.partition("::")[0] in _OWN else full
        self._names[op] = name
        return name


def _noting(
    original: Callable[..., Any], note: Callable[..., Any], forget: Callable[..., None], frames: Any
) -> Callable[..., Any]:
    """A `__call__` that notes first. Dynamo, which looks at frames as they begin, neither compiles it nor the note."""
    set_callback = frames.set_eval_frame

    def noted(self: Any, /, *arguments: Any, **named: Any) -> Any:
        callback = set_callback(None)
        try:
            new = note(self, arguments, named)
        finally:
            set_callback(callback)
        if new is None:
            return original(self, *arguments, **named)
        try:
            return original(self, *arguments, **named)
        except BaseException:
            forget(*new)
            raise

    if hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction
        frames.set_code_exec_strategy(noted.__code__, frames._FrameExecStrategy(action.SKIP, action.DEFAULT))
    elif hasattr(frames, "skip_code"):  # before 2.7
        frames.skip_code(noted.__code__)
    return noted


def _keys(values: Any) -> tuple[object, ...]:
    return tuple(_key(value) for value in values)


def _key(value: Any) -> object:
    """What makes a call distinct: kinds of tensors and options, and not what numbers they hold."""
    if isinstance(value, torch().Tensor):
        _check_plain(value)
        return (
            *(value.dtype, value.device.type, value.dim(), _needs_gradient(value), value.numel() == 0),
            *(type(value), value.is_contiguous(), 0 in value.stride()),
        )
    if isinstance(value, (list, tuple)):
        return (type(value), min(len(value), 4), _keys(value[:4]))
    if isinstance(value, (bool, str, type(None))):
        return value
    if isinstance(value, (int, float)):
        return (type(value), value > 0)
    return str(value)


def _needs_gradient(tensor: Any) -> bool:
    """Whether the call is to give it a gradient: inside of `torch.autograd.Function` the function does."""
    return bool(tensor.requires_grad and torch().is_grad_enabled())


def _check_plain(tensor: Any) -> None:
    module: Any = torch()
    if type(tensor) not in (module.Tensor, module.nn.Parameter) or tensor.device.type == "meta":
        raise _NotKept
    if module._C._functorch.is_functorch_wrapped_tensor(tensor) or module._is_functional_tensor(tensor):
        raise _NotKept
    if tensor.layout is not module.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise _NotKept("a layout")


_INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
_NAMED = ("dtype", "device", "layout", "memory_format")


class _Encoding:
    """One call as JSON, with the memory of its tensors."""

    def __init__(self, first: int) -> None:
        self.memory: list[bytes] = []
        self._first = first
        self._tensors: list[Any] = []

    def call(self, positional: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        values = {"positional": self._value(list(positional)), "named": [[k, self._value(v)] for k, v in named.items()]}
        return {**values, "tensors": self._described()}

    def _value(self, value: Any) -> Any:
        module: Any = torch()
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int and abs(value) < 1 << 63:
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if type(value) is complex:
            return {"complex": [value.real.hex(), value.imag.hex()]}
        if isinstance(value, module.Tensor):
            at = next((at for at, one in enumerate(self._tensors) if one is value), None)
            if at is None:
                at = len(self._tensors)
                self._tensors.append(value)
            return {"tensor": at}
        if isinstance(value, (list, tuple)) and len(value) < 1000:
            return {"list": [self._value(one) for one in value]}
        if isinstance(value, module.Generator) and value.device.type == "cpu":
            return {"generator": self._keep(_cpu_bytes(value.get_state()))}
        for kind in _NAMED:
            if isinstance(value, getattr(module, kind)):
                return {kind: str(value).removeprefix("torch.")}
        raise _NotKept(f"a {type(value).__name__}")

    def _keep(self, memory: bytes) -> int:
        self.memory.append(memory)
        if sum(map(len, self.memory)) > _PER_CALL:
            raise _NotKept("its size")
        return self._first + len(self.memory) - 1

    def _described(self) -> list[dict[str, Any]]:
        """The tensors, with the part of each memory that one of them uses."""
        ranges: dict[int, list[int]] = {}
        for one in self._tensors:
            begin, end = _extent(one.shape, one.stride(), one.storage_offset())
            size = one.element_size()
            limits = ranges.setdefault(one.untyped_storage()._cdata, [begin * size, begin * size])
            limits[:] = [min(limits[0], begin * size) // 16 * 16, max(limits[1], end * size)]
            if limits[1] - limits[0] > _PER_CALL:
                raise _NotKept("its size")
        kept: dict[int, int] = {}
        described = []
        for one in self._tensors:
            key = one.untyped_storage()._cdata
            begin, end = ranges[key]
            if key not in kept:
                kept[key] = self._keep(_bytes(one, begin, end))
            described.append(
                {
                    "memory": kept[key],
                    "dtype": str(one.dtype).removeprefix("torch."),
                    "device": str(one.device),
                    "shape": list(one.shape),
                    "stride": list(one.stride()),
                    "offset": one.storage_offset() - begin // one.element_size(),
                    "gradient": _needs_gradient(one),
                    "parameter": type(one) is torch().nn.Parameter,
                }
            )
        return described


def _extent(shape: Any, stride: Any, offset: int) -> tuple[int, int]:
    """The elements of its memory that a tensor uses: the first, and behind the last."""
    if 0 in shape:
        return offset, offset
    return offset, offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1


def _bytes(tensor: Any, begin: int, end: int) -> bytes:
    storage = tensor.untyped_storage()
    if tensor.device.type == "cpu":
        return ctypes.string_at(storage.data_ptr() + begin, end - begin) if end > begin else b""
    modes: Any = import_module("torch.utils._python_dispatch")
    with modes._disable_current_modes(), torch().no_grad():
        return _cpu_bytes(torch().empty(0, dtype=torch().uint8, device=tensor.device).set_(storage)[begin:end].cpu())


def _cpu_bytes(tensor: Any) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), tensor.numel()) if tensor.numel() else b""


# -- the file. See Note [The file of captured inputs]


def captures_bytes(found: CapturedCalls) -> bytes:
    """A file of calls."""
    calls = json.dumps({name: calls for name, calls in sorted(found.calls.items()) if calls}, allow_nan=False)
    return _encoded(calls, found.memory)


def _encoded(calls: str, memory: list[bytes]) -> bytes:
    header: dict[str, Any] = {}
    at = 0
    for index, part in enumerate(memory):
        header[str(index)] = {"dtype": "U8", "shape": [len(part)], "data_offsets": [at, at + len(part)]}
        at += len(part)
    metadata = {"format": INPUTS_FORMAT, "calls": calls, "sha256": _checksum(calls, memory)}
    text = json.dumps({"__metadata__": metadata, **header}).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(memory)


def merged(files: list[bytes]) -> bytes:
    """One file of the calls of several processes; of each operator as many as of one."""
    found = CapturedCalls({}, [], {})
    for data in files:
        calls, memory = _parsed(data)
        first = len(found.memory)
        found.memory.extend(memory)
        for name, made in calls.items():
            kept = found.calls.setdefault(name, [])
            kept.extend(_moved(call, first) for call in made[: PER_OPERATOR - len(kept)])
    return captures_bytes(found)


def _moved(call: Any, first: int) -> Any:
    """A call whose memory begins at another index."""
    match call:
        case dict():
            return {
                key: value + first if key in ("memory", "generator") and type(value) is int else _moved(value, first)
                for key, value in call.items()
            }
        case list():
            return [_moved(value, first) for value in call]
    return call


def counted(data: bytes) -> dict[str, int]:
    """How many calls of each operator a file has."""
    return {name: len(calls) for name, calls in _parsed(data)[0].items()}


def _checksum(calls: str, memory: list[bytes]) -> str:
    digest = sha256(calls.encode())
    for part in memory:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _parsed(data: bytes) -> tuple[dict[str, list[Any]], list[bytes]]:
    """The calls and their memory.

    Raises:
        ValueError: the bytes are no such file; also what reading JSON of another shape raises.
    """
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        raise ValueError("its header is longer than the file")
    text = data[8 : 8 + length]
    if text.count(b",") + text.count(b"[") > _MAX_VALUES or not text.isascii():
        raise ValueError(f"its header has more than {_MAX_VALUES:,} values, or is not as it is written")
    header = json.loads(text)
    metadata = header.pop("__metadata__")
    if metadata.get("format") != INPUTS_FORMAT:
        raise ValueError("it is of another format")
    body = data[8 + length :]
    memory = []
    end = 0
    for index in range(len(header)):
        begin, stop = header[str(index)]["data_offsets"]
        if begin != end or not begin <= stop <= len(body):
            raise ValueError("its memory does not follow on another")
        memory.append(body[begin:stop])
        end = stop
    if _encoded(metadata["calls"], memory) != data:
        raise ValueError("its checksum is another")
    calls = json.loads(metadata["calls"])
    if not isinstance(calls, dict) or not all(isinstance(one, list) for one in calls.values()):
        raise ValueError("it has no calls")
    return calls, memory


def check_captures(path: str) -> None:
    """Check that a file has captured inputs; it needs no PyTorch.

    Raises:
        CaptureError: the file cannot be read, or is damaged.
    """
    with _refusing(path):
        _read(path)


def read_captures(path: str) -> dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    """Operator -> the arguments of its calls.

    Raises:
        CaptureError: the file cannot be read, or is damaged.
    """
    with _refusing(path):
        calls, memory = _read(path)
        return {name: [_Decoding(call, memory).call() for call in made] for name, made in calls.items()}


def _read(path: str) -> tuple[dict[str, list[Any]], list[bytes]]:
    return _parsed(read_file(path, limit=MAX_BYTES, what="captured inputs"))


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CaptureError(path, error.strerror or str(error)) from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise CaptureError(path, f"the file is damaged ({lines[0][:200]})") from None


class _Decoding:
    """The arguments that one call says."""

    def __init__(self, call: Mapping[str, Any], memory: list[bytes]) -> None:
        self._call, self._memory = call, memory
        self._storages: dict[tuple[int, str], Any] = {}
        self._tensors = [self._tensor(one) for one in call["tensors"]]

    def call(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positional = self._value(self._call["positional"])
        named = {_of(str, name): self._value(value) for name, value in self._call["named"]}
        return tuple(_of(list, positional)), named

    def _value(self, value: Any) -> Any:
        if value is None or type(value) in (bool, str, int):
            return value
        ((kind, inner),) = _of(dict, value).items()
        match kind:
            case "float":
                return float.fromhex(inner)
            case "complex":
                real, imaginary = inner
                return complex(float.fromhex(real), float.fromhex(imaginary))
            case "tensor":
                return self._tensors[_index(inner)]
            case "list":
                return [self._value(one) for one in _of(list, inner)]
            case "generator":
                generator = torch().Generator()
                generator.set_state(_from_bytes(self._memory[_index(inner)]))
                return generator
            case "device":
                return torch().device(_of(str, inner))
            case "dtype" | "layout" | "memory_format":
                return _of(getattr(torch(), kind), vars(torch()).get(_of(str, inner)))
        raise ValueError(f"{kind!r} is no kind of value")

    def _tensor(self, said: Mapping[str, Any]) -> Any:
        module: Any = torch()
        dtype = _of(module.dtype, vars(module).get(_of(str, said["dtype"])))
        shape, stride = ([_index(one) for one in _of(list, said[what])] for what in ("shape", "stride"))
        offset, at = _index(said["offset"]), _index(said["memory"])
        if not (dtype.is_floating_point or dtype.is_complex or said["dtype"] in _INTEGERS):
            raise ValueError(f"tensors of {said['dtype']} are not kept")
        size = dtype.itemsize
        memory = self._memory[at]
        count = 1
        for length in shape:
            count *= length
        begin, end = _extent(shape, stride, offset)
        if len(shape) > _MAX_RANK or count * size > _PER_CALL * 64 or max((begin, end)) * size > len(memory):
            raise ValueError("a tensor reaches over its memory")
        if dtype is module.bool and memory.translate(None, b"\0\1"):
            raise ValueError("a truth value is neither true nor false")
        device = module.device(_of(str, said["device"]))
        if device.type == "meta":
            raise ValueError("a tensor has no data")
        if device.type != "cpu" and not _has(device):
            device = module.device("cpu")
        if (at, str(device)) not in self._storages:
            self._storages[at, str(device)] = _from_bytes(memory).to(device).untyped_storage()
        with module.no_grad():
            result = module.empty(0, dtype=dtype, device=device)
            result.set_(self._storages[at, str(device)], offset, shape, stride)
        gradient = _of(bool, said["gradient"])
        return module.nn.Parameter(result, gradient) if said["parameter"] is True else result.requires_grad_(gradient)


def _has(device: Any) -> bool:
    try:
        torch().empty(0, device=device)
    except Exception:  # a build without it, or a machine
        return False
    return True


def _from_bytes(memory: bytes) -> Any:
    module: Any = torch()
    return module.frombuffer(bytearray(memory), dtype=module.uint8).clone() if memory else module.empty(0).byte()


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r:.60} is no {getattr(kind, '__name__', kind)}")
    return value


def _index(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise ValueError(f"{value!r:.60} is no size")
    return value


# -- a program


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


def capture_program(path: str) -> bytes:
    """Run a Python file as a program, and give the file of the calls that it made.

    Raises:
        CaptureError: the program raises.
    """
    with Capture() as capture:
        error = run_file(path)
    if error:
        raise ProgramError(path, error)
    return capture.file()


class ProgramError(DispatchLabError):
    """The program whose calls are captured raises."""

    path: str
    reason: str

    template = "--from-program {path}: it raises {reason}; run it by itself first"
