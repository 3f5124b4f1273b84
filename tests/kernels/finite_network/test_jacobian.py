"""Derivatives formed at once are used where they are right, and taken row by row where they are not."""

from __future__ import annotations

import pytest
import torch
from tests.cases import mlp
from tests.kernels.finite_network.cases import brute_ntk
from torch import nn

import ntkit
from ntkit._src.kernels.finite_network import _jacobian


def problem() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    net = mlp(3, 5, 2, activation=nn.Tanh).double()
    return net, torch.randn(4, 3, dtype=torch.float64)


@pytest.mark.parametrize("wrong", [False, True])
def test_which_way(wrong, monkeypatch):
    net, x = problem()
    taken, row_by_row, vmap = [], _jacobian._row_by_row, _jacobian.vmap
    monkeypatch.setattr(_jacobian, "_row_by_row", lambda *a: taken.append(1) or row_by_row(*a))
    if wrong:  # a batching rule that errs without an error

        def erring(function, dims):
            def batched(*arguments):
                found = vmap(function, dims)(*arguments)
                return {name: value * (1.001 if name.endswith("0.weight") else 1) for name, value in found.items()}

            return batched

        monkeypatch.setattr(_jacobian, "vmap", erring)
    found = ntkit.empirical(net, method="jacobian").ntk(x)
    torch.testing.assert_close(found, brute_ntk(net, x, x), rtol=1e-10, atol=1e-12)
    assert bool(taken) is wrong
