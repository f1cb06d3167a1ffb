import torch

library, other = (torch.library.Library("mine", "FRAGMENT") for _ in range(2))
library.define("f.one(Tensor x) -> Tensor")
other.define("f.two(Tensor x) -> Tensor")
assert torch.ops.mine.f.overloads() == ["one", "two"]  # looks the name up, which puts both in the list
library._destroy()
other._destroy()
try:
    torch._C._jit_get_operation("mine::f")
except RuntimeError:
    raise SystemExit("defect: a released overload stays in the list, and asking for the name is an assert") from None
print("fixed")
