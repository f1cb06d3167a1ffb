"""The bundle of registries: what it holds, how little of it one operator needs, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.profile import bundled_profiles
from dispatchlab.registry.bundle import Bundle, BundledRegistry, bundle_bytes
from dispatchlab.registry.file import bundled, bundled_name, bundled_names, newest_bundled, open_bundled, open_named
from dispatchlab.registry.file_format import RegistryTooLargeError, sealed
from dispatchlab.registry.model import RecordedKernel, RecordedOperator, Registry, registry_of
from dispatchlab.registry.packed import Part
from tests.bundle_cases import MOVED, THREE, joined, made_up, outcome, split
from tests.registry_cases import FOO, damaged


def test_every_version_of_pytorch_is_bundled() -> None:
    cpu = "torch-2.13-cpu"
    assert bundled_names() == ("torch-2.4", *bundled_profiles()[1:10], cpu, "torch-2.14", "torch-2.15")
    assert set(bundled_names()) - {cpu} == {*bundled_profiles()}
    assert newest_bundled() == bundled_names()[-1] == bundled_profiles()[-1]
    torch = {name: open_bundled(name).torch for name in bundled_names()}
    assert all(
        version.startswith(f"{name.removeprefix('torch-').removesuffix('-cpu')}.") for name, version in torch.items()
    )
    assert [name for name, version in torch.items() if "+cu" not in version] == [cpu]
    assert {name: len(open_bundled(name)) for name in bundled_names()} == {
        "torch-2.4": 3563,
        "torch-2.5": 3580,
        "torch-2.6": 3604,
        "torch-2.7": 3611,
        "torch-2.8": 3642,
        "torch-2.9": 3651,
        "torch-2.10": 3674,
        "torch-2.11": 3692,
        "torch-2.12": 3720,
        "torch-2.13": 3599,
        "torch-2.13-cpu": 3598,
        "torch-2.14": 3610,
        "torch-2.15": 3624,
    }


def test_all_registries_take_less_than_two_took() -> None:
    assert Path(bundled().path).stat().st_size < 250_000


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
    data = bundle_bytes(some)
    assert outcome(data) == some
    assert bundle_bytes(dict(reversed(some.items()))) == bundle_bytes(Bundled(data)) == data


class Bundled(Mapping[str, BundledRegistry]):
    """The registries of a bundle by name."""

    def __init__(self, data: bytes) -> None:
        self.bundle = Bundle(data)

    def __getitem__(self, name: str) -> BundledRegistry:
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
    data = bundle_bytes(THREE)
    assert outcome(data) == THREE
    bundle = Bundle(data)
    assert bundle.names == ("torch-2.9", "torch-2.9-cpu", "torch-2.10")
    assert bundle.operators == ("else::gone", "test::bar.out", "test::foo")
    assert bundle.registry("torch-2.10").operator("test::foo") == MOVED
    assert bundle.registry("torch-2.10").operator("else::gone") is None
    assert bundle.registry("torch-2.10").names == ("test::bar.out", "test::foo")
    assert repr(bundle.registry("torch-2.9-cpu")) == "<BundledRegistry torch-2.9-cpu: PyTorch 2.9.0+cpu, 1 operators>"
    assert repr(bundle) == "<Bundle the bundle: 3 registries, 3 operators>"


def test_no_registry_is_a_bundle_too() -> None:
    assert outcome(bundle_bytes({})) == {}
    empty = {"torch-2.9": registry_of("none", ())}
    assert outcome(bundle_bytes(empty)) == empty


def test_an_operator_that_only_moved_is_there_once() -> None:
    _, parts = split(bundle_bytes({"torch-2.9": registry_of("a", (FOO,)), "torch-2.10": registry_of("b", (MOVED,))}))
    ((schemas, kernels, variants, which),) = parts[-1]
    assert (len(schemas), len(kernels), len(variants), which) == (1, 4, 1, [0, 0])


def test_one_operator_costs_one_block_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = Bundle(Path(bundled().path).read_bytes())
    parts: list[str] = []
    read = bundle.file.part

    def recorded(at: Part, limit: int, what: str) -> bytes:
        parts.append(what)
        return read(at, limit, what)

    monkeypatch.setattr(bundle.file, "part", recorded)
    add = bundle.registry("torch-2.7").operator("aten::add.Tensor")
    assert add is not None
    assert {kernel.key for kernel in add.kernels} > {K.CPU, K.CUDA}
    assert [what.removesuffix(" 2") for what in parts] == [
        "the table of torch-2.7",
        "its block 14",
        "the columns of torch-2.7",
    ]
    assert bundle.registry("torch-2.8").operator("aten::add.Tensor") != add
    assert parts[3:] == ["the table of torch-2.8", "the columns of torch-2.8"]
    assert bundle.registry("torch-2.8").operator("aten::no_such") is None


def test_the_parts_of_a_bundle_join_again() -> None:
    data = bundle_bytes(THREE)
    assert outcome(joined(*split(data))) == THREE


def test_every_cut_and_every_flipped_bit_is_refused() -> None:
    data = bundle_bytes(THREE)
    assert all(isinstance(outcome(data[:size]), str) for size in range(len(data)))
    for bit in range(0, 8 * len(data), 3):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert isinstance(outcome(bytes(flipped)), str)
    assert len(data) > 800


def test_damaged_bundles_are_refused_or_equal() -> None:
    rng, data = random.Random(1), bundle_bytes(THREE)
    outcomes = [outcome(damaged(data, rng)) for _ in range(400)]
    assert all(found == THREE for found in outcomes if not isinstance(found, str))
    assert sum(isinstance(found, str) for found in outcomes) > 390


def test_bundles_made_up_with_right_checksums_are_refused_or_are_bundles_themselves() -> None:
    rng, data = random.Random(2), bundle_bytes(THREE)
    outcomes = [outcome(made_up(data, rng)) for _ in range(400)]
    read = [found for found in outcomes if not isinstance(found, str)]
    assert 40 < len(read) < 360
    for registries in read:
        assert outcome(bundle_bytes(registries)) == registries
    assert len({found for found in outcomes if isinstance(found, str)}) > 40


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            b"claim: yaml",
            "the bundle: it is not a bundle of registries: one starts with b'\\x89DLREGS\\n' and this file starts with "
            "b'claim: y'; install dispatchlab again",
        ),
        (
            sealed(bundle_bytes(THREE)[:8] + b"\x07\0\0\0" + bundle_bytes(THREE)[12:]),
            "the bundle: it is a bundle of registries of version 7 and this dispatchlab reads version 1: install the "
            "dispatchlab that wrote it, or this one again",
        ),
        (
            joined({"operators": "a"}, []),
            "the bundle: it is damaged: it has an operator called 'a', which no dispatcher can have; get a new copy",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong(data: bytes, sentence: str) -> None:
    assert outcome(data) == sentence


def test_a_row_of_more_kernels_than_there_can_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    directory, parts = split(bundle_bytes(THREE))
    foo = parts[-1][2]
    foo[2][0][4] = [0] * 500
    data = joined(directory, parts)
    assert "does not have the 6 kernels it declares" in str(outcome(data))
    monkeypatch.setattr("dispatchlab.registry.bundle.MAX_KERNELS", 499)
    assert "is wrong in the number of its kernels" in str(outcome(data))


def test_what_no_reader_would_take_is_not_written() -> None:
    long = RecordedOperator(FOO.name, kernels=(RecordedKernel(K.CPU, "x" * (8 << 20)),))
    with pytest.raises(RegistryTooLargeError, match="the bytes of the directory come to 8,388,"):
        bundle_bytes({"a": registry_of("x", (long,))})
