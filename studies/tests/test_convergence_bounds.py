from __future__ import annotations

import math

import torch

from ntkit import empirical
from ntkit.diagnostics import two_layer_gram
from ntkit_studies import convergence_bounds


def test_the_network_is_that_of_the_theorems():
    x = torch.nn.functional.normalize(
        torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    )
    net = convergence_bounds.two_layer_network(6, 4000, torch.Generator().manual_seed(1))
    assert torch.allclose(net[2].weight.abs(), torch.tensor(4000**-0.5, dtype=torch.float64))
    # Means of 4,000 indicators times at most one: six standard errors.
    assert (empirical(net).ntk(x) - two_layer_gram(x)).abs().max() < 6 * 0.5 / math.sqrt(4000)


def test_the_loss_is_below_the_rate_where_the_assumption_holds():
    settings = convergence_bounds.Settings(widths=(1024,), draws=1, points=8, steps=200, records=6, table_points=30)
    results = convergence_bounds.run(settings)
    (found,) = results.values.values()
    assert found.losses[0] == 1 and found.times[0] == 0 and len(found.times) == len(found.losses) == len(found.least)
    assert found.losses[-1] < 0.9
    if found.assumption_holds:
        assert found.excess <= 1 + 1e-9
    assert 0 < found.moved <= found.movement_bound
    measured, bounds = convergence_bounds.report(results).sections
    assert measured.parts[0].rows[0][0] == "1,024"
    widths = [row for row in bounds.parts[0].rows if row[0].startswith("width")]
    assert len(widths) == 3 and all(row[2] == "vacuous for practice" for row in widths)


def test_an_excess_is_seen():
    found = convergence_bounds.Measured((0.0, 1.0), (1.0, 0.9), (1.0, 0.4), 0.1, 1.0, 0.5)
    assert not found.assumption_holds and found.excess > 1
