"""Recording the installed PyTorch, and the bundled registry against it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.live.bridge.torch import ImportFailedError
from dispatchlab.live.introspection.package_paths import package_roots, without_roots
from dispatchlab.live.introspection.registry_reader import record_registry
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.registration import KernelFlags
from dispatchlab.registries.file import open_bundled

torch: Any = pytest.importorskip("torch", reason="records the installed PyTorch, and there is none")

ROOT = Path(__file__).parents[2]


BUNDLED = open_bundled("torch-2.13-cpu")


@pytest.mark.skipif(
    torch.__version__ != BUNDLED.torch, reason=f"the bundled registry is that of PyTorch {BUNDLED.torch}"
)
def test_all_of_pytorch_is_recorded_and_replayed_to_the_character() -> None:
    probe = [sys.executable, "-m", "tests.live.registry_probe"]
    done = subprocess.run(probe, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "operators": 3598,
        "records that print as PyTorch": 3598,
        "recorded twice the same": True,
        "file reads back": True,
        "symint kernels": 1746,
        "differences from the bundled": [],
        "same tags": True,
        "strict dumps": 3598,
        "strict tables": 3598,
        "torch-2.13 dumps": 3598,
        "torch-2.13 tables": 3598,
    }


PACKAGE = """\
import torch

lib = torch.library.Library("dlrecorded", "DEF")
lib.define("twice(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
lib.impl("twice", lambda x: x, "CPU")
lib.impl("twice", lambda x: 2 * x, "CPU")
lib.define("quiet(int n) -> ()")
loose = torch.library.Library("dlloose", "IMPL")
loose.impl("gone", lambda x: x, "CUDA")
"""


@pytest.mark.filterwarnings("ignore:Warning only once for all operators:UserWarning")
def test_what_a_package_registers_is_on_record_with_paths_that_start_at_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dlpackage").mkdir()
    (tmp_path / "dlpackage" / "__init__.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = record_registry()
    after = record_registry(["dlpackage"])
    package = sys.modules.pop("dlpackage")
    try:
        came = set(after.names) - set(before.names)
        assert came == {"dlrecorded::twice", "dlrecorded::quiet", "dlloose::gone"}
        assert after.imports == ("dlpackage",)
        assert after.fallbacks == before.fallbacks
        twice = after.operator("dlrecorded::twice")
        assert twice is not None
        assert (twice.schema, sorted(twice.tags)) == ("dlrecorded::twice(Tensor x) -> Tensor", ["pointwise"])
        assert [(each.key, each.debug, each.flags, each.active) for each in twice.kernels] == [
            (K.CPU, "registered at dlpackage/__init__.py:6", KernelFlags.BOXED, True),
            (K.CPU, "registered at dlpackage/__init__.py:5", KernelFlags.BOXED, False),
        ]
        gone = after.operator("dlloose::gone")
        assert gone is not None
        assert (gone.is_dangling, gone.debug, gone.alias, gone.tags) == (True, "", None, frozenset())
        assert [each.debug for each in gone.kernels] == ["registered at dlpackage/__init__.py:9"]
    finally:
        package.lib._destroy()
        package.loose._destroy()
    assert replace(record_registry(), imports=()) == before


def test_a_module_that_cannot_be_imported_is_an_error() -> None:
    with pytest.raises(ImportFailedError) as caught:
        record_registry(["dl_no_such_package"])
    assert str(caught.value) == (
        "dl_no_such_package cannot be imported: ModuleNotFoundError: No module named 'dl_no_such_package'; "
        "install it, in its checkout with `pip install -e .`, or leave it out"
    )


def test_only_the_paths_of_this_machine_are_cut() -> None:
    roots = ("/home/me/lib/python3.12/site-packages/", "/home/me/")
    for debug, kept in {
        "registered at /home/me/lib/python3.12/site-packages/torch/library.py:9": "registered at torch/library.py:9",
        "registered at /home/me/work/mine.py:9": "registered at work/mine.py:9",
        "registered at /__w/pytorch/pytorch/a.cpp:9": "registered at /__w/pytorch/pytorch/a.cpp:9",
        "/home/me/x": "/home/me/x",
        "": "",
    }.items():
        assert without_roots(debug, roots) == kept
    torch_root = str(Path(torch.__file__).parents[1]) + "/"
    assert torch_root in package_roots()


def test_a_package_that_only_the_finder_of_its_editable_installation_knows_has_a_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            file = tmp_path / "checkout" / name / "__init__.py"
            return spec_from_file_location(name, file) if name == "editable_package" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    root = str(tmp_path / "checkout") + "/"
    assert root in package_roots(["editable_package.module"])
    assert root not in package_roots()
