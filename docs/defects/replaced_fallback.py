import torch

first, second = (torch._C._dispatch_library("IMPL", "_", "") for _ in range(2))
first.fallback_fallthrough("AutogradPrivateUse1")
try:
    second.fallback_fallthrough("AutogradPrivateUse1")
    raise SystemExit("defect: a second fallback takes the place of the first")
except RuntimeError:
    print("fixed")
