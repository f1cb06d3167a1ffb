import torch


def x_times(number: int):
    return torch.library.custom_op("mine::f", lambda x: x * number, mutates_args=(), schema="(Tensor x) -> Tensor")


first = x_times(2)
second = x_times(3)
try:
    if first(torch.ones(1)).item() == 3:
        raise SystemExit("defect: the first one runs the second")
except RuntimeError as error:
    print("refused:", error)
print("fixed")
