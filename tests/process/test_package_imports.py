"""Whatever importing a package does, it does to a process of its own, and the command says what that was."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from tests.live.packages import ROOT, dispatchlab, package
from tests.scenario_texts import FIVE

_REGISTERS = """\
import os
import sys
import torch
print("{ is printed on import")
os.write(1, b"and this by C\\n")
lib = torch.library.Library("street", "DEF")
lib.define("door(Tensor x) -> Tensor")
lib.impl("door", lambda x: x, "CPU")
"""

_ENDS = {
    "segfault": ("import ctypes\nctypes.string_at(0)\n", r"ended its process with signal SIGSEGV at \S+__init__.py:2"),
    "abort": (
        "import os\nprint('last words')\nos.abort()\n",
        r"ended .* SIGABRT at \S+:3; its last output: last words",
    ),
    "exit": ("import os\nos._exit(7)\n", "ended its process with exit code 7"),
    "sys_exit": ("import sys\nsys.exit('no licence')\n", r"calls sys\.exit\('no licence'\)"),
    "skip": ("import pytest\npytest.skip('no GPU', allow_module_level=True)\n", "raises Skipped: no GPU"),
}


@pytest.mark.parametrize(
    ("end", "arguments"),
    [
        ("segfault", ["check", "street", "--only", "lint"]),
        ("abort", ["diff", "torch-2.13-cpu", "street"]),
        ("exit", ["permute", "street"]),
        ("sys_exit", ["dump", "street::*", "--list", "--from", "street"]),
        ("skip", ["coverage", "street", "--key", "CUDA"]),
        ("segfault", ["dump", "aten::relu", "--engine", "torch", "--from", "street"]),
        ("sys_exit", ["explain", "aten::relu", "--from", "street"]),
        ("exit", ["permute", "five.yaml", "--engine", "torch", "--package", "street"]),
        ("abort", ["record", "street", "-o", "street.yaml"]),
        ("sys_exit", ["record", "street", "--all", "-o", "all.dlreg"]),
    ],
)
def test_a_package_that_ends_its_process_is_named_with_how_it_died(
    tmp_path: Path, end: str, arguments: list[str]
) -> None:
    text, how = _ENDS[end]
    package(tmp_path, "street", init=text)
    (tmp_path / "five.yaml").write_text(FIVE)
    done = dispatchlab(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (5, ""), done.stderr
    assert re.fullmatch(
        f"street cannot be imported: it {how}; run `python -c 'import street'` to see what it does\n",
        done.stderr,
    ), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["five.yaml", "street"]


@pytest.mark.parametrize(
    "arguments",
    [["check", "street", "--only", "lint"], ["record", "street", "-o", "street.yaml"], ["check", "--orders", "street"]],
)
def test_a_package_that_hangs_ends_with_124_after_the_limit(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "street", init="import time\ntime.sleep(600)\n")
    monkeypatch.setenv("DISPATCHLAB_IMPORT_LIMIT", "0.5")
    done = dispatchlab(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (124, "")
    assert done.stderr == (
        "street was not imported after 0.5 s, so its process was ended; if it needs longer, set "
        "DISPATCHLAB_IMPORT_LIMIT to more seconds\n"
    )


def test_what_a_package_prints_on_import_is_not_in_the_json(tmp_path: Path) -> None:
    package(tmp_path, "street", init=_REGISTERS)
    for arguments in (
        ["check", "street", "--only", "lint"],
        ["diff", "live", "street"],
        ["dump", "street::*", "--list", "--from", "street"],
    ):
        done = dispatchlab(tmp_path, *arguments, "--format", "json")
        assert done.returncode in (0, 1), done.stderr
        assert json.loads(done.stdout)["version"] >= 1
        assert "street::door" in done.stdout or arguments[0] == "check"


def test_the_process_of_the_command_imports_neither_torch_nor_the_package(tmp_path: Path) -> None:
    package(tmp_path, "street", init=_REGISTERS)
    program = (
        "import sys\nfrom tests.command_line import run\n"
        "for arguments in (['check', 'street', '--only', 'lint'], ['dump', '--list', '--from', 'street', 'street::*']"
        "):\n"
        "    done = run(*arguments)\n"
        "    print(done.exit_code, 'torch' in sys.modules, 'street' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split()[1:] for line in done.stdout.splitlines()] == [["False", "False"]] * 2


_RENAMES = """\
import torch
torch.utils.rename_privateuse1_backend("npu")
lib = torch.library.Library("street", "DEF")
lib.define("door(Tensor x) -> Tensor")
lib.impl("door", lambda x: x, "PrivateUse1")
lib.define("made(*, Device? device=None, Layout? layout=None, ScalarType? dtype=None) -> Tensor")
"""


def test_a_renamed_backend_is_known_by_its_name_on_the_running_pytorch(tmp_path: Path) -> None:
    package(tmp_path, "street", init=_RENAMES)
    note = "note: PrivateUse1 is the backend npu\n"

    def run(*arguments: str) -> tuple[int, str, str]:
        done = dispatchlab(tmp_path, *arguments)
        return done.returncode, done.stdout, done.stderr

    code, out, err = run("explain", "street::door", "npu:0 requires_grad", "--engine", "torch", "--from", "street")
    assert (code, err) == (0, note)
    assert "  x (Tensor), npu:0 requires_grad: AutocastPrivateUse1, AutogradPrivateUse1, ADInplaceOrView, Priv" in out
    assert "\n2. redispatch -> PrivateUse1\n" in out
    code, out, err = run("explain", "street::made", "device=npu", "--exclude", "npu", "--from", "street")
    assert (code, err) == (0, note)
    code, out, err = run("dump", "street::door", "--engine", "torch", "--key", "npu", "--from", "street")
    assert (code, err) == (0, note)
    assert out.endswith("\n\nPrivateUse1: registered at street/__init__.py:5 [kernel]\n")
    code, out, err = run("dump", "--list", "--from", "street", "--key", "npu", "street::*")
    assert (code, err) == (0, note)
    assert out.startswith("street::door")
    code, out, err = run("coverage", "street", "--key", "npu", "--operator", "street::door")
    assert (code, err) == (0, note)
    assert out.startswith(f"PrivateUse1 in PyTorch {version('torch')} with street: 1 operator\n")
    for command in (["permute", "street"], ["diff", "torch-2.13-cpu", "street"]):
        code, out, err = run(*command)
        assert code in (0, 1)
        assert note in err
    saved = tmp_path / "npu.dlreg"
    assert dispatchlab(tmp_path, "record", "street", "--all", "-o", str(saved)).returncode == 0
    done = dispatchlab(tmp_path, "explain", "street::door", "npu", "--from", str(saved))
    assert (done.returncode, done.stderr) == (0, note)


_AUTOGRAD = """\
import torch
@torch.library.custom_op("shop::made", mutates_args=("x",), device_types="cpu")
def made(x: torch.Tensor) -> None:
    x.fill_(1)
torch.library.define("shop::formula", "(Tensor x) -> Tensor")
torch.library.impl("shop::formula", "cpu")(lambda x: x.clone())
torch.library.register_autograd("shop::formula", lambda ctx, grad: grad)
torch.library.define("shop::own", "(Tensor x) -> Tensor")
torch.library.impl("shop::own", "cpu")(lambda x: x.clone())
torch.library.impl("shop::own", "Autograd")(lambda x: x.clone())
"""


def test_the_kernels_that_torch_library_makes_are_followed_and_those_of_the_package_are_not_known(
    tmp_path: Path,
) -> None:
    package(tmp_path, "shop", init=_AUTOGRAD)
    for name, keys, is_known in (
        ("made", ["AutogradCPU", "ADInplaceOrView", "CPU"], True),
        ("formula", ["AutogradCPU", "CPU"], True),
        ("own", ["AutogradCPU"], False),
    ):
        done = dispatchlab(
            tmp_path, "explain", f"shop::{name}", "--engine", "torch", "--from", "shop", "--format", "json"
        )
        found = json.loads(done.stdout)
        assert ([hop["key"] for hop in found["hops"]], found["known"]) == (keys, is_known)
        assert found["hops"][0]["kernel"]["debug"].startswith("registered at shop/__init__.py:")
