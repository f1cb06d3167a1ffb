"""What `explain --mode` predicts for the operators of packages, off a record of them, against what runs in PyTorch.

Of torchao and optimum-quanto, and of torchvision, bitsandbytes, torch_harmonics and attn_gym where they are installed.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from dispatchlab.cli import main
from tests import effort
from tests.deep.readiness_arguments import MODULES
from tests.live import forked

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

REFUSED = {
    **dict.fromkeys(
        ("blocksparse::addmm", "blocksparse::int_addmm"), "their kernels for every backend need triton, and CUDA"
    ),
    "float8_sparse::fp8_sparse_mm": "its kernel for every backend calls an operator of CUDA",
    "torchao::quantize_affine": "it is composite, and calls a torch.autograd.Function that torch.func.grad refuses",
    **dict.fromkeys(
        ("torchao::swizzle_scaled_mm", "torchao::to_sparse_semi_structured_cutlass_sm9x_f8"),
        "their fake implementations raise for these arguments",
    ),
    "bitsandbytes::dequantize_4bit.out": "its fake implementation compares a list with a size, and raises every time",
    **dict.fromkeys(
        ("attention_kernels::permute_to_nhwc", "attention_kernels::permute_to_nchw"),
        "their torch.autograd.Function has no setup_context, which torch.func.grad refuses",
    ),
}
"""Operators whose call PyTorch refuses in a mode, after what is compared or before it, and why."""

NAMESPACES_REFUSED = {
    "image": "kernels for every key that read data, which a tensor that is traced does not have",
    "torchvision": "autograd kernels of C++, which torch.func.grad refuses",
}

PATHS = (
    *("fake", "symbolic", "functionalize", "grad", "vmap", "autocast"),
    *("make_fx none", "make_fx inductor", "inductor"),
    *(("aot_eager", "export") if effort.percent == 100 else ()),  # what is traced comes by `inductor`, too
)


def _installed(module: str) -> bool:
    package = MODULES.get(module, module)
    return find_spec(package.partition(".")[0]) is not None and find_spec(module.partition(".")[0]) is not None


AT_HAND = [
    one
    for one in (*MODULES, "bitsandbytes", "torch_harmonics", "attn_gym")
    if _installed(one) and not one.startswith("torchao.kernel")
]


@pytest.mark.skipif(not AT_HAND, reason="needs torchao, optimum-quanto or another package with operators")
def test_what_is_predicted_for_operators_of_packages_runs(tmp_path: Path) -> None:
    record = tmp_path / "packages.dlreg"
    assert CliRunner().invoke(main, ["record", "--all", *AT_HAND, "-o", str(record)]).exit_code == 0
    done = forked.module("tests.deep.package_modes", str(record), ",".join(PATHS), *AT_HAND)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    operators = seen["operators"]
    assert len(operators) >= (25 if {"torchao", "optimum.quanto"} <= {*AT_HAND} else 4)
    named = {name for name in operators if name in REFUSED or name.partition("::")[0] in NAMESPACES_REFUSED}
    for path, found in seen["paths"].items():
        assert found["differences"] == [], path
        refused = {text.partition(": ")[0] for text in found["refused"]}
        assert refused <= named, path
        # What has no tensor has no symbolic size.
        assert not found["unseen"] or path == "symbolic", path
        assert found["agree"] + len(found["refused"]) + len(found["unseen"]) == len(operators)
