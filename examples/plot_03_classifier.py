"""
A classifier with nothing to tune
=================================

The default network on handwritten digits.
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import ntkit

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X[:600], y[:600], random_state=0)
model = ntkit.NTKClassifier(tune="auto").fit(X, y)
print(f"accuracy {model.score(X_test, y_test):.3f}, ridge {model.ridge_:.1e}, temperature {model.temperature_:.2f}")
