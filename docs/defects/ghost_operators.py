import torch

library = torch.library.Library("mine", "FRAGMENT")
try:
    library.define("f(" + ", ".join(f"Tensor a{number}" for number in range(65)) + ") -> ()")
except RuntimeError:
    if torch._C._dispatch_dump("mine::f"):
        raise SystemExit("defect: the refused def left an operator behind") from None
print("fixed")
