"""E K2 and E K4 of two-layer networks against nested autograd, exact expectations and sampled networks."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tests.labels.hierarchy import two_layer_oracle as oracle
from torch import Tensor
from torch.func import grad, jvp

from ntkit.errors import InputError, InputTypeError
from ntkit.labels import TwoLayerHierarchy
from ntkit.labels.hierarchy._two_layer_terms import Contraction, derivatives, fourth_of_neurons, orthogonal_neurons

Theta = tuple[Tensor, Tensor]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def nested(function: Callable[[Tensor], Tensor], theta: Theta, x: Tensor) -> Tensor:
    """K_r(x_1, ..., x_r) of a finite network by nested derivatives along gradients."""

    def gradient(theta: Theta, x: Tensor) -> Theta:
        def f(theta: Theta) -> Tensor:
            a, w = theta
            return a @ function(w @ x) / len(a) ** 0.5

        result: Theta = grad(f)(theta)
        return result

    def kernel(theta: Theta, r: int) -> Tensor:
        if r == 2:
            return sum((p * q).sum() for p, q in zip(gradient(theta, x[0]), gradient(theta, x[1]), strict=True))
        result: Tensor = jvp(lambda theta: kernel(theta, r - 1), (theta,), (gradient(theta, x[r - 1]),))[1]
        return result

    return kernel(theta, len(x))


def slopes(function: Callable[[Tensor], Tensor]) -> list[Callable[[Tensor], Tensor]]:
    return [lambda z, order=order: derivatives(function, z, order)[order] for order in range(4)]


@pytest.mark.parametrize("function", [torch.tanh, torch.erf, torch.nn.functional.gelu])
def test_paper_formulas_equal_nested_autograd(function: Callable[[Tensor], Tensor]) -> None:
    """Eqs (13), (14) and (15), term by term, as printed."""
    a, w, x = draw(6), draw(6, 4, seed=1), draw(4, 4, seed=2)
    for order, formula in ((2, oracle.second), (3, oracle.third), (4, oracle.fourth)):
        expected = nested(function, (a, w), x[:order])
        torch.testing.assert_close(formula(slopes(function), a, w, x[:order]), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("function", [torch.tanh, torch.nn.functional.softplus])
def test_contraction_equals_nested_autograd(function: Callable[[Tensor], Tensor]) -> None:
    """The matrix products give sum_q u_qi v_qj K4 of an actual network."""
    a, w, x, x1, x2 = draw(5), draw(5, 3, seed=1), draw(3, 3, seed=2), draw(2, 3, seed=3), draw(2, 3, seed=4)
    u, v = draw(2, 3, seed=5), draw(2, 3, seed=6)
    entries = torch.stack(
        [nested(function, (a, w), torch.stack([p, q, r, s])) for p in x1 for q in x2 for r in x for s in x]
    ).reshape(2, 2, 3, 3)
    found = fourth_of_neurons(function, True, w.T, a**2, a**4, Contraction.of(x, u, v), x1, x2) / len(a) ** 2
    torch.testing.assert_close(found, torch.einsum("abij,qi,qj->ab", entries, u, v), rtol=1e-10, atol=1e-13)
    assert not torch.allclose(found, torch.einsum("abij,qj,qi->ab", entries, u, v))  # i and j are not exchangeable


def unit(count: int, d: int, seed: int = 3) -> Tensor:
    return torch.nn.functional.normalize(draw(count, d, seed=seed))


A, B, C, D = unit(4, 5)
GEOMETRIES = {
    "generic": (A, B, C, D),
    "lengths": (2 * A, 0.5 * B, 3 * C, D),
    "x = x'": (A, A, C, D),
    "x = -x'": (A, -A, C, D),
    "x = i": (A, B, A, D),
    "x = -i": (A, B, -A, D),
    "i = j": (A, B, C, C),
    "i = -j": (A, B, C, -C),
    "x = x' = i": (A, A, A, D),
    "x = -x' = i": (A, -A, A, D),
    "x = 2 i": (2 * A, B, A, D),
    "i between x and x'": (A, B, A + B, D),
    "j between x and x'": (A, B, C, A - B),
    # Here the expectation is infinite, and its finite part is compared.
    "x = j": (A, B, C, A),
    "x = -j": (A, B, C, -A),
    "x = i = j": (A, B, A, A),
    "x = -i = j": (A, B, -A, A),
    "x = x' = j": (A, A, C, A),
    "x = -x' = j": (A, -A, C, A),
    "x = x' = i = j": (A, A, A, A),
    "x = i, x' = j": (A, B, A, B),
    "x = j, x' = i": (A, B, B, A),
    "x = j, x' = -i": (A, B, -B, A),
    "x = j, x' = i, lengths": (2 * A, B, 3 * B, 0.5 * A),
    "x = j, i between x and x'": (A, B, A + 2 * B, A),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_relu_equals_the_limit_of_smoothed_relus(name: str) -> None:
    """E K4 of four inputs equals the finite part for h to 0 of exact expectations of ReLUs smoothed over a width h."""
    points = torch.stack(GEOMETRIES[name])
    widths = torch.tensor([1e-3, 2e-3, 4e-3], dtype=torch.float64)
    values = torch.tensor([oracle.relu_fourth(points, float(h)) for h in widths], dtype=torch.float64)
    singular, expected, _ = torch.linalg.solve(torch.stack([1 / widths, torch.ones_like(widths), widths], 1), values)
    source = TwoLayerHierarchy("relu", points[2:], 1, 16384, torch.Generator().manual_seed(0))
    u, v = torch.eye(2, dtype=torch.float64).split(1)
    mean, error = source.estimate_fourth(points[:1], points[1:2], u, v)
    bound = 5 * error + 1e-5 * (1 + expected.abs())  # the extrapolation leaves terms of the order of h^2
    assert abs(mean - expected) < bound, (float(mean), float(error), float(expected))
    assert error < 0.01 * max(
        float(points.norm(dim=1).prod()), float(expected.abs())
    )  # K4 is in proportion to each length
    if not any(torch.linalg.matrix_rank(torch.stack([points[k], points[3]])) == 1 for k in (0, 1)):
        assert abs(singular) < 1e-7  # infinite only where the training point of the earlier time is parallel to x or x'


def test_relu_divergence_at_training_points() -> None:
    """Where x_j is x, E K4 of ReLUs smoothed over a width h grows as c / h, with the c that the documentation gives."""
    values = [oracle.relu_fourth(torch.stack([A, B, C, A]), h) for h in (1e-3, 2e-3)]
    gram = torch.stack([A, B, C]) @ torch.stack([A, B, C]).T
    left = gram[1:, 1:] - torch.outer(gram[1:, 0], gram[0, 1:])
    together = 0.25 + torch.asin(left[0, 1] / (left[0, 0] * left[1, 1]).sqrt()) / (2 * math.pi)
    expected = -3 / (math.sqrt(8) * math.pi) * gram[0, 1] * gram[0, 2] * together
    assert math.isclose((values[0] - values[1]) / 500, float(expected), rel_tol=1e-3)


@pytest.mark.parametrize("zero", range(4))
def test_relu_at_zero_inputs(zero: int) -> None:
    """An input that is zero has no gradient in W, and none of sigma: every kernel with it vanishes."""
    points = torch.stack([A, B, C, D])
    points[zero] = 0
    source = TwoLayerHierarchy("relu", points[2:], 1, 64, torch.Generator().manual_seed(0))
    u, v = torch.eye(2, dtype=torch.float64).split(1)
    assert source.fourth(points[:1], points[1:2], u, v) == 0


@pytest.mark.parametrize("activation", ["relu", "erf", "gelu"])
def test_second_equals_neurons(activation: str) -> None:
    """E K2 is the mean over neurons of sigma sigma' + x . x' times that of the slopes."""
    x, w = draw(4, 6), orthogonal_neurons(6, 60_000, torch.Generator().manual_seed(1))
    source = TwoLayerHierarchy(activation, x, 7)
    value, slope = derivatives(source.function, x @ w, 1)
    expected = (value @ value.T + (x @ x.T) * (slope @ slope.T)) / w.shape[1]
    torch.testing.assert_close(source.second(x), expected, rtol=0, atol=0.02 * float(expected.abs().max()))
    torch.testing.assert_close(source.second_diag(x), source.second(x).diagonal())


def test_neurons_are_standard_normal() -> None:
    """Each neuron has standard normal weights although those of one frame are orthogonal."""
    frames = torch.stack([orthogonal_neurons(3, 4, torch.Generator().manual_seed(seed)) for seed in range(4000)])
    assert (frames[:, :, :3].mT @ frames[:, :, :3]).tril(-1).abs().max() < 1e-12
    flat = frames[:, :, 0]
    torch.testing.assert_close(flat.T @ flat / 4000, torch.eye(3, dtype=torch.float64), rtol=0, atol=0.1)
    assert flat.mean(0).abs().max() < 0.06
    assert abs((flat**4).mean() - 3) < 0.3


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_independent_seeds_agree_within_their_errors(activation: str) -> None:
    """The standard error covers the spread of independent estimates, over many entries of a contraction of rank two."""
    x, x1, x2 = draw(6, 8), draw(5, 8, seed=1), draw(4, 8, seed=2)
    u, v = draw(2, 6, seed=3), draw(2, 6, seed=4)
    estimates = [
        TwoLayerHierarchy(activation, x, 1, 1024, torch.Generator().manual_seed(seed)).estimate_fourth(x1, x2, u, v)
        for seed in range(2)
    ]
    deviation = (estimates[0].mean - estimates[1].mean) / (estimates[0].error ** 2 + estimates[1].error ** 2).sqrt()
    assert 0.5 < deviation.square().mean().sqrt() < 1.8


def test_relu_contraction_is_the_sum_of_its_entries() -> None:
    """sum_q sum_ij u_qi v_qj K4_ij, entry by entry, test and training points mixed, within the errors."""
    x = draw(3, 4)
    x1, x2 = torch.cat([x[:1], draw(1, 4, seed=1)]), torch.cat([draw(1, 4, seed=2), x[:2]])
    u, v = draw(2, 3, seed=3), draw(2, 3, seed=4)
    whole = TwoLayerHierarchy("relu", x, 1, 8192, torch.Generator().manual_seed(0)).estimate_fourth(x1, x2, u, v)
    single = TwoLayerHierarchy("relu", x, 1, 8192, torch.Generator().manual_seed(1))
    identity = torch.eye(3, dtype=torch.float64)
    total, variance = torch.zeros_like(whole.mean), torch.zeros_like(whole.mean)
    for i in range(3):
        for j in range(3):
            entry = single.estimate_fourth(x1, x2, identity[i : i + 1], identity[j : j + 1])
            weight = float(u[:, i] @ v[:, j])
            total, variance = total + weight * entry.mean, variance + weight**2 * entry.error**2
    assert ((whole.mean - total).abs() < 5 * (whole.error**2 + variance).sqrt()).all()


@pytest.mark.parametrize(
    ("activation", "error", "words"),
    [
        ("swoosh", InputError, "'relu'"),
        (3, InputTypeError, "int"),
        (torch.relu, InputError, 'activation="relu"'),
    ],
)
def test_bad_activations(activation: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        TwoLayerHierarchy(activation, draw(3, 2), 8)  # type: ignore[arg-type]


def test_images_are_refused() -> None:
    with pytest.raises(InputError, match="flatten"):
        TwoLayerHierarchy("relu", draw(3, 2, 2), 8)


def test_function_of_ones_own() -> None:
    """A smooth function given as such has the kernels of its name."""
    x, u = draw(3, 4), draw(1, 3, seed=1)
    own, named = (
        TwoLayerHierarchy(activation, x, 5, 256, torch.Generator().manual_seed(0)) for activation in (torch.erf, "erf")
    )
    torch.testing.assert_close(own.second(x), named.second(x), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(own.fourth(x, None, u, u), named.fourth(x, None, u, u))
    assert math.isclose(float(own.third(x, None, u[0]).abs().max()), 0)
