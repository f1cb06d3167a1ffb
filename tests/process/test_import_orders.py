"""Packages imported in every order: what depends on the order is shown with those who registered it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.questions.imports.import_orders import orders_of
from tests.live.packages import dispatchlab, package

_DEFINES = """\
import torch
lib = torch.library.Library("street", "FRAGMENT")
try:
    lib.define("door(Tensor x) -> Tensor")
except RuntimeError:
    pass
"""
_IMPLS = """\
import torch
lib = torch.library.Library("street", "FRAGMENT")
lib.impl("door", lambda x: x, "CPU")
"""
_FAKES = "import torch\n\n\n@torch.library.register_fake('street::door')\ndef fake(x):\n    return x\n"


def test_two_kernels_at_one_key_differ_by_order_and_name_their_owners(tmp_path: Path) -> None:
    for name in ("left", "right"):
        package(tmp_path, name, init=_IMPLS)
    done = dispatchlab(tmp_path, "imports", "left", "right", "--format", "json")
    report = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert report["orders"] == [["left", "right"], ["right", "left"]]
    assert report["failed"] == {}
    assert [each["what"] for each in report["between_orders"]] == [
        "kernel of street::door at CPU",
        "kernel of street::door at CPU (2)",
    ]
    difference = report["between_orders"][0]
    assert (difference["expected_order"], difference["actual_order"]) == ("left, right", "right, left")
    assert difference["owners"] == ["left/__init__.py:3", "right/__init__.py:3"]
    assert re.search(r"\n-left:<lambda> \w+\n\+right:<lambda> \w+\n$", difference["diff"])
    assert difference["certain"] is True


def test_packages_that_do_not_meet_differ_in_nothing_and_being_imported_again_is_opt_in(tmp_path: Path) -> None:
    package(tmp_path, "defines", init=_DEFINES)
    package(tmp_path, "alone", init=_IMPLS.replace("street", "lane"))
    done = dispatchlab(tmp_path, "imports", "defines", "alone")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "packages: defines, alone\norders: 2 of 2, each in a process of its own\n"
        "operators: 2 new or changed, those of PyTorch's own modules included\n"
        "differences between orders: none\n"
    )
    again = dispatchlab(tmp_path, "imports", "alone", "--again")
    assert again.returncode == 0
    assert "differences when imported again: 2\n  kernel of lane::door at CPU (2), registered at" in again.stdout


def test_a_package_that_needs_another_one_first_fails_in_one_order(tmp_path: Path) -> None:
    package(tmp_path, "defines", init=_DEFINES)
    package(tmp_path, "fakes", init=_FAKES)
    done = dispatchlab(tmp_path, "imports", "defines", "fakes", "--format", "json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert list(report["failed"]) == ["fakes"]
    assert report["failed"]["fakes"].startswith("RuntimeError: ")
    what = [each["what"] for each in report["between_orders"]]
    assert what[0] == "import of fakes"
    assert {"dump of street::door", "kernel of street::door at Meta", "torch_library fake of street::door"} < {*what}
    assert not any("closure" in each for each in what)  # of what is not there at all in one of the orders


def test_a_package_that_registers_nothing_passes(tmp_path: Path) -> None:
    package(tmp_path, "quiet", init="x = 1\n")
    done = dispatchlab(tmp_path, "imports", "quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "packages: quiet\norders: 1 of 1, each in a process of its own\n"
        "one package has one order: name those that are imported with it\n"
        "operators: 0 new or changed, those of PyTorch's own modules included\n"
        "nothing is registered by importing quiet\n"
        "differences between orders: none\n"
    )


def test_modules_that_their_package_loads_have_no_order(tmp_path: Path) -> None:
    package(tmp_path, "street", init="from . import left, right\n", left=_DEFINES, right="x = 1\n")
    done = dispatchlab(tmp_path, "imports", "street.left", "street.right")
    assert "each of these loads all the others when it is imported first" in done.stdout
    done = dispatchlab(tmp_path, "imports", "street.left", "tempfile")
    assert "loaded by others whenever their turn came later: tempfile\n" in done.stdout


def test_a_package_that_ends_the_process_in_one_order_is_a_difference_and_ends_with_5(tmp_path: Path) -> None:
    package(tmp_path, "street", init=_DEFINES)
    package(tmp_path, "deadly", init="import os, sys\nif 'street' not in sys.modules:\n    os.abort()\n")
    done = dispatchlab(tmp_path, "imports", "street", "deadly")
    assert (done.returncode, done.stderr) == (5, "")
    assert "failed: deadly: it is ended by SIGABRT\ndifferences between orders: 1\n  process\n" in done.stdout
    assert "    +is ended by SIGABRT, in the import of deadly\n" in done.stdout


def test_a_package_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    done = dispatchlab(tmp_path, "imports", "deadly", "deadly")
    assert (done.returncode, done.stderr.strip()) == (
        2,
        "deadly is named twice: a package is imported once in each order",
    )


_READS = """\
import random
import torch
lib = torch.library.Library("{name}", "DEF")
lib.define("op(Tensor x) -> Tensor")
lib.impl("op", lambda x, factor={default}: x * factor, "CPU")
"""


def test_a_kernel_that_keeps_what_another_package_left_behind_differs_though_every_dump_is_the_same(
    tmp_path: Path,
) -> None:
    package(tmp_path, "reads", init=_READS.format(name="reads", default="torch.get_default_dtype()"))
    package(tmp_path, "sets", init="import torch\ntorch.set_default_dtype(torch.float64)\n")
    report = json.loads(dispatchlab(tmp_path, "imports", "reads", "sets", "--format", "json").stdout)
    (difference,) = report["between_orders"]
    assert difference["what"] == "kernel of reads::op at CPU: default 0"
    assert difference["diff"].endswith("-torch.float32\n+torch.float64\n")


def test_what_is_not_the_same_twice_is_no_difference_and_no_agreement(tmp_path: Path) -> None:
    package(tmp_path, "draws", init=_READS.format(name="draws", default="random.SystemRandom().random()"))
    package(tmp_path, "alone", init=_IMPLS.replace("street", "lane"))
    done = dispatchlab(tmp_path, "imports", "draws", "alone")
    assert done.returncode == 0
    assert "open: not the same in two runs of one order: kernel of draws::op at CPU: default 0\n" in done.stdout


def test_beyond_five_packages_orders_are_sampled_each_once() -> None:
    five, six = tuple("abcde"), tuple("abcdef")
    assert len(set(orders_of(five, samples=3, seed=0))) == 120
    some = list(orders_of(six, samples=50, seed=1))
    assert (len(some), len(set(some)), some[0]) == (50, 50, six)
    assert len(list(orders_of(six, samples=10_000, seed=1))) == 720
