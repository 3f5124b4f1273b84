"""Kernel logistic regression: the most probable scores of classes, with a finite optimum for every positive ridge."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ntkit._src.solvers import cholesky
from ntkit.errors import SingularKernelError

MOST_STEPS = 1000
_LEAST_SHIFT = 1e-12  # of the mean of the diagonal, for a singular matrix


def one_hot(y: Tensor) -> Tensor:
    """Return encoded classes, -1 and 1, shape (n,) or (n, 1), as 0 and 1, shape (n, 1); or e_c - offset, shape (n, C), as e_c."""
    columns = y if y.ndim == 2 else y[:, None]
    if columns.shape[1] == 1:
        return (columns > 0).to(columns.dtype)
    return torch.nn.functional.one_hot(columns.argmax(1), columns.shape[1]).to(columns.dtype)


def fit_logistic(
    gram: Tensor,
    classes: Tensor,
    ridge: float,
    roots: Tensor | None = None,
    tolerance: float = 1e-5,
    start: Tensor | None = None,
) -> tuple[Tensor, int]:
    r"""Minimise :math:`\sum_i -w_i \log p_{y_i}(x_i) + \frac{\rho}{2} \operatorname{tr} A^T K A` over the logits F = K A.

    The gradient in A is K (W (P - Y) + rho A). The Hessian of the logarithm of a softmax is at most 1/2, of a sigmoid 1/4 [1]_:
    with that bound h in its place Newton's step, :math:`B \leftarrow B - (h S K S + \rho I)^{-1} (S (P - Y) + \rho B)` for
    A = S B and S = W^{1/2}, never overshoots, and needs one factorisation. The steps are accelerated by momentum, which starts
    again whenever it points uphill.

    Parameters
    ----------
    gram : Tensor of shape (n, n)
        S K S.
    classes : Tensor of shape (n, C), or (n, 1) for two classes
        Y: e_c for a point of class c; 1 for the second of two.
    ridge : float
        rho, absolute.
    roots : Tensor of shape (n,), optional
        The diagonal of S. Default None: ones.
    tolerance : float
        The largest entry of the gradient W (P - Y) + rho A that is accepted. Default 1e-5.
    start : Tensor of the shape of ``classes``, optional
        B to start from. Default None: zero.

    Returns
    -------
    B : Tensor of the shape of ``classes``
        A = S B.
    steps : int
        How many there were.

    References
    ----------
    .. [1] Böhning, "Multinomial logistic regression algorithm", 1992.
    """
    binary = classes.shape[1] == 1
    bound = 0.25 if binary else 0.5
    each = torch.ones_like(classes[:, :1]) if roots is None else roots[:, None]
    least = _LEAST_SHIFT * float(gram.diagonal().mean())
    lower, exists = cholesky(gram, max(ridge / bound, least))
    if not exists:
        raise SingularKernelError(
            f"the Gram matrix is not positive definite with a ridge of {ridge:.1e}: pass a larger one."
        )
    last = torch.zeros_like(classes) if start is None else start
    ahead, momentum = last, 1.0
    for step in range(MOST_STEPS):
        logits = gram @ ahead / each
        probabilities = torch.sigmoid(logits) if binary else torch.softmax(logits, 1)
        gradient = each * (probabilities - classes) + ridge * ahead
        if not float(gradient.abs().max()) > tolerance:
            return ahead, step
        found = ahead - torch.cholesky_solve(gradient, lower) / bound
        # The gradient in B is S K S times this one; uphill if it has a positive product with the last move.
        if float((gradient * (gram @ (found - last))).sum()) > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = found + (momentum - 1) / following * (found - last)
        last, momentum = found, following
    return last, MOST_STEPS
