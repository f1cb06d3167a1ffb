"""A crash of the worker is an error that says where it was; the next sandbox has a new worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.live.bridge.expressible import NotExpressibleError
from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.sandbox.sandbox import LocalEngine
from dispatchlab.live.worker import ipc, process
from dispatchlab.live.worker.engine import LiveEngine
from dispatchlab.live.worker.ipc import WorkerError
from dispatchlab.live.worker.process import WorkerCrashed
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.registration import (
    Block,
    BlockKind,
    Kernel,
    KernelForm,
    NameOnly,
    TorchLibraryCall,
    TorchLibraryFunction,
)
from dispatchlab.prover.protocol import EngineCrashed
from dispatchlab.prover.result import Flaw, Verdict
from tests.live.live_registrations import FOO, define, impl

DEADLY = impl(K.CUDA, "deadly", Kernel(KernelForm.BOXED, reference="tests.live.crash_on_import:kernel"))
ROOT = Path(__file__).parents[2]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_that_dies_is_an_error_with_its_sequence_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with LiveEngine() as engine:
        first = engine.worker.pid
        with engine.sandbox() as sandbox:
            sandbox.register(define())
            sandbox.register(impl(K.CPU, "cpu")).release()
            with pytest.raises(WorkerCrashed, match="SIGABRT") as caught:
                sandbox.register(DEADLY)
        assert isinstance(caught.value, EngineCrashed)
        assert caught.value.sequence == (0, 1, ~1, 2)
        assert not is_running(first)
        with engine.sandbox() as sandbox:
            sandbox.register(impl(K.CPU, "cpu"))
            assert "CPU: cpu" in sandbox.snapshot(FOO).dump
        second = engine.worker.pid
    assert not is_running(second)
    assert list(tmp_path.iterdir()) == []


def test_an_exploration_that_kills_its_worker_ends_with_the_shortest_sequence() -> None:
    with LiveEngine() as engine:
        found = engine.explore([define(), impl(K.CPU, "cpu"), DEADLY], [FOO])
        pid = engine.worker.pid
    assert found.verdict is Verdict.CRASHED
    assert found.counterexample is not None
    assert (found.counterexample.flaw, found.counterexample.actual_sequence) == (Flaw.CRASH, (2,))
    assert not is_running(pid)


@pytest.mark.parametrize("error", ["ValueError", "FileNotFoundError"])
def test_a_kernel_that_cannot_be_read_in_the_worker_is_an_error_that_the_worker_survives(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "not_with_torch.py").write_text(
        "import sys\n\nif 'torch' in sys.modules and not hasattr(sys, 'pytest_is_here'):\n"
        f"    raise {error}('no licence')\n\n\ndef kernel(x):\n    return x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "pytest_is_here", True, raising=False)
    monkeypatch.delitem(sys.modules, "not_with_torch", raising=False)
    kernel = Kernel(KernelForm.BOXED, function=import_module("not_with_torch").kernel)
    unreadable = impl(K.CPU, "unreadable", kernel)
    with LiveEngine() as engine:
        pid = engine.worker.pid
        with engine.sandbox() as sandbox:
            for _ in range(2):
                with pytest.raises(WorkerError, match=f"failed with {error}: no licence"):
                    sandbox.register(unreadable)
            sandbox.register(impl(K.CUDA, "cuda"))
            assert "CUDA: cuda" in sandbox.snapshot(FOO).dump
        with pytest.raises(WorkerError, match=f"failed with {error}: no licence"):
            engine.explore([define(), unreadable], [FOO])
        assert engine.worker.pid == pid


_CALL_AFTER_DESTROY = """
import torch
library = torch.library.Library("dlabgone", "FRAGMENT")
library.define("foo(Tensor x) -> Tensor")
library.impl("foo", lambda x: x, "CPU")
saved = torch.ops.dlabgone.foo.default
library._destroy()
saved(torch.ones(1))
"""


def test_calling_an_operator_of_a_destroyed_library_kills_the_worker_only(tmp_path: Path) -> None:
    (tmp_path / "calls_after_destroy.py").write_text(f"def call():\n    exec({_CALL_AFTER_DESTROY!r}, {{}})\n")
    sys.path.insert(0, str(tmp_path))
    try:
        with LiveEngine() as engine:
            pid = engine.worker.pid
            with pytest.raises(WorkerCrashed, match="SIGSEGV"):
                engine.worker.ask("call", "calls_after_destroy:call", ())
    finally:
        sys.path.remove(str(tmp_path))
    assert not is_running(pid)


_PARENT = """
import sys
from dispatchlab.live.worker.engine import LiveEngine
from tests.live.live_registrations import FOO, define, impl
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.prover.limits import WalkOptions
engine = LiveEngine()
print(engine.worker.pid, flush=True)
keys = [K.CPU, K.CUDA, K.XLA, K.MPS, K.IPU, K.XPU, K.HPU, K.VE, K.Lazy, K.Meta, K.FPGA, K.Vulkan, K.Metal]
registrations = [define(), *(impl(key, str(key)) for key in keys)]
engine.explore(registrations, [FOO], WalkOptions(passes=1000), progress=lambda _: print("walking", flush=True))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_parent_that_is_ended_takes_its_worker_along(how: signal.Signals, tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert parent.stdout.readline() == "walking\n"
    assert is_running(worker)
    parent.send_signal(how)
    _, said = parent.communicate(timeout=60)
    for _ in range(600):
        if not is_running(worker):
            break
        time.sleep(0.1)
    assert not is_running(worker)
    assert parent.returncode != 0
    if how is signal.SIGINT:
        assert "Interrupted" in said
        assert list(tmp_path.iterdir()) == []


def test_what_the_bindings_cannot_express_is_an_error_and_no_refusal() -> None:
    lacking = next(key for key in K if key.name not in running_keys().numbers)
    with LiveEngine() as engine:
        with pytest.raises(NotExpressibleError, match="no binding registers a name alone"):
            engine.explore([define(), NameOnly(FOO)], [FOO])
        with engine.sandbox() as sandbox, pytest.raises(RegistrationError) as caught:
            sandbox.register(impl(lacking, "lacking"))
        assert caught.value.kind is ErrorKind.UNKNOWN_KEY
        assert dict(caught.value.facts) == {"key": lacking.name}


def test_of_several_unknown_tags_the_error_names_the_first() -> None:
    tags = frozenset(f"tag_{number}" for number in range(10, 42))
    tagged = replace(define(), tags=tags)
    block = Block("test", BlockKind.FRAGMENT, (tagged,), made_by=TorchLibraryCall(TorchLibraryFunction.DEFINE, FOO))
    with LocalEngine().sandbox() as sandbox:
        with pytest.raises(NotExpressibleError, match="it has no tag tag_10"):
            sandbox.register(tagged)
        with pytest.raises(NotExpressibleError, match="it has no tag tag_10"):
            sandbox.register(block)


def test_nothing_is_asked_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker may answer what it was asked when the interrupt came; it has ended by then, and so has the command."""
    with LiveEngine() as engine:
        worker = engine.worker
        sending = ipc.send

        def send(*message: object) -> None:
            sending(*message)  # type: ignore[arg-type]
            raise KeyboardInterrupt

        monkeypatch.setattr(process, "send", send)
        with suppress(KeyboardInterrupt):
            worker.ask("call", "dispatchlab.live.introspection.slot_memory:is_readable", ())
        monkeypatch.undo()
        with pytest.raises(KeyboardInterrupt):
            worker.ask("call", "dispatchlab.live.introspection.slot_memory:is_readable", ())
