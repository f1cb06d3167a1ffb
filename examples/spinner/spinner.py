"""Three mistakes in twenty lines."""

import torch

library = torch.library.Library("spinner", "DEF")
library.define("turn(Tensor x, float angle) -> Tensor")
library.define("spin(Tensor x) -> Tensor")


def turn(x, angle):
    return x * angle


def spin(x):
    return x.cumsum(0)


library.impl("turn", turn, "CompositeImplicitAutograd")
library.impl("turn", turn, "CPU")
library.impl("spinn", spin, "CUDA")
library.impl("spin", spin, "CPU")
