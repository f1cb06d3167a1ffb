"""The file of a registry: what it holds, how little of it one operator needs, and what is refused."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.files.atomic_write import WriteError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, KernelFlags
from dispatchlab.records.archive import MAX_MEMBER, RegistryFileError, RegistryTooLargeError, sealed
from dispatchlab.records.builds import has_kernels_for
from dispatchlab.records.file import (
    UnknownRegistryError,
    is_registry_file,
    newest_bundled,
    open_bundled,
    open_named,
    open_registry,
    registry_bytes,
)
from dispatchlab.records.model import (
    RecordedFallback,
    RecordedKernel,
    RecordedOperator,
    dump_text,
    name_of,
    registry_of,
)
from dispatchlab.records.stored import registry_in
from tests.effort import examples
from tests.registry_cases import (
    BAR,
    DANGLING,
    FALLBACKS,
    FOO,
    SMALL,
    damaged,
    declaring,
    joined,
    load_registry,
    outcome,
    part,
    save_registry,
    split,
)

INDEX, ROWS = "dispatchlab-registry.json", "cxx/rows-0.jsonl"

BUNDLED = open_bundled("torch-2.13-cpu")


def test_the_bundled_registry_is_all_of_pytorch_2_13() -> None:
    registry = open_bundled("torch-2.13-cpu").load()
    assert registry.torch == "2.13.0+cpu"
    assert len(registry) == 3598
    assert registry.kernel_count == 17168
    assert len(registry.fallbacks) == 38
    assert sum(fallback.fallthrough for fallback in registry.fallbacks) == 10
    assert sum(operator.is_overridden for operator in registry) == 636
    assert sum(operator.is_dangling for operator in registry) == 0
    flags = [kernel.flags for operator in registry for kernel in operator.kernels]
    assert {each.name: flags.count(each) for each in KernelFlags} == {
        "UNBOXED": 12445,
        "BOXED": 4491,
        "FALLTHROUGH": 232,
    }
    assert sum(kernel.takes_symint for operator in registry for kernel in operator.kernels) == 1746
    assert sum("core" in operator.tags for operator in registry) == 193
    assert sum("pt2_compliant_tag" in operator.tags for operator in registry) == 3422


def test_paths_start_at_the_package_or_are_those_of_the_builders() -> None:
    registry = open_bundled("torch-2.13-cpu")
    debugs = [kernel.debug for operator in registry for kernel in operator.kernels]
    debugs += [operator.debug for operator in registry] + [fallback.debug for fallback in registry.fallbacks]
    starts = ("registered at /__w/pytorch/", "registered at torch/")
    others = {debug for debug in debugs if debug and not debug.startswith(starts)}
    assert sum(debug.startswith(starts[1]) for debug in debugs) == 1905
    assert [debug for debug in others if "/" in debug] == []
    add = registry.operator("aten::add.Tensor")
    assert add is not None
    meta = add.active_at(DispatchKey.Meta)
    assert meta is not None
    assert meta.debug == "registered at torch/_meta_registrations.py:54"


def test_any_tool_for_zip_archives_reads_one(tmp_path: Path) -> None:
    save_registry(SMALL, tmp_path / "small.dlreg")
    with ZipFile(tmp_path / "small.dlreg") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [INDEX, "cxx/names.json", "cxx/locations-0.json", ROWS]


def test_each_operator_alone_is_what_it_is_among_all() -> None:
    registry = open_bundled("torch-2.13-cpu")
    whole = registry.load()
    for operator in whole.operators[::97]:
        assert registry.operator(operator.name) == operator
        assert whole.operator(str(operator.name)) == operator


def test_a_registry_reads_back_and_its_bytes_are_always_the_same(tmp_path: Path) -> None:
    size = save_registry(SMALL, tmp_path / "small.dlreg")
    read = load_registry(tmp_path / "small.dlreg")
    assert read == SMALL
    assert (size, [*tmp_path.iterdir()]) == (len(registry_bytes(read)), [tmp_path / "small.dlreg"])
    assert read.operators == (DANGLING, BAR, FOO)
    assert registry_bytes(read) == registry_bytes(SMALL) == registry_bytes(open_registry(tmp_path / "small.dlreg"))


def test_the_order_of_overloads_reads_back_and_a_file_without_it_has_none(tmp_path: Path) -> None:
    names = ("t::foo.b", "t::foo", "t::foo.a", "t::bar.x", "t::bar.y", "t::alone.z")
    several = registry_of("2.13.0", [RecordedOperator(name_of(name), f"{name}() -> ()") for name in names])
    orders = {"t::foo": ("b", "", "a", "gone"), "t::bar": ("x", "y")}
    save_registry(replace(several, orders=orders), tmp_path / "ordered.dlreg")
    stored = open_registry(tmp_path / "ordered.dlreg")
    assert stored.orders == stored.load().orders == orders
    assert [stored.overload_order(name) for name in ("t::foo", "t::bar", "t::alone")] == [*orders.values(), ()]
    assert registry_in(registry_bytes(several)).overload_order("t::foo") == ()
    members = split(registry_bytes(stored))
    assert members["overloads"] == {"": [[], [2, 0, 1, "gone"]]}  # t::bar's is sorted
    wrong: object
    for wrong in ("another", [[]], [[], [0, 3]], [[], [True]], [[], "b"], {}):
        assert "overloads" in str(outcome(joined(members | {"overloads": {"": wrong}})))


def test_an_empty_registry_is_one() -> None:
    empty = registry_of("none", ())
    assert outcome(registry_bytes(empty)) == empty


_text = st.text(max_size=8) | st.from_regex(r"[a-z./]{0,6}:[0-9]{1,11}", fullmatch=True)
_word = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
_names = st.builds(OperatorName, _word, _word, st.just("") | _word.filter(lambda word: not word.startswith("__")))


_KEYS = sorted(set(DispatchKey) - {DispatchKey.Undefined})  # at which nothing is ever registered


@st.composite
def _operators(draw: st.DrawFn) -> RecordedOperator:
    name = draw(_names.filter(lambda name: name.overload != "default"))
    keys = sorted(draw(st.lists(st.sampled_from(_KEYS), max_size=5)))
    kernels = tuple(
        RecordedKernel(
            key,
            draw(_text),
            draw(st.none() | _text),
            draw(st.sampled_from(KernelFlags)),
            at == 0 or keys[at - 1] is not key,
        )
        for at, key in enumerate(keys)
    )
    tags = frozenset(draw(st.lists(_text, max_size=2)))
    if draw(st.booleans()):
        return RecordedOperator(name, tags=tags, kernels=kernels)
    alias = draw(st.none() | st.sampled_from(AliasKind))
    return RecordedOperator(name, f"{name}({draw(_text)}", draw(_text), alias, tags, kernels)


@examples(150)
@given(
    st.lists(_operators(), max_size=4, unique_by=lambda operator: str(operator.name)),
    st.lists(
        st.builds(RecordedFallback, st.sampled_from(_KEYS), st.booleans(), _text),
        max_size=3,
        unique_by=lambda fallback: fallback.key,
    ),
    _text,
)
def test_any_registry_reads_back(
    operators: list[RecordedOperator], fallbacks: list[RecordedFallback], torch: str
) -> None:
    registry = registry_of(torch, operators, fallbacks, ("a", torch))
    assert outcome(registry_bytes(registry)) == registry


def with_index(**changed: object) -> bytes:
    """The small registry with other facts in its first member."""
    members = split(registry_bytes(SMALL))
    return joined(members | {INDEX: members[INDEX] | changed})


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "it is not a recorded registry: it is empty; record one with: dispatchlab record --all -o FILE"),
        (
            b"claim: yaml",
            "it is not a recorded registry: it starts with b'claim: y'; record one with: dispatchlab record --all -o "
            "FILE",
        ),
        (
            registry_bytes(SMALL)[:-1],
            "it was cut short or altered after it was written: its checksum differs; get a new copy",
        ),
        (
            registry_bytes(SMALL) + b"x",
            "it was cut short or altered after it was written: its checksum differs; get a new copy",
        ),
        (
            with_index(format=7),
            "it is a recorded registry of format 7 and this dispatchlab reads format 4; record one with: dispatchlab "
            "record --all -o FILE",
        ),
        (joined({INDEX: b"[]"}), f"it is damaged: {INDEX} is not a table; get a new copy"),
        (joined({INDEX: b"[" * 100_000}), f"it is damaged: {INDEX} cannot be read; get a new copy"),
        (joined({INDEX: {"format": 4}}), "it is damaged: it has no cxx/names.json; get a new copy"),
        (with_index(registries=[]), "it is damaged: it has not one registry; get a new copy"),
        (with_index(registries=[{}]), f"it is damaged: {INDEX} is wrong in name; get a new copy"),
        (
            declaring(registry_bytes(SMALL), INDEX, 5),
            f"it is damaged: {INDEX} does not unpack to the 5 bytes that it declares; get a new copy",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong(data: bytes, sentence: str) -> None:
    assert outcome(data) == f"the registry: {sentence}"


def test_a_size_that_is_too_large_is_refused_before_anything_is_unpacked() -> None:
    for size, sentence in ((MAX_MEMBER + 1, f"{INDEX} declares "), (2**32 - 1, "it declares 4,294,9")):
        assert str(outcome(declaring(registry_bytes(SMALL), INDEX, size))).startswith(
            f"the registry: it is damaged: {sentence}"
        )


def test_a_list_of_members_that_goes_on_behind_the_end_is_refused() -> None:
    data = registry_bytes(SMALL)
    at = len(data) - 64 - 22  # of the record at the end
    for place in (10, 16):  # how many members there are, and where their list is
        odd = data[: at + place] + b"\xff\xff" + data[at + place + 2 :]
        assert outcome(sealed(odd)) == "the registry: it is damaged: its list of members cannot be read; get a new copy"
    assert struct.unpack_from("<H", data, at + 10) == (4,)


def test_every_cut_and_every_flipped_bit_is_refused() -> None:
    data = registry_bytes(SMALL)
    cuts = {outcome(data[:size]) for size in range(len(data))}
    assert all(isinstance(found, str) for found in cuts)
    flips = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert isinstance(outcome(bytes(flipped)), str)
        flips += 1
    assert flips == 8 * len(data) > 3000


def test_damaged_files_are_refused_or_equal() -> None:
    rng, data, registry = random.Random(1), registry_bytes(part()), part()
    outcomes = [outcome(damaged(data, rng)) for _ in range(400)]
    refused = [found for found in outcomes if isinstance(found, str)]
    assert all(found == registry for found in outcomes if not isinstance(found, str))
    assert len(refused) > 390


def test_an_operator_of_a_damaged_block_is_refused_when_it_is_asked_for() -> None:
    members = split(registry_bytes(SMALL))
    members[ROWS][1][0][1][1] = "Undefined"
    registry = registry_in(joined(members), "mine.dlreg")
    assert registry.operator(FOO.name) == FOO
    with pytest.raises(RegistryFileError) as caught:
        registry.operator(BAR.name)
    assert str(caught.value) == (
        "mine.dlreg: it is damaged: the record of 'test::bar.out' is wrong in a key; get a new copy"
    )


def test_a_member_that_is_not_its_checksum_is_refused() -> None:
    data = registry_bytes(SMALL)
    at = data.rindex(ROWS.encode()) - 30
    registry = registry_in(sealed(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]))
    with pytest.raises(RegistryFileError, match=f"the checksum of {ROWS} differs"):
        registry.operator(FOO.name)


def test_what_no_reader_would_take_is_not_written() -> None:
    long = RecordedOperator(OperatorName("test", "long"), kernels=(RecordedKernel(DispatchKey.CPU, "x" * (8 << 20)),))
    with pytest.raises(RegistryTooLargeError) as caught:
        registry_bytes(registry_of("x", (long,)))
    assert str(caught.value).startswith(
        "the registry cannot be written, for no file of it would be read: the bytes of cxx/names.json come to 8,388,"
    )


@pytest.mark.parametrize(
    ("torch", "imports", "backend", "answers"),
    [
        ("2.13.0+cpu", (), "CPU", True),
        ("2.13.0+cpu", (), "Meta", True),
        ("2.13.0+cpu", (), "CUDA", False),
        ("2.13.0+cpu", ("my_package",), "CUDA", False),
        ("2.13.0+cu130", (), "CUDA", True),
        ("2.13.0+cu130", (), "XPU", False),
        ("2.13.0+rocm7.1", (), "HIP", True),
        ("2.13.0+cpu", (), "PrivateUse1", False),
        ("2.13.0+cpu", ("my_backend",), "PrivateUse1", True),
        ("2.13.0", (), "MPS", True),
        ("strict (five.yaml)", (), "CUDA", True),
    ],
)
def test_a_build_answers_for_the_backends_that_it_has_kernels_for(
    torch: str, imports: tuple[str, ...], backend: str, *, answers: bool
) -> None:
    assert has_kernels_for(torch, imports, backend) is answers


def test_an_unknown_registry_is_refused_with_the_nearest_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownRegistryError) as caught:
        open_named("torch-2.13-gpu")
    assert str(caught.value) == (
        "there is no registry 'torch-2.13-gpu': expected a file, an installed package, or the name of one that comes "
        f"with dispatchlab, torch-2.4 to {newest_bundled()}; did you mean torch-2.13-cpu?"
    )
    with pytest.raises(UnknownRegistryError, match=f"; the newest is {newest_bundled()}$"):
        open_named("torch-2.99")
    with pytest.raises(UnknownRegistryError):
        open_bundled("../data/torch-2.13")
    with pytest.raises(RegistryFileError, match="it cannot be read: Is a directory"):
        open_named(str(tmp_path))
    with pytest.raises(WriteError, match=r"such\.dlreg could not be written: No such file or directory"):
        save_registry(SMALL, tmp_path / "no" / "such.dlreg")


def test_registry_files_are_recognized_by_how_they_start(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(registry_bytes(SMALL))
    (tmp_path / "b").write_text("claim: x")
    assert [is_registry_file(tmp_path / name) for name in ("a", "b", "c")] == [True, False, False]
    assert open_named(str(tmp_path / "a")).load() == SMALL
    assert open_named("torch-2.13").fallbacks == open_bundled("torch-2.13-cpu").fallbacks


def test_records_are_checked_when_they_are_made(tmp_path: Path) -> None:
    cpu, cuda = RecordedKernel(DispatchKey.CPU, "a"), RecordedKernel(DispatchKey.CUDA, "b")
    in_another_order = RecordedOperator(OperatorName("test", "x"), kernels=(cuda, cpu))
    assert dump_text(in_another_order).splitlines()[2:] == ["CUDA: b :: (none) [ boxed ]", "CPU: a :: (none) [ boxed ]"]
    save_registry(registry_of("2.4.1", [in_another_order]), tmp_path / "older.dlreg")
    assert open_named(str(tmp_path / "older.dlreg")).operator("test::x") == in_another_order
    for kernels in ((cuda, cpu, cuda), (cpu, cpu), (RecordedKernel(DispatchKey.CPU, "a", active=False),)):
        with pytest.raises(ValueError, match="the kernels of test::x are not in the order of a dump"):
            RecordedOperator(OperatorName("test", "x"), kernels=kernels)
    with pytest.raises(ValueError, match="is not the schema of test::x"):
        RecordedOperator(OperatorName("test", "x"), "test::y() -> ()")
    with pytest.raises(ValueError, match="two records of the operator test::foo"):
        registry_of("x", (FOO, FOO))
    with pytest.raises(ValueError, match="two records of the fallback of AutogradCPU"):
        registry_of("x", (), FALLBACKS + FALLBACKS)
