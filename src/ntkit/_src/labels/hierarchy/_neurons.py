"""Standard normal weights of random neurons, quasi-random along the directions in which the training inputs vary most."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

__all__ = ["Neurons"]

DIRECTIONS = 64
"""Maximum number of principal directions with quasi-random weights: the integrand hardly varies along later ones."""

BITS = 30
"""Binary digits of a Sobol point."""


class Neurons:
    r"""Draws weights w ~ N(0, I_d): each neuron is exactly Gaussian, and many cover the space more evenly than random ones.

    K4 depends on w through its inner products with the inputs. Along the first principal directions of the training inputs,
    the columns of V, the weights are normal quantiles z of a scrambled Sobol sequence; along all others they are
    pseudo-random: :math:`w = V z + (I - V V^\top) g`. Sobol points fill few directions well and many hardly better than
    chance, so the first ones go to the directions that matter.

    Parameters
    ----------
    x
        Training inputs, shape (n, d), float64.
    seed
        Seed of the first batch; every batch is scrambled separately, so that batches are independent.
    """

    def __init__(self, x: Tensor, seed: int) -> None:
        size = min(DIRECTIONS, *x.shape)
        _, values, vectors = torch.linalg.svd(x.cpu(), full_matrices=False)
        kept = min(size, max(1, int((values > 1e-12 * values[0]).sum())))
        self.basis = vectors[:kept].T.contiguous()
        self._generator = torch.Generator().manual_seed(seed)

    def draw(self, count: int, extra: int = 0) -> tuple[Tensor, Tensor]:
        """Draw one batch: weights, shape (d, count), and ``extra`` more standard normal variables, shape (extra, count).

        Any run of 2^k neurons that starts at a multiple of 2^k is as evenly spread as the whole.
        """
        d, directions = self.basis.shape
        seed = int(torch.randint(2**31 - 1, (), generator=self._generator))
        points = SobolEngine(directions + extra, scramble=True, seed=seed).draw(count, dtype=torch.float64)
        # Sobol points are multiples of 2^-BITS and may be zero, whose quantile is infinite: take the middle of each cell.
        normal = torch.special.ndtri(points + 2.0 ** -(BITS + 1)).T
        z, more = normal[:directions], normal[directions:]
        if directions == d:
            return self.basis @ z, more
        rest = torch.randn(d, count, generator=self._generator, dtype=torch.float64)
        return rest + self.basis @ (z - self.basis.T @ rest), more
