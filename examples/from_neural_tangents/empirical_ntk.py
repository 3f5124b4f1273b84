"""The tangent kernel of a finite network: neural-tangents' ``empirical_ntk.py`` on scikit-learn's digits.

The network is convolutional, and its kernel is that of one draw of its parameters; the limit is computed beside it.
"""

import torch
from sklearn.datasets import load_digits

import ntkit
from ntkit import stax

images = torch.as_tensor(load_digits().images[:4]).double()[..., None] / 16  # channels last, as in stax

net = stax.serial(
    stax.Conv(32, (3, 3), padding="SAME", W_std=1.4),
    stax.Relu(),
    stax.Conv(32, (3, 3), padding="SAME", W_std=1.4),
    stax.Relu(),
    stax.GlobalAvgPool(),
    stax.Dense(10),
)
init_fn, apply_fn, kernel_fn = net
_, params = init_fn(0, (-1, 8, 8, 1))

finite = ntkit.empirical(net).ntk(images.movedim(-1, 1))
infinite = kernel_fn(images, None, "ntk")
print("relative distance:", round(float((finite - infinite).norm() / infinite.norm()), 3))
