"""What `doctor --backend` says PyTorch asks of a device: the device in C++ has all of it, and each part is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="programs run in copies of a process")

from dispatchlab.pytorch.introspection.backend_parts import PARTS  # noqa: E402  # behind importorskip
from tests.effort import share  # noqa: E402
from tests.live.npu_backend import Runs, environment  # noqa: E402

NAMES = tuple(part.name.format("npu") for part in PARTS)
KERNELS = tuple(name.removeprefix("aten::") for name in NAMES if name.startswith(("aten::", "Autocast")))
_OTHERS = {
    "a device guard": "guard",
    "an allocator": "allocator",
    "generate_methods_for_privateuse1_backend": "methods",
}
_FALLBACK = "aten::_copy_from_and_resize"
"""The kernel that only a fallback needs."""

_CHECK = """
from dispatchlab.pytorch.introspection.backend_parts import PARTS, raised
for part in PARTS:
    name = part.name.format("npu")
    if {chosen!r} in ("", name) and (error := raised(part.program, 60, "npu")):
        print(name, "|", error.splitlines()[0])
"""


def failing(runs: Runs, kernels: tuple[str, ...] = KERNELS, *, chosen: str = "", **options: object) -> list[str]:
    """The parts whose programs fail."""
    ran = runs.on_device(_CHECK.format(chosen=chosen), kernels, **options)  # type: ignore[arg-type]
    assert ran.code == 0, ran.error
    return [line.partition(" |")[0] for line in ran.output.splitlines()]


def test_all_programs_run_with_all_parts_and_each_fails_without_its_own(tmp_path: Path) -> None:
    with Runs(tmp_path) as runs:
        assert failing(runs) == failing(runs, fallback=True) == []
        for name in NAMES[:: len(NAMES) // share(len(NAMES))]:
            if name.removeprefix("aten::") in KERNELS:
                kernels = tuple(each for each in KERNELS if each != name.removeprefix("aten::"))
                found = failing(runs, kernels, chosen=name, fallback=name == _FALLBACK)
                assert found == [name], name
                continue
            for part in name.split(" and "):
                without = _OTHERS.get(part, part.removeprefix("PrivateUse1HooksInterface::"))
                assert failing(runs, chosen=name, without=without) == [name], name
        assert failing(runs, without="guard")[0] == "a device guard"  # of all programs the first that fails
        assert failing(runs, without="torch.npu")[0] == "torch.npu"


def test_the_command_names_the_part_that_is_missing_and_what_waits_for_it(tmp_path: Path) -> None:
    kernels = tuple(name for name in KERNELS if name != "_copy_from")
    command = (sys.executable, "-m", "dispatchlab", "doctor", "--backend", "npu_device", "--format")
    process = {**environment(tmp_path, kernels, fallback=False), "NPU_WITHOUT": "getNewGenerator"}
    done = subprocess.run([*command, "json"], env=process, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], found["device"], len(found["parts"])) == (1, False, "npu", len(PARTS))
    states = {part["name"]: part["waits_for"] for part in found["parts"] if part["error"]}
    assert {name for name, waits_for in states.items() if not waits_for} == {
        "aten::_copy_from",
        "PrivateUse1HooksInterface::getNewGenerator",
    }
    assert states["aten::view"] == "aten::_copy_from"


def test_a_package_without_a_device_is_refused(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "dispatchlab", "doctor", "--backend", "wave")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "importing wave brings no device at PrivateUse1" in done.stderr
