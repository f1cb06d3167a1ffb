"""Python layers as values and as files: what is written is read back, and what is damaged is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.model.python_layer import IMPORTS, PYTHON_REGISTRIES, PythonLayer, PythonRegistration
from dispatchlab.model.python_layer_in_memory import python_layer
from dispatchlab.records.archive import RegistryFileError, sealed
from dispatchlab.records.file import python_layer_of, registry_bytes
from dispatchlab.records.model import RecordedOperator, name_of, registry_of
from dispatchlab.records.stored import StoredPythonLayer, StoredRegistries, bundle_bytes, registry_in
from tests.effort import examples
from tests.registry_cases import joined, split
from tools.library_rules import PAGE, by_version, known, page_with, registry_row

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
    data = _bundle(named)
    read = {name: _stored(data, name) for name in named}
    for name, layer in named.items():
        assert read[name].load() == layer
        for operator in (*_OPERATORS, "aten::relu"):
            assert read[name].of(operator) == layer.of(operator)
    assert _bundle(read) == data


def _bundle(layers: Mapping[str, PythonLayer]) -> bytes:
    return bundle_bytes(dict.fromkeys(layers, registry_of("2.13.0", ())), layers)


def _stored(data: bytes, name: str) -> StoredPythonLayer:
    layer = StoredRegistries(data).registry(name).python
    assert layer is not None
    return layer


def test_versions_that_differ_in_lines_alone_share_what_they_have() -> None:
    found = [
        PythonRegistration("decompositions", f"aten::f{at}", "post_autograd", f"torch._refs:f{at}", f"torch/a.py:{at}")
        for at in range(400)
    ]
    moved = [one._replace(site=f"torch/a.py:{int(one.site.partition(':')[2]) + 9}") for one in found]
    one = len(_bundle({"a": python_layer("2.4.0", found)}))
    both = len(_bundle({"a": python_layer("2.4.0", found), "b": python_layer("2.5.0", moved)}))
    assert both - one < one / 10


def _registry() -> bytes:
    registry = registry_of("2.13.0", [RecordedOperator(name_of("mine::f"), "mine::f(Tensor x) -> Tensor")])
    layer = python_layer("2.13.0", [PythonRegistration("torch_library", "mine::f", "fake", "mine:f", "mine/a.py:1")])
    return registry_bytes(replace(registry, python=layer))


def test_a_recording_has_its_python_layer_and_reads_it_when_asked() -> None:
    file = registry_in(_registry())
    layer = python_layer_of(file)
    assert layer is not None
    assert [one.site for one in layer.of("mine::f")] == ["mine/a.py:1"]
    assert registry_bytes(file) == registry_bytes(file.load()) == _registry()


def test_a_recording_without_the_part_is_what_it_was() -> None:
    registry = registry_of("2.13.0", [RecordedOperator(name_of("mine::f"), "mine::f(Tensor x) -> Tensor")])
    data = registry_bytes(registry)
    assert not any(name.startswith("python/") for name in split(data))
    assert python_layer_of(registry_in(data)) is None


def test_what_is_damaged_in_the_part_is_found_when_it_is_read() -> None:
    members = split(_registry())
    file = registry_in(joined(members | {"python/rows-0.jsonl": b"["}))
    assert file.operator("mine::f") is not None
    layer = file.python
    assert layer is not None
    with pytest.raises(RegistryFileError, match="the record of 'mine::f' cannot be read"):
        layer.load()


_GOOD = [0, "jagged", "", "f", "", True]


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ([[_GOOD], [[0]]], "its parts"),
        ([[_GOOD[:5]], [[0]], [0]], "an entry"),
        ([[[0, "odd", "", "f", "", True]], [[0]], [0]], "a registry or a mark"),
        ([[[0, "jagged", 1, "f", "", True]], [[0]], [0]], "a registry, a key, a function or an import"),
        ([[[5, "jagged", "", "f", "", True]], [[0]], [0]], "a location"),
        ([[[]], [[0]], [0]], "a location"),
        ([[[0, "jagged", "", "f", 5, True]], [[0]], [0]], "a registry, a key, a function or an import"),
        ([[[0, "jagged", "", "f", "", 2]], [[0]], [0]], "a registry or a mark"),
        ([[_GOOD], [[7]], [0]], "an entry"),
        ([[_GOOD], [7], [0]], "a variant"),
        ([[_GOOD], [[0]], ["0"]], "a variant"),
        ([[_GOOD], [[0]], []], "a version"),
    ],
)
def test_a_row_that_nobody_writes_is_refused(row: object, wrong: str) -> None:
    assert _outcome(_made_up(row)).endswith(f"is wrong in {wrong}; get a new copy")


def test_a_row_that_is_written_is_read() -> None:
    assert "operator='mine::f'" in _outcome(_made_up([[_GOOD], [[0]], [0]]))


def _made_up(row: object) -> bytes:
    return joined(split(_registry()) | {"python/rows-0.jsonl": [row]})


def _outcome(data: bytes) -> str:
    try:
        layer = registry_in(data).python
        assert layer is not None
        (registration,) = layer
    except RegistryFileError as error:
        return str(error)
    return repr(registration).partition("function")[0]


def test_every_registry_is_described() -> None:
    names = [one.name for one in PYTHON_REGISTRIES]
    assert len({*names}) == len(names) > 25
    for one in PYTHON_REGISTRIES:
        assert all((one.title, one.applies, ":" in one.home))
        assert not one.applies.endswith(".")
        assert not one.needs or one.needs in IMPORTS


def test_the_page_has_a_row_for_each_registry() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [page.count(registry_row(one)) for one in PYTHON_REGISTRIES] == [1] * len(PYTHON_REGISTRIES)
    assert page_with(page.replace(registry_row(PYTHON_REGISTRIES[3]), ""), known()) == page
    seconds = {registry_row(one).rpartition(" | ")[2] for one in PYTHON_REGISTRIES}
    assert len(seconds) >= 6


def test_the_page_says_what_each_version_does_with_registrations_in_python() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_with(page, known()) == page
    assert page_with(page.replace("the first one runs", "the last one runs"), known()) == page
    outcomes = {"refused": ["2.4", "2.9"], "last": ["2.10", "2.15"]}
    assert by_version(outcomes) == "until 2.9: refused; since 2.10: last"
    assert by_version({"a": ["2.4", "2.15"], "b": ["2.9", "2.10"], "c": ["2.12"]}) == (
        "until 2.4: a; 2.9 to 2.10: b; 2.12: c; since 2.15: a"
    )


_DATA = _bundle(
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


@given(st.integers(0, len(_DATA) - 1), st.integers(1, 255), st.booleans())
@examples(600)
def test_a_byte_that_is_changed_is_refused_or_harmless(at: int, change: int, seal: bool) -> None:  # noqa: FBT001
    data = bytearray(_DATA)
    data[at] ^= change
    try:
        read = StoredRegistries(sealed(bytes(data)) if seal else bytes(data))
        for name in read.names:
            layer = read.registry(name).python
            assert layer is not None
            layer.load()
    except RegistryFileError:
        return
    assert seal  # a checksum that is right again lets a change of the digest's own place through
