"""
Finite networks approach the limit
==================================

The empirical kernel of a random network, for growing widths, beside the exact one.
"""

import torch
from torch import nn

import ntkit

x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
exact = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))).ntk(x)
for width in (32, 256, 2048):
    net = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 1)).double()
    ntkit.parametrize_ntk(net)
    ntkit.initialize(net, generator=torch.Generator().manual_seed(1))
    error = (ntkit.empirical(net).ntk(x) - exact).norm() / exact.norm()
    print(f"width {width:5d}: relative error {error:.3f}")
