import torch

mine, other = torch.library.Library("mine", "DEF"), torch._C._dispatch_library("IMPL", "_", "")
mine.define("f(Tensor x) -> Tensor")
before = torch._C._dispatch_dump_table("mine::f")
other.fallback_fallthrough("AutogradPrivateUse1")
del other  # releases it
if before != torch._C._dispatch_dump_table("mine::f"):
    raise SystemExit("defect: PyTorch's own fallback of AutogradPrivateUse1 is gone")
print("fixed")
