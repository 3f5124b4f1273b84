"""
A kernel that learns its metric
===============================

Recursive feature machines find the inputs that matter.
"""

import numpy as np

import ntkit

random = np.random.default_rng(0)
X = random.standard_normal((200, 8))
y = X[:, 0] * X[:, 1]
model = ntkit.RFMRegressor(iterations=3, ridge=1e-3, bandwidth="median", power=1.0, diagonal=False).fit(
    X[:150], y[:150]
)
print(f"R2 {model.score(X[150:], y[150:]):.3f}")
print("diagonal of the metric:", np.diag(model.metric_).round(2))
