"""Three mistakes, together with faster.py, which registers in the same namespace."""

import torch

library = torch.library.Library("spinner", "DEF")
library.define("turn(Tensor x, float angle) -> Tensor")
library.define("spin(Tensor x) -> Tensor")
library.impl("turn", lambda x, angle: x * angle, "CompositeImplicitAutograd")
library.impl("spin", lambda x: x.cumsum(0), "CompositeImplicitAutograd")
library.impl("spinn", lambda x: x.cumsum(0), "CUDA")
