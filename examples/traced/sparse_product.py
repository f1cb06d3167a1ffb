"""Products of sparse matrices, with a gradient."""

import torch

torch.manual_seed(0)
dense = torch.randn(4, 4).relu()
sparse = dense.to_sparse().requires_grad_()
right = torch.randn(4, 3, requires_grad=True)
torch.sparse.mm(sparse, right).sum().backward()
compressed = dense.to_sparse_csr() @ torch.randn(4, 3)
try:
    torch.linalg.svd(sparse)
except NotImplementedError as error:
    print(str(error).partition(". ")[0])
print("gradients", sparse.grad.layout, tuple(right.grad.shape), compressed.layout)
