import torch

ran = []
for order in ("Implicit", "Explicit"), ("Explicit", "Implicit"):
    library = torch.library.Library("first" + order[0], "DEF")
    library.define("f(Tensor x) -> str")
    for key in order:
        library.impl("f", lambda x, key=key: key, f"Composite{key}Autograd")
    ran.append(getattr(torch.ops, library.ns).f(torch.ones((), requires_grad=True)))
if ran[0] != ran[1]:
    raise SystemExit(f"defect: a call runs the kernel that came first, {ran[0]} or {ran[1]}")
print("fixed")
