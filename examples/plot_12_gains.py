"""
The gains by evidence
=====================

The marginal likelihood chooses gains and ridge, with gradients.
"""

import torch
from torch import nn

import ntkit

x = torch.randn(30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
y = torch.sin(2 * x[:, 0])
net = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1))
found = ntkit.evidence(net, x, y)
print(found)
