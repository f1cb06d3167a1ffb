"""Small packages that register, for tests that import them in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.live import forked

ROOT = Path(__file__).parents[2]

SHOP = """\
import torch
from . import helper, lazy

lib = torch.library.Library("shop", "FRAGMENT")
lib.define("plain(Tensor x) -> Tensor")
lib.impl("plain", lambda x: x + 1, "CPU")
torch.library.define("shop::bought", "(Tensor x) -> Tensor")


@torch.library.impl("shop::bought", "default")
def bought(x):
    return x


@torch.library.register_fake("shop::bought")
def bought_fake(x):
    return torch.empty_like(x)


torch.library.register_autograd("shop::bought", lambda ctx, grad: grad)
torch.library.register_vmap("shop::bought", lambda info, dims, x: (x, 0))
torch.library.register_autocast("shop::bought", "cuda", torch.float16)


@torch.library.custom_op("shop::made", mutates_args=(), device_types="cpu")
def made(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@made.register_fake
def made_fake(x):
    return torch.empty_like(x)


@made.register_kernel("cuda")
def made_cuda(x):
    return x.clone()


helper.register(lib, "first")
helper.register(lib, "second")
aten = torch.library.Library("aten", "IMPL")
aten.impl("cumsum", lambda *a, **k: None, "XLA")
low = torch._C._dispatch_library("IMPL", "shop", "CUDA", "low.py", 3)
low.impl("plain", "CUDA", torch.library.fallthrough_kernel)
gone = torch.library.Library("shop", "FRAGMENT")
gone.define("gone(Tensor x) -> Tensor")
gone._destroy()
try:
    lib.define("plain(Tensor x) -> Tensor")
except RuntimeError:
    pass
other = torch.library.Library("other_shop", "DEF")
"""

HELPER = """\
def register(lib, name):
    lib.define(f"{name}(Tensor x) -> Tensor")
    lib.impl(name, lambda x: x, "CPU")
"""


def line_of(text: str, start: str) -> int:
    """The number of the line that starts so."""
    return next(number for number, line in enumerate(text.splitlines(), start=1) if line.startswith(start))


def package(folder: Path, name: str, **modules: str) -> None:
    """Write a package; `init` is its `__init__`."""
    (folder / name).mkdir()
    for module, text in {"init": "", **modules}.items():
        (folder / name / ("__init__.py" if module == "init" else f"{module}.py")).write_text(text)


COMMAND = """\
from dispatchlab.cli import main
from dispatchlab.commands import output

output._FIRST_LINE_S = float("inf")
main()
"""
"""The command line, without lines that tell how long it takes."""


def dispatchlab(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder whose packages can be imported, in a copy of a process that has imported PyTorch."""
    return forked.run(COMMAND, *arguments, folder=folder, environment=_environment(folder))


def dispatchlab_started(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run such a command in a process that starts anew, which takes twice the time."""
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
