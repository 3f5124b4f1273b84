"""The terms of a ReLU network's expected K4 with two delta functions: neurons conditioned on two hyperplanes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ._two_layer_hyperplanes import PARALLEL, reciprocal
from ._two_layer_terms import Contraction

__all__ = ["pair_terms"]

TRIPLE = 1 / (4 * math.pi * math.sqrt(6 * math.pi))
"""E delta(z)^2 sigma'(z) t of a Gaussian approximation of the delta function, for t = w . x / |x| and |x| = 1."""


def pair_terms(c: Contraction, x: Tensor, other: Tensor, w: Tensor, noise: Tensor) -> Tensor:
    r"""Return the terms of expected K4 with two delta functions, for the rows x and the columns x' = other, shape (n1, n2).

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

    Parameters
    ----------
    w, noise
        Neurons for every training point, shape (batches, d, n S), those of one point together, and for each two standard normal
        variables, shape (batches, 2, n, S), for the values of sigma' at points that lie in the span of x and x_j.

    Returns
    -------
    Tensor
        The mean over each batch of neurons, shape (batches, n1, n2).
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
    """The training points and the others, N in total, projected onto the hyperplane orthogonal to one input x.

    Attributes
    ----------
    along
        x . p / |x|^2, shape (N,).
    slopes
        Covariance of z_j and w . p given z = 0, over the variance of z_j given z = 0, shape (n, N).
    weights
        |x_j|^2 b_ij x . x_i times the density of z and z_j at zero, shape (n, n) for j and i.
    parallel, side
        Which points are parallel to x, and on which side they lie, shape (N,).
    tied
        The pairs j and p where p lies in the span of x and x_j, and there the shares of the noise of x and x_j in that of p.
    expected
        The part known in closed form, shape (n2,).
    """

    along: Tensor
    slopes: Tensor
    weights: Tensor
    parallel: Tensor
    side: Tensor
    tied: tuple[Tensor, Tensor, Tensor, Tensor]
    expected: Tensor

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

        In signs, since E sigma' sigma' = 1/4 + E sign sign / 4 over a neuron and its opposite.

        Parameters
        ----------
        z
            w . p of the neurons of each training point, for the training points and the others, (n, S, n) and (n, S, n2).
        pivot, noise
            w . x, shape (n, S), and noise, shape (2, n, S).
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
