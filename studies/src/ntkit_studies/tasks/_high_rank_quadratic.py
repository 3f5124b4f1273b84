"""A quadratic function of all inputs."""

from __future__ import annotations

import torch

from ._chain_monomial import QuadraticTask, quadratic_task
from ._draws import check_count, check_generator

__all__ = ["high_rank_quadratic"]


def high_rank_quadratic(
    n: int, d: int, generator: torch.Generator, alpha: float | None = None, scaled: bool = True
) -> QuadraticTask:
    r"""Draw the high-rank task :math:`y = \sum_{i=1}^{d} (Qx)_i^2` with standard normal :math:`Q_{ij}`.

    So S = Q^T Q and the expected gradient outer product is :math:`4 Q^T Q \Sigma Q^T Q`
    (Beaglehole et al. 2024, figure 8 and appendix I).

    Parameters
    ----------
    n, d
        Number of points and of dimensions.
    generator
        Generator of Q and of the inputs.
    alpha, scaled
        As for :func:`chain_monomial`.

    Examples
    --------
    >>> import torch
    >>> from ntkit_studies.tasks import high_rank_quadratic
    >>> task = high_rank_quadratic(100, 4, generator=torch.Generator().manual_seed(0))
    >>> int(torch.linalg.matrix_rank(task.egop)), bool((task.y > 0).all())
    (4, True)
    """
    check_count("d", d)
    check_generator(generator)
    Q = torch.randn(d, d, generator=generator, dtype=torch.float64)
    return quadratic_task(n, Q.T @ Q, generator, alpha, scaled)
