"""Where a kink that was not declared is noticed: for variances that reach it, and for no others."""

import warnings

import pytest
import torch

from ntkit._src.program import AnyFunction
from ntkit._src.rules.expectations import dual
from ntkit.errors import QuadratureWarning

FAR = 60.0


def _far_kink(z):
    """A kink at 1, which is declared, and a slope that changes at 60, which is not."""
    return torch.where(z > 1, torch.tanh(z - 1), (z - 1) ** 2 * torch.exp(-z * z)) + (z - FAR).relu()


def test_warning_names_the_variances_that_reach_the_kink():
    phi = AnyFunction(_far_kink, kinks=(1.0,), label="far")
    one = torch.tensor([2.0, 15.0], dtype=torch.float64)  # 15 standard deviations and more from the kink
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dual(phi, one / 2, one, one, tangent=False)
    large = torch.tensor([300.0], dtype=torch.float64)  # 3.5 standard deviations
    with pytest.warns(QuadratureWarning, match=r"far.*variances of 300,.*Near z = 60"):
        dual(phi, large / 2, large, large, tangent=False)
    # the cells of both variances count, in either order
    with pytest.warns(QuadratureWarning, match=r"far.*variances between 3 and 300,"):
        dual(phi, large / 40, large, large / 100, tangent=False)
    with pytest.warns(QuadratureWarning, match=r"far.*variances between 3 and 300,"):
        dual(phi, large / 50, large / 100, large, tangent=False)
