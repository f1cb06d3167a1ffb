"""Small registries, archives split into members and joined again, and ways of damaging them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from dispatchlab.files.atomic_write import write_file
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, KernelFlags
from dispatchlab.records.archive import RegistryFileError, archive_bytes, sealed
from dispatchlab.records.file import open_bundled, open_registry, registry_bytes
from dispatchlab.records.model import (
    Recorded,
    RecordedFallback,
    RecordedKernel,
    RecordedOperator,
    Registry,
    registry_of,
)
from dispatchlab.records.stored import registry_in


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


def split(data: bytes) -> dict[str, Any]:
    """The members of an archive, as values; rows are a list of them."""
    with ZipFile(BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return {
        name: [json.loads(row) for row in plain.split(b"\n")] if name.endswith(".jsonl") else json.loads(plain)
        for name, plain in members.items()
    }


def joined(members: dict[str, Any]) -> bytes:
    """An archive of these values, with right sizes and checksums; bytes stay as they are."""
    return archive_bytes({name: _plain(name, value) for name, value in members.items()})


def _plain(name: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    is_rows = name.endswith(".jsonl") and isinstance(value, list)
    return b"\n".join(json.dumps(row).encode() for row in value) if is_rows else json.dumps(value).encode()


def declaring(data: bytes, member: str, plain_size: int) -> bytes:
    """The archive with another declared size of a member, and a right digest."""
    at = data.rindex(member.encode()) - 22  # in the list of members at the end
    return sealed(data[:at] + plain_size.to_bytes(4, "little") + data[at + 4 :])


def outcome(data: bytes) -> Registry | str:
    """The registry in these bytes, or the sentence of the refusal; anything else escapes."""
    try:
        return registry_in(data).load()
    except RegistryFileError as error:
        return str(error)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes with something wrong: a few of them changed, cut out, doubled, or the end gone."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at = rng.randrange(len(changed)) if rng.random() < 0.7 else rng.randrange(min(len(changed), 80))
        match rng.randrange(5):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at : at + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(1, 9))
            case 2:
                del changed[at : at + rng.randrange(1, 40)]
            case 3:
                changed[at:at] = changed[: rng.randrange(1, 40)]
            case _:
                del changed[at + 1 :]
        if not changed:
            break
    return bytes(changed)


_ODD: tuple[Callable[[random.Random], object], ...] = (
    lambda _: None,
    lambda _: True,
    lambda _: "",
    lambda _: [],
    lambda _: {},
    lambda _: 1e308,
    lambda rng: rng.choice((-2, -1, 0, 1, 2, 63, 64, 151, 255, 10**9, 10**30)),
    lambda rng: rng.choice(("aten::x", "(Tensor x) -> Tensor", "\ud800", "a" * 600, "CPU", "::", "a b", "\n")),
)


def with_odd_value(value: Any, rng: random.Random) -> Any:
    """The value with one part, somewhere inside, replaced, dropped or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        if rng.random() < 0.1:
            return {other: part for other, part in value.items() if other != key}
        return value | {key: with_odd_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        match rng.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value[:at] + value[at:] + value[at:]
            case 2:
                return [*value[:at], value[rng.randrange(len(value))], *value[at + 1 :]]
            case _:
                return [*value[:at], with_odd_value(value[at], rng), *value[at + 1 :]]
    return rng.choice(_ODD)(rng)


def made_up(data: bytes, rng: random.Random) -> bytes:
    """An archive whose checksums are right and whose values are not."""
    members = split(data)
    name = rng.choice(sorted(members))
    return joined(members | {name: with_odd_value(members[name], rng)})
