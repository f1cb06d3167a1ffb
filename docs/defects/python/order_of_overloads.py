import torch

ran = []
for order in ("int", "float"), ("float", "int"):
    library = torch.library.Library("first_" + order[0], "DEF")
    for kind in order:
        library.define(f"f.{kind}(Tensor x, {kind} y) -> str")
        library.impl(f"f.{kind}", lambda x, y, kind=kind: kind, "CPU")
    ran.append(getattr(torch.ops, library.ns).f(torch.ones(1), 1))
if ran[0] != ran[1]:
    raise SystemExit(f"defect: a call with an int runs the overload that was defined first, {ran[0]} or {ran[1]}")
print("fixed")
