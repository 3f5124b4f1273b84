"""
A kernel that learns its metric
===============================

Recursive feature machines find the inputs that matter.
"""

import matplotlib.pyplot as plt
import numpy as np

import ntkit

random = np.random.default_rng(0)
X = random.standard_normal((200, 8))
y = X[:, 0] * X[:, 1]
model = ntkit.RFMRegressor(iterations=3, ridge=1e-3, bandwidth="median", power=1.0, diagonal=False).fit(
    X[:150], y[:150]
)
print(f"R2 {model.score(X[150:], y[150:]):.3f}")

# %%
# The target is the product of the first two inputs; the other six do not matter.
figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.bar(range(8), np.diag(model.metric_))
axes.set(title="Diagonal of the learned metric", xlabel="input")
