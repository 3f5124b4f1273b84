"""
The ridge by leave-one-out
==========================

Predictions of every point by the others, for all ridges from one eigendecomposition.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import ntkit

generator = torch.Generator().manual_seed(0)
x = torch.randn(120, 4, dtype=torch.float64, generator=generator)
y = x[:, 0] * x[:, 1] + 0.3 * torch.randn(120, dtype=torch.float64, generator=generator)
kernel = ntkit.infinite_width(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1)), b_std=0.1).ntk
found = ntkit.leave_one_out(kernel(x), y, ridges=[10 ** (k / 4 - 4) for k in range(17)])
print(f"the best ridge is {found.ridge:.2g}")

# %%
# Too small a ridge fits the noise, too large a one forgets the signal.
figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.semilogx(found.ridges, found.errors, "o-")
axes.axvline(found.ridge, color="k", linestyle=":")
axes.set(title="Leave-one-out error by ridge", xlabel="ridge", ylabel="mean squared error")
