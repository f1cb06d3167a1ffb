"""Layers that users can build on calls: autograd, batching, factories, Meta. They only use the public API.

- `lab`: `Lab`, a dispatcher with all of it, and its operators by name;
- `schemas`: the operators that there are;
- `kernels`: the backend kernels of CPU, CUDA and Meta, and `manual_seed`;
- `lazy_elements`: tensors that represent the conjugate or the negative of their elements, or zeros;
- `builtin_kernels`: the kernels of PyTorch's backend fallbacks;
- `views`: ADInplaceOrView, versions, and the history of views;
- `autograd`: the autograd kernels, and the effect of a write in place on the graph;
- `autograd_fallback`: the fallback for operators without an Autograd kernel, and its mode;
- `errors`: `AutogradError` and its kinds;
- `autograd_graph`: nodes, their saved tensors, and the paths of gradients;
- `grad_mode`: `no_grad`, `set_grad_enabled`, `is_grad_enabled`;
- `formulas`: the formulas of gradients by operator, with those that derivatives.yaml leaves to C++;
- `derivatives`: the type of a formula, and handwritten functions that formulas call;
- `backward`: the walk from a result to the leaves;
- `tensor_geometry`: how a gradient lies in memory;
- `composites`: operators that are made of others, such as `matmul`, and factories;
- `batching`: `vmap`, a loop over the elements of a batch.
"""

from __future__ import annotations

from dispatchlab.lab.autograd_fallback import AutogradFallbackMode, autograd_fallback_mode, set_autograd_fallback_mode
from dispatchlab.lab.errors import AutogradError, AutogradErrorKind
from dispatchlab.lab.grad_mode import is_grad_enabled, no_grad, set_grad_enabled
from dispatchlab.lab.kernels import manual_seed
from dispatchlab.lab.lab import Lab

__all__ = [
    "AutogradError",
    "AutogradErrorKind",
    "AutogradFallbackMode",
    "Lab",
    "autograd_fallback_mode",
    "is_grad_enabled",
    "manual_seed",
    "no_grad",
    "set_autograd_fallback_mode",
    "set_grad_enabled",
]
