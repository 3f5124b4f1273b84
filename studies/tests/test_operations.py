from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import ntkit
from ntkit_studies._operations import Operations

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


def _grouped(groups, transposed=False):
    make = nn.ConvTranspose2d if transposed else nn.Conv2d
    return make(4, 6, 3, padding=1, groups=groups, bias=False)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_groups_are_counted_once(groups, transposed):
    """Each of 36 pixels of 5 images meets 9 weights for each pair of channels of a group."""
    x, conv = torch.ones(5, 4, 6, 6, requires_grad=True), _grouped(groups, transposed)
    with Operations() as forward:
        out = conv(x)
    assert forward.total == 2 * 5 * 36 * 9 * 4 * 6 // groups
    with Operations() as backward:
        torch.autograd.grad(out.sum(), [x, conv.weight])
    assert backward.total == 2 * forward.total


def test_a_batch_of_derivatives_takes_as_many_as_its_rows():
    """vmap makes groups of rows, which torch's counter takes for channels that all meet."""
    conv, x = _grouped(1), torch.ones(5, 4, 6, 6)

    def derivative(row):
        return torch.func.grad(lambda weight: torch.func.functional_call(conv, {"weight": weight}, row[None]).sum())(
            conv.weight.detach()
        )

    with Operations() as one:
        derivative(x[0])
    with Operations() as all_rows:
        torch.vmap(derivative)(x)
    assert all_rows.total == 5 * one.total == 5 * 2 * 2 * 36 * 9 * 4 * 6
    with FlopCounterMode(display=False) as theirs:
        torch.vmap(derivative)(x)
    assert theirs.get_total_flops() > all_rows.total  # otherwise torch's formulas would do


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
