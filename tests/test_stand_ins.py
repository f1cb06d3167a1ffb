"""Stand-ins for C++ kernels: what is proved with them is what is proved of the kernels themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.registration import Block, Def, Impl, KernelForm
from dispatchlab.prover.explore import explore
from dispatchlab.questions.order.stand_ins import with_known_classes, with_stand_ins
from dispatchlab.scenario import load_scenario, parse_scenario

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios").rglob("*.yaml"))

FITTING = """\
claim: Two C++ kernels fit their def.
registrations:
  - def: foo(Tensor x, int n) -> Tensor
  - impl: foo
    dispatch: CPU
    kernel: (Tensor _0, int _1) -> Tensor _0
  - library: test
    kind: FRAGMENT
    registrations:
      - impl: foo
        dispatch: CUDA
        kernel: (Tensor _0, int _1) -> Tensor _0
  - impl: foo
    dispatch: Meta
  - impl: foo
    dispatch: AutogradCPU
    kernel: fallthrough
"""


def test_kernels_that_the_bindings_cannot_make_are_boxed_and_nothing_else_changes() -> None:
    scenario = parse_scenario(FITTING)
    made, count = with_stand_ins(scenario.registrations)
    assert count == 2
    assert made[0] is scenario.registrations[0]
    assert made[3:] == scenario.registrations[3:]
    inner = made[2]
    assert isinstance(inner, Block)
    for one in (made[1], inner.registrations[0]):
        assert isinstance(one, Impl)
        assert one.kernel.form is KernelForm.BOXED


@pytest.mark.parametrize(
    "change",
    [
        ("int n) -> Tensor", "int m, int n) -> Tensor"),  # the kernel does not fit the def
        ("        kernel: (Tensor _0, int _1) -> Tensor _0", "        kernel: (Tensor _0, float _1) -> Tensor _0"),
        (
            "        kernel: (Tensor _0, int _1) -> Tensor _0",
            "        kernel: (Tensor _0, int _1) -> Tensor _0\n        signature: at::Tensor (at::Tensor, long)",
        ),
    ],
)
def test_where_a_comparison_can_fail_there_is_no_stand_in(change: tuple[str, str]) -> None:
    text = FITTING.replace(*change)
    assert text != FITTING
    scenario = parse_scenario(text)
    assert with_stand_ins(scenario.registrations) == (scenario.registrations, 0)


@pytest.mark.filterwarnings("ignore")
def test_scenarios_have_the_same_verdict_with_stand_ins() -> None:
    compared = 0
    for path in SCENARIOS:
        scenario = load_scenario(path)
        made, count = with_stand_ins(scenario.registrations)
        if not count or scenario.semantics not in ("strict", "torch-2.13") or len(made) > 8:
            continue
        engine = LabEngine(scenario.semantics)
        found = [
            explore(engine, each, scenario.operators, order=scenario.order) for each in (scenario.registrations, made)
        ]
        verdicts = [(one.verdict, one.sets, [conflict.members for conflict in one.conflicts]) for one in found]
        assert verdicts[0] == verdicts[1], path
        compared += 1
    assert compared >= 5


def test_a_def_by_name_keeps_the_kernel_that_gives_its_schema() -> None:
    scenario = parse_scenario("{claim: A sentence., registrations: [{def: foo, kernel: '(Tensor _0, int _1) -> ()'}]}")
    assert isinstance(scenario.registrations[0], Def)
    assert with_stand_ins(scenario.registrations) == (scenario.registrations, 0)


CLASSES = """\
claim: Defs name classes of their package, and one of PyTorch.
classes: [mine.Labels, mine.Map]
registrations:
  - def: foo(__torch__.torch.classes.mine.Labels? x) -> Dict(str, __torch__.torch.classes.mine.Map[])
  - library: test
    kind: FRAGMENT
    registrations:
      - def: bar(__torch__.torch.classes.quantized.Conv2dPackedParamsBase x) -> __torch__.torch.classes.mine.Map
  - def: baz(Union(int, __torch__.torch.classes.mine.Labels) x) -> (Tensor, int)
  - impl: baz
    dispatch: CPU
"""


def test_classes_of_a_package_have_one_class_of_pytorch_each() -> None:
    scenario = parse_scenario(CLASSES)
    made, classes = with_known_classes(scenario.registrations)
    assert classes == ("mine.Labels", "mine.Map")
    assert made[3] is scenario.registrations[3]
    block = made[1]
    assert isinstance(block, Block)
    defs = [one for one in (made[0], block.registrations[0], made[2]) if isinstance(one, Def)]
    prefix = "__torch__.torch.classes.quantized."
    assert [str(one.schema).replace(prefix, "") for one in defs] == [
        "test::foo(Conv3dPackedParamsBase? x) -> Dict(str, EmbeddingPackedParamsBase[])",
        "bar(Conv2dPackedParamsBase x) -> EmbeddingPackedParamsBase",
        "test::baz(Union(int, Conv3dPackedParamsBase) x) -> (Tensor, int)",
    ]
    assert with_known_classes(made) == (made, ())


def test_more_classes_than_pytorch_has_are_left_as_they_are() -> None:
    every = "\n".join(f"  - def: f{n}(__torch__.torch.classes.m.C{n} x) -> ()" for n in range(12))
    names = ", ".join(f"m.C{n}" for n in range(12))
    registrations = parse_scenario(f"claim: c.\nclasses: [{names}]\nregistrations:\n{every}\n").registrations
    assert with_known_classes(registrations) == (registrations, ())
