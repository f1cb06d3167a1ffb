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
