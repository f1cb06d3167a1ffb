"""`check --orders`: packages in every order, each order in a fresh process, and what is not the same afterwards."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

import dispatchlab.live.recording.package_facts as facts_module
from dispatchlab.live.worker.engine import LiveEngine
from dispatchlab.questions.check.trials import TrialRequest, trial_process
from dispatchlab.questions.imports.import_orders import compare_import_orders, orders_of
from tests.live.packages import dispatchlab, package

HOME = """\
import torch

lib = torch.library.Library("home", "DEF")
lib.define("door(Tensor x) -> Tensor")
"""

KERNEL = """\
import torch, home

lib = torch.library.Library("home", "FRAGMENT")
lib.impl("door", lambda x: x, "{key}")
"""

DECOMPOSED = """\
import torch
from torch._decomp import decomposition_table, get_decompositions, register_decomposition

OP = torch.ops.aten.bincount.default
"""

DIFFERENT = {
    "a kernel at one key": (
        KERNEL.format(key="CPU"),
        KERNEL.format(key="CPU"),
        "registrations of home::door",
        ["right.py:4", "left.py:4"],
        "-CPU: registered at right.py:4 ",
    ),
    "a table of decompositions that is looked up at import": (
        DECOMPOSED + "register_decomposition(OP)(lambda *a: None)\n",
        DECOMPOSED + "TABLE = get_decompositions([OP])\n",
        "variable right.TABLE",
        ["right.py:5"],
        "+dict of length 0",
    ),
    "a length that is taken at import": (
        KERNEL.format(key="CUDA"),
        "import torch, home\nHAS_CUDA = torch._C._dispatch_has_kernel_for_dispatch_key('home::door', 'CUDA')\n",
        "variable right.HAS_CUDA",
        ["right.py:2"],
        "-True",
    ),
    "an entry of a registry of Python": (
        DECOMPOSED + "decomposition_table[OP] = lambda *a: None\n",
        DECOMPOSED + "decomposition_table[OP] = lambda *a: 1\n",
        "decompositions of aten::bincount at post_autograd",
        ["right.py:5", "left.py:5"],
        "-right:<lambda> registered at right.py:5",
    ),
    "a def that the second module is refused": (
        'import torch\nlib = torch.library.Library("road", "FRAGMENT")\ntry:\n    lib.define("bend() -> int")\n'
        "except RuntimeError:\n    pass\n",
        'import torch\nlib = torch.library.Library("road", "FRAGMENT")\ntry:\n    lib.define("bend() -> int")\n'
        "except RuntimeError:\n    pass\n",
        "registrations of road::bend",
        ["left.py:4", "right.py:4"],
        "-debug: registered at left.py:4",
    ),
    "an import that fails in one order": (
        'import torch\nif torch._C._dispatch_has_kernel("home::door"):\n    raise RuntimeError("too late")\n',
        "import home\n",
        "import of left",
        [],
        "+RuntimeError: too late, raised at ",
    ),
    "a slot that goes stale": (
        KERNEL.format(key="CompositeImplicitAutograd"),
        KERNEL.format(key="CompositeExplicitAutograd"),
        "slots of home::door",
        ["left.py:4", "right.py:4"],
        ": registered at left.py:4 [math kernel]",
    ),
    "a backend fallback that one order has": (
        'import torch\nlib = torch.library.Library("_", "IMPL")\n'
        'lib.fallback(torch.library.fallthrough_kernel, "PrivateUse2")\n',
        "import torch, sys\nif 'left' not in sys.modules:\n    lib = torch.library.Library('_', 'IMPL')\n"
        "    lib.fallback(lambda *a: None, 'PrivateUse3')\n",
        "fallback of PrivateUse3",
        ["right.py:4"],
        "+registered at right.py:4",
    ),
}
"""What `left` and `right` do, what differs between their orders, at which lines, and a line of the difference."""


def compared(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = dispatchlab(folder, "check", "--orders", *arguments, "--format", "json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_depends_on_the_order_of_two_modules_is_shown_with_its_lines(case: str, tmp_path: Path) -> None:
    left, right, what, sites, line = DIFFERENT[case]
    for name, text in (("home", HOME), ("left", left), ("right", right)):
        (tmp_path / f"{name}.py").write_text(text)
    code, found = compared(tmp_path, "left", "right")
    assert (code, found["of"], len(found["orders"])) == (1, 2, 2)
    first = found["differences"][0]
    assert found["text"].startswith(f"differs: {first['cause']}")
    assert all(site in first["cause"] or what.startswith("variable ") for site in sites)
    assert first["fix"]
    assert (first["what"], first["sites"]) == (what, sites), found["differences"]
    assert line in first["diff"]
    assert first["diff"].startswith("--- after left, right\n+++ after right, left\n")


def test_modules_that_leave_the_same_do_not_differ_in_any_of_six_orders(tmp_path: Path) -> None:
    (tmp_path / "home.py").write_text(HOME)
    for name, key in (("left", "CPU"), ("middle", "CUDA"), ("right", "XLA")):
        (tmp_path / f"{name}.py").write_text(KERNEL.format(key=key) + f"NAME = {name!r}\n")
    done = dispatchlab(tmp_path, "check", "--orders", "left", "middle", "right")
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[0]) == (0, "left, middle, right: no difference in 6 of 6 import orders")
    assert lines[1] == "imported in these orders: 3 modules, left, middle, right"
    assert lines[2].startswith("compared: whether each import succeeds; registrations, table and slots of ")
    assert "proof" not in done.stdout
    assert "proved" not in done.stdout


def test_of_many_orders_some_are_chosen_and_each_is_another() -> None:
    assert len({*orders_of("abc", 12)}) == 6
    orders = orders_of("abcde", 12)
    assert (len({*orders}), orders[:2]) == (12, (tuple("abcde"), tuple("edcba")))
    assert all(sorted(order) == list("abcde") for order in orders)


def test_where_imports_take_long_two_of_the_chosen_orders_run_and_all_of_a_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("dispatchlab.processes.most_jobs", lambda: 2)
    names = [f"slow{number}" for number in range(4)]
    for name in names:
        (tmp_path / f"{name}.py").write_text("")
    chosen = compare_import_orders(names, enough_s=0.0)
    assert chosen.text == "no difference in 2 of 24 import orders"
    assert compare_import_orders(names[:3], enough_s=0.0).text == "no difference in 6 of 6 import orders"


@pytest.mark.parametrize(
    ("library", "imports"),
    [
        ("", 2),  # with the packages, and once for all orders
        ("import left\n", 4),  # with the packages, before it is seen, and once in each order
        ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n", 4),
    ],
)
def test_a_library_is_imported_once_if_it_neither_imports_the_modules_nor_starts_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, imports: int
) -> None:
    count, installed = tmp_path / "count", tmp_path / "site-packages"
    installed.mkdir()
    for folder in (tmp_path, installed):
        monkeypatch.syspath_prepend(str(folder))
    (installed / "heavy.py").write_text(f"{library}open({str(count)!r}, 'a').write('imported ')\n")
    for name in ("left", "right"):
        (tmp_path / f"{name}.py").write_text("import heavy\n")
    names = ("left", "right")
    with trial_process(TrialRequest(names, tuple(sys.path), trials=False)) as process:
        process.facts()
        found = compare_import_orders(names, registering=names, prepared=process.orders)
    assert (found.text, len(count.read_text().split())) == ("no difference in 2 of 2 import orders", imports)


@pytest.mark.parametrize("asked", [True, False])
def test_a_process_is_copied_for_orders_only_if_they_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("left", "right"):
        (tmp_path / f"{name}.py").write_text("")
    request = TrialRequest(("left", "right"), tuple(sys.path), trials=False, orders=asked)
    with trial_process(request) as process:
        process.facts()
        assert [run.order for run in process.orders((), [("right", "left")], 60.0, 1)] == [("right", "left")] * asked


def test_the_libraries_of_packages_are_their_installed_modules_that_register_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    for folder in (tmp_path, installed):
        monkeypatch.syspath_prepend(str(folder))
    (tmp_path / "left.py").write_text("import nearby, registering, expecttest, wave\n")
    (tmp_path / "nearby.py").write_text("")
    (tmp_path / "right.py").write_text("")
    define = 'torch.library.define("registering_lib::f", "(Tensor x) -> Tensor")'
    (installed / "registering.py").write_text(f"import torch\n{define}\n")
    with LiveEngine() as engine:
        told = engine.ask(f"{__name__}:libraries_of", ("left", "right"))
    assert {"expecttest", "wave"} <= {*told}
    assert {"left", "nearby", "registering"}.isdisjoint(told)


def libraries_of(packages: tuple[str, ...]) -> list[str]:
    told: list[str] = []
    vars(facts_module)["prepare_copy"] = told.extend
    facts_module.package_facts(packages)
    return told


def test_what_is_another_in_each_run_is_named_and_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "left.py").write_text("import random\nDRAWN = random.SystemRandom().random()\n")
    (tmp_path / "right.py").write_text("RIGHT = 1\n_hidden = object()\n")
    code, found = compared(tmp_path, "left", "right")
    assert (code, found["unstable"], found["differences"]) == (0, ["variable left.DRAWN"], [])
    assert found["text"] == "no difference in 2 of 2 import orders"


def test_a_module_that_only_one_order_imports_stands_for_its_variables(tmp_path: Path) -> None:
    package(
        tmp_path,
        "right",
        init="import sys\nif 'left' not in sys.modules:\n    import right.extra\n",
        extra="A = B = 1\n",
    )
    (tmp_path / "left.py").write_text("")
    code, found = compared(tmp_path, "left", "right")
    assert (code, [one["what"] for one in found["differences"]]) == (1, ["module right.extra"])


def test_one_module_is_not_asked_and_modules_of_a_package_have_orders_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "home.py").write_text(HOME)
    package(tmp_path, "whole", init="from whole import a, b\n", a=KERNEL.format(key="CPU"), b=KERNEL.format(key="CPU"))
    package(
        tmp_path,
        "parts",
        both="import parts.a, parts.b\n",
        a=KERNEL.format(key="CPU"),
        b=KERNEL.format(key="CPU"),
    )
    for name, text in (
        ("home", "not asked: one module registers"),
        ("parts", "not asked: no module registers"),
        ("whole", "one order, by the imports of whole"),
    ):
        done = dispatchlab(tmp_path, "check", "--orders", name)
        assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"{name}: {text}"), done.stderr
    assert done.stdout.splitlines()[1] == (
        "  note: the registrations at whole/a.py:4 and whole/b.py:4 both set the CPU kernel of home::door. "
        "The imports of whole decide the order, so a sorter of imports can change the kernel in force"
    )
    code, found = compared(tmp_path, "parts.both")
    assert (code, found["modules"], found["of"]) == (1, ["parts.both", "parts.a", "parts.b"], 6)
    assert found["differences"][0]["what"] == "registrations of home::door"


def test_an_import_that_ends_its_process_in_one_order_ends_with_5(tmp_path: Path) -> None:
    (tmp_path / "left.py").write_text("import os, sys\nif 'right' in sys.modules:\n    os._exit(7)\n")
    (tmp_path / "right.py").write_text("")
    code, found = compared(tmp_path, "left", "right")
    (one,) = found["differences"]
    assert (code, one["what"]) == (5, "process of the imports")
    assert "+ends its process with exit code 7, in the import of left\n" in one["diff"]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("raise ValueError('no driver')\n", 2, "left cannot be imported: ValueError: no driver, raised at "),
        ("import os\nos.abort()\n", 5, "left cannot be imported: it is ended by SIGABRT"),
        ("import sys\nsys.exit(3)\n", 5, "left cannot be imported: it calls sys.exit(3)"),
        ("import time\ntime.sleep(60)\n", 124, "left was not imported after 2 s, so its process was ended"),
    ],
)
def test_a_package_that_no_order_can_import_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int, said: str
) -> None:
    monkeypatch.setenv("DISPATCHLAB_IMPORT_LIMIT", "2")
    (tmp_path / "left.py").write_text(text)
    (tmp_path / "right.py").write_text("print('on standard output')\n")
    done = dispatchlab(tmp_path, "check", "--orders", "left", "right")
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_a_fake_beside_a_composite_kernel_is_advised_to_go(tmp_path: Path) -> None:
    """PyTorch refuses the fake after the composite kernel, so no import before it helps."""
    fake = "import torch, home\ntorch.library.register_fake('home::door')(lambda x: x)\n"
    for name, text in (("home", HOME), ("left", fake), ("right", KERNEL.format(key="CompositeImplicitAutograd"))):
        (tmp_path / f"{name}.py").write_text(text)
    code, found = compared(tmp_path, "left", "right")
    fixes = {one["what"]: one["fix"] for one in found["differences"]}
    advice = "drop the fake or Meta kernel, or register the composite kernel as CompositeExplicitAutograd"
    assert (code, fixes) == (1, dict.fromkeys(("import of left", "registrations of home::door"), advice))


CAUSES = {
    "one line, two keys": (
        "import home\nhome.KEY = 'CUDA'\n",
        "import home\nhome.lib.impl('door', lambda x: x, getattr(home, 'KEY', 'CPU'))\n",
        "right.py:2 sets the CUDA kernel of home::door in the order left, right, "
        "and the CPU kernel in the order right, left",
        "look it up when you need it, not while the module is imported, or first import what it depends on",
    ),
    "two defs": (
        "import torch\nlib = torch.library.Library('street', 'FRAGMENT')\nlib.define('gate(Tensor x) -> Tensor')\n",
        "import torch\nlib = torch.library.Library('street', 'FRAGMENT')\n"
        "try:\n    lib.define('gate(Tensor x, int n=1) -> Tensor')\nexcept RuntimeError:\n    pass\n",
        "import of left in the order left, right: succeeds. In the order right, left: RuntimeError: Tried to register "
        "an operator (street::gate(Tensor x) -> Tensor) with the same name and overload name multiple times, raised at "
        "left.py:3",
        "keep one of the two definitions. Or write an import of one module into the other module",
    ),
    "a fallback, which fills the table of each operator": (
        "import home\n",
        "import torch, home, sys\nif 'left' not in sys.modules:\n    lib = torch.library.Library('_', 'IMPL')\n"
        "    lib.fallback(lambda *a: None, 'PrivateUse3')\n",
        "right.py:4 sets the fallback of PrivateUse3 in the order right, left, but not in the order left, right",
        "register it in every order, without checking what was imported before",
    ),
    "a stale slot": (
        KERNEL.format(key="CompositeImplicitAutograd"),
        KERNEL.format(key="CompositeExplicitAutograd"),
        "the order of the kernels CompositeImplicitAutograd from left.py:4 and CompositeExplicitAutograd from "
        "right.py:4 decides which kernel a call of home::door runs at AutogradCPU and 33 more keys: left.py:4 "
        "in the order left, right, and the kernel in the dispatch table in the order right, left. "
        "No dump shows the difference",
        "keep one of the two registrations. Or write an import of one module into the other module",
    ),
}


@pytest.mark.parametrize("case", CAUSES)
def test_a_cause_says_what_each_order_gives(case: str, tmp_path: Path) -> None:
    left, right, cause, fix = CAUSES[case]
    for name, text in (("home", HOME), ("left", left), ("right", right)):
        (tmp_path / f"{name}.py").write_text(text)
    _, found = compared(tmp_path, "left", "right")
    first = found["differences"][0]
    assert (first["cause"].replace(f"{tmp_path}/", ""), first["fix"]) == (cause, fix)
