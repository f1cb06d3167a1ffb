import torch

mine, first, second = (torch.library.Library(*which) for which in (("mine", "DEF"), ("_", "IMPL"), ("_", "IMPL")))
mine.define("f(Tensor x) -> Tensor")
first.fallback(lambda *args: None, "NestedTensorCUDA")
try:
    second.fallback(lambda *args: None, "CompositeImplicitAutogradNestedTensor")
except RuntimeError:
    left = "\nNestedTensorCPU:" in torch._C._dispatch_dump_table("mine::f")
    print("defect: the refused fallback serves NestedTensorCPU" if left else "fixed")
