"""Autograd as it was in 2020: the kernel excludes autograd and calls the operator again, whose set is computed anew."""

from dispatchlab import Dispatcher, Library, Tensor, operator, tensor
from dispatchlab.call import AutoDispatchBelowAutograd

dispatcher = Dispatcher()
aten = Library("aten", "DEF", dispatcher=dispatcher)
aten.define("add.Tensor(Tensor self, Tensor other) -> Tensor")
add = operator(dispatcher, "aten::add.Tensor")


def autograd(first: Tensor, second: Tensor) -> object:
    with AutoDispatchBelowAutograd():
        return add(first, second)


def cuda(first: Tensor, second: Tensor) -> Tensor:
    return Tensor(first.data + second.data, device=first.device)


aten.impl("add.Tensor", autograd, "Autograd")
aten.impl("add.Tensor", cuda, "CUDA")
z = add(tensor([1.0], device="cuda"), tensor([2.0], device="cuda"))
