"""A stale `OpOverload`: calling it after its library is destroyed ends the process on PyTorch 2.13."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

_CALL = """\
import torch
lib = torch.library.Library("stale_overload", "FRAGMENT")
lib.define("door(Tensor x) -> Tensor")
lib.impl("door", lambda x: x.clone(), "CPU")
door = torch.ops.stale_overload.door.default
assert door(torch.ones(1)).item() == 1
{destroy}
print("called", door(torch.ones(1)).item())
"""


@pytest.mark.parametrize(("destroy", "works"), [("", True), ("lib._destroy()", False)])
def test_a_call_of_a_stale_overload_gives_no_result(destroy: str, works: bool) -> None:  # noqa: FBT001  # a parameter
    """It is no exception of Python: the operator that the object points to is gone."""
    script = _CALL.format(destroy=destroy)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is works, done.stderr
    assert done.stdout == ("called 1.0\n" if works else "")
    assert "Traceback" not in done.stderr


_COPIED = """\
import torch
from torch._decomp import decomposition_table

def package():
    decomposition_table[torch.ops.aten.addmv.default] = package

def inductor():
    import torch._inductor.decomposition

for each in ({order}):
    each()
print(torch._inductor.decomposition.decompositions[torch.ops.aten.addmv.default] is package)
"""


@pytest.mark.parametrize(("order", "taken"), [("package, inductor", "True\n"), ("inductor, package", "False\n")])
def test_inductor_copies_the_decompositions_that_are_there_when_it_is_imported(order: str, taken: str) -> None:
    script = _COPIED.format(order=order)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == taken
