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
kernel = limit.ntk(circle).numpy()

# %%
# Points on a circle: the kernel depends on the angle between two of them alone, so it is constant along the diagonals.
figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
shown = axes.imshow(kernel, extent=(0, 360, 360, 0))
axes.set(title="Tangent kernel of points on a circle", xlabel="angle of x' in degrees", ylabel="angle of x in degrees")
figure.colorbar(shown)
