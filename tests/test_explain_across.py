"""A call explained on several versions: what is said to have changed is what differs, and since the right version."""

from __future__ import annotations

import re
from functools import cache
from itertools import combinations

import pytest

from dispatchlab.errors import UnknownOperatorError
from dispatchlab.questions.dump.across_versions import public_versions
from dispatchlab.questions.explain.across import call_across
from dispatchlab.questions.explain.explain_operator import ExplainedOperator, explain_operator
from tests.command_line import run

VERSIONS = tuple(name.removeprefix("torch-") for name in public_versions())
CALLS = {
    ("aten::bmm", "cuda", "cuda"): 27,
    ("aten::add.Tensor", "cpu requires_grad", "cpu"): 0,
    ("aten::nonzero", "meta"): 41,
    ("aten::_foreach_mm", "cpu", "cpu"): 27,
    ("aten::view.dtype", "FuncTorchBatched"): 27,
}
"""Calls, and of how many pairs of versions they are said to have changed."""


def file_of(debug: str) -> str:
    """The file of a debug text, without what a build adds, and without the number of a generated file."""
    path = re.sub(r":\d+.*", "", debug.rpartition(" via ")[2].removeprefix("registered at "))
    path = re.sub(r"^.*?/(?=(build/)?(aten|torch|c10|functorch)/)", "", path).removeprefix("build/")
    return re.sub(r"_(\d+|Everything)\.cpp$", ".cpp", path)


def hops(explained: ExplainedOperator) -> object:
    """All that a call does, but for lines of files."""
    return (
        explained.explanation.schema,
        explained.explanation.end,
        explained.no_answer,
        [
            (
                hop.kind,
                hop.keys,
                hop.refusal,
                [(left.key, left.why, file_of(left.debug)) for left in hop.left_out],
                hop.kernel
                and (file_of(hop.kernel.debug), hop.kernel.reason, hop.kernel.source, hop.kernel.fallthrough),
                hop.kernel and [(file_of(one.debug), one.reason, one.source, one.why) for one in hop.kernel.beaten],
            )
            for hop in explained.explanation.hops
        ],
    )


@pytest.mark.parametrize(("call", "changing"), CALLS.items(), ids=[call[0] for call in CALLS])
def test_nothing_changed_is_said_when_the_hops_are_equal_and_only_then(call: tuple[str, ...], changing: int) -> None:
    @cache
    def explain(name: str, source: str) -> ExplainedOperator:
        return explain_operator(name, call[1:], source=source)

    known: dict[str, object] = {}
    for version in VERSIONS:
        try:
            known[version] = hops(explain(call[0], f"torch-{version}"))
        except UnknownOperatorError:
            known[version] = None
    pairs = []
    for old, new in combinations(VERSIONS, 2):
        if known[old] is known[new] is None:
            continue
        found = call_across(call[0], (new, old), explain)
        assert found.versions == (old, new)
        assert (found.changes == ()) is (known[old] == known[new])
        for change in found.changes:
            between = VERSIONS[VERSIONS.index(old) : VERSIONS.index(new) + 1]
            before = between[between.index(change.since) - 1]
            assert change.since != old
            assert known[before] != known[change.since]
        pairs += [(old, new)] * bool(found.changes)
    assert len(pairs) == changing


def test_a_kernel_that_another_takes_the_place_of_is_shown_with_its_version() -> None:
    result = run("explain", "aten::bmm", "cuda", "cuda", "--across", "2.12", "torch-2.15", "--format", "text")
    assert result.exit_code == 0
    assert result.stdout.startswith(
        """\
aten::bmm on PyTorch 2.12, 2.15
since 2.13: redispatch to CUDA
  -kernel: aten/src/ATen/RegisterCUDA.cpp [kernel], at CUDA
  +kernel: torch/_native/registry.py [kernel], at CUDA
  +lost: aten/src/ATen/RegisterCUDA.cpp [kernel], at CUDA: a newer kernel of the key

The call on each version (9)
  part                          what it is
  schema                        aten::bmm(Tensor self, Tensor mat2) -> Tensor
  runs                          AutogradCUDA -> CUDA
"""
    )
    assert "/__w/" not in result.stdout
    page = run("explain", "aten::bmm", "cuda", "cuda", "--across", "2.12", "2.15", "--format", "markdown").stdout
    assert "| part | what it is |" in page
    rich = run("explain", "aten::bmm", "cuda", "cuda", "--across", "2.12", "2.15", "--format", "rich").stdout
    assert "since 2.13: redispatch to CUDA" in rich


def test_without_versions_all_are_compared_and_a_name_is_its_overload() -> None:
    result = run("explain", "aten::add", "cpu", "1", "--across", "--format", "text")
    assert result.stdout.splitlines()[:2] == [f"aten::add.Tensor on PyTorch 2.4 to {VERSIONS[-1]}", "nothing changed"]
    assert "key sets are those of torch-2.13; in 2.4 to 2.12 some keys are others" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("aten::bmm", "--across", "2.3"), f"no registry of PyTorch 2.3 is bundled: choose from 2.4 to {VERSIONS[-1]}"),
        (("aten::bmmm", "--across"), "there is no operator aten::bmmm in torch-"),
        (("aten::bmm", "--across", "--from", "live"), "--from names one source, and --across takes the bundled ones"),
        (("aten::bmm", "cpuu", "--across", "2.4", "2.5"), "cpuu"),
    ],
)
def test_what_cannot_be_explained_is_bad_input(arguments: tuple[str, ...], sentence: str) -> None:
    result = run("explain", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr
