from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import ntkit
from ntkit._src.experiments._operations import Operations

CONV = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 4))


def backward():
    CONV(torch.ones(5, 2, 6, 6)).sum().backward()


@torch.inference_mode()
def forward():
    CONV(torch.ones(5, 2, 6, 6))


CASES = {
    "product": (lambda: torch.ones(3, 4) @ torch.ones(4, 5), 2 * 3 * 4 * 5),
    "elementwise": (lambda: torch.relu(torch.ones(3)) + 1, 0),
    "forward": (forward, 2 * 5 * (36 * 3 * 2 * 9 + 3 * 36 * 4)),
    "backward": (backward, None),
}


@pytest.mark.parametrize("name", CASES)
def test_as_many_as_torch_counts(name):
    call, expected = CASES[name]
    with Operations() as ours:
        call()
    with FlopCounterMode(display=False) as theirs:
        call()
    assert ours.total == theirs.get_total_flops()
    assert expected is None or ours.total == expected


def test_derivatives_in_parameters():
    """Large images, whose Jacobian is computed row by row: torch's own counter raises an error there."""
    x = torch.ones(2, 2, 6, 6)
    outputs = CONV(x)
    with Operations() as counter:
        torch.autograd.grad(outputs[0, 0], list(CONV.parameters()), retain_graph=True)
        assert counter.total > 0
        before = counter.total
        ntkit.empirical(CONV, method="jacobian").ntk(x)
    assert counter.total > before
