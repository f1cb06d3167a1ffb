import os

import torch

kept = torch.library.Library("aoti_custom_ops", "IMPL")
kept.impl("custom_add", lambda x, y: x, "XLA")  # keeps the operator
first = torch._C._dispatch_library("FRAGMENT", "aoti_custom_ops", "")
first.def_("custom_add(Tensor t1, Tensor t2) -> Tensor")
try:
    first.impl_t_t("custom_add", "CPU")
except RuntimeError:
    print("refused: it takes one argument")
del first
file = os.path.join(os.path.dirname(torch.__file__), "lib", "libaoti_custom_ops.so")
assert os.path.exists(file), "this PyTorch has no library that registers a C++ kernel of another type"
if not (child := os.fork()):
    torch.ops.load_library(file)  # registers a kernel of type Tensor(Tensor, Tensor)
    os._exit(0)
if os.waitpid(child, 0)[1]:
    raise SystemExit("defect: a kernel is refused for the type of one that was refused")
print("fixed")
