"""What a user builds on calls: autograd, batching, tracing, factories, Meta. Each uses the public API and nothing else.

- `Lab`: a dispatcher with all of it, and its operators by name (`lab`);
- `no_grad`, `set_grad_enabled`, `is_grad_enabled`, `AutogradError` (`tape`), `recording` (`tracing`),
  `manual_seed` (`kernels`).

Which operators there are is in `schemas`, the formulas of gradients are in `derivatives`. The tape is recorded in
`autograd`, rewritten in `in_place` where something is written, and walked in `backward`.
"""

from __future__ import annotations

from dispatchlab.layers.autograd_graph import (
    AutogradError,
    AutogradErrorKind,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from dispatchlab.layers.kernels import manual_seed
from dispatchlab.layers.lab import Lab
from dispatchlab.layers.tracing import Recording, recording

__all__ = [
    "AutogradError",
    "AutogradErrorKind",
    "Lab",
    "Recording",
    "is_grad_enabled",
    "manual_seed",
    "no_grad",
    "recording",
    "set_grad_enabled",
]
