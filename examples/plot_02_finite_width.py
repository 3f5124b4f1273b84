"""
Finite networks approach the limit
==================================

The empirical kernel of a random network, for growing widths, beside the exact one: the error falls about as one over the root
of the width.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import ntkit

x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
exact = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))).ntk(x)
widths, errors = (32, 128, 512, 2048), []
for width in widths:
    net = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 1)).double()
    ntkit.parametrize_ntk(net)
    squares = 0.0
    for seed in range(30):
        ntkit.initialize(net, generator=torch.Generator().manual_seed(seed))
        squares += float((ntkit.empirical(net).ntk(x) - exact).norm() / exact.norm()) ** 2
    errors.append((squares / 30) ** 0.5)
    print(f"width {width:5d}: relative error {errors[-1]:.3f}")

# %%
# Root mean square over 30 networks.
figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.loglog(widths, errors, "o-", label="30 networks")
axes.loglog(widths, [errors[0] * (widths[0] / width) ** 0.5 for width in widths], "k:", label="1 / root of the width")
axes.set(title="Distance of finite networks' kernels from the limit", xlabel="width", ylabel="relative error")
axes.legend(frameon=False)
