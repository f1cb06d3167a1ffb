"""Kernels by hand for 16 structured operators: a meta and an impl each, over numpy, for CPU and CUDA alike.

`operators.yaml` declares the operators, codegen makes their three variants, and these are the functions that generated
code calls.

- pointwise, reductions, matrices: the functions, by family;
- lab: `StructuredLayers` registers all of them on a dispatcher, under autograd and batching.
"""

from __future__ import annotations

from types import SimpleNamespace

from tests.structured_kernels import matrices, pointwise, reductions


def by_name() -> SimpleNamespace:
    """Return all functions by name, as `register` of a generated module takes them."""
    found: dict[str, object] = {}
    for module in (pointwise, reductions, matrices):
        found |= {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
    # NB: a device is a label, so what computes for CPU computes for CUDA
    found |= {name.replace("_cpu", "_cuda"): found[name] for name in ("mm_out_cpu", "addmm_out_cpu")}
    return SimpleNamespace(**found)
