"""Kernels made from `ufunc_inner_loop`: held to torch bit for bit, and the code for them to torchgen's."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WHY = "PyTorch is not installed: pip install 'dispatchlab[torch]'"
pytest.importorskip("torch", reason=WHY)
gen: Any = pytest.importorskip("torchgen.gen", reason=WHY)
dest: Any = pytest.importorskip("torchgen.dest.ufunc", reason=WHY)
packaged: Any = pytest.importorskip("torchgen.packaged", reason=WHY)

from dispatchlab.codegen.emit.ufunc_loops import UfuncLoopError, UfuncLoops, ufunc_loops  # noqa: E402  torchgen has to be there
from dispatchlab.codegen.read.native_functions import load_native_functions, read_native_functions  # noqa: E402
from dispatchlab.codegen.runtime import pointwise_loops  # noqa: E402  torch has to be there
from tests.ufunc_calls import compare, vector_bytes  # noqa: E402

NATIVE = Path(next(iter(packaged.__path__))) / "ATen" / "native"


def test_calls_of_ufunc_groups_equal_torch_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointwise_loops, "VECTOR_BYTES", vector_bytes())
    seen = compare(500, seed=5)
    assert sum(seen[f"{name} returned"] for name in ("add.Tensor", "add_.Tensor", "add.out")) > 500
    dtypes = {name.removeprefix("dtype ") for name in seen if name.startswith("dtype ")}
    assert len(dtypes) == 11, dtypes
    assert any("cannot be converted to type" in name for name in seen)


def test_the_lab_has_every_ufunc_group_of_pytorch() -> None:
    natives = load_native_functions(NATIVE / "native_functions.yaml")
    assert [group.out.short_name for group in natives.structured_groups if ufunc_loops(group)] == ["add.out"]


# -- the code, held to torchgen's

GROUP = """
- func: foo{bare}({arguments}) -> Tensor
  structured_delegate: foo.out
- func: foo.out({arguments}{separator}, Tensor(a!) out) -> Tensor(a!)
  structured: True
  structured_inherits: TensorIteratorBase
  ufunc_inner_loop:
{loops}
"""
KINDS = ("AllAndComplex", "All", "Integral", "Floating", "Half", "BFloat16", "Bool", "ComplexHalf", "Float", "Long")
KEYS = ("Generic", "ScalarOnly", "CPUScalar", "CPUVector", "CUDAFunctor", "CUDAFunctorOnSelf", "CUDAFunctorOnOther")
ARGUMENTS = (
    *("Tensor self, Tensor other, *, Scalar alpha=1", "Tensor self, Tensor other", "Tensor self, Tensor other, int n"),
    *("Tensor self, Scalar alpha, Tensor other", "Tensor self, *, Scalar beta=1, Scalar alpha=1", "Tensor self"),
    *("Tensor self, Tensor one, Tensor two, *, Scalar value=1", "Tensor a, Tensor b", "Tensor self, Tensor? other"),
    *("Tensor self, float? x=None", "Tensor self, int[] sizes", "Tensor self, bool[3] mask", "Tensor self, bool b"),
    *("Tensor self, Tensor other, Scalar? s=None", "Tensor self, *, Generator? generator=None"),
)


def yaml_text(source: random.Random) -> str:
    arguments = source.choice(ARGUMENTS[:2]) if source.random() < 0.7 else source.choice(ARGUMENTS)
    keys = ["Generic"] if source.random() < 0.7 else []
    keys += source.sample(KEYS[1:], source.choice((0, 0, 1, 1, 2)))
    names = {key: "foo" if source.random() < 0.8 else source.choice(("bar", "baz")) for key in keys or ["Generic"]}
    loops = "\n".join(
        f"    {key}: {name} ({', '.join(source.sample(KINDS, source.randint(1, 4)))})" for key, name in names.items()
    )
    separator = "" if "*" in arguments else ", *"
    return GROUP.format(bare="", arguments=arguments, separator=separator, loops=loops)


def our_facts(loops: UfuncLoops) -> dict[str, object]:
    arguments = [one.name for one in loops.arguments]
    return {
        "cpu": {
            case.kind.name: ([name for name in (case.scalar, case.vector) if name], len(arguments))
            for case in loops.cpu
        },
        "cuda": {case.kind.name: [functor.name for functor in case.functors] for case in loops.cuda},
        "functors": {
            one.name: (one.ufunc, [each.name for each in one.held], [each.name for each in one.taken])
            for one in loops.functors
        },
    }


def their_facts(group: Any) -> dict[str, object]:
    cpu, cuda = dest.compute_ufunc_cpu_kernel(group), dest.compute_ufunc_cuda(group)
    return {"cpu": dict(_cpu(cpu)), "cuda": dict(_cuda(cuda)), "functors": dict(_functors(cuda))}


def _cases(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split("AT_DISPATCH_CASE(at::ScalarType::")[1:]:
        kind, _, body = part.partition(",")
        yield kind, body


def _cpu(text: str) -> Iterator[tuple[str, tuple[list[str], int]]]:
    for kind, body in _cases(text):
        calls = re.findall(r"ufunc::(\w+)\(([^)]*)\)", body)
        assert ("cpu_kernel_vec(" in body) == (len(calls) == 2)
        yield kind, ([name for name, _ in calls], len([one for one in calls[0][1].split(",") if one.strip()]))


def _cuda(text: str) -> Iterator[tuple[str, list[str]]]:
    for kind, body in _cases(text):
        yield kind, re.findall(r"(?:gpu_kernel\(iter, )?(\w+)<scalar_t>[ (](?:ufunctor)?", body.replace("to<", ""))


def _functors(text: str) -> Iterator[tuple[str, tuple[str, list[str], list[str]]]]:
    for part in text.split("template <typename scalar_t>")[1:]:
        name = re.search(r"struct (\w+) {", part)
        held = re.search(r"  \w+\(([^)]*)\) :", part) or re.search(r"  \w+\(()\)", part)
        taken = re.search(r"operator\(\)\(([^)]*)\)", part)
        ufunc = re.search(r"return ufunc::(\w+)\(", part)
        assert name, part
        assert held, part
        assert taken, part
        assert ufunc, part
        yield name[1], (ufunc[1], _names(held[1]), _names(taken[1]))


def _names(declared: str) -> list[str]:
    return [one.split()[-1] for one in re.split(r", (?![^<]*>)", declared) if one.strip()]


def test_loops_and_functors_of_generated_groups_are_those_of_torchgen(tmp_path: Path) -> None:
    source = random.Random(3)
    seen: Counter[str] = Counter()
    for number in range(250):
        text = yaml_text(source)
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        try:
            parsed = gen.parse_native_yaml(str(file), str(NATIVE / "tags.yaml"))
            (group,) = gen.get_grouped_native_functions(parsed.native_functions)
        except (AssertionError, RuntimeError):
            seen["not read"] += 1
            continue
        try:
            wanted: object = their_facts(group)
        except Exception as error:  # torchgen ends with many kinds of errors
            wanted = None
            reason = f"{type(error).__name__}: {error}"[:300]
        try:
            (mine,) = read_native_functions(text.encode(), file="foo.yaml").structured_groups
            loops = ufunc_loops(mine)
            assert loops is not None
            found: object = our_facts(loops)
        except UfuncLoopError as error:
            found, reason = None, str(error)
        assert found == wanted, (text, found, wanted, reason if None in (found, wanted) else "")
        seen["refused" if found is None else "made"] += 1
    assert seen["made"] > 60, seen
    assert seen["refused"] > 30, seen
