"""The lab and the installed PyTorch as sides of `tests.transform_programs`."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dispatchlab import CallError, Tensor, tensor
from dispatchlab.call import DType
from dispatchlab.call.local_key_set import excluded, included
from dispatchlab.layers import AutogradError, Lab, TransformError, TransformErrorKind, autocast, no_grad
from dispatchlab.layers.dynamic_layers import current_layer
from dispatchlab.layers.level_tensors import LevelBatchedTensor
from dispatchlab.overrides import DispatchMode
from tests.transform_programs import line, listing


class UndefinedError(Exception):
    """PyTorch would put the dimension of the batch where an unbatched result has none, in memory that it does not own.

    Source: aten/src/ATen/functorch/BatchRulesHelper.h, `_remove_batch_dim` in torch/csrc/functorch/init.cpp.
    """


class OurSide:
    """A lab; its dispatcher has the fallbacks of `PythonDispatch`."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def op(self, name: str) -> Callable[..., Any]:
        return self.lab(name)

    def tensor(self, array: Any, *, dtype: str, requires_grad: bool) -> Any:
        return tensor(np.array(array), dtype=DType[dtype], requires_grad=requires_grad)

    def dtype(self, name: str) -> Any:
        return DType[name]

    def vmap(self, function: Any, in_dims: Any, out_dims: Any, randomness: str) -> Callable[..., Any]:
        def watched(*given: Any) -> Any:
            result = function(*given)
            layer = current_layer()
            for one in result if isinstance(result, tuple) else (result,):
                batched = isinstance(one, LevelBatchedTensor) and layer is not None and one.level == layer.level
                if not batched and not 0 <= out_dims <= one.dim:
                    raise UndefinedError
            return result

        return self.lab.vmap(watched, in_dims, out_dims, randomness=randomness)

    def grad(self, function: Any) -> Callable[..., Any]:
        return self.lab.grad(function)

    def functionalize(self, function: Any, remove: str) -> Callable[..., Any]:
        return self.lab.functionalize(function, remove=remove)

    def autocast(self, dtype: str) -> AbstractContextManager[object]:
        return autocast("cpu", None if dtype == "off" else DType[dtype], enabled=dtype != "off")

    def no_grad(self) -> AbstractContextManager[object]:
        return no_grad()

    def backward(self, tensor: Any) -> None:
        self.lab.backward(tensor)

    def shape(self, tensor: Any) -> tuple[int, ...]:
        return tuple(tensor.shape)

    def look(self, tensor: Any) -> tuple[int, int, int]:
        return included().bits, excluded().bits, tensor.key_bits

    def found(self, tensor: Any) -> tuple[str, Any]:
        return str(tensor.dtype), tensor.numpy().copy()

    def kind(self, error: Exception) -> str:
        if isinstance(error, TransformError | AutogradError) and error.kind not in _REFUSED:
            return str(error.kind)
        if isinstance(error, CallError | TransformError):
            return "refused"
        raise error

    def logged(self) -> AbstractContextManager[list[str]]:
        return listing(_OurMode)


class _OurMode(DispatchMode):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.name.without_namespace)
        self._write(line(name, args, lambda one: one.shape if isinstance(one, Tensor) else None))
        return func(*args, **(kwargs or {}))


_REFUSED = (TransformErrorKind.WRONG_DIMS, TransformErrorKind.WRONG_ARGUMENT)
"""What PyTorch's messages do not tell from the refusal of an operator."""

_KINDS = (
    ("wrong_output", r"must only return Tensors|can not return a BatchedTensor|to return a scalar Tensor"),
    ("unbatched_write", r"is not possible because there exists a Tensor `other`"),
    ("captured_write", r"would mutate a captured Tensor"),
    ("randomness", r"randomness"),
    ("no_batching_rule", r"Batching rule not implemented|data-dependent|dynamic shape"),
    ("leaf_modified", r"a (view of a )?leaf Variable that requires grad"),
    ("saved_value_modified", r"modified by an inplace operation"),
    (
        "not_differentiable",
        r"was created in no_grad mode|derivative for .* is not implemented|created inside a no_grad",
    ),
    ("not_differentiable", r"only Tensors of floating point dtype can require gradients"),
    ("no_gradient", r"does not require grad|does not have a grad_fn|can be implicitly created only for scalar"),
)


class TheirSide:
    """The installed PyTorch."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def op(self, name: str) -> Callable[..., Any]:
        base, _, overload = name.partition(".")
        found: Callable[..., Any] = getattr(getattr(self.torch.ops.aten, base), overload or "default")
        if base == "randn":
            return lambda size: found(size, device="cpu")
        return found

    def tensor(self, array: Any, *, dtype: str, requires_grad: bool) -> Any:
        made = self.torch.from_numpy(np.array(array)).to(getattr(self.torch, dtype))
        return made.clone().requires_grad_(requires_grad)

    def dtype(self, name: str) -> Any:
        return getattr(self.torch, name)

    def vmap(self, function: Any, in_dims: Any, out_dims: Any, randomness: str) -> Callable[..., Any]:
        found: Callable[..., Any] = self.torch.func.vmap(function, in_dims, out_dims, randomness)
        return found

    def grad(self, function: Any) -> Callable[..., Any]:
        found: Callable[..., Any] = self.torch.func.grad(function)
        return found

    def functionalize(self, function: Any, remove: str) -> Callable[..., Any]:
        found: Callable[..., Any] = self.torch.func.functionalize(function, remove=remove)
        return found

    def autocast(self, dtype: str) -> AbstractContextManager[object]:
        wanted = None if dtype == "off" else getattr(self.torch, dtype)
        found: AbstractContextManager[object] = self.torch.autocast("cpu", wanted, enabled=dtype != "off")
        return found

    def no_grad(self) -> AbstractContextManager[object]:
        found: AbstractContextManager[object] = self.torch.no_grad()
        return found

    def backward(self, tensor: Any) -> None:
        tensor.backward()

    def shape(self, tensor: Any) -> tuple[int, ...]:
        return tuple(tensor.shape)

    def look(self, tensor: Any) -> tuple[int, int, int]:
        core = self.torch._C
        sets = (
            core._dispatch_tls_local_include_set(),
            core._dispatch_tls_local_exclude_set(),
            core._dispatch_keys(tensor),
        )
        included, excluded, keys = (one.raw_repr() for one in sets)
        return included, excluded, keys

    def found(self, tensor: Any) -> tuple[str, Any]:
        plain = tensor.detach()
        name = str(plain.dtype).removeprefix("torch.")
        return name, (plain.float() if name == "bfloat16" else plain).numpy().copy()

    def kind(self, error: Exception) -> str:
        text = str(error)
        for kind, pattern in _KINDS:
            if re.search(pattern, text):
                return kind
        if isinstance(error, RuntimeError | IndexError | ValueError):
            return "refused"
        raise error

    def logged(self) -> AbstractContextManager[list[str]]:
        torch = self.torch
        base: Any = torch.utils._python_dispatch.TorchDispatchMode

        class Mode(base):  # type: ignore[misc]  # torch is Any
            def __init__(self, write: Callable[[str], None]) -> None:
                super().__init__()
                self.write = write

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                name = f"{func._schema.name.removeprefix('aten::')}.{func._schema.overload_name}".rstrip(".")
                self.write(line(name, args, lambda one: tuple(one.shape) if isinstance(one, torch.Tensor) else None))
                return func(*args, **(kwargs or {}))

        return listing(Mode)
