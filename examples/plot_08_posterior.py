"""
An ensemble of networks
=======================

Mean and spread of trained networks over their random initialisation.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import ntkit
from ntkit.plots import plot_posterior

limit = ntkit.infinite_width(nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 1)), b_std=0.5)
x = torch.tensor([[-2.0], [-0.5], [0.0], [1.5]], dtype=torch.float64)
y = torch.tensor([0.5, -1.0, 0.0, 1.0], dtype=torch.float64)
grid = torch.linspace(-4, 4, 150, dtype=torch.float64)[:, None]

# %%
# All layers trained, and the Bayesian posterior.
figure = plt.figure(figsize=(8, 3), layout="constrained")
for axes, mode in zip(figure.subplots(1, 2), ("ntk", "nngp"), strict=True):
    found = ntkit.posterior(limit, x, y, grid, mode=mode, ridge=1e-6)
    plot_posterior(axes, grid[:, 0], found)
    axes.plot(x[:, 0], y, "k.")
    axes.set_title({"ntk": "All layers trained", "nngp": "Bayesian posterior"}[mode])
