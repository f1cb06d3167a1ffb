import torch

library, other = torch.library.Library("mine", "DEF"), torch.library.Library("mine", "FRAGMENT")
library.define("f(Tensor x) -> Tensor")
torch.library.register_fake("mine::f", lambda x: x.new_empty(1), lib=library)
try:
    torch.library.register_fake("mine::f", lambda x: x.new_empty(2), lib=other)
    size = torch.ops.mine.f(torch.ones(3, device="meta")).numel()
    raise SystemExit(f"defect: nothing refuses the second fake, which runs: its result has {size} elements")
except RuntimeError:
    print("fixed")
