"""
Networks without a closed form
==============================

Max pooling has no closed-form limit: the mean over random networks, with its error.
"""

import torch
from torch import nn

import ntkit

net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 1))
x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
mc = ntkit.monte_carlo(net, n_samples=20, generator=torch.Generator().manual_seed(1))
mean, error = mc.ntk.estimate(x)
print(mean)
print(f"largest standard error {float(error.max()):.3f}")
