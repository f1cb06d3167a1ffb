import torch

library = torch._C._dispatch_library("FRAGMENT", "mine", "")
try:
    library.def_schema_t_t("f(Tensor x, Tensor y) -> Tensor", "CPU", "", "")
except RuntimeError:
    if "schema:" in torch._C._dispatch_dump("mine::f"):
        raise SystemExit("defect: the kernel was refused, and the def stays") from None
print("fixed")
