"""The test that `codegen --backend` writes passes where a device is right, and fails where a kernel is wrong."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dispatchlab.codegen import read_native_functions
from dispatchlab.codegen.emit.backend_files import backend_files
from dispatchlab.codegen.read.backend_file import read_backend_file

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")


_SAMPLES = "torch.testing._internal.common_methods_invocations"


class Samples:
    """What the test asks of PyTorch's OpInfo, whose import takes seconds."""

    def __init__(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self.name, self.aten_name, self.function = name, name.rpartition(".")[2], function
        self.sample = SimpleNamespace(input=arguments[0], args=arguments[1:], kwargs=options)

    def supported_dtypes(self, _device: str) -> set[Any]:
        return {torch.float32}

    def sample_inputs(self, _device: str, _dtype: Any) -> Iterator[Any]:
        sys.modules[_SAMPLES].__dict__.setdefault("__warningregistry__", {})  # as a warning in that module does
        yield self.sample

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.function(*arguments, **options)


def samples() -> ModuleType:
    """A module as that of OpInfo."""
    module = ModuleType("samples")
    matrix = torch.arange(6.0).reshape(2, 3)
    linear = torch.nn.functional.linear
    module.__dict__["op_db"] = [
        Samples("add", torch.add, matrix, matrix[0], alpha=2),
        Samples("add", torch.add, matrix, 1),
        Samples("nn.functional.linear", linear, matrix, torch.ones(4, 3), torch.ones(4)),
    ]
    return module


def against_cpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The test that is generated for some operators of PyTorch, as a module whose device is the CPU."""
    text = """
- func: add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
  dispatch: {CPU: add}
- func: add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)
  variants: method
  dispatch: {CPU: add_}
- func: add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)
  dispatch: {CPU: add_out}
- func: _copy_from(Tensor self, Tensor dst, bool non_blocking=False) -> Tensor
  dispatch: {CPU: copy_from}
- func: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
"""
    natives = read_native_functions(text)
    listed = "backend: PrivateUse1\ncpp_namespace: npu\nsupported: [add.Tensor, _copy_from]\nautograd: [linear]"
    files = backend_files(read_backend_file(listed, natives), natives, file="npu.yaml")
    parent, _, name = _SAMPLES.rpartition(".")
    monkeypatch.setitem(sys.modules, _SAMPLES, samples())
    monkeypatch.setattr(importlib.import_module(parent), name, sys.modules[_SAMPLES], raising=False)
    module = ModuleType("test_privateuse1_against_cpu")
    exec(files["test_privateuse1_against_cpu.py"], module.__dict__)
    module.__dict__["DEVICE"] = "cpu"
    return module


def test_the_test_that_is_generated_finds_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    module = against_cpu(monkeypatch)
    assert module.NAMES == ("add.Tensor", "add.out", "add_.Tensor", "_copy_from")
    assert module.AUTOGRAD == ("linear",)
    check = module.test_the_device_gives_what_the_cpu_gives
    for name in ("add.Tensor", "add.out", "add_.Tensor", "linear"):
        check(name)
    with pytest.raises(pytest.skip.Exception, match="no sample of PyTorch calls it"):
        check("_copy_from")
    right, calls = module.run, []

    def wrong(operator: Any, args: Any, kwargs: Any, gradients: bool) -> Any:  # noqa: FBT001
        calls.append(operator)
        on_device = len(calls) % 2 == 0
        if on_device and operator is torch.ops.aten.linear.default and len(args) > 2:
            args = (*args[:2], None)  # drops the bias
        found = right(operator, args, kwargs, gradients)
        if on_device and operator is torch.ops.aten.add_.Tensor:
            found[1][0].mul_(3)
        return found

    monkeypatch.setattr(module, "run", wrong)
    check("add.Tensor")
    for name in ("add_.Tensor", "linear"):
        calls.clear()
        with pytest.raises((AssertionError, ValueError)):
            check(name)
