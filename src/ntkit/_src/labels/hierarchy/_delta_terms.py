"""Terms of a ReLU network's expected K4 with delta functions: neurons conditioned on one hyperplane w . x = 0, or on two."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ._neuron_terms import Contraction

# Two inputs count as parallel if the squared sine of their angle is at most this: rounding leaves about 1e-15.
PARALLEL = 1e-10
SLICES = 8  # groups of training points that share the neurons of a batch, since the sum over the points averages anyway
ENTRIES = 2**18  # approximate number of entries of the largest array, so that it stays in the cache


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

    ``z`` is w . p of every neuron, shape (g, S, N) or (1, S, N), ``pivot`` w . x, shape (g, S), ``cross`` x . p, shape (g, N);
    ``norms`` and ``pivot_norms`` are the squared norms of the points, shape (N,), and of the x, shape (g,). ``noise`` is standard
    normal, shape (S,) or (g, S): its distribution function is the uniform variable.
    """
    along = cross * reciprocal(pivot_norms)[:, None]
    moved = torch.addcmul(z, pivot[..., None], along[:, None], value=-1)
    sign = moved.sign()
    tied = norms - cross * along <= PARALLEL * norms
    row, point = tied.nonzero(as_tuple=True)
    uniform: Tensor = torch.special.ndtr(cross[row, point].sign()[:, None] * noise.expand(len(cross), -1)[row])
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
            slope = slope * along
            total += slope[:, one].T @ value[:, two] + value[:, one].T @ slope[:, two]
    return total


# E delta(z)^2 sigma'(z) t of a Gaussian approximation of the delta function, for t = w . x / |x| and |x| = 1.
TRIPLE = 1 / (4 * math.pi * math.sqrt(6 * math.pi))


def pair_terms(c: Contraction, x: Tensor, other: Tensor, w: Tensor, noise: Tensor) -> Tensor:
    r"""Return the terms of expected K4 with two delta functions, for the rows x and the columns x' = other.

    The a^4 terms of eq. (15), with sigma''' = delta' and products of two sigma'', are the derivative along p_v of
    3 x . x' alpha_u delta(z) sigma'(z') and the same with x and x' exchanged. Integrated by parts with the Gaussian density of w
    (w . p_v = s_v, div p_v = sum_j v_j |x_j|^2 delta(z_j)) they are

    .. math:: 3 x \cdot x' E \delta(z) \alpha_u \sigma'(z') [s_v - \sum_j v_j |x_j|^2 \delta(z_j)],

    and the second half, given here, has the joint density of z and z_j at zero, 1 / (2 pi |x| |x_j| sin), times the
    expectation of alpha_u sigma'(z') over the neurons orthogonal to x and x_j. That is the expectation over those orthogonal
    to x, known in closed form, and a difference, sampled, which is small in many dimensions.

    Where x_j is parallel to x the density is infinite, and so is the expectation of K4: for a ReLU smoothed over a width h it
    grows as 1 / h. The result is the finite part: the limit for h to 0 once that multiple of 1 / h is subtracted, for ReLUs
    smoothed by Gaussians of width h |x|.

    ``w`` are neurons for every training point, shape (batches, d, n S), those of one point together, and ``noise`` two standard
    normal variables for each, shape (batches, 2, n, S), for the values of sigma' at points that lie in the span of x and x_j.
    Returns the mean over each batch of neurons, shape (batches, n1, n2).
    """
    points, n = torch.cat([c.x, other]), len(c.x)
    z = [tuple((batch.T @ part.T).reshape(n, -1, len(part)) for part in (c.x, other)) for batch in w]
    pivots = [(x @ batch).reshape(len(x), n, -1) for batch in w]
    gram, crosses, norms = c.x @ points.T, x @ points.T, (points * points).sum(1)
    rows = []
    for row, cross in enumerate(crosses):
        plane = _Plane.of(c, cross, float(x[row] @ x[row]), gram, norms)
        sampled = [plane.sampled(*batch) for batch in zip(z, (p[row] for p in pivots), noise, strict=True)]
        rows.append(plane.expected + torch.stack(sampled))
    return -3 * crosses[:, n:] * torch.stack(rows, 1)


@dataclass(frozen=True)
class _Plane:
    """The training points and the others, N in total, projected onto the hyperplane orthogonal to one input x."""

    along: Tensor  # x . p / |x|^2, shape (N,)
    slopes: Tensor  # covariance of z_j and w . p given z = 0, over the variance of z_j given z = 0, shape (n, N)
    weights: Tensor  # |x_j|^2 b_ij x . x_i times the density of z and z_j at zero, shape (n, n) for j and i
    parallel: Tensor  # which points are parallel to x, shape (N,)
    side: Tensor  # on which side of x these lie, shape (N,)
    # The pairs j and p where p lies in the span of x and x_j, and there the shares of the noise of x and x_j in that of p.
    tied: tuple[Tensor, Tensor, Tensor, Tensor]
    expected: Tensor  # the part known in closed form, shape (n2,)

    @classmethod
    def of(cls, c: Contraction, cross: Tensor, norm: float, gram: Tensor, norms: Tensor) -> _Plane:
        """Project the points for one input of squared length ``norm``; ``cross`` is x . p, ``gram`` x_j . p, ``norms`` p . p."""
        n = len(c.x)
        norm = norm or math.inf  # a zero input has zero kernels, so all its terms vanish
        along = cross / norm
        covariance = torch.addr(gram, cross[:n], along, alpha=-1)  # of w . p given w . x = 0, shape (n, N)
        left = norms - cross * along
        parallel = left <= PARALLEL * norms
        left = torch.where(parallel, 0, left)
        inverse = reciprocal(left.sqrt())
        side = torch.where(parallel, cross.sign(), 0)
        density = norms[:n] * inverse[:n] / (2 * math.pi * math.sqrt(norm))
        # sigma' of two points parallel to x is one uniform variable t, or t and 1 - t: E t^2 = 1/3, E t (1 - t) = 1/6.
        correlation = (covariance[:, n:] * inverse[:n, None] * inverse[n:]).clamp(-1, 1) + side[:n, None] * side[n:] / 2
        first = (c.b @ density) * cross[:n]
        expected = first.sum() / 4 + first @ correlation.asin() / (2 * math.pi)
        if bool(parallel[:n].any()) and norm < math.inf:
            expected = expected + _finite_part(c, cross, norm, norms, left, correlation, side)

        slopes = covariance * inverse[:n, None] ** 2
        j, p = (left - covariance * slopes <= PARALLEL * norms).nonzero(as_tuple=True)
        size = reciprocal(norms.sqrt())[p]
        by_x = (cross[p] - slopes[j, p] * cross[j]) / math.sqrt(norm) * size
        by_j = slopes[j, p] * norms[j].sqrt() * size
        weights = c.b.T * cross[:n] * density[:, None]
        return cls(along, slopes, weights, parallel, side, (j, p, by_x, by_j), expected)

    def sampled(self, z: tuple[Tensor, Tensor], pivot: Tensor, noise: Tensor) -> Tensor:
        """Return the mean difference between neurons orthogonal to x and x_j and the same orthogonal to x only, shape (n2,).

        In signs: E sigma' sigma' = 1/4 + E sign sign / 4 over a neuron and its opposite. ``z`` is w . p of each training point's
        neurons, for training points and others, (n, S, n) and (n, S, n2); ``pivot`` is w . x, (n, S), ``noise`` (2, n, S).
        """
        n, count = pivot.shape
        own = z[0].diagonal(dim1=0, dim2=2).T - pivot * self.along[:n, None]
        (once, twice), (once_other, twice_other) = (
            self._signs(part, slice(start, start + part.shape[2]), own, pivot, noise)
            for part, start in zip(z, (0, n), strict=True)
        )
        return (self._product(twice, twice_other) - self._product(once, once_other)) / (4 * count)

    def _signs(self, z: Tensor, points: slice, own: Tensor, pivot: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the signs of some points for neurons orthogonal to x, and to x and x_j, each of z's shape."""
        moved = torch.addcmul(z, pivot[..., None], self.along[points], value=-1)
        once = moved.sign()
        parallel, (j, p, by_x, by_j) = self.parallel[points], self.tied
        once[..., parallel] = _sign(noise[0][..., None] * self.side[points][parallel])
        twice = moved.addcmul_(own[..., None], self.slopes[:, None, points], value=-1).sign_()
        here = (p >= points.start) & (p < points.stop)
        j, p, by_x, by_j = j[here], p[here] - points.start, by_x[here], by_j[here]
        twice[j, :, p] = _sign(by_x[:, None] * noise[0, j] + by_j[:, None] * noise[1, j])
        return once, twice

    def _product(self, signs: Tensor, other: Tensor) -> Tensor:
        """Return sum_js (sum_i weights_ji signs_jsi) other_jsp."""
        sums = (signs * self.weights[:, None]).sum(-1)
        return sums.flatten() @ other.flatten(0, 1)


def _finite_part(
    c: Contraction, cross: Tensor, norm: float, norms: Tensor, left: Tensor, correlation: Tensor, side: Tensor
) -> Tensor:
    r"""Return the contribution of training points x_j parallel to x: the finite part for h to 0 of smoothed ReLUs' expectations.

    There the joint density of z and z_j at zero is 1 / (sqrt(8) pi h |x| |x_j|), and t = w . x / |x| is left with a variance
    h^2 / 2. The expectation of sigma'(z_i) sigma'(z') has a part of the order of h in two cases: if one of the two points is
    parallel to x, as its sigma' depends on t / h and the other's probability on t; and if the two are parallel to each other
    up to a multiple of x, as the smoothed steps of the two, with correlation 1 - h^2 k^2 / 2, then agree except with
    probability h k / (2 pi).
    """
    n = len(c.x)
    inverse = reciprocal(left.sqrt())
    scaled = cross * inverse / math.sqrt(norm)
    slope = scaled / math.sqrt(2 * math.pi)
    weights = torch.where(side[:n] != 0, norms[:n] / norm, 0).sqrt()
    first = (c.b @ weights) * cross[:n]
    total = TRIPLE * ((first @ side[:n]) * slope[n:] + (first @ slope[:n]) * side[n:])
    i, p = (correlation.abs() >= 1 - PARALLEL).nonzero(as_tuple=True)
    sign, spread = correlation[i, p].sign(), norms.sqrt() * inverse
    k = (spread[i] ** 2 + spread[n + p] ** 2 + (scaled[i] - sign * scaled[n + p]) ** 2 / 2).sqrt()
    return total.index_add(0, p, -first[i] * sign * k / (math.sqrt(32) * math.pi**2))


def _sign(t: Tensor) -> Tensor:
    """Return 2 sigma' - 1 of a point whose distance from the hyperplane is t times the width of a Gaussian approximation."""
    return (t / math.sqrt(2)).erf()
