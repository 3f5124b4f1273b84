"""Linearised training in weight space: neural-tangents' ``weight_space.py`` on scikit-learn's digits.

The network and its linearisation f(w0) + J (w - w0) start at the same parameters and train by the same steps of gradient
descent; the printed columns stay close while the weights move little.
"""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

import ntkit
from ntkit import stax

digits = load_digits()
x = torch.as_tensor(digits.data[:64]).double() / 16
y = F.one_hot(torch.as_tensor(digits.target[:64]), 10).double() - 0.1

net = stax.serial(stax.Dense(256, 1.0, 0.05), stax.Erf(), stax.Dense(10, 1.0, 0.05))
net.build((-1, 64), torch.Generator().manual_seed(0))
networks = {"network": net, "linearised": ntkit.linearize(net)}

rate, steps = 1.0, 40
losses = {}
for name, module in networks.items():
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    losses[name] = []
    for _ in range(steps + 1):
        loss = 0.5 * ((module(x) - y) ** 2).mean()
        losses[name].append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

print("step   network  linearised")
for step in range(0, steps + 1, 10):
    print(f"{step:4d}  {losses['network'][step]:8.5f}  {losses['linearised'][step]:10.5f}")
