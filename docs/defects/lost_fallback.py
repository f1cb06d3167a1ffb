import torch

mine, other = torch.library.Library("mine", "DEF"), torch.library.Library("_", "IMPL")
mine.define("f(Tensor x) -> Tensor")
before = torch._C._dispatch_dump_table("mine::f")
other.fallback(lambda *args: None, "AutogradPrivateUse1")
other._destroy()
after = torch._C._dispatch_dump_table("mine::f")
print("fixed" if before == after else "defect: PyTorch's own fallback of AutogradPrivateUse1 is gone")
