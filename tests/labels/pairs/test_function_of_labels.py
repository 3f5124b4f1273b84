from __future__ import annotations

import pytest
import torch
from tests.cases import mlp, normal

import ntkit
from ntkit.errors import InputError, InputTypeError
from ntkit.labels import function_of_labels

N = 7


def problem(pairs, classes=2, n=N):
    x = normal(n + 3, 5)
    base = ntkit.infinite_width(mlp(5, 8, 1), b_std=0.3).ntk
    y = torch.arange(n) % classes
    return x[:n], x[n:], ntkit.LabelAware(base, pairs=pairs, strength=0.5).fit(x[:n], y), y


@pytest.mark.parametrize("pairs", ["kr-v1", "kr-v2", "fjlt-v1"])
def test_is_the_fitted_kernel_at_its_own_labels(pairs):
    x, new, kernel, y = problem(pairs)
    labels = 2.0 * y - 1
    torch.testing.assert_close(function_of_labels(kernel, x, new, x)(labels), kernel(new, x))
    torch.testing.assert_close(function_of_labels(kernel, x, x)(-labels), kernel(x))  # y_i y_j is the same for -y
    torch.testing.assert_close(function_of_labels(kernel, x, new, label_part=True)(labels), kernel.label_part(new))
    x, new, kernel, y = problem(pairs, classes=3)
    torch.testing.assert_close(function_of_labels(kernel, x, new, x)(y), kernel(new, x))


@pytest.mark.parametrize("pairs", ["kr-v1", "kr-v2", "fjlt-v1"])
@pytest.mark.parametrize("eta", [None, 0.3])
def test_pairwise_regression_ends_at_the_second_level(pairs, eta):
    """Section 2.3: K_HR of fixed strength is quadratic in the labels; for fair coins it has no level 1 either."""
    x, new, kernel, _ = problem(pairs)
    values = function_of_labels(kernel, x, new, x)
    exact, fast = (ntkit.hoeffding(values, N, eta, method=method) for method in ("enumerate", "quadratic"))
    for name in ("mean", "first", "second", "levels"):
        torch.testing.assert_close(getattr(fast, name), getattr(exact, name), rtol=1e-8, atol=1e-10)
    shares = exact.variance_shares
    assert float(shares[2]) < 1e-20
    assert float(shares[0]) < 1e-20 if eta is None else float(shares[0]) > 0.05
    # What is label-agnostic is the base kernel and the mean of Z.
    base = kernel.base(new, x)
    label = ntkit.hoeffding(function_of_labels(kernel, x, new, x, label_part=True), N, eta, method="quadratic")
    torch.testing.assert_close(fast.mean, base + label.mean, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(fast.levels[1:], label.levels[1:], rtol=1e-6, atol=1e-12)


def test_a_strength_that_follows_the_labels_reaches_higher_levels():
    """Fitted anew for all labels, lambda = strength mean|K| / mean|Z| depends on them, and Z / mean|Z| is not quadratic."""
    x, new, kernel, _ = problem("kr-v1")
    fresh = ntkit.LabelAware(kernel.base, pairs="kr-v1", strength=0.5)

    def values(y):
        # One class only has no fit: all targets are one, and Z with it.
        one_class = bool((y == y[0]).all())
        return kernel.base(new, x) + 0.5 * kernel.base(x).abs().mean() if one_class else fresh.fit(x, y)(new, x)

    shares = ntkit.hoeffding(values, N).variance_shares
    assert float(shares[2]) > 0.01
    assert float(shares.sum()) == pytest.approx(1)
    with pytest.raises(InputError, match="three labels or more"):
        ntkit.hoeffding(values, N, method="quadratic")


def test_classes():
    x, new, kernel, _ = problem("kr-v1", classes=3, n=5)
    eta = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).expand(5, 3)
    values = function_of_labels(kernel, x, new, x)
    exact, fast = (ntkit.hoeffding(values, 5, eta, method=method) for method in ("enumerate", "quadratic"))
    torch.testing.assert_close(fast.levels, exact.levels, rtol=1e-8, atol=1e-12)
    assert float(exact.variance_shares[2]) < 1e-20


def test_alignment_of_the_label_aware_kernel_is_higher():
    """Section C, with the estimator itself: <K + c Z, y y^T> = <K, y y^T> + c <Z, y y^T>."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(60) % 2
    x = torch.randn(60, 5, generator=generator, dtype=torch.float64) + y[:, None]
    base = ntkit.infinite_width(mlp(5, 8, 1), b_std=0.3).ntk
    for pairs in ("kr-v1", "fjlt-v1"):
        kernel = ntkit.LabelAware(base, pairs=pairs, strength=0.5).fit(x, y)
        signs = 2.0 * y.double() - 1
        target = torch.outer(signs, signs)
        parts = [(one * target).sum() for one in (kernel(x), base(x), kernel.label_part(x))]
        torch.testing.assert_close(parts[0], parts[1] + parts[2])
        assert float(parts[2]) > 0
        assert float(ntkit.alignment(kernel(x), y)) > float(ntkit.alignment(base(x), y))


def test_bad_input():
    x, new, kernel, _ = problem("kr-v1")
    with pytest.raises(InputTypeError, match="LabelAware"):
        function_of_labels(kernel.base, x, new)
    with pytest.raises(InputError, match=r"shape \(7,\)"):
        function_of_labels(kernel, x, new)(torch.ones(3))
    with pytest.raises(InputError, match="no labels yet"):
        function_of_labels(ntkit.LabelAware(kernel.base), x, new)
