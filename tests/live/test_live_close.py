"""What a sandbox leaves on PyTorch when closing it goes wrong: nothing that it could take back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from dispatchlab.live.sandbox.sandbox import LiveHandle, LocalEngine
from dispatchlab.model.keys import DispatchKey as K
from tests.engine_shorthand import FOO, define, impl

torch: Any = pytest.importorskip("torch", reason="registers on the installed PyTorch, and there is none")


def test_a_release_that_fails_does_not_keep_the_rest_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[LiveHandle] = []
    original = LiveHandle.release

    def release(self: LiveHandle) -> None:
        released.append(self)
        if len(released) == 1:
            raise RuntimeError("this one fails")
        original(self)

    with ExitStack() as stack:
        sandbox = stack.enter_context(LocalEngine().sandbox())
        for registration in (define(), impl(K.CPU, "cpu"), impl(K.CUDA, "cuda")):
            sandbox.register(registration)
        names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith(f"{sandbox.prefix}test::")]
        assert len(names) == 1
        assert "CUDA: cuda" in sandbox.snapshot(FOO).dump
        monkeypatch.setattr(LiveHandle, "release", release)
        with pytest.raises(RuntimeError, match="this one fails"):
            stack.close()
    assert len(released) == 3
    left = torch._C._dispatch_dump(names[0])
    assert "CPU:" not in left
    assert "CUDA:" not in left
