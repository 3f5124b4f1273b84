"""
Predictions with error bars
===========================

The regressor gives standard deviations of new targets, noise included, in their units.
"""

import matplotlib.pyplot as plt
import numpy as np

import ntkit

random = np.random.default_rng(0)
x = np.sort(random.uniform(-3, 3, 25))
y = np.sin(x) + 0.1 * random.standard_normal(25)
model = ntkit.NTKRegressor().fit(x[:, None], y)
grid = np.linspace(-5, 5, 200)
mean, std = model.predict(grid[:, None], return_std=True)

# %%
# The band widens where there are no points.
figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.fill_between(grid, mean - 2 * std, mean + 2 * std, alpha=0.2)
axes.plot(grid, mean)
axes.plot(x, y, "k.")
axes.set(title="Predictions with a band of two standard deviations", xlabel="x")
