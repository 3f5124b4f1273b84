"""
The ridge by leave-one-out
==========================

Predictions of every point by the others, for all ridges from one eigendecomposition.
"""

import torch
from torch import nn

import ntkit

generator = torch.Generator().manual_seed(0)
x = torch.randn(120, 4, dtype=torch.float64, generator=generator)
y = x[:, 0] * x[:, 1] + 0.3 * torch.randn(120, dtype=torch.float64, generator=generator)
kernel = ntkit.infinite_width(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1)), b_std=0.1).ntk
found = ntkit.leave_one_out(kernel(x), y, ridges=[1e-4, 1e-3, 1e-2, 1e-1, 1.0])
for ridge, error in zip(found.ridges, found.errors, strict=True):
    print(f"ridge {float(ridge):7.4f}: leave-one-out error {float(error):.3f}")
print(f"best {found.ridge:g}")
