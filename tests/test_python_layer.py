"""Python layers as values and as files: what is written is read back, and what is damaged is refused."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.model.python_layer import IMPORTS, PYTHON_REGISTRIES, PythonLayer, PythonRegistration, Second
from dispatchlab.model.python_layer_in_memory import python_layer
from dispatchlab.registry.file import RegistryFile, python_layer_of, registry_bytes
from dispatchlab.registry.file_format import HEAD, RegistryFileError, sealed
from dispatchlab.registry.model import RecordedOperator, name_of, registry_of
from dispatchlab.registry.python_parts import PythonLayers, python_layers_bytes
from tests.effort import examples
from tools.library_rules import PAGE, by_version, known, page_with

_OPERATORS = ("aten::add.Tensor", "aten::add.*", "higher_order::cond", "mine::f", "python::_operator.add")
_SITES = ("", "torch/_refs/__init__.py:7", "torch/_refs/__init__.py:12", "mine/ops.py:3", "no line")

registrations = st.builds(
    PythonRegistration,
    st.sampled_from([one.name for one in PYTHON_REGISTRIES]),
    st.sampled_from(_OPERATORS),
    st.sampled_from(("", "Meta", "post_autograd", "\N{SNOWMAN}")),
    st.sampled_from(("torch._refs:add", "mine:f.<locals>.g")),
    st.sampled_from(_SITES),
    st.sampled_from(("", *IMPORTS)),
    st.booleans(),
    call=st.just(""),  # nobody watches while a registry is recorded
    effect=st.just(""),
)
layers = st.builds(
    lambda torch, found, missing: python_layer(torch, found, missing),
    st.sampled_from(("2.4.0", "2.15.0")),
    st.lists(registrations, max_size=12),
    st.lists(st.sampled_from([one.name for one in PYTHON_REGISTRIES]), max_size=2, unique=True),
)


@given(st.lists(layers, max_size=4))
@examples(300)
def test_layers_are_read_back_as_they_were_written(some: list[PythonLayer]) -> None:
    named = {f"layer-{at}": layer for at, layer in enumerate(some)}
    data = python_layers_bytes(named)
    read = PythonLayers(data)
    assert read.names == tuple(named)
    for name, layer in named.items():
        assert read.layer(name).load() == layer
        for operator in (*_OPERATORS, "aten::relu"):
            assert read.layer(name).of(operator) == layer.of(operator)
    assert python_layers_bytes({name: read.layer(name) for name in read.names}) == data


def test_versions_that_differ_in_lines_alone_share_what_they_have() -> None:
    found = [
        PythonRegistration("decompositions", f"aten::f{at}", "post_autograd", f"torch._refs:f{at}", f"torch/a.py:{at}")
        for at in range(400)
    ]
    moved = [one._replace(site=f"torch/a.py:{int(one.site.partition(':')[2]) + 9}") for one in found]
    one = len(python_layers_bytes({"a": python_layer("2.4.0", found)}))
    both = len(python_layers_bytes({"a": python_layer("2.4.0", found), "b": python_layer("2.5.0", moved)}))
    assert both - one < one / 10


def _registry() -> bytes:
    registry = registry_of("2.13.0", [RecordedOperator(name_of("mine::f"), "mine::f(Tensor x) -> Tensor")])
    layer = python_layer("2.13.0", [PythonRegistration("torch_library", "mine::f", "fake", "mine:f", "mine/a.py:1")])
    return registry_bytes(replace(registry, python=layer))


def test_a_recording_has_its_python_layer_and_reads_it_when_asked() -> None:
    file = RegistryFile(_registry())
    layer = python_layer_of(file)
    assert layer is not None
    assert [one.site for one in layer.of("mine::f")] == ["mine/a.py:1"]
    assert registry_bytes(file) == registry_bytes(file.load()) == _registry()


def test_a_recording_without_the_part_is_what_it_was() -> None:
    registry = registry_of("2.13.0", [RecordedOperator(name_of("mine::f"), "mine::f(Tensor x) -> Tensor")])
    data = registry_bytes(registry)
    assert HEAD.unpack_from(data)[1] == 1
    assert python_layer_of(RegistryFile(data)) is None


def test_what_is_damaged_in_the_part_is_found_when_it_is_read() -> None:
    data = bytearray(_registry())
    data[-1] ^= 1  # of the last block of the Python layer
    file = RegistryFile(sealed(bytes(data)))
    assert file.operator("mine::f") is not None
    with pytest.raises(RegistryFileError, match="it was altered after it was written"):
        file.python  # noqa: B018  # reads it


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ([[[0, "", "f", 0, 0, 1]], [[0]]], "its parts"),
        ([[[0, "", "f", 0, 0]], [[0]], [0]], "an entry"),
        ([[[9, "", "f", 0, 0, 1]], [[0]], [0]], "a registry"),
        ([[[0, 1, "f", 0, 0, 1]], [[0]], [0]], "a registry, a key or a function"),
        ([[[0, "", "f", 5, 0, 1]], [[0]], [0]], "a location"),
        ([[[0, "", "f", 0, 5, 1]], [[0]], [0]], "an import"),
        ([[[0, "", "f", 0, 0, 2]], [[0]], [0]], "a mark"),
        ([[[0, "", "f", 0, 0, 1]], [[7]], [0]], "an entry"),
        ([[[0, "", "f", 0, 0, 1]], [7], [0]], "a variant"),
        ([[[0, "", "f", 0, 0, 1]], [[0]], ["0"]], "a variant"),
    ],
)
def test_a_row_that_nobody_writes_is_refused(row: object, wrong: str) -> None:
    assert _outcome(_made_up(row)).endswith(f"is wrong in {wrong}; get a new copy")


def test_a_row_that_is_written_is_read() -> None:
    assert "operator='a::f'" in _outcome(_made_up([[[0, "", "f", 0, 0, 1]], [[0]], [0]]))


def _made_up(row: object) -> bytes:
    parts = [
        json.dumps({"torch": "2", "missing": [], "not_imported": [], "count": 1}).encode(),
        struct.pack("<2i", 0, -1),
        json.dumps(row).encode(),
    ]
    packed = [zlib.compress(part) for part in parts]
    directory = json.dumps(
        {
            "layers": ["a"],
            "operators": ["a::f"],
            "per_block": 64,
            "sources": [""],
            "registries": ["jagged"],
            "needed": [""],
            "locations": 1,
            "parts": [[len(short), len(long), zlib.crc32(long)] for short, long in zip(packed, parts, strict=True)],
        }
    ).encode()
    short = zlib.compress(directory)
    body = short + b"".join(packed)
    return sealed(HEAD.pack(b"\x89DLPYL\r\n", 1, HEAD.size + len(body), len(short), len(directory), bytes(32)) + body)


def _outcome(data: bytes) -> str:
    try:
        (one,) = PythonLayers(data).layer("a").of("a::f")
    except RegistryFileError as error:
        return str(error)
    return repr(one).partition("function")[0]


def test_every_registry_is_described() -> None:
    names = [one.name for one in PYTHON_REGISTRIES]
    assert len({*names}) == len(names) == 27
    for one in PYTHON_REGISTRIES:
        assert all((one.title, one.applies, ":" in one.home))
        assert not one.applies.endswith(".")
        assert not one.needs or one.needs in IMPORTS


def test_the_page_lists_every_registry() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## The registries\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    for one, row in zip(PYTHON_REGISTRIES, rows, strict=True):
        needs = f"`{one.needs}`" if one.needs else ""
        start = f"| `{one.name}` | {one.title} | `{one.home}` | {needs} | {one.applies} | "
        assert row.startswith(start)
        second = "not explored" if one.rule is None else _SECOND[one.rule.second]
        assert row.removeprefix(start).rstrip(" |").partition("; ")[0] == second, one.name


_SECOND = {Second.REPLACES: "wins", Second.REFUSED: "is refused", Second.SAME: "changes nothing"}


def test_the_page_says_what_each_version_does_with_registrations_in_python() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_with(page, known()) == page
    assert page_with(page.replace("the first one runs", "the last one runs"), known()) == page
    outcomes = {"refused": ["2.4", "2.9"], "last": ["2.10", "2.15"]}
    assert by_version(outcomes) == "until 2.9: refused; since 2.10: last"
    assert by_version({"a": ["2.4", "2.15"], "b": ["2.9", "2.10"], "c": ["2.12"]}) == (
        "until 2.4: a; 2.9 to 2.10: b; 2.12: c; since 2.15: a"
    )


_DATA = python_layers_bytes(
    {
        name: python_layer(
            torch,
            [
                PythonRegistration("jagged", operator, "", "a:b", f"a.py:{line}")
                for line, operator in enumerate(_OPERATORS, start=start)
            ],
        )
        for name, torch, start in (("new", "2.15.0", 3), ("old", "2.4.0", 9))
    }
)


@given(st.integers(HEAD.size - 48, len(_DATA) - 1), st.integers(1, 255), st.booleans())
@examples(600)
def test_a_byte_that_is_changed_is_refused_or_harmless(at: int, change: int, seal: bool) -> None:  # noqa: FBT001
    data = bytearray(_DATA)
    data[at] ^= change
    try:
        read = PythonLayers(sealed(bytes(data)) if seal else bytes(data))
        for name in read.names:
            read.layer(name).load()
    except RegistryFileError:
        return
    assert seal  # a checksum that is right again lets a change of the digest's own place through
