"""The chain monomial: a quadratic function of a few of the inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit.errors import InputError

from ._draws import check_count
from ._spectral_gaussian import spectral_gaussian

__all__ = ["QuadraticTask", "chain_monomial", "quadratic_task"]


@dataclass(frozen=True)
class QuadraticTask:
    r"""Gaussian inputs x with covariance Sigma, and labels y = x^T S x.

    Attributes
    ----------
    x
        Shape (n, d), float64.
    y
        Shape (n,).
    form
        S, symmetric, shape (d, d), including the labels' scale.
    covariance
        Sigma, shape (d, d).
    egop
        The expected gradient outer product, :math:`E[\nabla y \nabla y^T] = 4 S \Sigma S`, shape (d, d).
    """

    x: Tensor
    y: Tensor
    form: Tensor
    covariance: Tensor
    egop: Tensor

    def split(self, n: int) -> tuple[QuadraticTask, QuadraticTask]:
        """Return the first n points and the rest."""
        if not 0 < n < len(self.x):
            raise InputError(f"n must lie between 1 and {len(self.x) - 1}, so that both parts have points. Got {n}.")
        rest = (self.form, self.covariance, self.egop)
        return QuadraticTask(self.x[:n], self.y[:n], *rest), QuadraticTask(self.x[n:], self.y[n:], *rest)


def chain_monomial(
    n: int, d: int, r: int, generator: torch.Generator, alpha: float | None = None, scaled: bool = True
) -> QuadraticTask:
    r"""Draw the low-rank task :math:`y = \sum_{k=1}^{r} x_{k \bmod r}\, x_{(k+1) \bmod r}`.

    The labels depend on r of the d inputs (Beaglehole et al. 2024, equation 1).

    Parameters
    ----------
    n, d
        Number of points and of dimensions.
    r
        The rank, at most d; 1 gives :math:`x_0^2`.
    generator
        Generator of the draw.
    alpha
        Decay of the inputs' covariance, see :func:`spectral_gaussian`; None is isotropic.
    scaled
        Whether to divide the labels by their standard deviation under the Gaussian,
        :math:`\sqrt{2 \operatorname{tr}(S \Sigma S \Sigma)}`, which does not depend on the sample.

    Examples
    --------
    >>> import torch
    >>> from ntkit_studies.tasks import chain_monomial
    >>> task = chain_monomial(100, 4, r=2, generator=torch.Generator().manual_seed(0), scaled=False)
    >>> torch.allclose(task.y, 2 * task.x[:, 0] * task.x[:, 1])
    True
    >>> task.egop.diagonal()
    tensor([4., 4., 0., 0.], dtype=torch.float64)
    """
    check_count("d", d)
    check_count("r", r)
    if r > d:
        raise InputError(f"r must be at most d = {d}, the number of inputs. Got {r}.")
    form = torch.zeros(d, d, dtype=torch.float64)
    for k in range(1, r + 1):
        i, j = k % r, (k + 1) % r
        form[i, j] += 0.5
        form[j, i] += 0.5
    return quadratic_task(n, form, generator, alpha, scaled)


def quadratic_task(
    n: int, form: Tensor, generator: torch.Generator, alpha: float | None, scaled: bool
) -> QuadraticTask:
    """Draw inputs with the labels x^T S x, S of shape (d, d)."""
    drawn = spectral_gaussian(n, len(form), alpha, generator)
    product = form @ drawn.covariance
    if scaled:
        deviation = (2 * torch.trace(product @ product)).sqrt()
        form, product = form / deviation, product / deviation
    y = ((drawn.x @ form) * drawn.x).sum(1)
    return QuadraticTask(drawn.x, y, form, drawn.covariance, 4 * product @ form)
