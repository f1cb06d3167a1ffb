import torch
import torch._inductor.decomposition  # which copies the table of decompositions

mine = torch._decomp.decomposition_table[torch.ops.aten.addmv.default] = lambda *tensors: tensors[0]
used = torch._inductor.decomposition.decompositions[torch.ops.aten.addmv.default]
if used is not mine:
    raise SystemExit("defect: Inductor has the decomposition that was there when it was imported")
print("fixed")
