"""
What a network learns beyond its kernel
=======================================

The neural feature ansatz: W'W resembles the average gradient outer product.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from ntkit.features import agop, correlation, nfm

torch.manual_seed(0)
x = torch.randn(256, 16)
y = (x[:, 0] * x[:, 1] + x[:, 1] * x[:, 2] + x[:, 2] * x[:, 3] + x[:, 3] * x[:, 0])[:, None] / 2
net = nn.Sequential(nn.Linear(16, 64, bias=False), nn.ReLU(), nn.Linear(64, 1, bias=False))
with torch.no_grad():
    net[0].weight.mul_(0.1)
optimizer = torch.optim.SGD(net.parameters(), 0.05)
cosines = []
for step in range(400):
    if step % 20 == 0:
        cosines.append(float(correlation(nfm(net)["0"], agop(net, x)["0"])))
    optimizer.zero_grad()
    (net(x) - y).square().mean().backward()
    optimizer.step()

# %%
# They align as the network trains.
figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.plot(range(0, 400, 20), cosines)
axes.set(title="Cosine of the weights' and the gradients' matrices", xlabel="step", ylim=(0, 1.02))
