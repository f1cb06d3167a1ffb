"""Packages imported in every order: what depends on the order is shown with those who registered it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.questions.imports.import_orders import _Trial, orders_of
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
    (difference,) = report["between_orders"]
    assert (difference["what"], difference["expected_order"], difference["actual_order"]) == (
        "street::door",
        "left, right",
        "right, left",
    )
    assert difference["owners"] == ["left/__init__.py:3", "right/__init__.py:3"]


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
    assert "differences when imported again: 1\n  lane::door, registered at alone/__init__.py:3\n" in again.stdout


def test_a_package_that_needs_another_one_first_fails_in_one_order(tmp_path: Path) -> None:
    package(tmp_path, "defines", init=_DEFINES)
    package(tmp_path, "fakes", init=_FAKES)
    done = dispatchlab(tmp_path, "imports", "defines", "fakes", "--format", "json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert list(report["failed"]) == ["fakes"]
    assert report["failed"]["fakes"].startswith("RuntimeError: ")
    assert {each["what"] for each in report["between_orders"]} == {"fakes", "street::door"}


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
    died = f"ended its process with signal SIGABRT at {tmp_path}/deadly/__init__.py:3"
    assert f"failed: deadly: it {died}\ndifferences between orders: 1\n  deadly\n" in done.stdout
    assert f"    -imported\n    +{died}\n" in done.stdout


def test_a_package_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    done = dispatchlab(tmp_path, "imports", "deadly", "deadly")
    assert (done.returncode, done.stderr.strip()) == (
        2,
        "deadly is named twice: a package is imported once in each order",
    )


_ALONE = """\
import torch
lib = torch.library.Library("{name}", "DEF")
lib.define("op(Tensor x) -> Tensor")
lib.impl("op", lambda x: x, "CPU")
"""


def test_packages_that_share_nothing_are_tried_within_groups_and_checked(tmp_path: Path) -> None:
    for name in ("one", "two"):
        package(tmp_path, name, init=_ALONE.format(name=name))
    for name in ("left", "right"):
        package(tmp_path, name, init=_IMPLS)
    done = dispatchlab(tmp_path, "imports", "one", "left", "two", "right", "--format", "json", "--jobs", "2")
    report = json.loads(done.stdout)
    assert done.stderr == ""
    assert report["groups"] == [["one"], ["left", "right"], ["two"]]
    assert report["shared"] == [{"packages": ["left", "right"], "reason": "both register street::door"}]
    assert (report["whole"], report["skipped"], report["not_skipped"]) == (4, 20, "")
    assert [order for order in report["orders"] if len(order) == 2] == [["left", "right"], ["right", "left"]]
    (difference,) = report["between_orders"]
    assert (done.returncode, difference["what"], difference["expected_order"]) == (1, "street::door", "left, right")


_FALLS_BACK = """\
import torch
lib = torch.library.Library("_", "IMPL")
lib.fallback(torch.library.fallthrough_kernel, "HPU")
"""


def test_the_footprint_of_a_package_is_what_it_registers_imports_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "plain", init=_ALONE.format(name="plain"))
    package(tmp_path, "uses", init="import plain\nimport sys\nknown = 'other' in sys.modules\n" + _FALLS_BACK)
    package(tmp_path, "other", init=_IMPLS.replace("street", "aten").replace("door", "cumsum"))
    monkeypatch.syspath_prepend(tmp_path)
    packages = ("plain", "uses", "other")
    found = _Trial(packages, None, again=False, is_cluster=False)(((name,) for name in packages), footprints=True)
    plain, uses, other = (found.run_of((name,)).footprint for name in packages)
    assert plain is not None
    assert uses is not None
    assert other is not None
    assert [sorted(each) for each in (plain.operators, plain.namespaces, plain.packages)] == [
        ["plain::op"],
        ["plain"],
        [],
    ]
    assert [sorted(each) for each in (uses.operators, uses.packages)] == [["plain::op"], ["other", "plain"]]
    assert [sorted(each) for each in (other.operators, other.namespaces, other.packages)] == [["aten::cumsum"], [], []]
    assert uses.fallbacks
    assert (plain.fallbacks, other.fallbacks, plain.by_torch) == (False, False, frozenset())
    assert plain.untouched == other.untouched != ""


def test_beyond_five_packages_orders_are_sampled_each_once() -> None:
    five, six = tuple("abcde"), tuple("abcdef")
    assert len(set(orders_of(five, samples=3, seed=0))) == 120
    some = list(orders_of(six, samples=50, seed=1))
    assert (len(some), len(set(some)), some[0]) == (50, 50, six)
    assert len(list(orders_of(six, samples=10_000, seed=1))) == 720
