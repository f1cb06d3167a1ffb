"""Plain data: what is written comes back, and nothing else is read, whatever the bytes are."""

from __future__ import annotations

import json
import math
import random
import zlib
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.snapshot import Refusal
from dispatchlab.processes import plain_data
from dispatchlab.processes.plain_data import NotPlainError, PlainReader, fits, plain_bytes
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.prover.walk_log import WalkRecord
from tests.engine_shorthand import FOO, K, impl

REFUSAL = Refusal(ErrorKind.DUPLICATE_DEF, (("operator", "test::foo"),), "twice")
RECORD = WalkRecord(b"\0" * 16, b"\1" * 16, (1,), ((3, 1, REFUSAL),), (), 2, 2, 5, 9, None, frozenset({"test::foo"}))


def read(data: bytes, kind: Any = object) -> Any:
    return PlainReader().read(data, kind)


def table(*nodes: object) -> bytes:
    """Nodes as they are written."""
    return zlib.compress(json.dumps(nodes).encode())


def again(value: object) -> object:
    return read(plain_bytes(value))


_LEAVES = (
    None,
    True,
    False,
    0,
    1,
    -1,
    1.0,
    0.0,
    -0.0,
    2**63 - 1,
    2**63,
    -(2**70),
    "",
    "a",
    "\ud800",
    "é\0",
    b"",
    b"\xff",
)


def _some(rng: random.Random, depth: int, *, hashable: bool) -> object:
    """A value, in which values are nested this deep at most."""
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(_LEAVES)
    parts = [_some(rng, depth - 1, hashable=True) for _ in range(rng.randrange(4))]
    if hashable:
        return rng.choice((tuple, frozenset))(parts)
    values = [_some(rng, depth - 1, hashable=False) for _ in parts]
    return rng.choice((tuple(values), values, set(parts), dict(zip(parts, values, strict=True))))


def _typed(value: object) -> object:
    """The value with the types of all parts, since 1, 1.0 and True are equal."""
    if isinstance(value, dict):
        return dict, [(_typed(key), _typed(part)) for key, part in value.items()]
    if isinstance(value, set | frozenset):
        return type(value), sorted(map(repr, map(_typed, value)))
    return type(value), list(map(_typed, value)) if isinstance(value, list | tuple) else repr(value)


def test_values_come_back_with_their_types() -> None:
    for number in range(1_000):
        value = _some(random.Random(number), 4, hashable=False)
        assert _typed(again(value)) == _typed(value), number


@pytest.mark.parametrize("value", [REFUSAL, RECORD, math.inf, -(1 << 63), Verdict.CRASHED, [REFUSAL] * 3])
def test_values_of_ours_come_back(value: object) -> None:
    assert again(value) == value


def test_a_number_with_more_digits_than_python_prints_comes_back() -> None:
    assert again(1 << 70_000) == 1 << 70_000


def test_what_is_shared_is_made_once() -> None:
    one, other = read(plain_bytes((REFUSAL, REFUSAL)))
    assert one is other


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
def test_an_exploration_and_an_error_come_back() -> None:
    found = explore(LabEngine("strict"), [impl(K.CPU, "a"), impl(K.CPU, "b")], [FOO])
    assert read(plain_bytes(found), Exploration) == found
    assert found.counterexample is not None
    error = RegistrationError(ErrorKind.OTHER, "why", {"a": "b"})
    assert repr(again(error)) == repr(error)


class _Command:
    def __reduce__(self) -> tuple[object, ...]:
        return print, ("owned",)


@pytest.mark.parametrize("value", [_Command(), print, json, object(), type, again, ValueError("a"), {1: _Command()}])
def test_what_is_no_plain_data_is_not_written(value: object) -> None:
    with pytest.raises(NotPlainError):
        plain_bytes(value)


def test_what_is_too_large_or_too_deep_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: tuple[object, ...] = ()
    for _ in range(10_000):
        deep = (deep,)
    with pytest.raises(NotPlainError, match="nested too deep"):
        plain_bytes(deep)
    monkeypatch.setattr(plain_data, "_NODES", 100)
    assert again(list(range(49))) == list(range(49))
    with pytest.raises(NotPlainError, match="more than 100 nodes"):
        plain_bytes(list(range(50)))
    monkeypatch.setattr(plain_data, "_BYTES", 1 << 20)
    with pytest.raises(NotPlainError, match="larger than 1 MiB"):
        plain_bytes(b"a" * 2**20)


@pytest.mark.parametrize(
    "nodes",
    [
        ["a", *(["tuple", number, number] for number in range(60)), ["frozenset", 60]],
        [0, *(["tuple", *[number] * 20] for number in range(60))],
        [["tuple"], *(["tuple", number] for number in range(200))],
        [["tuple", 0]],
        [["tuple", 1], 0],
        [0, ["tuple", -1]],
        [0, ["tuple", True]],
        [0, ["tuple", "0"]],
        [0, ["tuple", 0.0]],
        [["frozenset"], ["list"], ["set", 1]],
        [0, ["dict", 0]],
        [{"a": 1}],
        [[]],
        [[["tuple"]]],
        [["int", "1_x"]],
        [["bytes", "a"]],
        [["bytes", "\u00e9"]],
        [0, ["bytes", 0]],
        [["os:system"]],
        [["dispatchlab.files.atomic_write:write_file"]],
        [["dispatchlab.files.journal:os"]],
        [["dispatchlab.files.journal:Journal"]],
        [["dispatchlab.files.journal:sha256"]],
        [["dispatchlab.nowhere:A"]],
        [["dispatchlab..os:A"]],
        [["dispatchlab.model.snapshot:Refusal"]],
        [0, ["dispatchlab.model.snapshot:Refusal", 0, 0, 0]],
        [0, ["dispatchlab.prover.result:Verdict", 0]],
        ["A", ["dispatchlab.prover.result:Verdict", 0]],
        ["__class__", ["dispatchlab.prover.result:Verdict", 0]],
        [0, ["dispatchlab.errors:RefusalError", 0]],
        ["a", ["dispatchlab.processes.executor:TaskDied", 0]],
        ["{0.x}", 0, ["dispatchlab.files.file_kinds:OverwriteError", 1, 0, 1]],
        [*(number * (2**61 - 1) for number in range(1, 3000)), ["frozenset", *range(2999)]],
        ["a", *(["tuple", number, number] for number in range(16)), *[["frozenset", 16]] * 40],
        [
            "a",
            *(["tuple", number, number] for number in range(16)),
            *[["dispatchlab.files.journal:OtherRunError", *[16] * 4]] * 9,
        ],
    ],
    ids=lambda nodes: json.dumps(nodes)[:50],
)
def test_a_table_that_is_not_as_it_is_written_is_refused(nodes: list[object]) -> None:
    with pytest.raises(NotPlainError):
        read(table(*nodes))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        zlib.compress(b""),
        zlib.compress(b"[]"),
        zlib.compress(b"0"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b"[" + b"9" * 5_000 + b"]"),
        lambda: zlib.compress(b"[" + b"[]," * 2**20 + b"0]"),
        lambda: zlib.compress(b'["' + b"a" * 2**25 + b'"]', 1),
        lambda: zlib.compress(b"[" + b" " * 2**28 + b"0]", 1),
        zlib.compress(b"[0]")[:-2],
        zlib.compress(b"[0]") + b"a",
        zlib.compress(b"[\xff]"),
        zlib.compress('["\u00e9"]'.encode()),
    ],
    ids=lambda data: f"{data[:20]!r} and {len(data) - 20}" if isinstance(data, bytes) else "large",
)
def test_bytes_that_are_no_table_are_refused_before_anything_is_made(
    data: bytes | Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(plain_data, "_Table")
    with pytest.raises(NotPlainError):
        read(data if isinstance(data, bytes) else data())


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(NotPlainError, match="a tuple is not what is kept here"):
        read(plain_bytes((1, 2)), tuple[int, str])
    with pytest.raises(NotPlainError, match="other fields"):
        read(plain_bytes(RECORD._replace(head="2")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "kind", "does"),
    [
        (True, int, False),
        (1, float, True),
        (True, float, False),
        (None, int | None, True),
        ("", int | None, False),
        ((), tuple[int, ...], True),
        ((1, "a"), tuple[int, ...], False),
        ((1, "a"), tuple[int, str], True),
        ((1,), tuple[int, str], False),
        ({1: "a"}, dict[int, str], True),
        ({1: 2}, dict[int, str], False),
        ([1], list[str], False),
        (frozenset({"a"}), frozenset[Hashable], True),
        ([], Hashable, False),
        ("graph", "graph", False),
    ],
)
def test_whether_a_value_is_of_a_type(value: object, kind: Any, does: bool) -> None:  # noqa: FBT001
    assert fits(value, kind) is does


def test_a_table_with_a_change_is_read_as_a_record_or_refused() -> None:
    nodes = json.loads(zlib.decompress(plain_bytes(RECORD)))
    ends = {"read": 0, "refused": 0}
    for number in range(600):
        changed = json.loads(json.dumps(nodes))
        rng = random.Random(number)
        places = [
            (node, at)
            for node in [changed, *(node for node in changed if isinstance(node, list))]
            for at in range(len(node))
        ]
        node, at = rng.choice(places)
        node[at] = rng.choice(
            [None, True, 0, 1, -1, 2**40, 0.5, "", "tuple", "a", [], ["tuple"], {}, *range(8), "os:system"]
        )
        try:
            assert isinstance(read(table(*changed), WalkRecord), WalkRecord)
            ends["read"] += 1
        except NotPlainError:
            ends["refused"] += 1
    assert min(ends.values()) > 20
