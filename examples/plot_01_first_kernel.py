"""
The kernel of a network
=======================

A module in, its exact tangent kernel out: the widths of the module do not matter.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import ntkit

net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
limit = ntkit.infinite_width(net, b_std=0.1)
angle = torch.linspace(0, 2 * torch.pi, 60, dtype=torch.float64)
circle = torch.stack([angle.cos(), angle.sin()], 1)

# %%
# Points on a circle: the kernel depends on the angle between two of them alone.
figure = plt.figure(figsize=(5, 4), layout="constrained")
plt.imshow(limit.ntk(circle))
