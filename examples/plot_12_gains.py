"""
The gains by evidence
=====================

The marginal likelihood chooses the gains of weights and biases and the ridge, with gradients.
"""

import torch
from torch import nn

import ntkit

x = torch.randn(30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
y = torch.sin(2 * x[:, 0])
net = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1))
found = ntkit.evidence(net, x, y)
evidence = found.log_marginal_likelihood
print(f"log evidence {evidence:.1f} with w_std {found.w_std:.2f}, b_std {found.b_std:.2f}, ridge {found.ridge:.3f}")

# %%
# The same with the default gains and that ridge.
default = float(ntkit.log_marginal_likelihood(ntkit.infinite_width(net).nngp(x), y, ridge=found.ridge))
print(f"log evidence {default:.1f} with w_std 1.41, b_std 0.00, ridge {found.ridge:.3f}")
