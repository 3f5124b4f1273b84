"""
Images
======

A convolutional network with average pooling, on pixels: 150 digits to learn from.
"""

import matplotlib.pyplot as plt
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

# %%
# The test images that it gets wrong, with the classes it names.
found = model.predict(X[150:300])
wrong = [row for row in range(150) if found[row] != y[150 + row]]
figure = plt.figure(figsize=(1.6 * len(wrong), 2), layout="constrained")
for axes, row in zip(figure.subplots(1, len(wrong), squeeze=False)[0], wrong, strict=True):
    axes.imshow(X[150 + row].reshape(8, 8), cmap="gray_r")
    axes.set_title(f"{y[150 + row]} taken for {found[row]}", fontsize="small")
    axes.set_axis_off()
