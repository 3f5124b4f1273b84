"""Leave-one-out for a quadratic model, in closed form from a kernel or from features."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit.errors import InputError


def influence_of_kernel(
    k_train: Tensor, k_test: Tensor, force: Tensor, curvature: Tensor, ridge: float
) -> tuple[Tensor, Tensor]:
    r"""Return scores, shape (m, n, s), how outputs change if a point is left out, and the points' leverages, shape (n,).

    With :math:`M = W K + \lambda I` the outputs' response to the forces q is :math:`k^T M^{-1} q`, and the block of the
    point's own outputs in :math:`I - W K M^{-1} = \lambda M^{-1}` is the divisor for leaving it out. ``k_train`` and ``k_test``
    have shape (n s, n s) and (m s, n s) for s outputs per point, row i s + o for point i, output o; ``force`` and ``curvature``,
    :math:`-\ell'` and :math:`\ell''`, shape (n, s); the ridge, :math:`\lambda`, is relative to trace(W K) / (n s).
    """
    weights = curvature.reshape(-1)
    shift = _shift(weights * k_train.diagonal(), ridge)
    system = weights[:, None] * k_train
    system.diagonal().add_(shift)
    inverse = torch.linalg.inv(system)
    own = shift * _diagonal_blocks(inverse, force.shape[1])
    response = k_test @ inverse
    return _leave_out(response, own, force), _leverage(own)


def influence_of_features(
    train: Tensor, test: Tensor, force: Tensor, curvature: Tensor, ridge: float
) -> tuple[Tensor, Tensor]:
    r"""Return the same, computed from features (n s, d) and (m s, d), with :math:`H = \Phi^T W \Phi + \lambda I`."""
    if len(train) <= train.shape[1]:  # the kernel is the smaller matrix
        return influence_of_kernel(train @ train.T, test @ train.T, force, curvature, ridge)
    n, s = force.shape
    weights = curvature.reshape(-1)
    shift = _shift(weights * train.square().sum(1), ridge)
    hessian = train.T @ (weights[:, None] * train)
    hessian.diagonal().add_(shift)
    solved = torch.cholesky_solve(train.T, torch.linalg.cholesky(hessian)).T  # H^-1 phi of each row
    blocks = train.view(n, s, -1) @ solved.view(n, s, -1).mT
    own = torch.eye(s, dtype=train.dtype, device=train.device) - curvature[:, :, None] * blocks
    return _leave_out(test @ solved.T, own, force), _leverage(own)


def _shift(traces: Tensor, ridge: float) -> Tensor:
    scale = traces.mean()
    if not bool(scale > 0):
        raise InputError(
            "no training point influences the network: every loss has zero curvature, since each point is fitted beyond the "
            "range of float64. Attribute a checkpoint from earlier in training."
        )
    return ridge * scale


def _diagonal_blocks(matrix: Tensor, s: int) -> Tensor:
    n = len(matrix) // s
    return matrix.view(n, s, n, s).diagonal(dim1=0, dim2=2).permute(2, 0, 1)


def _leave_out(response: Tensor, own: Tensor, force: Tensor) -> Tensor:
    """Return response_(x,o),(i,.) own_i^-1 force_i, shape (m, n, s)."""
    n, s = force.shape
    forces = torch.linalg.solve(own, force[:, :, None])[:, :, 0]
    return torch.einsum("monp,np->mno", response.view(-1, s, n, s), forces)


def _leverage(own: Tensor) -> Tensor:
    return 1 - own.diagonal(dim1=1, dim2=2).mean(1)
