from __future__ import annotations

import torch

from ntkit._src.common import random_rotation


def test_orthogonal_and_from_the_seed() -> None:
    q = random_rotation(5, torch.Generator().manual_seed(0))
    torch.testing.assert_close(q @ q.T, torch.eye(5, dtype=torch.float64))
    assert torch.equal(q, random_rotation(5, torch.Generator().manual_seed(0)))


def test_haar() -> None:
    """Every entry has mean 0 and variance 1/n, the diagonal as well: without the signs of R its mean is not zero."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([random_rotation(3, generator) for _ in range(2000)])
    assert draws.mean(0).abs().max() < 4.5 * (1 / 3 / 2000) ** 0.5
    torch.testing.assert_close(
        draws.square().mean(0), torch.full((3, 3), 1 / 3, dtype=torch.float64), rtol=0, atol=0.03
    )
    signs = torch.linalg.det(draws).sign().mean()
    assert abs(signs) < 4.5 / 2000**0.5  # rotations and reflections alike
