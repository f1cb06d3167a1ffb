"""The file of a registry: what it holds, how little of it one operator needs, and what is refused."""

from __future__ import annotations

import json
import random
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.atomic_write import WriteError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, KernelFlags
from dispatchlab.registry.builds import has_kernels_for
from dispatchlab.registry.file import (
    RegistryFile,
    UnknownRegistryError,
    is_registry_file,
    load_registry,
    open_bundled,
    open_named,
    open_registry,
    registry_bytes,
    save_registry,
)
from dispatchlab.registry.file_format import HEAD, MAX_DIRECTORY, RegistryFileError, RegistryTooLargeError, sealed
from dispatchlab.registry.model import RecordedFallback, RecordedKernel, RecordedOperator, dump_text, registry_of
from tests.effort import examples
from tests.registry_cases import (
    BAR,
    DANGLING,
    FALLBACKS,
    FOO,
    SMALL,
    damaged,
    made_up,
    outcome,
    part,
    put_together,
    split_into_parts,
    with_directory,
)

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


def test_the_file_of_a_registry_is_small() -> None:
    assert len(registry_bytes(BUNDLED.load())) < 150_000
    assert len(registry_bytes(BUNDLED)) < 220_000


class Counting(RegistryFile):
    """Counts the blocks that are read."""

    blocks_read = 0

    def _rows(self, block: int) -> list[object]:
        self.blocks_read += 1
        return super()._rows(block)


def test_one_operator_costs_one_block() -> None:
    registry = Counting(registry_bytes(BUNDLED))
    assert (len(registry), len(registry.names), registry.blocks_read) == (3598, 3598, 0)
    assert registry.operator("aten::no_such") is None
    assert registry.blocks_read == 0
    add = registry.operator("aten::add.Tensor")
    assert add is not None
    assert len(add.kernels) == 16
    assert registry.blocks_read == 1
    assert sum(1 for _ in registry) == 3598
    assert registry.blocks_read == 1 + 57


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


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            b"",
            "the registry: it is not a recorded registry: one starts with b'\\x89DLREG\\r\\n' and this file is empty; "
            "record one with: dispatchlab record --all -o FILE",
        ),
        (
            b"claim: yaml",
            "the registry: it is not a recorded registry: one starts with b'\\x89DLREG\\r\\n' and this file starts "
            "with b'claim: y'; record one with: dispatchlab record --all -o FILE",
        ),
        (
            registry_bytes(SMALL)[:30],
            "the registry: it is cut short: it has 30 bytes, not even the head of a registry; get a new copy",
        ),
        (
            registry_bytes(SMALL)[:-1],
            f"the registry: it is cut short: it declares {len(registry_bytes(SMALL))} bytes and has "
            f"{len(registry_bytes(SMALL)) - 1}; get a new copy",
        ),
        (
            registry_bytes(SMALL) + b"x",
            f"the registry: it goes on after its end: it declares {len(registry_bytes(SMALL))} bytes and has "
            f"{len(registry_bytes(SMALL)) + 1}; get a new copy",
        ),
        (
            registry_bytes(SMALL)[:-1] + b"x",
            "the registry: it was altered after it was written: its checksum differs; get a new copy",
        ),
        (
            registry_bytes(SMALL)[:8] + b"\x07\0\0\0" + registry_bytes(SMALL)[12:],
            "the registry: it is a recorded registry of version 7 and this dispatchlab reads versions 1 and 2: "
            "install the dispatchlab that wrote it, or record it again",
        ),
        (
            with_directory(b"[]"),
            "the registry: it is damaged: its directory is not a table; get a new copy",
        ),
        (
            with_directory(b'{"torch":"x"}'),
            "the registry: it is damaged: its directory has no 'imports'; get a new copy",
        ),
        (
            with_directory(b"[" * 100_000),
            "the registry: it is damaged: the directory cannot be read; get a new copy",
        ),
        (
            with_directory(b" " * 99_999, declared=5),
            "the registry: it is damaged: the directory does not unpack to the 5 bytes that it declares; get "
            "a new copy",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong(data: bytes, sentence: str) -> None:
    assert outcome(data) == sentence


def test_a_size_that_is_too_large_is_refused_before_anything_is_unpacked() -> None:
    found = outcome(with_directory(b" " * (MAX_DIRECTORY + 1)))
    assert isinstance(found, str)
    assert re.fullmatch(
        r"the registry: it is damaged: the directory declares 8,\d{3} bytes that unpack to 8,388,609; .*", found
    )


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


def test_files_made_up_with_right_checksums_are_refused_or_are_registries_themselves() -> None:
    rng, data = random.Random(2), registry_bytes(SMALL)
    outcomes = [outcome(made_up(data, rng)) for _ in range(600)]
    read = [found for found in outcomes if not isinstance(found, str)]
    assert 50 < len(read) < 550
    for registry in read:
        assert outcome(registry_bytes(registry)) == registry
    sentences = {found for found in outcomes if isinstance(found, str)}
    assert len(sentences) > 30


def test_an_operator_of_a_damaged_block_is_refused_when_it_is_asked_for() -> None:
    directory, blocks = split_into_parts(registry_bytes(SMALL))
    blocks[0][1][5][0][0] = 48
    registry = RegistryFile(put_together(directory, blocks), "mine.dlreg")
    assert registry.operator(FOO.name) == FOO
    with pytest.raises(RegistryFileError) as caught:
        registry.operator(BAR.name)
    assert str(caught.value) == (
        "mine.dlreg: it is damaged: the record of 'test::bar.out' is wrong in a key; get a new copy"
    )


def test_a_block_that_is_not_its_checksum_is_refused() -> None:
    data = registry_bytes(SMALL)
    directory, blocks = split_into_parts(data)
    directory["blocks"][0][2] ^= 1
    start = HEAD.size + HEAD.unpack_from(data)[3]
    registry = RegistryFile(with_directory(json.dumps(directory).encode(), data[start:]))
    with pytest.raises(RegistryFileError, match="the checksum of its block 0 differs"):
        registry.operator(FOO.name)
    assert len(blocks) == 1


def test_what_no_reader_would_take_is_not_written() -> None:
    long = RecordedOperator(OperatorName("test", "long"), kernels=(RecordedKernel(DispatchKey.CPU, "x" * (8 << 20)),))
    with pytest.raises(RegistryTooLargeError) as caught:
        registry_bytes(registry_of("x", (long,)))
    assert str(caught.value).startswith(
        "the registry cannot be written, for no file of it would be read: the bytes of the directory come to 8,388,"
    )


def test_the_registry_of_the_build_for_cuda_has_the_kernels_that_the_default_one_lacks() -> None:
    cuda, default = open_bundled("torch-2.13").load(), open_bundled("torch-2.13-cpu").load()
    assert (cuda.torch, len(cuda), cuda.imports) == ("2.13.0+cu130", 3599, ())
    assert len(set(cuda.names) & set(default.names)) == 3597
    for key, wanted in (("CUDA", (1331, 21)), ("SparseCUDA", (174, 1)), ("QuantizedCUDA", (51, 0)), ("CPU", None)):
        counts = tuple(
            sum(str(kernel.key) == key for operator in registry for kernel in operator.kernels)
            for registry in (cuda, default)
        )
        assert counts == wanted or (wanted is None and counts[0] == counts[1])
    assert [each.key for each in cuda.fallbacks] == [each.key for each in default.fallbacks]


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
        open_named("torch-2.31")
    assert str(caught.value) == (
        "there is no registry 'torch-2.31': expected a file, or the name of one that comes with dispatchlab, "
        "torch-2.4 to torch-2.15; did you mean torch-2.15?"
    )
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


def test_the_digest_covers_the_head() -> None:
    data = registry_bytes(SMALL)
    assert sealed(data) == data
    assert zlib.crc32(sealed(data[:8] + b"\x02" + data[9:])) != zlib.crc32(data)
