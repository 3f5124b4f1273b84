"""
Training, in closed form
========================

The outputs of an infinitely wide network along gradient flow.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import ntkit

limit = ntkit.infinite_width(nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)), b_std=0.5)
x = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
y = torch.sin(2 * x[:, 0])
grid = torch.linspace(-3, 3, 120, dtype=torch.float64)[:, None]
flow = ntkit.GradientFlow(limit.ntk).fit(x, y)

# %%
# From zero output to the fit of all points.
figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for t in (0.1, 1.0, 10.0, float("inf")):
    axes.plot(grid[:, 0], flow.predict(grid, t=t), label=f"t = {t:g}")
axes.plot(x[:, 0], y, "k.")
axes.set(title="Outputs of an infinitely wide network during training", xlabel="x")
axes.legend(frameon=False)
