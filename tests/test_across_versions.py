"""One operator in every bundled version: which versions share a row, and what is printed of it."""

from __future__ import annotations

import json

import pytest

from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.questions.dump.across_versions import Era, operators_across, public_versions, ranges
from dispatchlab.registries.file import open_bundled
from tests.command_line import run

VERSIONS = tuple(name.removeprefix("torch-") for name in public_versions())
NEWEST = VERSIONS[-1]


def test_versions_are_ranges_where_none_is_left_out() -> None:
    assert tuple(f"2.{minor}" for minor in range(4, 4 + len(VERSIONS))) == VERSIONS
    assert len(VERSIONS) >= 12
    some = ("2.10", "2.4", "2.5", "2.9", "2.12")
    assert ranges(some, VERSIONS) == (("2.4", "2.5"), ("2.9", "2.10"), ("2.12", "2.12"))
    assert (ranges((), VERSIONS), ranges(VERSIONS, VERSIONS)) == ((), (("2.4", NEWEST),))


def test_an_operator_shows_what_came_and_went() -> None:
    (found,) = operators_across("aten::add.Tensor")
    assert found.present == found.versions == VERSIONS
    assert found.schema == (Era(VERSIONS, "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"),)
    kernels = {key: each.eras for each in found.kernels for key in each.keys}
    assert kernels["Named"] == (Era(VERSIONS[:9], "fallthrough boxed"), Era(VERSIONS[9:], None))
    assert kernels["NestedTensorHPU"] == (Era(VERSIONS[:4], None), Era(VERSIONS[4:], "boxed unboxed"))
    assert kernels["Meta"] == (Era(VERSIONS, "boxed over boxed unboxed"),)
    slots = {key: each.eras for each in found.slots for key in each.keys}
    assert slots["CUDA"] == (Era(VERSIONS, "kernel"),)
    assert slots["AutocastMPS"] == (Era(VERSIONS[:1], None), Era(VERSIONS[1:], "fallthrough backend fallback"))


def test_every_era_is_what_the_registries_have() -> None:
    (found,) = operators_across("aten::_fused_adam_", [K.CPU, K.CUDA])
    kernels = {key: each.eras for each in found.kernels for key in each.keys}
    checked = 0
    for key in (K.CPU, K.CUDA):
        for era in kernels[str(key)]:
            for version in era.versions:
                operator = open_bundled(f"torch-{version}").operator(found.operator)
                assert operator is not None
                assert bool(operator.kernels_at(key)) is (era.content is not None)
                checked += 1
    assert checked == 2 * len(VERSIONS)
    assert {*kernels} == {"CPU", "CUDA"}


def test_the_text_has_a_row_for_versions_that_agree() -> None:
    result = run(
        "dump", "aten::add.Tensor", "--across", "--key", "NestedTensorHPU", "--key", "CUDA", "--format", "text"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert (
        result.stdout
        == f"""aten::add.Tensor
aten::add.Tensor: in PyTorch 2.4 to {NEWEST} (bundled: 2.4 to {NEWEST})

schema
  2.4 to {NEWEST}  aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor

alias analysis kind
  2.4 to {NEWEST}  FROM_SCHEMA

tags
  2.4 to {NEWEST}  core, pointwise, pt2_compliant_tag

kernels (2)
  keys             versions
  CUDA             2.4 to {NEWEST}: boxed unboxed
  NestedTensorHPU  2.4 to 2.7: none
                   2.8 to {NEWEST}: boxed unboxed

slots (2)
  keys             versions
  CUDA             2.4 to {NEWEST}: kernel
  NestedTensorHPU  2.4 to 2.7: none
                   2.8 to {NEWEST}: kernel
"""
    )


def test_json_and_rich_show_the_same_eras() -> None:
    found = json.loads(run("dump", "aten::relu_", "--across", "--key", "CPU", "--format", "json").stdout)
    assert found["versions"] == list(VERSIONS)
    (operator,) = found["operators"]
    assert [era["content"] for era in operator["schema"]] == ["aten::relu_(Tensor(a!) self) -> Tensor(a!)"]
    assert operator["kernels"] == [
        {"keys": ["CPU"], "eras": [{"versions": list(VERSIONS), "content": "boxed unboxed"}]}
    ]
    rich = run("dump", "aten::relu_", "--across", "--key", "CPU", "--format", "rich")
    assert f"2.4 to {NEWEST}" in rich.stdout
    assert "boxed unboxed" in rich.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("aten::reluu", "--across"),
            f"there is no operator aten::reluu in PyTorch 2.4 to {NEWEST}; did you mean aten::relu",
        ),
        (("aten::add", "--across"), "aten::add has "),
        (("aten::add.Tensor", "--across", "--from", "torch-2.4"), "--across shows every version: leave out --from"),
        (("--across",), "no operator was named"),
        (("aten::add.Tensor", "--across", "--key", "Autograd"), "Autograd has no row in a table"),
    ],
)
def test_what_cannot_be_shown_is_bad_input(arguments: tuple[str, ...], sentence: str) -> None:
    result = run("dump", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
