"""A wrapper subclass and a mode that see the calls below autograd, and an operator of the program's own."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map


class Wrapped(torch.Tensor):
    """Holds another tensor."""

    @staticmethod
    def __new__(cls, inner):
        """Has the shape of the inner one."""
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=False)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Calls the operator with what is inside."""
        inside = tree_map(lambda one: one.inner if isinstance(one, cls) else one, (args, kwargs or {}))
        result = func(*inside[0], **inside[1])
        return tree_map(lambda one: cls(one) if isinstance(one, torch.Tensor) else one, result)


class Counts(TorchDispatchMode):
    """Counts calls."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Counts, and goes on."""
        self.calls += 1
        return func(*args, **(kwargs or {}))


@torch.library.custom_op("dispatchlab_program::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    """Twice."""
    return x * 2


double.register_autograd(lambda context, gradient: gradient * 2)
with Counts() as counts:
    x = torch.ones(3, requires_grad=True)
    (double(x).exp() + 1).sum().backward()
    wrapped = torch.add(Wrapped(torch.ones(3)), 1).t()
print(counts.calls, wrapped.inner.tolist())
