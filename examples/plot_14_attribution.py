"""
Which training points made a prediction
=======================================

Leave-one-out of the network, linearised where training left it. Of the points shown, those of class 1 raised the score, and
that of class 0 lowered it.
"""

import torch
from torch import nn

import ntkit

generator = torch.Generator().manual_seed(0)
x = torch.randn(40, 2, generator=generator)
y = (x[:, 0] > 0).long()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.5)
for _ in range(100):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
scores, rows = ntkit.attribute(net, x, y, torch.tensor([[0.2, 0.0]])).top(3)
for score, row in zip(scores[0], rows[0], strict=True):
    print(f"training point {int(row)} at ({x[row, 0]:.2f}, {x[row, 1]:.2f}), class {int(y[row])}: {float(score):+.3f}")
