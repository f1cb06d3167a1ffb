"""A training step of a small transformer: forward, backward, an optimizer step."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.TransformerEncoderLayer(d_model=16, nhead=2, dim_feedforward=32, batch_first=True)
head = nn.Linear(16, 4)
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)
inputs, targets = torch.randn(2, 5, 16), torch.randint(4, (2, 5))
for _ in range(2):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(head(model(inputs)).flatten(0, 1), targets.flatten())
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
