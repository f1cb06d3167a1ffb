"""Small bundles, split into their parts and joined again, and ways of damaging them."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dispatchlab.registry.bundle import MAGIC, VERSION, Bundle
from dispatchlab.registry.file_format import HEAD, RegistryFileError, sealed
from dispatchlab.registry.model import Registry, registry_of
from tests.registry_cases import BAR, DANGLING, FALLBACKS, FOO, SMALL, damaged, with_odd_value

MOVED = replace(
    FOO,
    debug="registered at foo.cpp:2",
    kernels=tuple(replace(one, debug=one.debug.replace("foo.cpp:1", "foo.cpp:3")) for one in FOO.kernels),
)
"""The operator in a later version: nothing but its lines is different."""

THREE: Mapping[str, Registry] = {
    "torch-2.10": registry_of("2.10.1", (MOVED, BAR), FALLBACKS),
    "torch-2.9": SMALL,
    "torch-2.9-cpu": replace(registry_of("2.9.0+cpu", (DANGLING,), (), ("ext", "other")), privateuse1="mine"),
}


def outcome(data: bytes) -> dict[str, Registry] | str:
    """The registries in these bytes, or the sentence of the refusal; anything else escapes."""
    try:
        bundle = Bundle(data)
        return {name: bundle.registry(name).load() for name in bundle.names}
    except RegistryFileError as error:
        return str(error)


def split(data: bytes) -> tuple[dict[str, Any], list[Any]]:
    """The directory and the parts of a bundle, as values; columns stay bytes."""
    _, _, _, packed, _, _ = HEAD.unpack_from(data)
    directory = json.loads(zlib.decompress(data[HEAD.size : HEAD.size + packed]))
    parts: list[Any] = []
    at = HEAD.size + packed
    for size, _, _ in directory["parts"]:
        plain = zlib.decompress(data[at : at + size])
        count, number = 2 * len(directory["registries"]), len(parts)
        if number < count:
            parts.append(plain if number % 2 else json.loads(plain))
        else:
            parts.append([json.loads(line) for line in plain.split(b"\n")])
        at += size
    return directory, parts


def joined(directory: Any, parts: list[Any]) -> bytes:
    """A bundle of these values, with right sizes and checksums."""
    plain = [
        part
        if isinstance(part, bytes)
        else json.dumps(part).encode()
        if isinstance(part, dict)
        else b"\n".join(json.dumps(row).encode() for row in part)
        if isinstance(part, list)
        else json.dumps(part).encode()
        for part in parts
    ]
    packed = [zlib.compress(each) for each in plain]
    if (
        isinstance(directory, dict)
        and isinstance(directory.get("parts"), list)
        and len(directory["parts"]) == len(parts)
    ):
        table = [[len(short), len(long), zlib.crc32(long)] for short, long in zip(packed, plain, strict=True)]
        directory = directory | {"parts": table}
    text = json.dumps(directory).encode()
    body = zlib.compress(text)
    size = HEAD.size + len(body) + sum(map(len, packed))
    return sealed(HEAD.pack(MAGIC, VERSION, size, len(body), len(text), b"") + body + b"".join(packed))


def made_up(data: bytes, rng: random.Random) -> bytes:
    """A bundle whose checksums are right and whose values are not."""
    directory, parts = split(data)
    if rng.random() < 0.3:
        return joined(with_odd_value(directory, rng), parts)
    at = rng.randrange(len(parts))
    parts[at] = damaged(parts[at], rng) if isinstance(parts[at], bytes) else with_odd_value(parts[at], rng)
    return joined(directory, parts)
