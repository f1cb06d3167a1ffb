"""`tools/run_torch_tests.py`: files of tests that are written for PyTorch run on the lab, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "run_torch_tests.py"

TESTS = """
import os

import torch
import torch._C as C
import torch.utils.cpp_extension
from torch.testing._internal.common_utils import HardwareClassification, TestCase, run_tests


class TestOwn(TestCase):
    hw_classification = HardwareClassification.GENERIC

    def test_every_registration_of_pytorch_is_there(self):
        C._dispatch_check_all_invariants()
        self.assertIn("aten::add.Tensor", C._dispatch_get_all_op_names())
        self.assertEqual([], C._dispatch_find_dangling_impls())

    def test_a_fallback_of_pytorch_is_in_the_table(self):
        library = C._dispatch_library("FRAGMENT", "own", "")
        library.def_("f(Tensor x) -> Tensor").impl_t_t("f", "CPU")
        self.assertRegex(C._dispatch_dump_table("own::f"), "AutogradCPU: .*VariableFallbackKernel.cpp")

    def test_the_blocks_of_an_extension_register(self):
        source = os.path.join(os.path.dirname(__file__), "extension.cpp")
        torch.utils.cpp_extension.load(name="extension", sources=[source])
        self.assertEqual(
            f"name: own::g\\nschema: (none)\\nCPU: registered at {source}:2 :: () -> () [ boxed unboxed ]\\n",
            C._dispatch_dump("own::g"),
        )

    def test_a_call_ends_where_no_kernel_is(self):
        x = torch.quantize_per_tensor(torch.zeros([1, 1, 1]), 0.5, 3, torch.qint8)
        missing = "Could not run 'aten::baddbmm.out' with arguments from the 'QuantizedCPU' backend."
        with self.assertRaisesRegex(NotImplementedError, missing):
            torch.baddbmm(x, x, x)
        with self.assertRaisesRegex(RuntimeError, "has no Python function that could run"):
            torch.mm(torch.zeros([1, 1]), torch.zeros([1, 1]))


if __name__ == "__main__":
    run_tests()
"""
EXTENSION = """void g() { }
TORCH_LIBRARY_IMPL(own, CPU, m) {
  m.impl("g", g);
}
"""
FAILING = """
from torch.testing._internal.common_utils import TestCase


class TestOwn(TestCase):
    def test_true(self):
        self.assertTrue(True)

    def test_false(self):
        self.assertEqual(1, 2)
"""


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOOL, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=300, check=False
    )


def test_a_file_that_is_written_for_pytorch_runs_on_the_lab(tmp_path: Path) -> None:
    tests = tmp_path / "checkout" / "test" / "test_dispatch.py"
    tests.parent.mkdir(parents=True)
    tests.write_text(TESTS, encoding="utf-8")
    (tests.parent / "extension.cpp").write_text(EXTENSION, encoding="utf-8")
    names = (
        "a_call_ends_where_no_kernel_is",
        "a_fallback_of_pytorch_is_in_the_table",
        "every_registration_of_pytorch_is_there",
        "the_blocks_of_an_extension_register",
    )
    for semantics in ("torch-2.13", "strict"):
        done = _run(tmp_path / "checkout", "--semantics", semantics)
        lines = [f"holds TestOwn.test_{name}" for name in names]
        assert done.stdout.splitlines() == [*lines, f"4 of 4 tests hold under {semantics}"], done.stderr
        assert done.returncode == 0


def test_a_test_that_fails_is_named_and_the_exit_code_says_so(tmp_path: Path) -> None:
    tests = tmp_path / "test_own.py"
    tests.write_text(FAILING, encoding="utf-8")
    done = _run(tests, "--without-registry")
    assert done.stdout == (
        "FAILS TestOwn.test_false: AssertionError: 1 != 2\n"
        "holds TestOwn.test_true\n"
        "1 of 2 tests hold under torch-2.13\n"
    )
    assert done.returncode == 1
    assert _run(tests, "--without-registry", "-k", "true").returncode == 0


def test_what_cannot_run_is_one_sentence(tmp_path: Path) -> None:
    gone = _run(tmp_path / "no.py")
    assert (gone.returncode, gone.stderr) == (
        2,
        f"error: there is no {tmp_path / 'no.py'}: name a checkout of PyTorch, or its test/test_dispatch.py\n",
    )
    tests = tmp_path / "test_own.py"
    tests.write_text("from torch.testing._internal.common_utils import freeze_rng_state\n", encoding="utf-8")
    lacking = _run(tests, "--without-registry")
    assert lacking.returncode == 2
    assert lacking.stderr.startswith(f"error: {tests} cannot be imported on the stand-in of torch: cannot import name")
    assert lacking.stderr.count("\n") == 1
    tests.write_text(FAILING, encoding="utf-8")
    unknown = _run(tests, "--semantics", "torch-9.9")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("error: unknown semantics 'torch-9.9'")
    nothing = _run(tests, "--without-registry", "-k", "nothing")
    assert (nothing.returncode, nothing.stderr) == (2, "error: no test has such a name\n")
