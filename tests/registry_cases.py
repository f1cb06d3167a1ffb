"""Small registries, whole files split into parts and joined again, and ways of damaging them."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, KernelFlags
from dispatchlab.registry.file import RegistryFile, open_bundled
from dispatchlab.registry.file_format import HEAD, MAGIC, VERSION, RegistryFileError, sealed
from dispatchlab.registry.model import (
    RecordedFallback,
    RecordedKernel,
    RecordedOperator,
    Registry,
    registry_of,
)

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


def split_into_parts(data: bytes) -> tuple[dict[str, Any], list[Any]]:
    """The directory and the blocks of a file, as values."""
    _, _, _, packed, _, _ = HEAD.unpack_from(data)
    directory = json.loads(zlib.decompress(data[HEAD.size : HEAD.size + packed]))
    blocks, at = [], HEAD.size + packed
    for size, _, _ in directory["blocks"]:
        blocks.append(json.loads(zlib.decompress(data[at : at + size])))
        at += size
    return directory, blocks


def put_together(directory: dict[str, Any], blocks: list[Any]) -> bytes:
    """A file of these values, with right sizes and checksums."""
    plain = [json.dumps(block).encode() for block in blocks]
    packed = [zlib.compress(each) for each in plain]
    table = [[len(short), len(long), zlib.crc32(long)] for short, long in zip(packed, plain, strict=True)]
    if isinstance(directory.get("blocks"), list) and len(directory["blocks"]) == len(table):
        directory = directory | {"blocks": table}
    return with_directory(json.dumps(directory).encode(), b"".join(packed))


def with_directory(plain: bytes, rest: bytes = b"", *, declared: int | None = None) -> bytes:
    """A file of a directory that is written already."""
    packed = zlib.compress(plain)
    size = len(plain) if declared is None else declared
    return sealed(
        HEAD.pack(MAGIC, VERSION, HEAD.size + len(packed) + len(rest), len(packed), size, b"") + packed + rest
    )


def outcome(data: bytes) -> Registry | str:
    """The registry in these bytes, or the sentence of the refusal; anything else escapes."""
    try:
        return RegistryFile(data).load()
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
    """A file whose checksums are right and whose values are not."""
    directory, blocks = split_into_parts(data)
    if blocks and rng.random() < 0.6:
        at = rng.randrange(len(blocks))
        blocks[at] = with_odd_value(blocks[at], rng)
        return put_together(directory, blocks)
    odd = with_odd_value(directory, rng)
    return put_together(odd, blocks) if isinstance(odd, dict) else with_directory(json.dumps(odd).encode())
