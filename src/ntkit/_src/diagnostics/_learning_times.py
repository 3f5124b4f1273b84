"""How long gradient flow takes to learn each eigendirection of a kernel on given points."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import (
    Numbers,
    as_columns,
    check_batches,
    check_gram_memory,
    check_pairs,
    check_right_hand_side,
    check_times,
)
from ntkit._src.kernels import Kernel
from ntkit._src.solvers import check_gram, decompose
from ntkit.errors import InputError, InputTypeError


@dataclass(frozen=True, eq=False)
class LearningTimes:
    r"""The eigendirections of a kernel on n points, fastest first.

    Attributes
    ----------
    eigenvalues
        :math:`\lambda_k` of the Gram matrix, shape (n,), decreasing; zero where they are below rounding.
    times
        :math:`1 / \lambda_k`, the time in which the remainder of a direction falls by the factor e, shape (n,); infinite where
        :math:`\lambda_k` is zero.
    targets
        Coordinates :math:`v_k^T y` of the targets, shape (n,) or (n, outputs).
    shares
        The fraction of :math:`|y|^2` in each direction, shape (n,); they sum to one.
    vectors
        :math:`v_k` in columns, shape (n, n).
    """

    eigenvalues: Tensor
    times: Tensor
    targets: Tensor
    shares: Tensor
    vectors: Tensor

    def left(self, t: Numbers) -> Tensor:
        r"""Return the fraction of :math:`|y|^2` not yet learnt at times t, :math:`\sum_k e^{-2 \lambda_k t} (v_k^T y)^2 / |y|^2`.

        Returns
        -------
        Tensor
            Shape () for one time, (m,) for m.
        """
        moments, single = check_times(t)
        found = []
        for moment in moments:
            decay = (
                torch.exp(-2 * self.eigenvalues * moment)
                if math.isfinite(moment)
                else (self.eigenvalues == 0).to(self.shares)
            )
            found.append((decay * self.shares).sum())
        return found[0] if single else torch.stack(found)


def learning_times(kernel: Kernel | Tensor, x: Tensor | None, y: Tensor) -> LearningTimes:
    r"""Return how fast gradient flow learns the targets along each eigenvector of the kernel.

    With :math:`\Theta(X, X) = \sum_k \lambda_k v_k v_k^T` and outputs :math:`f_t(X) = \sum_k u_{t,k} v_k` that start at zero,
    gradient flow of :math:`\frac{1}{2} |f - y|^2` is

    .. math:: \dot u_{t,k} = \lambda_k (v_k^T y - u_{t,k}), \qquad u_{t,k} = (1 - e^{-\lambda_k t})\, v_k^T y

    (Golikov et al. 2022 [1]_, eqs. 107 and 108): strong directions are learnt before weak ones.

    Parameters
    ----------
    kernel : Kernel or Tensor of shape (n, n)
        The kernel, or its Gram matrix.
    x : Tensor of shape (n, ...), optional
        Training points; None with a Gram matrix, and only then.
    y : Tensor of shape (n,) or (n, outputs)
        Targets, not all zero.

    Returns
    -------
    LearningTimes

    See Also
    --------
    ntkit.GradientFlow.learning_curves : :math:`u_{t,k}` at given times, from any start.
    ntkit.diagnostics.mercer : Eigenvalues on the whole sphere.

    References
    ----------
    .. [1] Golikov, Pokonechnyy, Korviakov, "Neural Tangent Kernel: A Survey", 2022.

    Examples
    --------
    >>> import torch, ntkit
    >>> gram = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
    >>> found = ntkit.diagnostics.learning_times(gram, None, torch.tensor([0.6, 0.8], dtype=torch.float64))
    >>> found.times, found.shares
    (tensor([0.2500, 1.0000], dtype=torch.float64), tensor([0.3600, 0.6400], dtype=torch.float64))
    >>> found.left([0.0, float("inf")])
    tensor([1., 0.], dtype=torch.float64)
    """
    gram = _gram(kernel, x)
    check_right_hand_side(y, gram)
    if not bool(y.any()):
        raise InputError("y is zero: there is nothing to learn. Pass the targets.")
    check_gram_memory(len(gram), len(gram), gram.dtype, gram.device, matrices=3, what="the eigendecomposition")
    with torch.no_grad():
        spectrum = decompose(gram)
        values, vectors = spectrum.clean.flip(0), spectrum.vectors.flip(1)
        targets = vectors.T @ as_columns(y)
        shares = targets.square().sum(1) / y.square().sum()
    times = torch.where(values > 0, 1 / values, math.inf)
    return LearningTimes(values, times, targets.reshape(len(gram), *y.shape[1:]), shares, vectors)


def _gram(kernel: Kernel | Tensor, x: Tensor | None) -> Tensor:
    if isinstance(kernel, Kernel):
        if x is None:
            raise InputTypeError("x must be the training points if a kernel is given. Got None.")
        check_batches(x, None)
        check_gram_memory(len(x), len(x), x.dtype, x.device, matrices=3, what="the eigendecomposition")
        return check_gram(check_pairs(kernel(x), (len(x), len(x))).detach())
    if not isinstance(kernel, Tensor):
        raise InputTypeError(f"kernel must be an ntkit.Kernel or a Gram matrix. Got {type(kernel).__name__}.")
    if x is not None:
        raise InputError("x must be None if kernel is a Gram matrix, which already has its points. Got both.")
    return check_gram(kernel.detach())
