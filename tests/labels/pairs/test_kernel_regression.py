"""KR-V1 and KR-V2 against the double sum of the paper in extended precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.labels.pairs.oracles import base, data, double_sum, targets

from ntkit._src.labels.pairs import _pair_regression
from ntkit._src.labels.pairs._pair_regression import KernelRegression
from ntkit._src.labels.pairs._pairs import Pairs


def label_matrix(y):
    codes = torch.unique(y, return_inverse=True)[1]
    if codes.max() == 1:
        return (2.0 * codes.double() - 1)[:, None]
    return torch.nn.functional.one_hot(codes).double()


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_equals_the_double_sum(inverse, classes, monkeypatch):
    monkeypatch.setattr(_pair_regression, "_BLOCK_ENTRIES", 25)  # blocks of two rows
    (x, y), (new, _) = data(11, classes), data(5, classes, seed=1)
    k, cross = base()(x), base()(new, x)
    labels = label_matrix(y)
    fitted = KernelRegression(inverse, ridge=0.1).fit(Pairs(x, None, k), labels)
    if inverse:
        ridge = 0.1 * float(k.diagonal().mean())
        v = np.linalg.solve(k.numpy() + ridge * np.eye(11), labels.numpy())
        weights = v @ v.T
    else:
        weights = targets(y)
    for block in (k, cross):
        expected = double_sum(block.numpy(), k.numpy(), weights)
        np.testing.assert_allclose(
            fitted(Pairs(x, x, block)), expected, rtol=1e-10, atol=1e-11 * np.abs(expected).max()
        )


def test_a_constant_kernel():
    labels = torch.tensor([[1.0], [1.0], [-1.0]], dtype=torch.float64)
    pairs = Pairs(torch.zeros(3, 1), None, torch.full((3, 3), 2.0, dtype=torch.float64))
    found = KernelRegression(False).fit(pairs, labels)(pairs)
    torch.testing.assert_close(found, torch.full((3, 3), 1 / 9, dtype=torch.float64), rtol=1e-15, atol=0)
