"""`check_order` of a package: what importing it registers on the installed PyTorch, in every order."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab import DispatchLabError, OrderCheck, Verdict, check_order, parse_scenario, scenario_text
from tests.live.packages import package

QUIET = """\
import torch

lib = torch.library.Library("quiet_shop", "FRAGMENT")
lib.define("sell(Tensor x) -> Tensor")
lib.impl("sell", lambda x: x, "CPU")
lib.impl("sell", lambda x: x, "CUDA")
"""
LOUD = """\
import torch

lib = torch.library.Library("loud_shop", "FRAGMENT")
lib.define("sell(Tensor x) -> Tensor")
low = torch._C._dispatch_library("IMPL", "loud_shop", "CPU", "low.py", 3)
low.impl("sell", "CPU", lambda x: x)
newer = torch._C._dispatch_library("IMPL", "loud_shop", "CPU", "newer.py", 4)
newer.impl("sell", "CPU", lambda x: x + 1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which this process and those that it starts can import."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def checked(name: str) -> OrderCheck:
    """The check of a package; a warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return check_order(package=name)


def test_a_package_without_conflicts_has_no_violation(folder: Path) -> None:
    package(folder, "quiet_shop", init=QUIET)
    check = checked("quiet_shop")
    assert (check.verdict, check.as_expected, check.counterexample) == (Verdict.NO_VIOLATION_FOUND, True, None)
    assert repr(check) == "<OrderCheck: no violation found, 3 registrations>"
    assert (check.exploration.sets, check.report.engine) == (4, "torch")
    assert [str(name) for name in check.scenario.operators] == ["quiet_shop::sell"]


def test_two_kernels_of_a_package_at_one_key_are_a_violation_without_a_warning(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    package(folder, "loud_shop", init=LOUD)
    check = checked("loud_shop")
    assert check.as_expected  # its lines run in one order
    check = check_order(replace(check.scenario, modules=()), engine="torch")
    assert (check.verdict, check.as_expected) == (Verdict.ORDER_DEPENDENT, False)
    assert repr(check) == "<OrderCheck: order-dependent, non-commuting: +1 +2 against +2 +1>"
    assert "-CPU: registered at loud_shop/__init__.py:8 [kernel]" in str(check)
    assert "+CPU: registered at loud_shop/__init__.py:6 [kernel]" in str(check)
    assert capfd.readouterr() == ("", "")


def test_what_a_package_registers_can_be_checked_again_on_the_lab(folder: Path) -> None:
    package(folder, "loud_shop", init=LOUD)
    scenario = check_order(package="loud_shop", engine="lab").scenario
    again = check_order(replace(parse_scenario(scenario_text(scenario)), modules=()))
    assert (again.verdict, again.report.engine) == (Verdict.ORDER_DEPENDENT, "lab")


def test_a_package_that_is_missing_is_refused_in_one_sentence(folder: Path) -> None:
    with pytest.raises(DispatchLabError) as caught:
        check_order(package="no_such_shop")
    assert str(caught.value) == (
        "no_such_shop cannot be imported: ModuleNotFoundError: No module named 'no_such_shop'; "
        "install it, in its checkout with `pip install -e .`, or leave it out"
    )


def test_a_package_that_registers_nothing_is_refused_in_one_sentence(folder: Path) -> None:
    package(folder, "empty_shop")
    with pytest.raises(DispatchLabError, match=r"^empty_shop registers nothing when it is imported: none of its"):
        check_order(package="empty_shop")
