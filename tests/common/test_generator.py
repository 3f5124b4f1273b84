"""Global generators are left as they were; random rotations."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from ntkit._src.common import check_generator, random_rotation, restored_generator
from ntkit.errors import InputTypeError


def test_generators_and_none_pass():
    check_generator(None)
    check_generator(torch.Generator())


@pytest.mark.parametrize("given", [0, "seed", np.random.default_rng(0)])
def test_anything_else_is_an_error(given):
    with pytest.raises(InputTypeError, match="torch.Generator"):
        check_generator(given)


def test_the_global_generator_goes_on_as_if_nothing_had_been_drawn():
    state = torch.get_rng_state()
    with restored_generator():
        torch.randn(3)
    assert torch.equal(torch.get_rng_state(), state)


def test_numpy_and_python_go_on_too_and_follow_the_seed():
    before = random.getstate(), np.random.get_state()[1].tolist()
    draws = []
    for _ in range(2):
        with restored_generator(3):
            draws.append((random.random(), np.random.rand(), float(torch.rand(()))))
    assert draws[0] == draws[1]
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_threads_that_share_it_draw_what_their_seeds_say():
    def draw(seed: int) -> torch.Tensor:
        with restored_generator(seed):
            return torch.cat([torch.randn(1) for _ in range(200)])

    seeds = list(range(32))
    alone = [draw(seed) for seed in seeds]
    state = torch.get_rng_state()
    with ThreadPoolExecutor(8) as threads:
        assert all(torch.equal(one, two) for one, two in zip(threads.map(draw, seeds), alone, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


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
