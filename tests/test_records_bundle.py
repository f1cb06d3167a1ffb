"""The bundle of registries: what it holds, how little of it one operator needs, and what is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from zipfile import ZipFile

import pytest

from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.profile import bundled_profiles
from dispatchlab.records.archive import Archive, RegistryTooLargeError
from dispatchlab.records.file import bundled, bundled_name, bundled_names, newest_bundled, open_bundled, open_named
from dispatchlab.records.model import RecordedKernel, RecordedOperator, Registry, registry_of
from dispatchlab.records.stored import StoredRegistries, StoredRegistry, bundle_bytes, by_version
from tests.bundle_cases import LAYERS, MOVED, THREE, layers_of, outcome, three_bytes
from tests.registry_cases import FOO, damaged, joined, split

INDEX = "dispatchlab-bundle.json"

FIGURES = Path(__file__).parent / "data" / "versions"


def test_every_version_of_pytorch_is_bundled() -> None:
    cpu = "torch-2.13-cpu"
    assert bundled_names() == tuple(sorted(bundled_names(), key=by_version))
    assert set(bundled_names()) - {cpu} == {*bundled_profiles()}
    assert newest_bundled() == bundled_names()[-1] == bundled_profiles()[-1]
    torch = {name: open_bundled(name).torch for name in bundled_names()}
    assert all(
        version.startswith(f"{name.removeprefix('torch-').removesuffix('-cpu')}.") for name, version in torch.items()
    )
    assert [name for name, version in torch.items() if "+cu" not in version] == [cpu]
    measured = {name: json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8")) for name in bundled_profiles()}
    counts = {name: figures["operators"] for name, figures in measured.items()} | {cpu: 3598}
    assert {name: len(open_bundled(name)) for name in bundled_names()} == counts
    assert min(counts.values()) == counts["torch-2.4"] == 3563


def test_all_registries_take_little_more_than_two_alone() -> None:
    with ZipFile(bundled().path) as archive:
        packed = {info.filename: info.compress_size for info in archive.infolist()}
    assert sum(size for name, size in packed.items() if not name.startswith("python/")) < 250_000
    assert Path(bundled().path).stat().st_size < 350_000


def test_the_name_that_the_registry_with_cuda_had_still_means_it() -> None:
    assert open_bundled("torch-2.13-cuda") is open_bundled("torch-2.13") is open_named("torch-2.13-cuda")
    assert [bundled_name(text) for text in ("torch-2.13-cuda", "torch-2.31", "live", "torch-2.12-cuda")] == [
        "torch-2.13",
        None,
        None,
        None,
    ]


def test_the_bundle_is_what_the_writer_makes_of_it() -> None:
    some = {name: part(name) for name in ("torch-2.4", "torch-2.9", "torch-2.13", "torch-2.13-cpu")}
    data = bundle_bytes(some, {})
    assert outcome(data) == some
    assert bundle_bytes(dict(reversed(some.items())), {}) == bundle_bytes(Bundled(data), {}) == data


class Bundled(Mapping[str, StoredRegistry]):
    """The registries of a bundle by name."""

    def __init__(self, data: bytes) -> None:
        self.bundle = StoredRegistries(data)

    def __getitem__(self, name: str) -> StoredRegistry:
        return self.bundle.registry(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.bundle.names)

    def __len__(self) -> int:
        return len(self.bundle.names)


@cache
def part(name: str) -> Registry:
    """A fortieth of a bundled registry."""
    whole = open_bundled(name)
    operators = [operator for operator in map(whole.operator, whole.names[::40]) if operator is not None]
    return registry_of(whole.torch, operators, whole.fallbacks)


def test_a_bundle_reads_back_by_version() -> None:
    data = three_bytes()
    read = outcome(data)
    assert isinstance(read, dict)
    assert (read, layers_of(read)) == (THREE, LAYERS)
    assert bundle_bytes(read, layers_of(read)) == data
    bundle = StoredRegistries(data)
    assert bundle.names == ("torch-2.9", "torch-2.9-cpu", "torch-2.10")
    assert bundle.rows.names == ("else::gone", "test::bar.out", "test::foo")
    assert bundle.registry("torch-2.10").operator("test::foo") == MOVED
    assert bundle.registry("torch-2.10").operator("else::gone") is None
    assert bundle.registry("torch-2.10").names == ("test::bar.out", "test::foo")
    assert repr(bundle.registry("torch-2.9-cpu")) == "<StoredRegistry torch-2.9-cpu: PyTorch 2.9.0+cpu, 1 operators>"
    assert repr(bundle) == "<StoredRegistries the bundle: 3 registries, 3 operators>"


def test_no_registry_is_a_bundle_too() -> None:
    assert outcome(bundle_bytes({}, {})) == {}
    empty = {"torch-2.9": registry_of("none", ())}
    assert outcome(bundle_bytes(empty, {})) == empty


def test_an_operator_that_only_moved_is_there_once() -> None:
    both = {"torch-2.9": registry_of("a", (FOO,)), "torch-2.10": registry_of("b", (MOVED,))}
    ((entries, variants, which),) = split(bundle_bytes(both, {}))["cxx/rows-0.jsonl"]
    assert (len(entries), len(variants), which) == (5, 1, [0, 0])


def test_one_operator_costs_one_block_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = StoredRegistries(Path(bundled().path).read_bytes())
    members: list[str] = []
    read = Archive.member

    def recorded(self: Archive, name: str) -> bytes:
        members.append(name)
        return read(self, name)

    monkeypatch.setattr(Archive, "member", recorded)
    add = bundle.registry("torch-2.7").operator("aten::add.Tensor")
    assert add is not None
    assert {kernel.key for kernel in add.kernels} > {K.CPU, K.CUDA}
    assert members == ["cxx/rows-7.jsonl", "cxx/locations-9.json"]
    assert bundle.registry("torch-2.8").operator("aten::add.Tensor") != add
    assert members[2:] == ["cxx/locations-8.json"]
    layer = bundle.registry("torch-2.8").python
    assert layer is not None
    assert layer.of("aten::add.Tensor")
    assert members[3:] == ["python/names.json", "python/rows-5.jsonl", "python/locations-8.json"]
    assert bundle.registry("torch-2.8").operator("aten::no_such") is None


def test_the_members_of_a_bundle_join_again() -> None:
    assert outcome(joined(split(three_bytes()))) == THREE


def test_every_cut_and_every_flipped_bit_is_refused() -> None:
    data = three_bytes()
    assert all(isinstance(outcome(data[:size]), str) for size in range(len(data)))
    for bit in range(0, 8 * len(data), 3):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert isinstance(outcome(bytes(flipped)), str)
    assert len(data) > 800


def test_damaged_bundles_are_refused_or_equal() -> None:
    rng, data = random.Random(1), three_bytes()
    outcomes = [outcome(damaged(data, rng)) for _ in range(400)]
    assert all(found == THREE for found in outcomes if not isinstance(found, str))
    assert sum(isinstance(found, str) for found in outcomes) > 390


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"claim: yaml", "it is not a bundle of registries: it starts with b'claim: y'; install dispatchlab again"),
        (
            joined({INDEX: {"format": 7}}),
            "it is a bundle of registries of format 7 and this dispatchlab reads format 4; install dispatchlab again",
        ),
        (
            joined({INDEX: {"format": 4}, "cxx/names.json": {"names": ["a"], "sources": []}}),
            "it is damaged: it has an operator called 'a', which no dispatcher can have; get a new copy",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong(data: bytes, sentence: str) -> None:
    assert outcome(data) == f"the bundle: {sentence}"


def test_a_row_of_more_kernels_than_there_can_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    members = split(three_bytes())
    _, variants, _ = members["cxx/rows-0.jsonl"][2]
    variants[0] = [0, *[1] * 500]
    data = joined(members)
    assert "does not have the 6 kernels it declares" in str(outcome(data))
    monkeypatch.setattr("dispatchlab.records.shared_rows.MAX_ENTRIES", 499)
    assert "is wrong in the number of its entries" in str(outcome(data))


def test_what_no_reader_would_take_is_not_written() -> None:
    long = RecordedOperator(FOO.name, kernels=(RecordedKernel(K.CPU, "x" * (8 << 20)),))
    with pytest.raises(RegistryTooLargeError, match=r"the bytes of cxx/names\.json come to 8,388,"):
        bundle_bytes({"a": registry_of("x", (long,))}, {})
