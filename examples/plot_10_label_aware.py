"""
Kernels that have seen the labels
=================================

Label-aware kernels add an estimate of "same class?" to a tangent kernel. Local elasticity says whether points of one class
became more alike than points of different classes: 1/2 is no difference.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import ntkit

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X[:250] / 16), torch.tensor(y[:250])
base = ntkit.infinite_width(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))).ntk
elasticity = {"none": float(ntkit.local_elasticity(base(X[150:]), y[150:]))}
for pairs in ("kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2"):
    kernel = ntkit.LabelAware(base, pairs=pairs, strength=0.1).fit(X[:150], y[:150])
    elasticity[pairs] = float(ntkit.local_elasticity(kernel(X[150:]), y[150:]))

# %%
# On new points of ten classes, regression on features of pairs (``fjlt``) raises it most. Kernel regression on the kernel's own
# values (``kr-v1``) does not raise it.
figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
bars = axes.bar(elasticity.keys(), elasticity.values())
axes.bar_label(bars, fmt="%.3f")
axes.set(title="Local elasticity of new points, by pair estimator", ylim=(0.5, 0.7))
