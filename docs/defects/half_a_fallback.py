import torch

mine = torch.library.Library("mine", "DEF")
mine.define("f(Tensor x) -> Tensor")
first, second = (torch._C._dispatch_library("IMPL", "_", "") for _ in range(2))
first.fallback_fallthrough("NestedTensorCUDA")
try:
    second.fallback_fallthrough("CompositeImplicitAutogradNestedTensor")
except RuntimeError:
    if "\nNestedTensorCPU:" in torch._C._dispatch_dump_table("mine::f"):
        raise SystemExit("defect: the refused fallback serves NestedTensorCPU") from None
print("fixed")
