"""
What a network learns beyond its kernel
=======================================

The neural feature ansatz: W'W resembles the average gradient outer product.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from ntkit.datasets import chain_monomial
from ntkit.features import agop, correlation, nfm

task = chain_monomial(256, 16, 4, torch.Generator().manual_seed(0))
x, y = task.x.float(), task.y.float()[:, None]
torch.manual_seed(0)
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
