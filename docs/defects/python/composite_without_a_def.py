import torch

library = torch.library.Library("mine", "IMPL")
library.impl("f", lambda x: x, "CompositeImplicitAutograd")
try:
    import torch._inductor.decomposition

    print("fixed")
except AttributeError as error:
    print("defect: importing Inductor fails:", error)
