import torch

library = torch.library.Library("mine", "IMPL")
library.impl("f", lambda x: x, "CompositeImplicitAutograd")
try:
    import torch._inductor.decomposition
except AttributeError as error:
    raise SystemExit(f"defect: importing Inductor fails: {error}") from None
print("fixed")
