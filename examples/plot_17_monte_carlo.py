"""
Networks without a closed form
==============================

Max pooling has no closed-form limit: the mean over random networks, with its error.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import ntkit

net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 1))
x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
mc = ntkit.monte_carlo(net, n_samples=20, generator=torch.Generator().manual_seed(1))
mean, error = mc.ntk.estimate(x)
print(f"the largest standard error is {float(error.max() / mean.max()):.1%} of the largest entry")

# %%
# The kernel of four images.
figure, axes = plt.subplots(figsize=(4, 3.2), layout="constrained")
shown = axes.imshow(mean.numpy())
axes.set_title("Mean tangent kernel of 20 networks")
figure.colorbar(shown)
