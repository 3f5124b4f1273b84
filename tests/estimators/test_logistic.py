"""Kernel logistic regression against a general optimiser in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from tests.cases import normal

from ntkit._src.estimators._logistic import MOST_STEPS, fit_logistic, one_hot
from ntkit.errors import SingularKernelError

X = normal(30, 3)
GRAM = torch.exp(-torch.cdist(X, X))
CODES = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("ridge", [1e-2, 1.0])
def test_it_is_the_optimum(classes: int, ridge: float, weighted: bool) -> None:
    codes = CODES.clamp_max(classes - 1)
    targets = one_hot(2.0 * codes - 1 if classes == 2 else torch.eye(3, dtype=torch.float64)[codes] - 1 / 3).double()
    weights = torch.linspace(0.5, 2.0, 30, dtype=torch.float64) if weighted else torch.ones(30, dtype=torch.float64)
    roots = weights.sqrt()
    found, steps = fit_logistic(roots[:, None] * GRAM * roots, targets, ridge, roots if weighted else None, 1e-9)
    gram, number = GRAM.numpy(), targets.shape[1]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        a = torch.tensor(flat.reshape(30, number), requires_grad=True)
        logits = GRAM @ a
        full = torch.cat([torch.zeros_like(logits), logits], 1) if number == 1 else logits
        each = -torch.log_softmax(full, 1)[torch.arange(30), codes]
        total = (weights * each).sum() + ridge / 2 * (a * logits).sum()
        total.backward()
        return total.item(), a.grad.numpy().ravel()

    best = minimize(
        loss, np.zeros(30 * number), jac=True, method="L-BFGS-B", options={"maxiter": 20000, "ftol": 0, "gtol": 1e-10}
    )
    mine = (roots[:, None] * found).numpy()
    assert steps < MOST_STEPS and loss(mine.ravel())[0] <= best.fun + 1e-9
    np.testing.assert_allclose(gram @ mine, gram @ best.x.reshape(30, number), atol=1e-4)


def test_a_start_saves_steps_and_changes_nothing() -> None:
    targets = one_hot(2.0 * CODES.clamp_max(1) - 1)
    first, steps = fit_logistic(GRAM, targets.double(), 0.1, None, 1e-8)
    again, fewer = fit_logistic(GRAM, targets.double(), 0.1, None, 1e-8, first)
    assert fewer == 0 < steps and torch.equal(again, first)


def test_an_indefinite_matrix_is_refused() -> None:
    with pytest.raises(SingularKernelError, match="not positive definite"):
        fit_logistic(-GRAM, one_hot(2.0 * CODES.clamp_max(1) - 1).double(), 1e-3)
