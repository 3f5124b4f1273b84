"""Data on which the weights' and the gradients' second derivatives at initialisation need not agree."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit.errors import InputError, InputTypeError

from ._draws import check_count, check_generator

__all__ = ["AlignmentReversing", "alignment_reversing"]

_SPREAD, _NOISE, _OFFSET = 0.5, 0.01, 1e-5  # epsilon_1, epsilon_2 and the offset of the labels, in the paper


@dataclass(frozen=True)
class AlignmentReversing:
    """A mixture of two kinds of inputs.

    Attributes
    ----------
    x
        Shape (n, d), float64; those of label one first.
    y
        Shape (n,), 1 or 0, plus 1e-5.
    """

    x: Tensor
    y: Tensor


def alignment_reversing(
    n: int, d: int, gamma: float, generator: torch.Generator, pseudo_inverse: bool = False
) -> AlignmentReversing:
    r"""Draw data on which the neural feature ansatz may fail to develop early on, the more often the smaller the balance gamma.

    A fraction gamma of the points has label 1 and comes from :math:`N(0, 11^T + \tfrac12 I)`, the matrix :math:`X_1`. The others
    have label 0 and are :math:`X_2 = V_2 S_1^{-1} U_1^T`, with :math:`X_1^T X_1 = U_1 S_1 U_1^T` and :math:`V_2` the left
    singular vectors of a fresh sample, so that :math:`X_2^T X_2 \approx (X_1^T X_1)^{-2}`: then the second derivative of the
    gradients' matrix is near the identity, and that of the weights' is not (Beaglehole et al. 2024, appendix F).

    The construction as printed has mismatched shapes for gamma < 1, where :math:`X_1^T X_1` is singular. Here both matrices are
    built with n rows, unnormalised, of which the first gamma n and (1 - gamma) n are kept: among the readings tried, the one in
    which gamma matters most. Even so it decides little. Of 110 draws with n = d = 1024 (gamma from 0.05 to 1), 87 have a
    correlation above 0.95; below gamma = 1 the rank correlation of gamma with the mean over ten draws is 0.44 (p = 0.2), with
    single draws 0.27 (p = 0.007). At gamma = 1 all are 1.

    Parameters
    ----------
    n, d
        Number of points and of dimensions; n at least d, unless ``pseudo_inverse``.
    gamma
        The fraction of points with label 1, above 0 and at most 1; at least one point.
    generator
        Generator of the draw.
    pseudo_inverse
        Whether to build :math:`X_1` with gamma n rows, and :math:`X_2` with the pseudo-inverse of its :math:`S_1`; then gamma
        hardly changes the correlation.

    Examples
    --------
    >>> import torch
    >>> from ntkit_studies.tasks import alignment_reversing
    >>> data = alignment_reversing(40, 40, gamma=0.25, generator=torch.Generator().manual_seed(0))
    >>> data.x.shape, float(data.y.round().sum())
    (torch.Size([40, 40]), 10.0)
    """
    check_count("n", n)
    check_count("d", d)
    check_generator(generator)
    if isinstance(gamma, bool) or not isinstance(gamma, (int, float)):
        raise InputTypeError(f"gamma must be a number. Got {gamma!r}.")
    if not 0 < gamma <= 1:
        raise InputError(f"gamma must be above 0 and at most 1. Got {gamma}.")
    first = round(gamma * n)
    if first == 0:
        raise InputError(f"gamma must give label 1 to at least one of the n = {n} points. Got {gamma}.")
    if not pseudo_inverse and n < d:
        raise InputError(
            f"n must be at least d = {d}: else X_1^T X_1 is singular. Got {n}. Draw more points, or write pseudo_inverse=True."
        )
    rows = first if pseudo_inverse else n
    x1 = _sample(rows, d, generator)
    _, singular, basis = torch.linalg.svd(x1, full_matrices=False)
    values = singular**2  # of X_1^T X_1
    least = torch.finfo(torch.float64).eps * max(x1.shape) * values[0]
    inverse = torch.where(values > least, 1 / values, 0)
    fresh = _sample(max(n - first, len(values)) if pseudo_inverse else n, d, generator)
    left, _, _ = torch.linalg.svd(fresh, full_matrices=False)
    x2 = (left[:, : len(values)] * inverse[: left.shape[1]]) @ basis[: left.shape[1]]
    x = torch.cat([x1[:first], x2[: n - first]])
    x = x + _NOISE * torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = torch.cat([torch.ones(first, dtype=torch.float64), torch.zeros(n - first, dtype=torch.float64)]) + _OFFSET
    return AlignmentReversing(x, y)


def _sample(n: int, d: int, generator: torch.Generator) -> Tensor:
    """Draw from N(0, 11^T + I/2), shape (n, d)."""
    common = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    spread: Tensor = _SPREAD**0.5 * torch.randn(n, d, generator=generator, dtype=torch.float64)
    return common + spread
