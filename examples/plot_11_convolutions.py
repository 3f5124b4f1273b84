"""
Images
======

A convolutional network with average pooling, on pixels: 150 digits to learn from.
"""

from sklearn.datasets import load_digits
from torch import nn

import ntkit

X, y = load_digits(return_X_y=True)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
)  # fmt: skip
print(ntkit.infinite_width(net).explain((1, 8, 8)))
model = ntkit.NTKClassifier(net, input_shape=(1, 8, 8), ridge=1e-6).fit(X[:150], y[:150])
print(f"accuracy {model.score(X[150:300], y[150:300]):.2f}")
