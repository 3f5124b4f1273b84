"""K4 of a two-layer network from its neurons: how they are drawn, and the terms of eq. (15) of Chen, He and Su (2020)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp
from torch.quasirandom import SobolEngine

# Maximum number of principal directions with quasi-random weights: the integrand hardly varies along later ones.
DIRECTIONS = 64
BITS = 30  # binary digits of a Sobol point


class Neurons:
    r"""Draws weights w ~ N(0, I_d): each neuron is exactly Gaussian, and many cover the space more evenly than random ones.

    K4 depends on w through its inner products with the inputs. Along the first principal directions of the training inputs
    ``x``, shape (n, d), float64, the columns of V, the weights are normal quantiles z of a scrambled Sobol sequence; along all
    others they are pseudo-random: :math:`w = V z + (I - V V^\top) g`. Sobol points fill few directions well and many hardly
    better than chance, so the first ones go to the directions that matter. Every batch is scrambled separately, so that
    batches are independent.
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


Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Contraction:
    """The training points x, shape (n, d), and the weights that K4 is contracted with."""

    x: Tensor
    gram: Tensor  # x_i . x_j, shape (n, n)
    u: Tensor  # of the third input of K4, shape (Q, n)
    v: Tensor  # of the fourth
    b: Tensor  # sum_q u_qi v_qj, shape (n, n)

    @classmethod
    def of(cls, x: Tensor, u: Tensor, v: Tensor) -> Contraction:
        """Collect what all terms share."""
        return cls(x, x @ x.T, u, v, u.T @ v)


def derivatives(function: Function, z: Tensor, order: int) -> tuple[Tensor, ...]:
    """Return the function and its first ``order`` derivatives at every entry of z, each of z's shape."""
    if order == 0:
        return (function(z),)
    lower = jvp(lambda z: derivatives(function, z, order - 1), (z,), (torch.ones_like(z),))
    return (*lower[0], lower[1][-1])


@dataclass(frozen=True)
class _Side:
    """What the terms need for one batch of inputs x, each of shape (inputs, S) unless stated."""

    s: tuple[
        Tensor, ...
    ]  # sigma and its derivatives at w . x: two of them for a function with a kink, four for a smooth one
    au: Tensor  # alpha_u = sum_i u_i sigma'(z_i) x . x_i of each pair of weights, shape (Q, inputs, S)
    av: Tensor  # alpha_v
    svau: Tensor  # sum_q s_v alpha_u
    suav: Tensor  # sum_q s_u alpha_v
    r: Tensor  # sum_q x . r_uv, r_uv = sum_i u_i sigma''(z_i) (x_i . p_v) x_i; zeros for a function with a kink

    def with_value(self, a2: Tensor) -> Tensor:
        """Return the factor of sigma(z') of the other input."""
        total = self.s[1] * (self.svau + a2 * self.r)
        if len(self.s) > 2:
            total = total + a2 * self.s[2] * (self.au * self.av).sum(0)
        return total

    def with_slope(self, a2: Tensor, a4: Tensor) -> Tensor:
        """Return the factor of x . x' sigma'(z') of the other input, without the terms that both inputs share."""
        both = (self.au * self.av).sum(0)
        return a2 * self.s[2] * (2 * self.suav + 3 * self.svau) + a4 * (self.s[3] * both + self.s[2] * self.r)


def fourth_of_neurons(
    function: Function, smooth: bool, w: Tensor, a2: Tensor, a4: Tensor, c: Contraction, x1: Tensor, x2: Tensor
) -> Tensor:
    r"""Return the sum over neurons of eq. (15), contracted: m^2 sum_q sum_ij u_qi v_qj K4(x1_a, x2_b, x_i, x_j), shape (n1, n2).

    With z = w . x, s_u = sum_i u_i sigma(z_i), p_u = sum_i u_i sigma'(z_i) x_i and alpha_u = x . p_u, gradient flow along
    grad f(x_i), weighted by u, moves a neuron by (s_u, a p_u), and the derivative of

    .. math:: a (\alpha_u \sigma'(z) \sigma(z') + \alpha'_u \sigma(z) \sigma'(z') + 2 s_u x \cdot x' \sigma'(z) \sigma'(z'))
        + a^3 x \cdot x' (\alpha_u \sigma''(z) \sigma'(z') + \alpha'_u \sigma'(z) \sigma''(z'))

    (eq. 14) along (s_v, a p_v), which moves s_u by a p_u . p_v and p_u by a r_uv, has the terms of eq. (15), each a product of a
    function of x and one of x'. So the sum over neurons is a matrix product, and nothing larger than (Q, inputs, S) is formed.

    Without ``smooth``, only the regular terms of a function with a kink: none with sigma'' and sigma'''. ``w``, shape (d, S), are
    the weights of the neurons, ``a2`` and ``a4``, shape (S,), the second and fourth powers of their outer weights, or the
    expectations 1 and 3; the inputs have shapes (n1, d) and (n2, d).
    """
    order = 3 if smooth else 1
    s = derivatives(function, c.x @ w, min(order, 2))
    su, sv = c.u @ s[0], c.v @ s[0]
    weighted = (c.b * c.gram) @ s[1]  # sum_q u_qi x_i . p_v
    curved = s[2] * weighted if smooth else torch.zeros_like(weighted)

    def side(x: Tensor) -> _Side:
        gram = x @ c.x.T
        au = torch.stack([gram @ (u[:, None] * s[1]) for u in c.u])
        av = torch.stack([gram @ (v[:, None] * s[1]) for v in c.v])
        svau, suav = (sv[:, None] * au).sum(0), (su[:, None] * av).sum(0)
        return _Side(derivatives(function, x @ w, order), au, av, svau, suav, gram @ curved)

    one = side(x1)
    two = one if x2 is x1 else side(x2)
    total = one.with_value(a2) @ two.s[0].T + one.s[0] @ two.with_value(a2).T
    shared = 2 * ((su * sv).sum(0) + a2 * (weighted * s[1]).sum(0))
    inner = (one.s[1] * shared) @ two.s[1].T
    if smooth:
        inner = inner + one.with_slope(a2, a4) @ two.s[1].T + one.s[1] @ two.with_slope(a2, a4).T
    for left, right in ((one.au, two.av), (one.av, two.au)):
        for q in range(len(left)):
            total = total + (a2 * one.s[1] * left[q]) @ (two.s[1] * right[q]).T
            if smooth:
                inner = inner + (a4 * one.s[2] * left[q]) @ (two.s[2] * right[q]).T
    return total + (x1 @ x2.T) * inner
