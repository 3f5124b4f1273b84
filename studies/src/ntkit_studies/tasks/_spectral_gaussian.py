"""Gaussian inputs whose covariance decays as a power law along random directions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ._draws import check_alpha, check_count, check_generator, random_rotation

__all__ = ["SpectralGaussian", "spectral_gaussian"]


@dataclass(frozen=True)
class SpectralGaussian:
    """Gaussian inputs and their covariance.

    Attributes
    ----------
    x
        Shape (n, d), float64.
    covariance
        Shape (d, d).
    eigenvalues
        Eigenvalues of the covariance, shape (d,), descending.
    """

    x: Tensor
    covariance: Tensor
    eigenvalues: Tensor


def spectral_gaussian(n: int, d: int, alpha: float | None, generator: torch.Generator) -> SpectralGaussian:
    r"""Draw inputs from N(0, Sigma), Sigma with a random eigenbasis and eigenvalues :math:`\lambda_k = 1 / (1 + k^\alpha)`.

    (Beaglehole et al. 2024, section 3 and appendix G; k counts from 1.)

    Parameters
    ----------
    n, d
        Number of inputs and of dimensions.
    alpha
        The decay, not negative; None is the isotropic Gaussian, Sigma = I.
    generator
        Generator of the draw.

    Examples
    --------
    >>> import torch
    >>> from ntkit_studies.tasks import spectral_gaussian
    >>> drawn = spectral_gaussian(100, 3, alpha=1.0, generator=torch.Generator().manual_seed(0))
    >>> drawn.x.shape, drawn.eigenvalues
    (torch.Size([100, 3]), tensor([0.5000, 0.3333, 0.2500], dtype=torch.float64))
    """
    check_count("n", n)
    check_count("d", d)
    check_generator(generator)
    if alpha is None:
        x = torch.randn(n, d, generator=generator, dtype=torch.float64)
        return SpectralGaussian(x, torch.eye(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64))
    check_alpha(alpha)
    values = 1 / (1 + torch.arange(1, d + 1, dtype=torch.float64) ** alpha)
    basis = random_rotation(d, generator)
    x = (torch.randn(n, d, generator=generator, dtype=torch.float64) * values.sqrt()) @ basis.T
    return SpectralGaussian(x, (basis * values) @ basis.T, values)
