"""All formulas by operator: those of derivatives.yaml, and those that it leaves to C++.

What is saved decides which modifications in place are found out, so it is what PyTorch saves. The formulas are written
with operators: a gradient can be recorded like any call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_options import MemoryFormat
from dispatchlab.lab.autograd_graph import Gradients, Node
from dispatchlab.lab.derivatives import Calls, Derivative
from dispatchlab.lab.formulas import FORMULAS


def _copy(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    """Source: torch/csrc/autograd/functions/tensor.cpp (`CopyBackwards`)."""
    self = calls("zeros_like")(grad, memory_format=MemoryFormat.contiguous_format) if node.needs(0) else None
    if not node.needs(1):
        return self, None
    inputs: Any = node.stash["inputs"]
    dtype = inputs[1][1]
    return self, grad if grad.dtype == dtype else calls("_to_copy")(grad, dtype=dtype)


DERIVATIVES: Mapping[str, Derivative] = {**FORMULAS, "copy_": Derivative("CopyBackwards", _copy)}
"""By operator. What is not differentiable has none on purpose."""
