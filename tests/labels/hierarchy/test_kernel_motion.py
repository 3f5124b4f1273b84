"""The panels in time: where they end, and the exact weights of a panel's nodes."""

from __future__ import annotations

import pytest
import torch

from ntkit._src.labels.hierarchy._kernel_motion import KernelMotion, _breaks
from ntkit._src.solvers import decompose


def test_panels_double_and_end_at_the_times():
    assert _breaks([3.0, 0.0], 0.5) == [0.5, 1.0, 2.0, 3.0]
    assert _breaks([0.0], 0.5) == []
    assert _breaks([0.5, 1.0], 0.5) == [0.5, 1.0]


@pytest.mark.parametrize("h", [1e-3, 0.3, 5.0, 400.0])
def test_weights_integrate_polynomials_against_the_decay(h):
    """int_0^h e^(-d (h - s)) s^p ds and its own integral over the end, for d from 0.01 to 50, against fine quadrature."""
    values = torch.tensor([0.01, 1.0, 50.0], dtype=torch.float64)
    x = torch.zeros(3, 1, dtype=torch.float64)
    motion = KernelMotion(None, x, None, decompose(values.diag()), torch.ones(3, dtype=torch.float64), 6)
    once, twice = motion._kernels(h)
    s = (1 + motion.nodes) * (h / 2)
    fine = 400_001
    t = torch.linspace(0, 1, fine, dtype=torch.float64) ** 2 * h  # dense where the decay is quick
    for p in (0, 2, 5):
        for row, d in enumerate(motion.values.tolist()):
            back = t  # h - s
            integrand = torch.exp(-d * back) * ((h - back) / h) ** p
            own = -torch.expm1(-d * back) / d * ((h - back) / h) ** p
            for weights, values_at in ((once, integrand), (twice, own)):
                expected = float(torch.trapezoid(values_at, t))
                assert float(weights[row] @ (s / h) ** p) == pytest.approx(expected, rel=1e-6), (p, d)
