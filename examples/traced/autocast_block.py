"""A forward and a backward pass under autocast, and a block without."""

import torch

torch.manual_seed(0)
weight = torch.randn(8, 8, requires_grad=True)
x = torch.randn(4, 8)
with torch.autocast("cpu", dtype=torch.bfloat16):
    product = x @ weight
    with torch.autocast("cpu", enabled=False):
        total = torch.nn.functional.softmax(product.float(), dim=-1).sum()
    mixed = torch.cat([product, x.bfloat16()])
total.backward()
with torch.no_grad(), torch.inference_mode():
    kept = weight.sin()
print(product.dtype, mixed.dtype, weight.grad.dtype, kept.is_inference())
