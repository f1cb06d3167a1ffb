import torch
from torch.utils._python_dispatch import TorchDispatchMode as Mode

library, other = torch.library.Library("mine", "DEF"), torch.library.Library("mine", "IMPL")
library.define("f(Tensor x) -> str")
library.impl("f", lambda x: "the first", "AutogradCPU")
other.impl("f", lambda x: "the released one", "AutogradCPU", allow_override=True)
other._destroy()
plain = torch.ops.mine.f(torch.ones(1, requires_grad=True))
passes = {"__torch_dispatch__": lambda self, function, types, args=(), kwargs=None: function(*args)}
with type("Passes", (Mode,), passes)():
    moded = torch.ops.mine.f(torch.ones(1, requires_grad=True))
if plain != moded:
    raise SystemExit(f"defect: a call runs {plain}, and under a mode {moded}")
print("fixed")
