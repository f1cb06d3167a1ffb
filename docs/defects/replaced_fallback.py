import torch

mine, first, second = (torch.library.Library(*which) for which in (("mine", "DEF"), ("_", "IMPL"), ("_", "IMPL")))
mine.define("f(Tensor x) -> Tensor")
first.fallback(lambda *args: None, "AutogradPrivateUse1")
try:
    second.fallback(lambda *args: None, "AutogradPrivateUse1")
    print("defect: a second fallback takes the place of the first")
except RuntimeError:
    print("fixed")
