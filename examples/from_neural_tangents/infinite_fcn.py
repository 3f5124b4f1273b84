"""Inference with an infinite fully connected network: neural-tangents' ``infinite_fcn.py`` on scikit-learn's digits.

The names are those of ``stax``; the rest of the script is ordinary torch.
"""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

import ntkit
from ntkit import stax

images, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
images, labels = images[order].double() / 16, labels[order]
x_train, x_test, y_train, y_test = images[:300], images[300:500], labels[:300], labels[300:500]
targets = F.one_hot(y_train, 10).double() - 0.1

net = stax.serial(stax.Dense(1, 2.0, 0.05), stax.Relu(), stax.Dense(1, 2.0, 0.05))
init_fn, apply_fn, kernel_fn = net
print("kernels:", [tuple(kernel.shape) for kernel in kernel_fn(x_test, x_train, ("nngp", "ntk"))])

limit = ntkit.infinite_width(net)
for get, mode in (("nngp", "last_layer"), ("ntk", "ntk")):
    mean = ntkit.posterior(limit, x_train, targets, x_test, mode=mode, ridge=1e-3).mean
    accuracy = float((mean.argmax(1) == y_test).double().mean())
    loss = float(0.5 * ((mean - F.one_hot(y_test, 10) + 0.1) ** 2).mean())
    print(f"{get}: accuracy {accuracy:.3f}, loss {loss:.4f}")
