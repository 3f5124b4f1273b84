from __future__ import annotations

import numpy as np
import pytest
import torch

import ntkit
from ntkit.datasets import balanced_split, load_digits
from ntkit_studies._digits_pair import limit_of, network_of, pair_of


@pytest.fixture(scope="module")
def pair():
    digits = load_digits()
    pool, test = (digits.take(index) for index in balanced_split(digits.labels, [200, 100], 0))
    return pair_of(pool, test, (3, 8), 10, 7, (0, 4, 60), seed=1)


def test_the_path_joins_two_test_images(pair):
    assert pair.x.shape == (10, 64) and sorted(pair.y.tolist()) == [-1.0] * 5 + [1.0] * 5
    ends = [(pair.x_test == end).all(1).nonzero().item() for end in (pair.path[0], pair.path[-1])]
    assert pair.y_test[ends].tolist() == [-1.0, 1.0]
    torch.testing.assert_close(pair.path[3], (pair.path[0] + pair.path[-1]) / 2)


def test_the_limit_is_the_posterior(pair):
    found = limit_of(pair)
    expected = ntkit.posterior(pair.limit, pair.x, pair.y, pair.path, t=pair.rate * 60)
    np.testing.assert_allclose(found.mean[-1], expected.mean, rtol=1e-12)
    np.testing.assert_allclose(np.square(found.std[-1]), expected.variance, rtol=1e-9)
    assert not np.any(found.mean[0]) and (np.diff(found.losses) < 0).all()
    assert 0.4 < found.elasticity < found.label_aware_elasticity < 1


def test_wide_networks_follow_the_limit(pair):
    limit = limit_of(pair)
    networks = [network_of(pair, 256, seed) for seed in range(6)]
    outputs = np.array([one.outputs for one in networks])
    deviation = (outputs.mean(0) - limit.mean) / np.array(limit.std) * len(networks) ** 0.5
    assert np.square(deviation).mean() < 4
    losses = np.mean([one.losses for one in networks], axis=0)
    assert np.abs(np.log(losses / limit.losses)).max() < 1
    narrow = np.mean([network_of(pair, 16, seed).kernel_error for seed in range(6)])
    assert np.mean([one.kernel_error for one in networks]) < 0.6 * narrow
