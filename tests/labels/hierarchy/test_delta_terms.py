"""Terms of the ReLU with one delta function: neurons on hyperplanes, entry by entry."""

from __future__ import annotations

import math

import pytest
import torch
from tests.cases import normal
from tests.labels.hierarchy import two_layer_oracle as oracle
from torch import Tensor

from ntkit.labels import TwoLayerHierarchy


def test_relu_contraction_is_the_sum_of_its_entries() -> None:
    """sum_q sum_ij u_qi v_qj K4_ij, entry by entry, test and training points mixed, within the errors."""
    x = normal(3, 4)
    x1, x2 = torch.cat([x[:1], normal(1, 4, seed=1)]), torch.cat([normal(1, 4, seed=2), x[:2]])
    u, v = normal(2, 3, seed=3), normal(2, 3, seed=4)
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


def unit(count: int, d: int, seed: int = 3) -> Tensor:
    return torch.nn.functional.normalize(normal(count, d, seed=seed))


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
