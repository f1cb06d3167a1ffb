import torch

library = torch.library.Library("mine", "FRAGMENT")
try:
    library.define("f(" + ", ".join(f"Tensor a{number}" for number in range(65)) + ") -> ()")
except RuntimeError:
    left = torch._C._dispatch_dump("mine::f")
    print("defect: the refused def left an operator behind" if left else "fixed")
