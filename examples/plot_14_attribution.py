"""
Which training points made a prediction
=======================================

Leave-one-out of the network, linearised where training left it. Of the points shown, those of class 1 raised the score, and
that of class 0 lowered it.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import ntkit

generator = torch.Generator().manual_seed(0)
x = torch.randn(40, 2, generator=generator)
y = (x[:, 0] > 0).long()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.5)
for _ in range(100):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
point = torch.tensor([[0.2, 0.0]])
scores, rows = ntkit.attribute(net, x, y, point).top(3)
for score, row in zip(scores[0], rows[0], strict=True):
    print(f"training point {int(row)} at ({x[row, 0]:.2f}, {x[row, 1]:.2f}), class {int(y[row])}: {float(score):+.3f}")

# %%
# The point (star), the training points by class, and circles around those that moved its score most.
figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
axes.scatter(x[:, 0], x[:, 1], c=y, cmap="coolwarm")
axes.scatter(x[rows[0], 0], x[rows[0], 1], s=800 * scores[0].abs(), facecolors="none", edgecolors="k")
axes.plot(point[:, 0], point[:, 1], "k*", markersize=12)
axes.set_title("Training points behind a prediction")
