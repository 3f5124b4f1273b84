"""
A classifier with nothing to tune
=================================

The default network on handwritten digits, beside a support vector machine with scikit-learn's defaults.
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

import ntkit

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X[:600], y[:600], random_state=0)
model = ntkit.NTKClassifier(tune="auto").fit(X, y)
accuracy, peer = model.score(X_test, y_test), SVC().fit(X, y).score(X_test, y_test)
print(f"accuracy {accuracy:.3f}; support vector machine {peer:.3f}")
print(
    f"chosen on the training points: ridge {model.ridge_:.1e}, temperature of the probabilities {model.temperature_:.2f}"
)
