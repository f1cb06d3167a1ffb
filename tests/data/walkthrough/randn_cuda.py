"""A factory: BackendSelect chooses CUDA; `empty` makes the tensor and `normal_` fills it, with autograd excluded."""

from dispatchlab.lab import Lab

lab = Lab()
x = lab.randn([3, 3], device="cuda")
