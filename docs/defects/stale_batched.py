import torch

library = torch.library.Library("mine", "DEF")
library.define("f(Tensor x) -> Tensor")
for key in ["FuncTorchBatchedDecomposition"]:
    library.impl("f", lambda x: x, key)
try:
    torch._C._dispatch_check_invariants("mine::f")
except RuntimeError:
    raise SystemExit("defect: PyTorch's own check finds a slot that does not hold what the table shows") from None
print("fixed")
