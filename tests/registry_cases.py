"""Small registries, and files of them that are damaged."""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

from dispatchlab.files import write_file
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, KernelFlags
from dispatchlab.registries.file import open_bundled, open_registry, registry_bytes
from dispatchlab.registries.model import (
    Recorded,
    RecordedFallback,
    RecordedKernel,
    RecordedOperator,
    Registry,
    registry_of,
)
from dispatchlab.registries.stored import RegistryFileError, StoredRegistry


def save_registry(recorded: Recorded, path: str | Path) -> int:
    """Write a registry to a file; its size in bytes."""
    data = registry_bytes(recorded)
    write_file(path, data)
    return len(data)


def load_registry(path: str | Path) -> Registry:
    """All of the registry in a file."""
    return open_registry(path).load()


T_T = "(Tensor _0) -> Tensor _0"


def kernel(key: K, debug: str, inferred: str | None = None, *, active: bool = True) -> RecordedKernel:
    """A kernel that is boxed, or typed when it has an inferred schema."""
    return RecordedKernel(key, debug, inferred, KernelFlags.UNBOXED if inferred else KernelFlags.BOXED, active)


FOO = RecordedOperator(
    OperatorName("test", "foo"),
    "test::foo(Tensor x) -> Tensor",
    "registered at foo.cpp:1",
    AliasKind.FROM_SCHEMA,
    frozenset(("core", "pointwise")),
    (
        kernel(K.CPU, "registered at foo.cpp:12", T_T),
        kernel(K.Meta, "registered at meta.py:7"),
        kernel(K.Meta, "registered at foo.cpp:13", T_T, active=False),
        kernel(K.Autograd, "", T_T),
    ),
)
BAR = RecordedOperator(
    OperatorName("test", "bar", "out"),
    "test::bar.out(SymInt n) -> ()",
    "a text: with 007",
    None,
    frozenset(),
    (RecordedKernel(K.CompositeImplicitAutograd, "line\nof its own", "(SymInt _0) -> ()", KernelFlags.BOXED),),
)
DANGLING = RecordedOperator(OperatorName("else", "gone"), kernels=(kernel(K.CUDA, "registered at ext.py:3"),))
FALLBACKS = (RecordedFallback(K.AutogradCPU, fallthrough=True, debug="registered at v.cpp:5"),)
SMALL = registry_of("2.13.0", (FOO, BAR, DANGLING), FALLBACKS, ("ext",))


@cache
def part() -> Registry:
    """A twentieth of PyTorch 2.13."""
    whole = open_bundled("torch-2.13-cpu")
    operators = [operator for operator in map(whole.operator, whole.names[::20]) if operator is not None]
    return registry_of(whole.torch, operators, whole.fallbacks)


def repacked(data: bytes, old: bytes, new: bytes) -> bytes:
    """The file with another text in place of one that is there."""
    text = lzma.decompress(data)
    assert old in text
    return lzma.compress(text.replace(old, new))


def outcome(data: bytes) -> Registry | str:
    """The registry in these bytes, or the sentence of the refusal; anything else escapes."""
    try:
        return StoredRegistry(data).load()
    except RegistryFileError as error:
        return str(error)
