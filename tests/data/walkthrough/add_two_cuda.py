"""Two CUDA tensors are added: autograd, then BackendSelect, which falls through, then CUDA."""

from dispatchlab import tensor
from dispatchlab.lab import Lab

lab = Lab()
x = tensor([1.0, 2.0], device="cuda")
y = tensor([3.0, 4.0], device="cuda")
z = lab.add(x, y)
