"""Python layers as values and as files: what is written is read back, and what is damaged is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.model.python_layer import IMPORTS, PYTHON_REGISTRIES, PythonRegistration
from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory, python_layer
from dispatchlab.records.file import python_layer_of, registry_bytes
from dispatchlab.records.model import RecordedOperator, name_of, registry_of
from dispatchlab.records.stored import RegistryFileError, StoredRegistry
from tests.effort import examples
from tests.registry_cases import repacked
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


@given(layers)
@examples(300)
def test_a_layer_is_read_back_as_it_was_written(layer: PythonLayerInMemory) -> None:
    data = registry_bytes(replace(registry_of(layer.torch, ()), python=layer))
    read = StoredRegistry(data).python
    assert read is not None
    assert read.load() == layer
    for operator in (*_OPERATORS, "aten::relu"):
        assert read.of(operator) == layer.of(operator)
    assert registry_bytes(StoredRegistry(data)) == data


def _registry() -> bytes:
    registry = registry_of("2.13.0", [RecordedOperator(name_of("mine::f"), "mine::f(Tensor x) -> Tensor")])
    layer = python_layer("2.13.0", [PythonRegistration("torch_library", "mine::f", "fake", "mine:f", "mine/a.py:1")])
    return registry_bytes(replace(registry, python=layer))


def test_a_recording_has_its_python_layer_and_reads_it_when_asked() -> None:
    file = StoredRegistry(_registry())
    layer = python_layer_of(file)
    assert layer is not None
    assert [one.site for one in layer.of("mine::f")] == ["mine/a.py:1"]
    assert registry_bytes(file) == registry_bytes(file.load()) == _registry()


def test_a_recording_without_the_part_has_no_layer() -> None:
    registry = registry_of("2.13.0", [RecordedOperator(name_of("mine::f"), "mine::f(Tensor x) -> Tensor")])
    assert python_layer_of(StoredRegistry(registry_bytes(registry))) is None


@pytest.mark.parametrize("new", [b'"fake"]', b'"fake",1,2,3,4,5]', b'{"fake":[]'])
def test_what_is_damaged_in_the_part_is_found_when_it_is_read(new: bytes) -> None:
    file = StoredRegistry(repacked(_registry(), b'"fake"', new))
    assert file.operator("mine::f") is not None
    layer = file.python
    assert layer is not None
    with pytest.raises(RegistryFileError, match="it is damaged: what Python registered for"):
        layer.load()


def test_a_registry_that_is_not_known_any_more_is_left_out() -> None:
    layer = StoredRegistry(repacked(_registry(), b'"torch_library"', b'"former"')).python
    assert layer is not None
    assert layer.load().registrations == ()


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
