"""Hoeffding decompositions against projections by inclusion and exclusion over all label vectors."""

from __future__ import annotations

from itertools import combinations, product

import pytest
import torch
from tests.cases import mlp

import ntkit
from ntkit.errors import InputError, InputTypeError

F = torch.float64


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def quadratic(n, shape=(2, 3), seed=0):
    """A constant, a linear and a quadratic form with a diagonal, for each entry."""
    draws = generator(seed)
    a, b = (torch.randn((*size, *shape), generator=draws, dtype=F) for size in ((), (n,)))
    m = torch.randn(n, n, *shape, generator=draws, dtype=F)
    return lambda y: a + torch.einsum("i,i...->...", y, b) + torch.einsum("i,j,ij...->...", y, y, m)


def rough(n, shape=(2, 3), seed=0):
    """All interactions: a smooth function that is no polynomial."""
    inner = quadratic(n, shape, seed)
    return lambda y: torch.exp(0.15 * inner(y))


def classes_of(n, shape=(2,), seed=0):
    """Three classes: an arbitrary table for every label and every pair, and one triple."""
    draws = generator(seed)
    pairs = {p: torch.randn(3, 3, *shape, generator=draws, dtype=F) for p in combinations(range(n), 2)}
    triple = torch.randn(3, 3, 3, *shape, generator=draws, dtype=F)

    def function(y, with_triple=True):
        value = sum(table[y[i], y[j]] for (i, j), table in pairs.items())
        return value + triple[y[0], y[1], y[2]] if with_triple else value

    return function


def probabilities(n, c, seed=3):
    table = torch.rand(n, c, generator=generator(seed), dtype=F) + 0.2
    return table / table.sum(1, keepdim=True)


ETA = torch.tensor([0.5, 0.3, 0.8, 0.62, 0.11], dtype=F)
CASES = {
    "fair": (rough(5), 5, None),
    "one probability": (rough(4), 4, 0.3),
    "biased": (rough(5), 5, ETA),
    "three classes": (classes_of(4), 4, probabilities(4, 3)),
    "scalar": (rough(3, ()), 3, 0.4),
    "one label": (quadratic(1), 1, 0.2),
}


def every(n, eta):
    """All label vectors with their probabilities, from the definition."""
    table = torch.as_tensor(0.5 if eta is None else eta, dtype=F)
    if table.ndim < 2:
        plus = table.expand(n)
        table, names = torch.stack([1 - plus, plus], 1), (-1.0, 1.0)
    else:
        names = tuple(range(table.shape[1]))
    for numbers in product(range(len(names)), repeat=n):
        weight = torch.stack([table[i, a] for i, a in enumerate(numbers)]).prod()
        yield torch.tensor([names[a] for a in numbers]), float(weight), numbers


def projection(function, n, eta, subset, at):
    """proj_A K = sum over B in A of (-1)^{|A| - |B|} E[K | y_B], at the label vector ``at`` of class numbers."""
    total = 0
    for size in range(len(subset) + 1):
        for kept in combinations(subset, size):
            mean, mass = 0, 0.0
            for labels, weight, numbers in every(n, eta):
                if all(numbers[i] == at[i] for i in kept):
                    mean, mass = mean + weight * function(labels.to(F) if eta_is_binary(eta) else labels), mass + weight
            total = total + (-1) ** (len(subset) - size) * mean / mass
    return total


def eta_is_binary(eta):
    return not (isinstance(eta, torch.Tensor) and eta.ndim == 2)


@pytest.mark.parametrize("name", CASES)
def test_enumeration_is_the_projection_by_inclusion_and_exclusion(name):
    function, n, eta = CASES[name]
    found = ntkit.hoeffding(function, n, eta)
    assert found.method == "enumerate" and found.errors == {}
    everything = list(every(n, eta))
    for labels, _, numbers in everything[:: max(1, len(everything) // 4)]:
        for level in range(min(n, 2) + 1):
            subsets = list(combinations(range(n), level))
            expected = sum(projection(function, n, eta, subset, numbers) for subset in subsets)
            torch.testing.assert_close(found.part(level, labels), expected, rtol=1e-11, atol=1e-12)
            if level == 1:
                for (i,) in subsets:
                    own = projection(function, n, eta, (i,), numbers)
                    torch.testing.assert_close(found.first_order(i)[numbers[i]], own, rtol=1e-11, atol=1e-12)
            if level == 2:
                i, j = subsets[-1]
                own = projection(function, n, eta, (i, j), numbers)
                torch.testing.assert_close(
                    found.second_order(i, j)[numbers[i], numbers[j]], own, rtol=1e-11, atol=1e-12
                )
                torch.testing.assert_close(
                    found.second_order(j, i)[numbers[j], numbers[i]], own, rtol=1e-11, atol=1e-12
                )


@pytest.mark.parametrize("name", CASES)
def test_norms_are_the_expected_squares_and_parts_are_orthogonal(name):
    function, n, eta = CASES[name]
    found = ntkit.hoeffding(function, n, eta)
    labels, weights, _ = zip(*every(n, eta), strict=True)
    labels, weights = torch.stack(labels), torch.tensor(weights, dtype=F)
    values = torch.stack([function(one.to(F) if eta_is_binary(eta) else one) for one in labels])
    parts = [found.part(level, labels) for level in range(3)]
    parts.append(values - sum(parts))
    shaped = weights.reshape(-1, *[1] * found.mean.ndim)
    for level, part in enumerate(parts):
        torch.testing.assert_close(found.levels[level], (shaped * part.square()).sum(0), rtol=1e-10, atol=1e-12)
        for other in range(level):
            assert float((shaped * part * parts[other]).sum(0).abs().max()) < 1e-12
    torch.testing.assert_close(found.levels.sum(0), (shaped * values.square()).sum(0))
    inner = found.inner_products
    torch.testing.assert_close(inner.diagonal(), found.levels.reshape(4, -1).mean(1), rtol=1e-10, atol=1e-12)
    assert float((inner - inner.diagonal().diag()).abs().max()) < 1e-12
    assert float(found.shares.sum()) == pytest.approx(1) == pytest.approx(float(found.variance_shares.sum()))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[1] > 1])
def test_conditional_expectations_vanish(name):
    function, n, eta = CASES[name]
    found = ntkit.hoeffding(function, n, eta)
    p = found.law.probabilities
    torch.testing.assert_close(p.sum(1), torch.ones(n, dtype=F))
    scale = float(found.levels.sum(0).max()) ** 0.5
    for i in range(n):
        assert float(torch.tensordot(p[i], found.first_order(i), 1).abs().max()) < 1e-12 * scale
        for j in range(n):
            table = found.second_order(i, j)
            assert float(torch.einsum("a,ab...->b...", p[i], table).abs().max()) < 1e-12 * scale
            assert float(torch.einsum("b,ab...->a...", p[j], table).abs().max()) < 1e-12 * scale
            assert i != j or not bool(table.any())


@pytest.mark.parametrize(
    ("function", "n", "eta"),
    [
        (quadratic(6), 6, None),
        (quadratic(6), 6, torch.linspace(0.1, 0.9, 6, dtype=F)),
        (lambda y: classes_of(5)(y, with_triple=False), 5, probabilities(5, 3)),
        (quadratic(1), 1, 0.3),
        (quadratic(2, ()), 2, 0.3),
    ],
)
def test_pairs_alone_give_the_exact_parts_of_a_quadratic_function(function, n, eta):
    exact, fast = (ntkit.hoeffding(function, n, eta, method=method) for method in ("enumerate", "quadratic"))
    for name in ("mean", "first", "second", "levels"):
        torch.testing.assert_close(getattr(fast, name), getattr(exact, name), rtol=1e-10, atol=1e-11)
    c = exact.law.classes
    assert fast.evaluations == 1 + n * (c - 1) + n * (n - 1) // 2 * (c - 1) ** 2 + 8
    assert float(exact.levels[3].max()) < 1e-24 * float(exact.levels.max()) + 1e-24


def test_quadratic_form_in_closed_form():
    """y^T M y with E y_i = m_i: mean m^T M m + sum M_ii (1 - m_i^2), first 2 s_i (M m - M_ii m_i)_i, second 2 s_i s_j M_ij."""
    n = 40
    m = torch.randn(n, n, generator=generator(), dtype=F)
    m = m + m.T
    eta = torch.linspace(0.2, 0.9, n, dtype=F)
    mean, spread = 2 * eta - 1, 2 * (eta * (1 - eta)).sqrt()
    found = ntkit.hoeffding(lambda y: y @ m @ y, n, eta, method="quadratic")
    diagonal = m.diagonal()
    torch.testing.assert_close(found.mean, mean @ m @ mean + (diagonal * (1 - mean**2)).sum(), rtol=1e-11, atol=1e-11)
    first = 2 * spread * (m @ mean - diagonal * mean)
    torch.testing.assert_close(found.first[:, 0], first, rtol=1e-10, atol=1e-10)
    second = 2 * spread[:, None] * spread * (m - diagonal.diag())
    torch.testing.assert_close(found.second[:, :, 0, 0], second, rtol=1e-10, atol=1e-10)


def test_quadratic_method_refuses_what_is_not_quadratic():
    with pytest.raises(InputError, match="three labels or more"):
        ntkit.hoeffding(rough(6), 6, method="quadratic")
    with pytest.raises(InputError, match="three labels or more"):
        ntkit.hoeffding(classes_of(5), 5, probabilities(5, 3), method="quadratic")
    found = ntkit.hoeffding(rough(6), 6, method="quadratic", tolerance=10.0)
    assert found.method == "quadratic"


def test_kernels_in_single_precision_are_quadratic_within_their_rounding():
    m = torch.randn(30, 30, generator=generator())
    found = ntkit.hoeffding(lambda y: y.float() @ m @ y.float(), 30, method="quadratic")
    exact = ntkit.hoeffding(lambda y: y @ m.double() @ y, 30, method="quadratic")
    torch.testing.assert_close(found.second, exact.second, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("function", "n", "eta"),
    [(rough(5), 5, ETA), (quadratic(8), 8, None), (classes_of(4), 4, probabilities(4, 3))],
)
def test_monte_carlo_lies_within_its_error(function, n, eta):
    exact = ntkit.hoeffding(function, n, eta)
    found = ntkit.hoeffding(function, n, eta, method="monte-carlo", n_samples=3000, generator=generator(1))
    assert found.evaluations == 3000 and set(found.errors) == {"mean", "first", "second", "levels"}
    deviations = []
    for name, error in found.errors.items():
        value, truth = getattr(found, name), getattr(exact, name)
        assert value.shape == error.shape == truth.shape
        gap, mask = (value - truth).abs(), error > 0
        assert float((gap[~mask]).max() if bool((~mask).any()) else 0.0) < 1e-9
        deviations.append((gap[mask] / error[mask]).flatten())
    deviations = torch.cat(deviations)
    assert float(deviations.max()) < 4.5
    assert 0.5 < float(deviations.square().mean().sqrt()) < 1.4  # the errors are of the right size, not merely large


def test_monte_carlo_is_unbiased_and_its_errors_are_the_spread_over_seeds():
    function, n, eta = CASES["biased"]
    exact = ntkit.hoeffding(function, n, eta)
    runs = [
        ntkit.hoeffding(function, n, eta, method="monte-carlo", n_samples=60, generator=generator(seed))
        for seed in range(300)
    ]
    for name in ("mean", "first", "levels"):
        values = torch.stack([getattr(run, name) for run in runs])
        spread = values.std(0)
        assert float(((values.mean(0) - getattr(exact, name)) / (spread / len(runs) ** 0.5)).abs().max()) < 4.5, name
        reported = torch.stack([run.errors[name] for run in runs]).square().mean(0).sqrt()
        ratio = reported / spread
        assert float(ratio.min()) > 0.75 and float(ratio.max()) < 1.6, name  # the jackknife is cautious


def test_a_generator_gives_the_same_numbers_again():
    first, again = (
        ntkit.hoeffding(quadratic(20), 20, n_samples=50, generator=generator(5)) for _ in range(2)
    )  # fmt: skip
    assert first.method == "monte-carlo"
    assert torch.equal(first.levels, again.levels) and torch.equal(first.second, again.second)


def test_probabilities_in_single_precision():
    table = probabilities(4, 3)
    single, double = (ntkit.hoeffding(classes_of(4), 4, one) for one in (table.float(), table))
    torch.testing.assert_close(single.levels, double.levels, rtol=1e-5, atol=1e-5)
    assert single.levels.dtype == F


def test_progress_and_representation():
    reports = []
    found = ntkit.hoeffding(quadratic(3), 3, progress=lambda *report: reports.append(report))
    assert reports[-1] == (8, 8) and "3 labels" in repr(found)


def test_a_label_agnostic_kernel_is_level_zero():
    found = ntkit.hoeffding(lambda y: torch.full((2, 2), 3.0), 4)
    torch.testing.assert_close(found.shares, torch.tensor([1.0, 0, 0, 0], dtype=F))
    with pytest.raises(InputError, match="does not depend on the labels"):
        _ = found.variance_shares
    with pytest.raises(InputError, match="zero for all labels"):
        _ = ntkit.hoeffding(lambda y: torch.zeros(1), 2).shares


@pytest.mark.parametrize("pairs", ["kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2"])
@pytest.mark.parametrize("method", ["enumerate", "quadratic", pytest.param("monte-carlo", marks=pytest.mark.slow)])
def test_label_aware_kernels(pairs, method):
    """The recipes of the docstring: every label vector has its value, those of one class too, by every method."""
    n = 5
    x = torch.randn(n, 3, generator=generator(), dtype=F)
    base = ntkit.infinite_width(mlp(3, 8, 1)).ntk
    kernel = ntkit.LabelAware(base, pairs, strength=0.5, ridge=1e-3).fit(x, torch.arange(n) % 2)
    options = {"method": method, "n_samples": 96, "generator": generator(1)}
    held = ntkit.hoeffding(ntkit.labels.function_of_labels(kernel, x, x), n, **options)
    exact = ntkit.hoeffding(ntkit.labels.function_of_labels(kernel, x, x), n)
    assert exact.levels[3].abs().max() < 1e-12 * exact.levels.max()
    if method != "monte-carlo":
        torch.testing.assert_close(held.levels, exact.levels, rtol=1e-9, atol=1e-9 * float(exact.levels.max()))
    else:
        assert ((held.mean - exact.mean).abs() < 5 * held.errors["mean"] + 1e-12).all()

    def fitted_anew(y):
        return ntkit.LabelAware(base, pairs, strength=0.5, ridge=1e-3).fit(x, y)(x)

    if pairs == "fjlt-v2":  # more features than pairs: Z is +-1 on them, and lambda one number after all
        assert ntkit.hoeffding(fitted_anew, n, **options).method == method
    elif method == "quadratic":
        with pytest.raises(InputError, match="such as the strength of a label-aware kernel"):
            ntkit.hoeffding(fitted_anew, n, **options)
    else:
        assert ntkit.hoeffding(fitted_anew, n, **options).evaluations == (2**n if method == "enumerate" else 96)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: ntkit.hoeffding(3, 2), InputTypeError, "function of labels"),
        (lambda: ntkit.hoeffding(quadratic(2), 0), InputError, "at least 1"),
        (lambda: ntkit.hoeffding(quadratic(2), 2.0), InputTypeError, "integer"),
        (lambda: ntkit.hoeffding(quadratic(2), 2, 1.0), InputError, "strictly between"),
        (lambda: ntkit.hoeffding(quadratic(2), 2, float("nan")), InputError, "strictly between"),
        (lambda: ntkit.hoeffding(quadratic(2), 2, torch.rand(3)), InputError, r"shape \(2,\)"),
        (lambda: ntkit.hoeffding(quadratic(2), 2, torch.full((2, 3), 0.2)), InputError, "sum to one"),
        (lambda: ntkit.hoeffding(quadratic(2), 2, method="fast"), InputError, "method must be"),
        (lambda: ntkit.hoeffding(quadratic(30), 30, method="enumerate"), InputError, r"1.07e\+09 label vectors"),
        (lambda: ntkit.hoeffding(quadratic(30), 30), InputError, "needs a generator"),
        (lambda: ntkit.hoeffding(quadratic(30), 30, n_samples=3, generator=generator()), InputError, "at least 4"),
        (lambda: ntkit.hoeffding(lambda y: y[0] / (y[0] - 1), 2), InputError, "NaN or infinite"),
        (lambda: ntkit.hoeffding(lambda y: y[y > 0], 2), InputError, "same shape|at least one entry"),
        (lambda: ntkit.hoeffding(lambda y: float(y[0]), 2), InputTypeError, "floating-point tensor"),
        (lambda: ntkit.hoeffding(lambda y: y.long(), 2), InputTypeError, "floating-point tensor"),
        (lambda: ntkit.hoeffding(quadratic(2), 2).part(3, torch.ones(2)), InputError, "level must be"),
        (lambda: ntkit.hoeffding(quadratic(2), 2).part(1, torch.zeros(2)), InputError, r"-1 and \+1"),
        (lambda: ntkit.hoeffding(quadratic(2), 2).part(1, torch.ones(3)), InputError, r"shape \(..., 2\)"),
    ],
)
def test_bad_input(act, error, message):
    with pytest.raises(error, match=message):
        act()
