import torch
from torch.utils._python_dispatch import TorchDispatchMode as Mode

library, fallbacks = torch.library.Library("mine", "DEF"), torch.library.Library("_", "IMPL")
library.define("f(Tensor x) -> Tensor")
fallbacks.fallback(lambda op, *args, **kwargs: args[0].detach(), "AutogradNestedTensor")
x = torch.nested.nested_tensor([torch.ones(1)], requires_grad=True)
torch.ops.mine.f(x)
try:
    with type("Passes", (Mode,), {"__torch_dispatch__": lambda self, f, types, args=(), kwargs=None: f(*args)})():
        torch.ops.mine.f(x)
except RuntimeError as error:
    raise SystemExit(f"defect: a mode does not find the fallback: {str(error).splitlines()[0]}") from None
print("fixed")
