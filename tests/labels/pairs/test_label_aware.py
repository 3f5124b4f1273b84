"""LabelAware against the double sum over all pairs and against least squares on the explicit data set of pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.cases import normal
from tests.labels.pairs.oracles import Array, base, data, design, double_sum, targets
from torch import Tensor, nn

import ntkit
from ntkit._src.labels.pairs._label_aware import definiteness
from ntkit.errors import InputError, InputTypeError, NotFittedError
from ntkit.labels import Pairs
from ntkit.testing import KernelConformance

NAMES = ("kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2")


def fitted(pairs, n=30, classes=2, **options):
    x, y = data(n + 12, classes)
    kernel = ntkit.LabelAware(base(), pairs=pairs, strength=0.3, **options).fit(x[:n], y[:n])
    return kernel, x, y


def label_parts(kernel: ntkit.LabelAware, x: Tensor, n: int) -> list[Array]:
    """Z of train-train, test-train, test-test pairs and of the diagonal."""
    found = [kernel.label_part(x[:n]), kernel.label_part(x[n:], x[:n]), kernel.label_part(x[n:])]
    diagonal = kernel.diag(x) - kernel.base.diag(x)
    return [(part / kernel.weight).numpy() for part in (*found, diagonal[:, None])]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("pairs", ["kr-v1", "kr-v2"])
def test_kernel_regression_is_the_double_sum(pairs, classes):
    n = 30
    kernel, x, y = fitted(pairs, n, classes)
    gram = kernel.base(x[:n]).numpy()
    weights = targets(y[:n])
    if pairs == "kr-v2":
        inverse = np.linalg.inv(gram)
        weights = inverse @ weights @ inverse
    blocks = [gram, kernel.base(x[n:], x[:n]).numpy(), kernel.base(x[n:]).numpy(), kernel.base.diag(x)[:, None].numpy()]
    for found, phi in zip(label_parts(kernel, x, n), blocks, strict=True):
        expected = double_sum(phi, gram, weights)
        # What K^-1 y is known to bounds V2; its weights cancel in part.
        scale = np.abs(expected).max() if pairs == "kr-v1" else np.abs(double_sum(phi, gram, np.abs(weights))).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("pairs", ["fjlt-v1", "fjlt-v2"])
def test_pair_regression_is_least_squares_on_all_pairs(pairs, classes):
    n = 40
    x, y = data(n + 12, classes, features=9)
    kernel = ntkit.LabelAware(base(9), pairs=pairs, strength=0.3).fit(x[:n], y[:n])
    points = x.numpy()
    k = kernel.base(x).numpy()
    whole = design(points, points, k, points[:n], pairs == "fjlt-v2")
    rows = whole[:n, :n].reshape(n * n, -1)
    scale = np.abs(rows).max(0)
    solution, _, rank, _ = np.linalg.lstsq(rows / scale, targets(y[:n]).ravel(), rcond=None)
    assert rank == rows.shape[1] == kernel.estimator.rank + 1
    expected = whole @ (solution / scale)
    blocks = [expected[:n, :n], expected[n:, :n], expected[n:, n:], expected.diagonal()[:, None]]
    for found, values in zip(label_parts(kernel, x, n), blocks, strict=True):
        np.testing.assert_allclose(found, values, rtol=0, atol=1e-9)
    residual = targets(y[:n]) - expected[:n, :n]
    assert kernel.estimator.r_squared == pytest.approx(1 - residual.var() / targets(y[:n]).var(), rel=1e-9)


@pytest.mark.parametrize("pairs", NAMES)
def test_sum_and_scale(pairs):
    kernel, x, y = fitted(pairs)
    train = x[:30]
    gram, part = kernel.base(train), kernel.label_part(train)
    torch.testing.assert_close(kernel(train), gram + part, rtol=1e-14, atol=0)
    assert float(part.abs().mean()) == pytest.approx(0.3 * float(gram.abs().mean()), rel=1e-12)
    whole = ntkit.LabelAware(base(), pairs=pairs, strength=0.3).fit_gram(train, y[:30], gram=gram)
    torch.testing.assert_close(whole, kernel(train), rtol=1e-12, atol=1e-12)
    cross = kernel.base(x[30:], train)
    torch.testing.assert_close(kernel.from_base(cross, x[30:], train), kernel(x[30:], train), rtol=1e-12, atol=1e-12)
    other = kernel.with_strength(0.6)
    torch.testing.assert_close(other.label_part(train), 2 * part, rtol=1e-14, atol=0)
    assert (kernel.strength, other.strength) == (0.3, 0.6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("pairs", NAMES)
def test_order_of_points_and_names_of_classes_do_not_matter(pairs, classes):
    kernel, x, y = fitted(pairs, classes=classes)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    renamed = torch.tensor([7.0, -1.5, 0.25] if classes == 2 else [4.0, -1.0, 9.0])[(y + 2) // 3]
    other = ntkit.LabelAware(base(), pairs=pairs, strength=0.3).fit(x[:30][order], renamed[:30][order])
    torch.testing.assert_close(other(x[30:], x[:30]), kernel(x[30:], x[:30]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("pairs", NAMES)
def test_float32(pairs):
    x, y = data(42, 2)
    wide = ntkit.LabelAware(base(), pairs=pairs, strength=0.3, ridge=1e-2).fit(x[:30].float().double(), y[:30])
    single = ntkit.LabelAware(base(), pairs=pairs, strength=0.3, ridge=1e-2).fit(x[:30].float(), y[:30])
    found = single(x[30:].float(), x[:30].float())
    assert found.dtype == torch.float32
    expected = wide(x[30:].float().double(), x[:30].float().double())
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-3 * float(expected.abs().max()))


def test_images():
    net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 1))
    limit = ntkit.infinite_width(net).ntk
    x = normal(20, 2, 4, 4)
    y = x[:, 0, 0, 0] > 0
    kernel = ntkit.LabelAware(limit, pairs="fjlt-v2").fit(x[:15], y[:15])
    assert kernel(x[15:], x[:15]).shape == (5, 15)
    rows = kernel.estimator(Pairs(x.flatten(1), None, limit(x)))
    torch.testing.assert_close(kernel.weight * rows, kernel.label_part(x), rtol=1e-12, atol=1e-12)


class Constant(ntkit.Kernel):
    def __call__(self, x1, x2=None):
        return x1.new_full((len(x1), len(x1 if x2 is None else x2)), 2.0)

    def diag(self, x):
        return x.new_full((len(x),), 2.0)


def test_constant_base_gives_the_mean_target():
    x, y = data(20, 2)
    kernel = ntkit.LabelAware(Constant(), pairs="kr-v1").fit(x, y)
    np.testing.assert_allclose(kernel.estimator(Pairs(x, None, Constant()(x))).numpy(), targets(y).mean(), rtol=1e-14)


def test_kernel_regression_beyond_the_training_range():
    """The formula of the paper has a pole there; the nearest end of the range is used instead."""
    kernel, x, _ = fitted("kr-v1")
    z = kernel.estimator
    pole = z.mean + (z.high - z.low) * (1 - z.variance) ** 0.5
    assert pole > z.high
    phi = torch.tensor([[z.low, z.high, pole, pole * (1 + 1e-9), 100 * pole, -100 * pole]], dtype=torch.float64)
    values = z(Pairs(x[:1], x[:6], phi))[0]
    assert bool((values.abs() <= 1).all())
    torch.testing.assert_close(values[2:5], values[1].expand(3), rtol=1e-14, atol=0)
    torch.testing.assert_close(values[5], values[0], rtol=1e-14, atol=0)


def test_kernel_regression_is_a_weighted_mean_of_targets():
    for pairs, classes, low in (("kr-v1", 2, -1.0), ("kr-v1", 3, 0.0)):
        kernel, x, _ = fitted(pairs, classes=classes)
        z = kernel.label_part(10 * x) / kernel.weight
        assert float(z.min()) >= low and float(z.max()) <= 1


def test_kernel_regression_keeps_its_digits_when_the_base_is_far_from_zero():
    """The five sums of K itself would cancel; those about the mean do not."""
    x, y = data(30, 2)
    gram = base()(x) + 1e6
    z = ntkit.LabelAware(base(), pairs="kr-v1").fit(x, y, gram=gram).estimator
    expected = double_sum(gram.numpy(), gram.numpy(), targets(y))
    np.testing.assert_allclose(z(Pairs(x, None, gram)).numpy(), expected, rtol=0, atol=1e-12)


def test_no_true_label_enters_the_gram_matrix():
    """Training pairs get the estimate, not the target: a training point asked about again as a test point is the same."""
    for pairs in NAMES:
        kernel, x, _ = fitted(pairs)
        torch.testing.assert_close(kernel(x[:30].clone(), x[:30]), kernel(x[:30]), rtol=1e-9, atol=1e-9)


class Agreement:
    """A user's estimator: the product of each side's mean training label, weighted by the distance."""

    def fit(self, pairs, labels):
        assert pairs.x2 is None and pairs.k.shape == (len(labels), len(labels))
        self.x, self.labels = pairs.x1, labels

    def __call__(self, pairs):
        sides = [self._mean(pairs.x1), self._mean(pairs.x1 if pairs.x2 is None else pairs.x2)]
        return (sides[0] @ sides[1].T).to(pairs.k)

    def _mean(self, x):
        return torch.softmax(-torch.cdist(x.double(), self.x.double()), 1) @ self.labels


@pytest.mark.parametrize("classes", [2, 3])
def test_estimator_of_ones_own(classes):
    mine = Agreement()
    kernel, x, y = fitted(mine, classes=classes)
    assert not vars(mine)  # the copy was fitted
    codes = ((y[:30] + 2) // 3).double()
    labels = (2 * codes - 1)[:, None] if classes == 2 else torch.eye(3, dtype=torch.float64)[codes.long()]
    weights = torch.softmax(-torch.cdist(x[30:], x[:30]), 1) @ labels
    torch.testing.assert_close(kernel.label_part(x[30:]) / kernel.weight, weights @ weights.T)
    torch.testing.assert_close(kernel.diag(x), kernel(x).diagonal())


class TestConformance(KernelConformance):
    def inputs(self):
        return data(5, 2, seed=3)[0]

    def kernels(self):
        return [fitted(pairs)[0] for pairs in (*NAMES, Agreement())]

    def test_positive_semidefinite(self):
        pytest.skip("K + lambda Z need not be positive semidefinite")


@pytest.mark.parametrize("pairs", NAMES)
def test_definiteness(pairs):
    kernel, x, _ = fitted(pairs)
    gram = kernel.with_strength(20.0)(x[:30])
    found = kernel.with_strength(20.0).definiteness()
    values = torch.linalg.eigvalsh(gram)
    assert found.smallest == pytest.approx(float(values[0]), rel=1e-6, abs=1e-10)
    assert found.largest == pytest.approx(float(values[-1]), rel=1e-6)
    assert found.negative == int((values < -1e-10).sum())
    assert kernel.with_strength(20.0).definiteness(gram) == found


def test_gradients():
    kernel, x, _ = fitted("kr-v1")
    points = x[30:33].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda p: kernel(p, x[:3]), points)
    kernel, x, _ = fitted("fjlt-v1")
    with pytest.raises(InputError, match="no gradients"):
        kernel(points, x[:3])
    with torch.no_grad():
        assert kernel(points, x[:3]).shape == (3, 3)


class Wrong:
    def __init__(self, value):
        self.value = value

    def fit(self, pairs, labels):
        pass

    def __call__(self, pairs):
        return self.value(pairs.k)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"pairs": "kr-v3"}, InputError, "pairs must be one of"),
        ({"pairs": object()}, InputError, "methods fit"),
        ({"strength": -1.0}, InputError, "at least 0"),
        ({"strength": "auto"}, InputTypeError, "a number"),
        ({"strength": []}, InputError, "empty"),
        ({"strength": [0.1, float("nan")]}, InputError, "finite"),
        ({"solver": "qr"}, InputError, "'exact', 'fjlt'"),
        ({"eps": 0.0}, InputError, "eps"),
        ({"ridge": -1.0}, InputError, "ridge"),
        ({"generator": 0}, InputTypeError, "generator"),
        ({"base": torch.ones(2)}, InputTypeError, "Kernel"),
    ],
)
def test_bad_parameters(options, error, message):
    with pytest.raises(error, match=message):
        ntkit.LabelAware(**{"base": base(), **options})


X, Y = data(8, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((X, Y[:5]), InputError, "shape"),
        ((X, Y.tolist()), InputTypeError, "torch.Tensor"),
        ((X, torch.linspace(0, 1, 8)), InputError, "regression target"),
        ((X, torch.full((8,), torch.nan)), InputError, "finite"),
        ((X[:, 0], Y), InputError, "batch dimension"),
        ((torch.full_like(X, torch.inf), Y), InputError, "finite"),
        ((X.long(), Y), InputTypeError, "floating"),
        ((X, Y, torch.eye(7).double()), InputError, "shape"),
        ((X, Y, torch.eye(8)), InputTypeError, "dtype"),
        ((X, Y, X @ X.T + torch.arange(8.0)), InputError, "symmetric"),
        ((X, Y, torch.full((8, 8), torch.nan).double()), InputError, "NaN"),
    ],
)
def test_bad_training_data(arguments, error, message):
    with pytest.raises(error, match=message):
        ntkit.LabelAware(base()).fit(*arguments)


@pytest.mark.parametrize("pairs", ["kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2"])
@pytest.mark.parametrize("label", [-1.0, 0.0, 1.0])
def test_one_class(pairs, label):
    """Every pair of training points is of one class: the estimate has the sign and, by its normalisation, the size of 1."""
    kernel = ntkit.LabelAware(base(), pairs=pairs, strength=0.5).fit(X, torch.full((8,), label))
    part, k = kernel.label_part(X), kernel.base(X)
    assert abs(float(part.abs().mean() / k.abs().mean()) - 0.5) < 1e-9
    if pairs != "kr-v2":
        torch.testing.assert_close(part, part.mean().expand_as(part), rtol=1e-8, atol=0)
    assert float(part.mean()) > 0


def test_bad_use():
    kernel = ntkit.LabelAware(base())
    for use in (lambda: kernel(X), lambda: kernel.diag(X), lambda: kernel.weight, lambda: kernel.with_strength(1.0)):
        with pytest.raises(InputError, match="call fit"):
            use()
    kernel.fit(X, Y)
    with pytest.raises(InputError, match="shape of the training inputs"):
        kernel(X[:, :4])
    with pytest.raises(InputError, match="k, the base kernel of the inputs, must be"):
        kernel.from_base(X, X)
    for value, message in ((lambda k: k[:1], "shape"), (lambda k: k.float(), "float64"), (lambda k: k / 0, "NaN")):
        with pytest.raises(InputError, match=message):
            ntkit.LabelAware(base(), pairs=Wrong(value)).fit(X, Y)


def with_eigenvalues(*values: float) -> torch.Tensor:
    q = torch.linalg.qr(torch.randn(len(values), len(values), generator=torch.Generator().manual_seed(0)).double())[0]
    return q * torch.tensor(values, dtype=torch.float64) @ q.T


@pytest.mark.parametrize("smallest", [-0.5, -1e-3, 0.2])
def test_smallest_and_largest_eigenvalue(smallest):
    found = definiteness(with_eigenvalues(1.0, smallest, 2.5))
    assert (found.smallest, found.largest) == pytest.approx((smallest, 2.5), abs=1e-12)
    assert found.negative == (smallest < 0)


def test_rounding_is_not_negative():
    assert definiteness(with_eigenvalues(1.0, -1e-16, -2e-3, -1.0)).negative == 2
    single = with_eigenvalues(1.0, -1e-7, -2e-3, -1.0).float()
    assert definiteness(single).negative == 2
    assert definiteness(single.double()).negative == 3


def test_a_kernel_without_labels_is_not_fitted():
    for kernel in (ntkit.LabelAware(base()), ntkit.TangentHierarchy("erf")):
        with pytest.raises(NotFittedError, match="has seen no labels yet"):
            kernel(data(4, 2)[0])
