"""Leaks in processes of their own: what PyTorch registers when it is first used, and torch imported within a watch."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

OWN = """
from dispatchlab.questions.leaks import Watch
{before}
with Watch() as watch:
    import torch
    from dispatchlab.pytorch.introspection.registry_reader import all_dumps

    before = all_dumps()
    x = torch.ones(3, requires_grad=True)
    torch.testing.assert_close(x, x)
    torch.vmap(torch.sin)(x)
    torch.func.grad(lambda x: x.sum())(x)
    torch.library.opcheck(torch.ops.aten.sin.default, (x,))
    torch.compile(lambda x: x.sin() + 1, backend="aot_eager")(x).sum().backward()
    import torch.testing._internal.custom_op_db
    after = all_dumps()
    print(sum(before.get(name) != after[name] for name in after))
    for leak in watch.leaks():
        print(leak)
"""

LEAKING = """
from dispatchlab.questions.leaks import Watch, leaks_text

with Watch() as watch:
    import torch

    library = torch.library.Library("leaky", "FRAGMENT")
    library.define("op(Tensor x) -> Tensor")
    torch.library.impl("aten::relu", "PrivateUse1", lambda x: x)
    print(leaks_text(watch.leaks()))
assert not [finder for finder in __import__("sys").meta_path if "dispatchlab" in type(finder).__module__]
"""


def run(program: str) -> list[str]:
    """The lines that a program prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("before", ["", "import torch"])
def test_what_pytorch_registers_for_itself_when_it_is_first_used_is_no_leak(before: str) -> None:
    registered, *leaks = run(OWN.format(before=before))
    assert leaks == []
    assert int(registered) >= 90


def test_what_is_registered_after_torch_is_imported_within_the_watch_is_a_leak() -> None:
    lines = run(LEAKING)
    assert lines[:-1] == [
        "2 registrations were not released, or removed:",
        "  torch: aten::relu: kernel PrivateUse1 came: registered at <string>:9 :: (none) [ boxed ]",
        "  torch: operator came: leaky::op(Tensor x) -> Tensor with 0 kernels",
        "  torch:   registered at <string>:8",
        "release what you register: use the handle or the library in a with block, or in a fixture that releases it",
    ]


def test_what_is_not_pytorchs_own_is_a_leak_if_nobody_saw_torch_being_imported() -> None:
    program = LEAKING.replace("    import torch", "    watch._hook.close()\n    import torch")
    assert program != LEAKING
    lines = run(program)
    assert [line.split(":")[1:4] for line in lines[1:3]] == [
        [" aten", "", "relu"],
        [" operator came", " leaky", ""],
    ]
    assert "torch/library.py" in lines[1]
