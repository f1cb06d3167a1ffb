import torch

library = torch._C._dispatch_library("FRAGMENT", "mine", "")
try:
    library.def_schema_t_t("f(Tensor x, Tensor y) -> Tensor", "CPU", "", "")
except RuntimeError:
    left = torch._C._dispatch_dump("mine::f")
    print("defect: the kernel was refused, and the def stays" if "schema:" in left else "fixed")
