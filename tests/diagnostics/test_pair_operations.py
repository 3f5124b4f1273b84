from __future__ import annotations

import torch
from torch import nn

import ntkit
from ntkit.diagnostics import pair_operations


def test_operations_of_images() -> None:
    """Flattening needs one plane of 5 entries per layer: 39 operations (25 without tangent kernel) for each ReLU."""
    layers = [nn.Conv1d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv1d(4, 4, 3, padding=1), nn.ReLU()]
    limit = ntkit.infinite_width(nn.Sequential(*layers, nn.Flatten(), nn.Linear(20, 1)))
    assert pair_operations(limit.ntk, (1, 5)) == 2 * 5 * (39 + 2 * 2)
    assert pair_operations(limit.nngp, (1, 5)) == 2 * 5 * (25 + 2)
    assert pair_operations(limit.ntk, (1, 5), torch.float64) == 2 * 5 * (73 + 2 * 2)
