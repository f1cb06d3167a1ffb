"""Gradients of each sample: vmap over grad."""

import torch
from torch.func import grad, vmap

torch.manual_seed(0)


def loss(weight, x, y):
    """Of one sample."""
    return ((torch.tanh(x @ weight).sum() * 2 - y) ** 2).mean()


gradients = vmap(grad(loss), in_dims=(None, 0, 0))(torch.randn(3, 2), torch.randn(4, 3), torch.randn(4))
print("gradients", tuple(gradients.shape))
