"""
A kernel that has seen the labels
=================================

Label-aware kernels are more local-elastic: points of one class become more alike.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import ntkit

X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X[:200] / 16), torch.tensor(y[:200])
base = ntkit.infinite_width(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))).ntk
kernel = ntkit.LabelAware(base, pairs="kr-v1", strength=0.1).fit(X[:150], y[:150])
for name, one in (("label-agnostic", base), ("label-aware", kernel)):
    print(f"{name}: local elasticity of new points {float(ntkit.local_elasticity(one(X[150:]), y[150:])):.4f}")
