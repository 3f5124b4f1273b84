"""
A matrix on disk
================

Tile by tile; a run that was stopped resumes, and every solver takes the stored matrix.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

import ntkit

kernel = ntkit.infinite_width(nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 1)), b_std=0.3).ntk
x = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
y = torch.sin(x[:, 0])
stored = ntkit.gram(kernel, x, out=Path(tempfile.mkdtemp()) / "k.npy", tile=128)
print(ntkit.solve(stored, y, ridge=1e-3).status)
centres = ntkit.solve(kernel, y, x=x, method=ntkit.solvers.Nystrom(80), ridge=1e-3)
print(centres.status)
