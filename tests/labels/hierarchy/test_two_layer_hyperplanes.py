"""Terms of the ReLU with one delta function: neurons on hyperplanes, entry by entry."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.labels import TwoLayerHierarchy


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


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
