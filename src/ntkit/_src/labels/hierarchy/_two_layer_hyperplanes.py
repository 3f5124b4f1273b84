"""Terms of a ReLU network's expected K4 with one delta function: neurons conditioned on a hyperplane w . x = 0."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._two_layer_terms import Contraction

__all__ = ["PARALLEL", "input_terms", "normal_cdf", "reciprocal", "train_terms"]

PARALLEL = 1e-10
"""Two inputs count as parallel if the squared sine of their angle is at most this: rounding leaves about 1e-15."""

SLICES = 8
"""The training points share the neurons of a batch in this many groups, since the sum over the points averages anyway."""

ENTRIES = 2**18
"""Approximate number of entries of the largest array, so that it stays in the cache."""


def normal_cdf(t: Tensor) -> Tensor:
    """Return the standard normal distribution function."""
    result: Tensor = torch.special.ndtr(t)
    return result


def reciprocal(values: Tensor) -> Tensor:
    """Return 1 / values, and 0 at 0: an input that is zero has no hyperplane, and no gradient either."""
    return torch.where(values > 0, 1 / torch.where(values > 0, values, 1), 0)


def _on_hyperplane(
    z: Tensor, pivot: Tensor, cross: Tensor, norms: Tensor, pivot_norms: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Move neurons onto the hyperplanes w . x = 0 of g inputs x; return w . p and 2 sigma'(w . p) - 1 there, for N points p.

    A point parallel to x has w . p = 0 on all of the hyperplane. There delta(z) sigma'(z)^k = (d/dz) sigma'(z)^(k+1) / (k+1), so
    that sigma' has the law of a uniform variable, or of one minus the same variable for a point opposite to x: this is the limit
    of every smooth approximation of the ReLU whose width is in proportion to the norm of the input.

    Parameters
    ----------
    z
        w . p of every neuron, shape (g, S, N) or (1, S, N).
    pivot
        w . x, shape (g, S).
    cross
        x . p, shape (g, N).
    norms, pivot_norms
        Squared norms of the points, shape (N,), and of the x, shape (g,).
    noise
        Standard normal, shape (S,) or (g, S): its distribution function is the uniform variable.
    """
    along = cross * reciprocal(pivot_norms)[:, None]
    moved = torch.addcmul(z, pivot[..., None], along[:, None], value=-1)
    sign = moved.sign()
    tied = norms - cross * along <= PARALLEL * norms
    row, point = tied.nonzero(as_tuple=True)
    uniform = normal_cdf(cross[row, point].sign()[:, None] * noise.expand(len(cross), -1)[row])
    moved[row, :, point] = 0
    sign[row, :, point] = 2 * uniform - 1
    return moved, sign


def input_terms(c: Contraction, x: Tensor, other: Tensor, w: Tensor, noise: Tensor) -> Tensor:
    r"""Return the terms with only delta(w . x), for the rows x and the columns x' = other, shape (n1, n2).

    .. math:: E \delta(z) [\alpha_u \alpha_v \sigma(z') + x \cdot x' (2 s_u \alpha_v + 6 s_v \alpha_u) \sigma'(z')],
        \qquad E \delta(z) F(w) = \frac{E[F(w) \mid w \cdot x = 0]}{\sqrt{2 \pi} |x|}

    (three of the six s_v alpha_u are those of eq. (15), three come from :func:`pair_terms`). Each neuron counts with its
    opposite -w: sigma(+-z) = (|z| +- z) / 2 and sigma'(+-z) = (1 +- sign z) / 2, so that |z| and sign z serve both.
    """
    n, uv = len(c.x), torch.cat([c.u, c.v]).T
    z, z_other, pivots = w.T @ c.x.T, w.T @ other.T, x @ w
    crosses, crosses_other = x @ c.x.T, x @ other.T
    norms, norms_other, x_norms = ((points * points).sum(1) for points in (c.x, other, x))
    linear = z @ uv
    odd_values, rows = [], []
    for start in range(0, len(x), chunk := max(1, ENTRIES // (len(z) * max(n, len(other))))):
        some = slice(start, start + chunk)
        cross, pivot = crosses[some], pivots[some]
        moved, sign = _on_hyperplane(z[None], pivot, cross, norms, x_norms[some], noise)
        # alpha_u and alpha_v concatenated, shape (g, S, 2 Q), and s_u and s_v: the halves even in w, and those odd in w.
        even_alpha, odd_alpha = (cross @ uv)[:, None], _times(sign.mul_(cross[:, None]), uv)
        on_plane = (cross * reciprocal(x_norms[some])[:, None]) @ uv
        even_sums = _times(moved.abs_(), uv)
        odd_sums = torch.addcmul(linear[None], pivot[..., None], on_plane[:, None], value=-1)
        value, slope = _weights(even_alpha + odd_alpha, even_sums + odd_sums)
        value_, slope_ = _weights(even_alpha - odd_alpha, even_sums - odd_sums)
        moved, sign = _on_hyperplane(z_other[None], pivot, crosses_other[some], norms_other, x_norms[some], noise)
        by_slope = _over_neurons(slope - slope_, sign) + (slope + slope_).sum(1, keepdim=True)
        rows.append(_over_neurons(value + value_, moved.abs_()) + crosses_other[some] * by_slope)
        odd_values.append(value - value_)
    density = reciprocal(x_norms.sqrt()) / math.sqrt(2 * math.pi)
    odd = torch.cat(odd_values)
    by_odd = odd @ z_other - (odd * pivots).sum(1, keepdim=True) * crosses_other * reciprocal(x_norms)[:, None]
    return (torch.cat(rows) + by_odd) * (density / (16 * w.shape[1]))[:, None]


def _weights(alpha: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Return sum_q alpha_u alpha_v and sum_q (2 s_u alpha_v + 6 s_v alpha_u) of each neuron, shape (g, S)."""
    (au, av), (su, sv) = alpha.chunk(2, -1), sums.chunk(2, -1)
    return (au * av).sum(-1), (2 * su * av + 6 * sv * au).sum(-1)


def _times(values: Tensor, weights: Tensor) -> Tensor:
    """Return sum_i values[g, s, i] weights[i, q] as one matrix product, much faster than a batch of them."""
    return (values.flatten(0, 1) @ weights).reshape(*values.shape[:2], -1)


def _over_neurons(weights: Tensor, values: Tensor) -> Tensor:
    """Return sum_s weights[g, s] values[g, s, p], shape (g, N)."""
    return torch.stack([one @ other for one, other in zip(weights, values, strict=True)])


def train_terms(c: Contraction, x1: Tensor, x2: Tensor, w: Tensor, noise: Tensor) -> Tensor:
    r"""Return the terms with delta(w . x_i), x_i a training point, shape (n1, n2).

    .. math:: E \sum_i \delta(z_i) (x_i \cdot p_{v,i}) [x \cdot x_i \sigma'(z) \sigma(z') + x' \cdot x_i \sigma(z) \sigma'(z')],
        \qquad p_{v,i} = \sum_j \sum_q u_{qi} v_{qj} \sigma'(z_j) x_j
    """
    n, n1 = len(c.x), len(x1)
    points = torch.cat([c.x, x1, x2])
    z, crosses, norms = (points @ w).T, c.x @ points.T, (points * points).sum(1)
    hands = max(1, min(SLICES, n, len(z)))
    size = len(z) // hands
    density = reciprocal(norms[:n].sqrt()) / (math.sqrt(2 * math.pi) * 2 * size)
    weights = c.b * c.gram * density[:, None]
    total = torch.zeros(n1, len(x2), dtype=z.dtype, device=z.device)
    for start in range(0, n, chunk := max(1, ENTRIES // (size * len(points)))):
        some = torch.arange(start, min(n, start + chunk), device=z.device)
        mine = (some % hands)[:, None] * size + torch.arange(size, device=z.device)  # (g, s)
        own, cross = z[mine], crosses[some]
        pivot = own.gather(2, some[:, None, None].expand(-1, size, 1))[..., 0]
        moved, sign = _on_hyperplane(own, pivot, cross, norms, norms[some], noise[mine])
        step = (1 + sign) / 2
        weight = (step[..., :n] @ weights[some, :, None]).reshape(-1, 1)
        weight_ = weights[some].sum(1).repeat_interleave(size)[:, None] - weight
        step, moved = step.flatten(0, 1), moved.flatten(0, 1)
        ramp = moved.clamp(min=0)
        slopes = (weight * step, weight_ * (1 - step))
        values = (ramp, ramp - moved)
        along = cross.repeat_interleave(size, 0)
        one, two = slice(n, n + n1), slice(n + n1, None)
        for slope, value in zip(slopes, values, strict=True):
            total += (slope[:, one] * along[:, one]).T @ value[:, two] + value[:, one].T @ (
                slope[:, two] * along[:, two]
            )
    return total
