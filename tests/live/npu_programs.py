"""Programs for a device: each prints what it found."""

from __future__ import annotations

HEAD = """\
import torch
from torch import nn
F = nn.functional
device = "{device}"
torch.manual_seed(0)


def show(*found):
    for one in found:
        print([round(float(x), 3) for x in torch.as_tensor(one).detach().cpu().double().flatten()])


def given(*shape):
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) * 0.37 % 2 - 1).to(device)


def train(model, x, loss, optimizer=torch.optim.SGD, steps=2, **options):
    model = model.to(device)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.linspace(-1, 1, p.numel()).reshape(p.shape))
    o = optimizer(model.parameters(), lr=0.1, **options)
    for _ in range(steps):
        o.zero_grad()
        found = loss(model(x))
        found.backward()
        o.step()
    show(found)


"""

_BY_HAND = """\
# add
show(given(3) + given(3))

# empty
x = torch.empty(0, device=device)
print(x.shape)

# item
print(given(3).sum().item())

# copy_from_cpu
x = given(2, 3)
x.copy_(torch.ones(3))
show(x)

# cast
show(given(4).to(torch.float64).long())

# views
x = given(2, 6)
show(x.t()[1:, 0], x.view(3, 4).transpose(0, 1).reshape(-1), x[:, ::2].contiguous())

# in_place_view
x = given(4, 4)
x[1].add_(1)
x.diagonal().mul_(2)
show(x)

# factories
show(torch.zeros(3, device=device), torch.arange(5, device=device), torch.full((2,), 3.0, device=device))

# linspace
show(torch.linspace(0, 1, 5, device=device), torch.eye(3, device=device))

# comparison
x = given(6)
show((x > 0) & (x < 0.5), torch.where(x > 0, x, -x))

# indexing
x = given(5, 3)
show(x[torch.tensor([0, 2]).to(device)], x[x > 0])

# index_put
x = given(5)
x[torch.tensor([1, 3]).to(device)] = 7.0
show(x)

# index_backward
x = given(5).requires_grad_()
x[torch.tensor([1, 1]).to(device)].sum().backward()
show(x.grad)

# masked
x = given(6)
x[x < 0] = 0
show(x, x.masked_fill(x > 0.5, 9.0))

# gather
x = given(3, 4)
i = x.argmax(1, keepdim=True)
show(x.gather(1, i), torch.zeros_like(x).scatter_(1, i, 1.0))

# sort
show(*given(7).sort(), *given(7).topk(3))

# cat
show(torch.cat([given(2, 2), given(1, 2)]), torch.stack([given(2), given(2)]), *given(6).split(2))

# out
x = torch.empty(0, device=device)
torch.add(given(3), given(3), out=x)
show(x)

# reductions
x = given(3, 4)
show(x.mean(), x.var(1), x.amax(0), x.prod(), x.norm(), x.cumsum(1), x.any())

# matmul
show(given(2, 3) @ given(3, 2), torch.bmm(given(2, 2, 3), given(2, 3, 1)))
show(torch.einsum('ij,kj->ik', given(2, 3), given(4, 3)))

# numbers
x = given(4)
show(2.5 * x, 1 - x, x / 3, x ** 2, -x, x // 0.5, x % 0.3)

# foreach
show(*torch._foreach_add([given(2), given(3)], 1.0), *torch._foreach_mul([given(2)], [given(2)]))

# mlp_relu
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
train(model, given(5, 4), lambda y: y.square().mean())

# mlp_gelu
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
train(model, given(5, 4), lambda y: y.square().mean())

# mlp_tanh
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
train(model, given(5, 4), lambda y: y.abs().sum())

# mlp_silu
model = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 2))
train(model, given(5, 4), lambda y: F.huber_loss(y, torch.zeros_like(y)))

# classifier
which = torch.tensor([0, 1, 1]).to(device)
model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2))
train(model, given(3, 4), lambda y: F.cross_entropy(y, which))

# binary
one = torch.ones(3, device=device)
model = nn.Linear(4, 1)
train(model, given(3, 4), lambda y: F.binary_cross_entropy_with_logits(y[:, 0], one))

# layer_norm
model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6))
train(model, given(5, 4), lambda y: y.pow(3).sum())

# batch_norm
model = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3))
train(model, given(2, 2, 5), lambda y: y.pow(3).sum())

# group_norm
train(nn.GroupNorm(2, 4), given(2, 4, 3), lambda y: y.pow(3).sum())

# rms_norm
train(nn.RMSNorm(4), given(2, 4), lambda y: y.pow(3).sum())

# convolution
model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2))
train(model, given(2, 1, 6, 6), torch.sum)

# grouped_convolution
train(nn.Conv2d(2, 4, 3, padding=1, groups=2, bias=False), given(1, 2, 4, 4), torch.mean)

# transposed_convolution
show(nn.ConvTranspose2d(1, 1, 2).to(device)(given(1, 1, 3, 3)).shape)

# pooling
x = given(1, 2, 6, 6)
show(F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1), F.interpolate(x, scale_factor=0.5))

# embedding
train(nn.Embedding(5, 3), torch.tensor([1, 4, 1]).to(device), lambda y: y.square().sum())

# embedding_bag
model = nn.EmbeddingBag(5, 3)
train(model, torch.tensor([[1, 4], [1, 2]]).to(device), lambda y: y.square().sum())

# attention
q = given(1, 2, 3, 4).requires_grad_()
y = F.scaled_dot_product_attention(q, q, q, is_causal=True)
y.sum().backward()
show(y, q.grad)

# multi_head
x = given(3, 1, 4)
show(nn.MultiheadAttention(4, 2).to(device)(x, x, x)[1].sum())

# encoder
model = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
train(model, given(1, 3, 4), torch.sum)

# rnn
train(nn.RNN(3, 4), given(2, 1, 3), lambda y: y[0].sum())

# momentum
train(nn.Linear(4, 2), given(5, 4), torch.mean, momentum=0.9, weight_decay=0.1)

# adam
train(nn.Linear(4, 2), given(5, 4), torch.mean, torch.optim.Adam)

# adam_loop
train(nn.Linear(4, 2), given(5, 4), torch.mean, torch.optim.Adam, foreach=False, amsgrad=True)

# adamw
train(nn.Linear(4, 2), given(5, 4), torch.mean, torch.optim.AdamW)

# rmsprop
train(nn.Linear(4, 2), given(5, 4), torch.mean, torch.optim.RMSprop)

# adagrad
train(nn.Linear(4, 2), given(5, 4), torch.mean, torch.optim.Adagrad)

# clip
m = nn.Linear(3, 2).to(device)
m(given(2, 3)).sum().backward()
nn.utils.clip_grad_norm_(m.parameters(), 0.1)
show(m.weight.grad)

# autocast
m = nn.Linear(3, 2).to(device)
with torch.autocast(device, dtype=torch.bfloat16):
    print(m(given(2, 3)).shape)

# scaler
m = nn.Linear(3, 2).to(device)
o = torch.optim.SGD(m.parameters())
s = torch.amp.GradScaler(device)
l = m(given(2, 3)).sum()
s.scale(l).backward()
s.step(o)
s.update()
print(s.get_scale())

# checkpoint
from torch.utils.checkpoint import checkpoint
m = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).to(device)
x = given(2, 3).requires_grad_()
y = checkpoint(m, x, use_reentrant=False)
y.sum().backward()
print(x.grad.shape)

# dropout
x = torch.ones(4, 4, device=device, requires_grad=True)
F.dropout(x, 0.5).sum().backward()
print(x.grad.shape)

# random
x = torch.rand(3, device=device)
y = torch.randn(3, device=device)
z = torch.randint(3, (4,), device=device)
print(x.shape, y.shape, z.shape)

# double_backward
x = given(3).requires_grad_()
(g,) = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
g.sum().backward()
show(x.grad)

# func
show(torch.func.vmap(torch.func.grad(lambda x: (x ** 2).sum()))(given(3, 2)))

# state
m = nn.Linear(2, 2).to(device)
n = nn.Linear(2, 2).to(device)
n.load_state_dict(m.state_dict())
print(torch.equal(m.weight, n.weight))

# complex
x = torch.complex(given(2), given(2))
show(torch.view_as_real(x * 2))

# conjugate
x = torch.complex(given(3), given(3) + 1)
y = x.conj()
show(torch.view_as_real(y * 2), y.imag, torch.view_as_real(y.cpu().resolve_conj()))
y.copy_(torch.full((3,), 1 + 2j))
y.imag.add_(1)
show(torch.view_as_real(x))

# conjugate_backward
x = given(3).requires_grad_()
torch.fft.ifft(torch.polar(x.abs() + 1, x)).abs().sum().backward()
show(x.grad)

# zero_tensor
x = given(3).requires_grad_()
torch.sgn(torch.complex(x, x)).real.sum().backward()
z = torch._efficientzerotensor(3, device=device)
show(x.grad, z + given(3), z.clone())

# lstm
model = nn.LSTM(3, 4, num_layers=2, bidirectional=True)
train(model, given(2, 1, 3), lambda y: y[0].square().sum(), torch.optim.Adam)

# gru
show(*nn.GRUCell(3, 4, bias=False).to(device)(given(2, 3)).shape)
train(nn.GRU(3, 4), given(2, 1, 3), lambda y: y[0].square().sum())

# save_and_load
import copy, io
m = nn.Linear(3, 2).to(device)
file = io.BytesIO()
torch.save({"m": m.state_dict(), "x": given(2)}, file)
file.seek(0)
found = torch.load(file)
m.load_state_dict(found["m"])
show(found["x"], copy.deepcopy(found["x"]))
print(found["x"].device.type == device, torch.UntypedStorage(3, device=device).device.type == device)

# generator
g = torch.Generator(device).manual_seed(3)
before = g.get_state()
x = torch.randn(3, device=device, generator=g)
g.set_state(before)
print(torch.equal(x, torch.randn(3, device=device, generator=g)), g.device.type == device)
print(isinstance(torch.default_generator, torch.Generator))

# out_within
x = given(6)
torch.add(given(2), 1, out=x[2:2])
torch.mul(x[:3], 2, out=x[3:])
show(x, torch.fft.fftfreq(5, device=device))

# unfold
x = given(6).requires_grad_()
x.unfold(0, 3, 1).square().sum().backward()
show(x.grad)

# nonzero
show(given(5).gt(0).nonzero(), *torch.unique(torch.tensor([1, 2, 1]).to(device), return_counts=True))

# linalg
x = given(3, 3) + 3 * torch.eye(3, device=device)
show(torch.linalg.inv(x), torch.linalg.det(x))

# default_device
torch.set_default_device(device)
x = torch.ones(3)
show(x + torch.arange(3))

# sparse_gradient
m = nn.Embedding(5, 3, sparse=True).to(device)
m(torch.tensor([1, 4, 1]).to(device)).sum().backward()
print(m.weight.grad.is_sparse)

# sparse
print(torch.sparse_coo_tensor(torch.tensor([[0, 2]]).to(device), given(2), (4,)).shape)

# sparse_on_the_cpu
x = torch.sparse_coo_tensor(torch.tensor([[0, 2], [1, 0]]), torch.ones(2), (3, 3))
show((x @ torch.ones(3, 2)).to(device) + given(3, 2))

# autocast_training
m = nn.Linear(3, 2).to(device)
with torch.autocast(device, dtype=torch.bfloat16):
    found = F.softmax(m(given(2, 3)), 1).sum()
found.backward()
print(found.dtype, m.weight.grad.dtype)

# checkpoint_sequential
from torch.utils.checkpoint import checkpoint_sequential
m = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.ReLU()).to(device)
x = given(2, 3).requires_grad_()
checkpoint_sequential(m, 2, x, use_reentrant=True).sum().backward()
print(x.grad.shape)

# embedding_bag_sum
model = nn.EmbeddingBag(5, 3, mode="sum")
which, starts = torch.tensor([1, 4, 1, 2]).to(device), torch.tensor([0, 3]).to(device)
show(model.to(device)(which, starts).shape)

# log_softmax
x = given(2, 3).requires_grad_()
F.log_softmax(x, 1).sum().backward()
show(x.grad, x.softmax(1))
"""

BY_HAND = {
    name: body.strip() for name, _, body in (one.partition("\n") for one in _BY_HAND.removeprefix("# ").split("\n# "))
}
"""Programs by name, each to stand behind `HEAD`."""


def source(body: str, device: str = "npu") -> str:
    """A whole program on a device."""
    return HEAD.replace("{device}", device) + body + "\n"
