"""The file of a registry: what it holds, how little of it one operator needs, and what is refused."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.files import WriteError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName, name_of
from dispatchlab.model.profile import bundled_profiles
from dispatchlab.model.registration import AliasKind, KernelFlags
from dispatchlab.registries.builds import has_kernels_for
from dispatchlab.registries.file import (
    UnknownRegistryError,
    bundled_name,
    bundled_names,
    by_version,
    is_registry_file,
    newest_bundled,
    open_bundled,
    open_named,
    open_registry,
    registry_bytes,
)
from dispatchlab.registries.model import RecordedFallback, RecordedKernel, RecordedOperator, dump_text, registry_of
from dispatchlab.registries.stored import FORMAT, RegistryFileError, StoredRegistry, _read_operator
from tests.effort import examples
from tests.registry_cases import (
    BAR,
    DANGLING,
    FALLBACKS,
    FOO,
    SMALL,
    load_registry,
    outcome,
    repacked,
    save_registry,
)

FIGURES = Path(__file__).parent / "data" / "versions"

BUNDLED = open_bundled("torch-2.13-cpu")
SMALL_FILE = registry_bytes(SMALL)


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


def test_any_tool_for_xz_and_json_reads_one(tmp_path: Path) -> None:
    save_registry(SMALL, tmp_path / "small.dlreg")
    with lzma.open(tmp_path / "small.dlreg") as stream:
        values = json.load(stream)
    assert [*values["operators"]] == ["else::gone", "test::bar.out", "test::foo"]
    assert (values["dispatchlab"], values["format"], values["registrations"]) == ("registry", FORMAT, {})


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
    assert StoredRegistry(registry_bytes(several)).overload_order("t::foo") == ()


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
        (b"", "it is not a recorded registry: it is empty; record one with: dispatchlab record --all -o FILE"),
        (
            b"claim: yaml",
            "it is not a recorded registry: it starts with b'claim: y'; record one with: dispatchlab record --all -o "
            "FILE",
        ),
        (SMALL_FILE[:-1], "it was cut short or altered after it was written; get a new copy"),
        (SMALL_FILE + b"x", "it was cut short or altered after it was written; get a new copy"),
        (
            repacked(SMALL_FILE, b'"format":6', b'"format":7'),
            "it is a recorded registry of format 7 and this dispatchlab reads format 6; record one with: dispatchlab "
            "record --all -o FILE",
        ),
        (
            repacked(SMALL_FILE, b'"operators"', b'"others"'),
            "it is damaged: its layout cannot be read; get a new copy",
        ),
        (
            repacked(SMALL_FILE, b'"AutogradCPU"', b'"Nowhere"'),
            "it is damaged: its first line cannot be read; get a new copy",
        ),
        (
            repacked(SMALL_FILE, b'"Meta"', b'"Nowhere"'),
            "it is damaged: the records of its operators cannot be read; get a new copy",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong(data: bytes, sentence: str) -> None:
    assert outcome(data) == f"the registry: {sentence}"


@examples(300)
@given(st.data())
def test_a_byte_that_is_changed_is_refused_or_harmless(data: st.DataObject) -> None:
    changed = bytearray(SMALL_FILE)
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    found = outcome(bytes(changed))
    assert isinstance(found, str) or found == SMALL


@examples(300)
@given(st.integers(0, len(lzma.decompress(SMALL_FILE)) - 1), st.binary(max_size=3))
def test_a_text_that_nobody_wrote_is_refused_or_is_a_registry_itself(at: int, new: bytes) -> None:
    text = lzma.decompress(SMALL_FILE)
    found = outcome(lzma.compress(text[:at] + new + text[at + 1 :]))
    if not isinstance(found, str):
        assert all(isinstance(name, str) for name in found.names)


def test_what_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatchlab.registries.stored.MAX_PLAIN", 100)
    assert outcome(SMALL_FILE) == ("the registry: it unpacks to more than 100 bytes, the most that a registry can have")


def test_an_operator_of_a_damaged_line_is_refused_when_it_is_asked_for() -> None:
    data = repacked(SMALL_FILE, b'"CompositeImplicitAutograd"', b'"Undefined!"')
    registry = StoredRegistry(data, "mine.dlreg")
    assert registry.operator(FOO.name) == FOO
    with pytest.raises(RegistryFileError) as caught:
        registry.operator(BAR.name)
    assert str(caught.value) == (
        "mine.dlreg: it is damaged: the record of 'test::bar.out' cannot be read; get a new copy"
    )


def test_one_operator_is_read_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, read = StoredRegistry(Path(BUNDLED.path).read_bytes()), []

    def counted(name: str, row: Any) -> RecordedOperator:
        read.append(name)
        return _read_operator(name, row)

    monkeypatch.setattr("dispatchlab.registries.stored._read_operator", counted)
    assert registry.operator("aten::no_such") is None
    assert registry.operator("aten::add.Tensor") is not None
    assert read == ["aten::add.Tensor"]
    assert len(registry) == 3598


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
    assert sum(Path(open_bundled(name).path).stat().st_size for name in bundled_names()) < 2_000_000


def test_the_name_that_the_registry_with_cuda_had_still_means_it() -> None:
    assert open_bundled("torch-2.13-cuda") is open_bundled("torch-2.13") is open_named("torch-2.13-cuda")
    assert [bundled_name(text) for text in ("torch-2.13-cuda", "torch-2.31", "live", "torch-2.12-cuda")] == [
        "torch-2.13",
        None,
        None,
        None,
    ]


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
        open_named("torch-2.13-gpu")
    assert str(caught.value) == (
        "there is no registry 'torch-2.13-gpu': expected a file, an installed package, or the name of one that comes "
        f"with dispatchlab, torch-2.4 to {newest_bundled()}; did you mean torch-2.13-cpu?"
    )
    with pytest.raises(UnknownRegistryError, match=f"; the newest is {newest_bundled()}$"):
        open_named("torch-2.99")
    with pytest.raises(UnknownRegistryError):
        open_bundled("../data/torch-2.13")
    with pytest.raises(RegistryFileError, match="expected a file but found a folder; name a file in it"):
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
