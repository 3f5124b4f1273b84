from __future__ import annotations

import pytest
import torch
from torch import nn

import ntkit
from ntkit.datasets import load_digits
from ntkit.errors import InputError, InputTypeError
from ntkit_studies.methods import curse_of_label_agnosticism, relabel


class Linear(ntkit.Kernel):
    def __call__(self, x1, x2=None):
        return x1 @ (x1 if x2 is None else x2).T

    def diag(self, x):
        return (x * x).sum(1)


class Quadratic(Linear):
    """All products of two coordinates: the features that the new labels of a linear kernel need."""

    def __call__(self, x1, x2=None):
        return super().__call__(x1, x2) ** 2

    def diag(self, x):
        return super().diag(x) ** 2


class LearnsSecondOrder:
    """Picks the kernel that fits the labels it sees: label-aware in the plainest way."""

    def fit(self, x, y):
        scores = {}
        for kernel in (Linear(), Quadratic()):
            gram = kernel(x)
            scores[kernel] = float(ntkit.alignment(gram, y))
        return max(scores, key=scores.get)


def ntk(d):
    return ntkit.infinite_width(nn.Sequential(nn.Linear(d, 8), nn.ReLU(), nn.Linear(8, 1)), b_std=0.1).ntk


def gaussian(n, d, seed=0):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, x[:, 0] > 0


@pytest.mark.parametrize("kernel", [Linear(), ntk(6)])
@pytest.mark.parametrize("direction", [0, 2])
def test_directions_are_orthogonal_unit_vectors_of_the_feature_space(kernel, direction):
    x, y = gaussian(50, 6)
    new = relabel(kernel, x, y, direction=direction)
    gram = kernel(x)
    inner = new.coefficients.T @ gram @ new.coefficients
    torch.testing.assert_close(inner, torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-8)
    # w1 is what kernel regression fits, w2 is zero on average over each class
    first, second = new.coordinates(x).T
    fitted = gram @ ntkit.solve(gram, 2 * y.double() - 1, ridge=1e-3).value
    unit = [one / torch.linalg.vector_norm(one) for one in (first, fitted)]
    torch.testing.assert_close(*unit, rtol=1e-7, atol=1e-9)
    assert float(torch.stack([second[y].mean(), second[~y].mean()]).abs().max()) < 1e-8 * float(second.abs().max())


def test_directions_come_in_the_order_of_their_variance():
    x, y = gaussian(60, 6)
    sizes = [float(relabel(Linear(), x, y, direction=k).coordinates(x)[:, 1].square().sum()) for k in range(3)]
    assert sizes == sorted(sizes, reverse=True)
    with pytest.raises(InputError, match="span 6 dimensions, which leaves 3 directions"):
        relabel(Linear(), x, y, direction=3)


def test_linear_directions_are_vectors_of_the_input():
    """For K = x.x' the directions are w = X^T a: w2 maximises |X w|^2 among unit vectors orthogonal to w1 and the class means."""
    x, y = gaussian(80, 5)
    w1, w2 = (x.T @ relabel(Linear(), x, y).coefficients).T
    ridge = 1e-3 * float((x * x).sum() / len(x))
    fit = torch.linalg.solve(x.T @ x + ridge * torch.eye(5, dtype=torch.float64), x.T @ (2 * y.double() - 1))
    torch.testing.assert_close(w1, fit / torch.linalg.vector_norm(fit), rtol=1e-7, atol=1e-9)
    fixed, _ = torch.linalg.qr(torch.stack([w1, x[y].mean(0), x[~y].mean(0)], 1))
    away = torch.eye(5, dtype=torch.float64) - fixed @ fixed.T
    best = torch.linalg.eigvalsh(away @ x.T @ x @ away)[-1]
    torch.testing.assert_close((x @ w2).square().sum(), best, rtol=1e-9, atol=0)


def test_new_labels_are_those_of_equation_10():
    x, y = gaussian(40, 5)
    new = relabel(ntk(5), x, y)
    fresh, _ = gaussian(30, 5, seed=1)
    for value, (first, second) in zip(new.labels(fresh), new.coordinates(fresh), strict=True):
        assert float(value) == (1.0 if float(first) * float(second) < 0 else -1.0)


def test_linear_kernel_falls_to_chance_and_label_aware_kernels_do_not():
    (x, y), (x_test, y_test) = gaussian(400, 5), gaussian(1500, 5, seed=1)
    aware = {
        "chosen": LearnsSecondOrder(),
        "fjlt": ntkit.LabelAware(Linear(), pairs="fjlt-v1", strength=0.1),
    }
    curse = curse_of_label_agnosticism(Linear(), x, y, x_test, y_test, aware=aware, ridge=0.1)
    assert curse.names == ("label-agnostic", "chosen", "fjlt")
    old, new = curse.accuracy.T
    assert float(old.min()) > 0.95
    assert abs(float(new[0]) - 0.5) < 0.06 and float(curse.chance[1]) < 0.55
    assert float(new[1]) > 0.85 and float(new[2]) > 0.8
    # The label-aware part was fitted to each system on its own, and the scores are those of plain kernel regression.
    kernel = ntkit.LabelAware(Linear(), pairs="fjlt-v1", strength=0.1).fit(x, curse.y[:, 1])
    gram = kernel(x)
    weights = ntkit.solve(gram, curse.y[:, 1], method="indefinite", ridge=0.1).value
    expected = ((kernel(x_test, x) @ weights > 0) == (curse.y_test[:, 1] > 0)).double().mean()
    assert abs(float(curse.accuracy[2, 1]) - float(expected)) < 0.002


@pytest.mark.parametrize(("d", "least", "most"), [(5, 0.8, 1.0), (60, 0.0, 0.62)])
def test_a_tangent_kernel_falls_only_where_points_are_few_for_the_dimension(d, least, most):
    """It is universal: products of two features are among its own, and 400 points find them in 5 dimensions, not in 60."""
    (x, y), (x_test, y_test) = gaussian(400, d), gaussian(1000, d, seed=1)
    curse = curse_of_label_agnosticism(ntk(d), x, y, x_test, y_test)
    assert float(curse.accuracy[0, 0]) > 0.8
    assert least < float(curse.accuracy[0, 1]) < most
    assert float(curse.train_accuracy[0, 1]) > 0.95  # Claim 1.1 is about generalisation only


def test_digits():
    digits = load_digits()
    keep = (digits.labels == 3) | (digits.labels == 8)
    x, y = digits.images[keep].flatten(1), digits.labels[keep]
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:120], order[120:]
    aware = {"fjlt": ntkit.LabelAware(Linear(), pairs="fjlt-v1", strength=0.1)}
    # The small eigenvalues of the label-aware part have both signs and only fit noise: the ridge is above them.
    curse = curse_of_label_agnosticism(Linear(), x[train], y[train], x[test], y[test], aware=aware, ridge=1.0)
    old, new = curse.accuracy.T
    assert float(old.min()) > 0.95
    assert float(new[0]) < 0.78 and float(new[1] - new[0]) > 0.08  # measured: 73.0 %, and 86.9 % label-aware


X, Y = gaussian(20, 5)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: relabel(lambda a, b=None: a, X, Y), InputTypeError, "ntkit Kernel"),
        (lambda: relabel(Linear(), X, torch.zeros(20)), InputError, "two classes.*Got 1"),
        (lambda: relabel(Linear(), X, Y[:5]), InputError, r"shape \(20,\)"),
        (lambda: relabel(Linear(), X, Y, direction=-1), InputError, "direction must be"),
        (lambda: relabel(Linear(), X, Y, ridge=-1.0), InputError, "ridge must be"),
        (lambda: relabel(Linear(), X[:, :1], Y), InputError, "leaves 0 directions"),
        (lambda: curse_of_label_agnosticism(Linear(), X, Y, X[:0], Y[:0]), InputError, "fresh point"),
        (lambda: curse_of_label_agnosticism(Linear(), X, Y, X, Y.long() + 1), InputError, "two classes of y. Got 3"),
        (lambda: curse_of_label_agnosticism(Linear(), X, Y, X, Y, aware={"a": 3}), InputTypeError, r"fit\(x, y\)"),
    ],
)
def test_bad_input(act, error, message):
    with pytest.raises(error, match=message):
        act()
