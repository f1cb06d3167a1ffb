import torch

library, other = torch.library.Library("mine", "DEF"), torch.library.Library("mine", "IMPL")
library.define("f(Tensor x) -> Tensor")
library.impl("f", lambda x: x * 2, "CPU")
try:
    other.impl("f", lambda x: x * 3, "CPU")
    raise SystemExit(f"defect: nothing refuses the second kernel, which runs: {torch.ops.mine.f(torch.ones(1)).item()}")
except RuntimeError:
    print("fixed")
