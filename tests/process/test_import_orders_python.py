"""Imports in every order: what packages write into registries of Python is compared, and shared by those that do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.live.packages import dispatchlab, package

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

_STREET = """\
import torch
lib = torch.library.Library("street", "DEF")
lib.define("door(Tensor x) -> Tensor")
"""
_DECOMPOSITION = """\
import torch
from torch._decomp import decomposition_table


def pieces(x, *rest):
    return x


decomposition_table[torch.ops.aten.bincount.default] = pieces
"""
_FAKE = """\
import torch
import street


@torch.library.register_fake("street::door", allow_override=True)
def fake(x):
    return x
"""
_LOWERING = """\
import torch
from torch._inductor.lowering import register_lowering


@register_lowering(torch.ops.aten.bincount.default)
def lower(x, *rest):
    return x
"""


def _report(folder: Path, *packages: str, code: int) -> dict[str, Any]:
    done = dispatchlab(folder, "imports", *packages, "--format", "json")
    assert done.returncode == code, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["failed"] == {}
    return report


@pytest.mark.parametrize(
    ("source", "operator", "registry", "line"),
    [
        (_DECOMPOSITION, "aten::bincount", "decompositions post_autograd", 5),
        (_FAKE, "street::door", "torch_library fake", 5),
        (_LOWERING, "aten::bincount", "inductor_fallbacks", 5),
    ],
    ids=["decomposition", "fake", "lowering"],
)
def test_an_entry_that_the_last_writer_decides_differs_by_order_and_names_both_sites(
    source: str, operator: str, registry: str, line: int, tmp_path: Path
) -> None:
    package(tmp_path, "street", init=_STREET)
    for name in ("left", "right"):
        package(tmp_path, name, init=source)
    report = _report(tmp_path, "left", "right", code=1)
    difference = next(one for one in report["between_orders"] if one["what"].startswith(f"{registry} of {operator}"))
    assert {f"left/__init__.py:{line}", f"right/__init__.py:{line}"} <= set(difference["owners"])
    assert re.search(r"\n-'?right\b.*\n\+'?left\b", difference["diff"])
    assert operator in report["in_python"]


def test_an_entry_that_is_taken_away_is_a_difference(tmp_path: Path) -> None:
    package(tmp_path, "left", init=_DECOMPOSITION.replace("bincount", "_softmax"))
    takes = "import torch\nfrom torch._decomp import decomposition_table\n"
    takes += "decomposition_table.pop(torch.ops.aten._softmax.default)\n"
    package(tmp_path, "right", init=takes)
    report = _report(tmp_path, "left", "right", code=1)
    difference = report["between_orders"][0]
    assert difference["what"] == "decompositions post_autograd of aten::_softmax"
    assert "\n-'taken out'\n+left:pieces" in difference["diff"]
