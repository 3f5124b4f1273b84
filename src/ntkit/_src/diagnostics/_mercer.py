"""Mercer's decomposition of a zonal kernel on the sphere: eigenvalues by degree, multiplicities, decay."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ntkit._src.common import Numbers, all_finite, check_integer, check_number, check_pairs, check_times, shown
from ntkit._src.kernels import Kernel
from ntkit.errors import InputError, InputTypeError, QuadratureWarning

_NODES = 32  # Gauss-Legendre nodes per panel
_PHASE = 16.0  # radians of the highest harmonic per panel, which this many nodes integrate to rounding
_DOUBLINGS = 7
_ZONAL = 1e-8
_ACCURATE = 1e-8
_ROUNDINGS = 32.0
_FILTER_ORDER = 8


@dataclass(frozen=True, eq=False)
class MercerSpectrum:
    r"""Eigenvalues of a zonal kernel on the sphere :math:`S^{p-1}` with the uniform probability measure.

    Attributes
    ----------
    dim
        p, the dimension of the space around the sphere.
    degrees
        k, shape (m,), int64, increasing.
    eigenvalues
        :math:`\lambda_k`, shape (m,), float64.
    multiplicities
        N(p, k), the number of spherical harmonics of degree k, shape (m,), float64.
    error
        Estimated absolute error of each eigenvalue, quadrature and rounding, shape (m,).
    trace
        kappa(1) = K(x, x), which all eigenvalues with their multiplicities add up to.
    nodes
        Points of the quadrature.
    """

    dim: int
    degrees: Tensor
    eigenvalues: Tensor
    multiplicities: Tensor
    error: Tensor
    trace: float
    nodes: int

    @property
    def missing(self) -> float:
        """The part of the trace outside these degrees: the largest possible error of :meth:`rebuild`, for a Mercer kernel."""
        return self.trace - float(self.eigenvalues @ self.multiplicities)

    @property
    def vanishing(self) -> Tensor:
        """Which eigenvalues are zero to rounding, shape (m,), bool."""
        return self.eigenvalues.abs() <= self.error

    def decay_exponent(self, first: int = 1, last: int | None = None) -> float:
        r"""Return q of the power law :math:`\lambda_k \propto k^{-q}`, fitted to degrees first to last.

        Least squares of :math:`\log \lambda_k` on :math:`\log k`, with separate constants for even and for odd degrees, which
        kernels without biases need. Degrees whose eigenvalue is below ten times its error are left out.

        Raises
        ------
        InputError
            If fewer than three degrees are left.
        """
        last = int(self.degrees[-1]) if last is None else last
        chosen = (self.degrees >= max(first, 1)) & (self.degrees <= last) & (self.eigenvalues > 10 * self.error)
        k, values = self.degrees[chosen].numpy(), self.eigenvalues[chosen].numpy()
        parities = [k % 2 == parity for parity in (0, 1) if (k % 2 == parity).any()]
        if len(k) < len(parities) + 2:
            raise InputError(
                f"a decay needs at least three degrees with eigenvalues above their error. Got {len(k)} between {first} and "
                f"{last}: the others vanish, or are below rounding; ask mercer for more or lower degrees."
            )
        columns = np.stack([np.log(k), *(one.astype(float) for one in parities)], axis=1)
        slope = np.linalg.lstsq(columns, np.log(values), rcond=None)[0][0]
        return -float(slope)

    def rebuild(self, angles: Numbers, smooth: bool = False) -> Tensor:
        r"""Return the sum :math:`\sum_k \sigma_k \lambda_k N(p, k) P_k(\cos t)` at angles t, shape (number of angles,).

        Parameters
        ----------
        angles
            t between 0 and pi.
        smooth
            With :math:`\sigma_k = e^{-36 (k / K)^8}` for the highest degree K in place of 1. Where eigenvalues fall as a power
            of k, as those of ReLU networks do, the plain sum to degree K errs by a power of 1 / K, and needs the other one to
            come within 1e-8; kernels of smooth activations do not. The smooth sum converges fast at every angle where the kernel
            is smooth in t. For ReLU networks that excludes the kink at t = 0 and, without biases, that at t = pi: with biases and
            1,500 degrees it is within 1e-8 from t = 0.06 on. Default False.
        """
        values, _ = check_times(angles, "angles")
        if max(values) > math.pi:
            raise InputError(f"angles must lie between 0 and pi. Got {max(values):g}.")
        t = torch.tensor(values, dtype=torch.float64)
        weights = self.eigenvalues * self.multiplicities
        if smooth:
            weights = weights * torch.exp(-36.0 * (self.degrees / self.degrees[-1].clamp(min=1)) ** _FILTER_ORDER)
        wanted = {int(k): float(weight) for k, weight in zip(self.degrees, weights, strict=True)}
        total = torch.zeros_like(t)
        for k, harmonic in enumerate(_zonal_harmonics(self.dim, t, int(self.degrees[-1]))):
            if k in wanted:
                total += wanted[k] * harmonic
        return total

    def __repr__(self) -> str:
        return (
            f"MercerSpectrum(dim={self.dim}, degrees {int(self.degrees[0])} to {int(self.degrees[-1])}, "
            f"{self.missing / self.trace:.2g} of the trace outside)"
        )


def mercer(kernel: Kernel, dim: int, degrees: int | Sequence[int], radius: float = 1.0) -> MercerSpectrum:
    r"""Decompose a zonal kernel on the sphere into spherical harmonics.

    A kernel :math:`K(x, x') = \kappa(\cos t)` that depends only on the angle t has the harmonics of degree k as eigenfunctions
    (Golikov et al. 2022 [1]_, eq. 112, where :math:`N(p, k)` is the number of harmonics of degree k, not a polynomial):

    .. math:: K = \sum_k \lambda_k \sum_{j=1}^{N(p,k)} Y_{kj} Y_{kj} = \sum_k \lambda_k N(p, k) P_k(\cos t), \qquad
              \lambda_k = \frac{\Gamma(p/2)}{\sqrt\pi\, \Gamma((p-1)/2)} \int_0^\pi \kappa(\cos t) P_k(\cos t) \sin^{p-2} t\, dt,

    by the Funk-Hecke formula, with Gegenbauer polynomials scaled to :math:`P_k(1) = 1` (Chebyshev for p = 2) and
    the uniform *probability* measure. The integral is taken in the angle, where kernels of networks are smooth; in
    :math:`\cos t` they are not. The Gram matrix of m independent uniform points has eigenvalues near
    :math:`m \lambda_k`, each about N(p, k) times (the survey's :math:`m^2` below eq. 111 is an error).

    Parameters
    ----------
    kernel : Kernel
        A kernel of vectors, shape (n, dim). It must depend only on the angle, which is checked on random rotations.
    dim : int
        p, at least 2.
    degrees : int or sequence of int
        The highest degree, for all from 0 on; or a list of degrees.
    radius : float
        Radius of the sphere. Default 1.

    Returns
    -------
    MercerSpectrum
        With ``decay_exponent``; tangent kernels of fully connected networks with biases have exponent p (Chen and Xu 2020).

    Raises
    ------
    InputError
        If the kernel is not zonal, such as that of a finite network.

    Warns
    -----
    QuadratureWarning
        If the kernel is too rough in t for an accuracy of 1e-8.

    See Also
    --------
    ntkit.diagnostics.learning_times : Eigenvalues on given points, and how fast each direction is learnt.
    ntkit.plots.plot_eigenvalue_decay : Draws spectra.

    References
    ----------
    .. [1] Golikov, Pokonechnyy, Korviakov, "Neural Tangent Kernel: A Survey", 2022.

    Examples
    --------
    >>> import ntkit
    >>> from torch import nn
    >>> ntk = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)), b_std=1.0).ntk
    >>> spectrum = ntkit.diagnostics.mercer(ntk, dim=3, degrees=60)
    >>> spectrum.multiplicities[:4], round(spectrum.decay_exponent(20, 60), 1)
    (tensor([1., 3., 5., 7.], dtype=torch.float64), 3.0)
    """
    _check_arguments(kernel, dim, radius)
    wanted = _read_degrees(degrees)
    multiplicities = torch.tensor([_multiplicity(dim, k) for k in wanted], dtype=torch.float64)
    largest = _check_zonal(kernel, dim, radius)
    panels = max(4, math.ceil(math.pi * wanted[-1] / _PHASE))
    rounding = _ROUNDINGS * torch.finfo(torch.float64).eps * largest
    values, error = _integrals(kernel, dim, radius, wanted, panels), torch.zeros(0)
    for _ in range(_DOUBLINGS):
        panels *= 2
        finer = _integrals(kernel, dim, radius, wanted, panels)
        error = (finer - values).abs()
        values = finer
        if float(error.max()) <= rounding:
            break
    if float(error.max()) > _ACCURATE * largest:
        warnings.warn(
            f"the kernel is not smooth in the angle: its eigenvalues err by up to {float(error.max()):.1e}, their sum being "
            f"{largest:.3g}.",
            QuadratureWarning,
            stacklevel=2,
        )
    trace = float(kernel.diag(_circle(dim, radius, torch.zeros(1, dtype=torch.float64)))[0])
    return MercerSpectrum(
        dim, torch.tensor(wanted), values, multiplicities, error + rounding, trace, _NODES * panels
    )  # fmt: skip


def _integrals(kernel: Kernel, dim: int, radius: float, wanted: list[int], panels: int) -> Tensor:
    """Return the eigenvalues by the Gauss-Legendre rule on equal panels of [0, pi], shape (len(wanted),)."""
    points, weights = (torch.from_numpy(one) for one in np.polynomial.legendre.leggauss(_NODES))
    width = math.pi / panels
    t = (width * (torch.arange(panels, dtype=torch.float64)[:, None] + (points + 1) / 2)).reshape(-1)
    pole = _circle(dim, radius, torch.zeros(1, dtype=torch.float64))
    with torch.no_grad():
        kappa = kernel(pole, _circle(dim, radius, t))[0]
    log_area = math.lgamma(dim / 2) - math.lgamma((dim - 1) / 2) - 0.5 * math.log(math.pi)
    measure = torch.exp(log_area + (dim - 2) * torch.log(torch.sin(t))) if dim > 2 else torch.full_like(t, 1 / math.pi)
    integrand = kappa * measure * (width / 2 * weights).repeat(panels)
    places = {k: place for place, k in enumerate(wanted)}
    found = torch.zeros(len(wanted), dtype=torch.float64)
    for k, harmonic in enumerate(_zonal_harmonics(dim, t, wanted[-1])):
        if k in places:
            found[places[k]] = integrand @ harmonic
    return found


def _zonal_harmonics(dim: int, t: Tensor, highest: int) -> Iterator[Tensor]:
    """Yield P_k(cos t) of degrees 0 to ``highest``, one after the other, each of the shape of t."""
    if dim == 2:
        for k in range(highest + 1):
            yield torch.cos(k * t)
        return
    x = torch.cos(t)
    before, now = torch.ones_like(x), x
    yield before
    for k in range(1, highest + 1):
        yield now
        before, now = now, ((2 * k + dim - 2) * x * now - k * before) / (k + dim - 2)


def _multiplicity(dim: int, k: int) -> float:
    """Return N(p, k): homogeneous polynomials of degree k minus those of degree k - 2."""
    count = math.comb(k + dim - 1, k) - (math.comb(k + dim - 3, k - 2) if k > 1 else 0)
    if count > 1e300:
        raise InputError(
            f"there are more than 1e300 harmonics of degree {k} in dimension {dim}. Ask for lower degrees."
        )
    return float(count)


def _circle(dim: int, radius: float, t: Tensor) -> Tensor:
    """Return points of a great circle at angles t from the first axis, shape (len(t), dim)."""
    x = torch.zeros(len(t), dim, dtype=torch.float64)
    x[:, 0], x[:, 1] = radius * torch.cos(t), radius * torch.sin(t)
    return x


def _check_zonal(kernel: Kernel, dim: int, radius: float) -> float:
    """Compare the kernel on random rotations of pairs with the same angle, and return its largest value."""
    t = torch.linspace(0.0, math.pi, 9, dtype=torch.float64)
    circle = _circle(dim, radius, t)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        expected = check_pairs(kernel(circle[:1], circle), (1, len(circle)), "kernel(x1, x2)")[0]
        if not all_finite(expected):
            raise InputError("the kernel returns NaN or infinite values on the sphere.")
        largest, off = float(expected.abs().max()), 0.0
        for _ in range(6):
            frame = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q
            turned = circle @ frame.T
            off = max(off, float((kernel(turned[:1], turned)[0] - expected).abs().max()))
            off = max(off, float((kernel.diag(turned) - expected[0]).abs().max()))
    if not largest > 0:
        raise InputError("the kernel is zero on the sphere: it has no spectrum.")
    if off > _ZONAL * largest:
        raise InputError(
            f"the kernel must be zonal, a function of the angle alone on the sphere of radius {radius:g}. Got values that "
            f"differ by up to {off / largest:.1e} of the largest between rotated pairs. Kernels of finite networks, of "
            "convolutions and of label-aware methods are not zonal; use learning_times on points of your own."
        )
    return largest


def _check_arguments(kernel: Kernel, dim: int, radius: float) -> None:
    if not isinstance(kernel, Kernel):
        raise InputTypeError(
            f"kernel must be an ntkit.Kernel. Got {type(kernel).__name__}: write ntkit.infinite_width(module).ntk."
        )
    check_integer("dim", dim, 2)
    check_number("radius", radius, positive=True)


def _read_degrees(degrees: int | Sequence[int]) -> list[int]:
    given = range(degrees + 1) if isinstance(degrees, int) and not isinstance(degrees, bool) else degrees
    if not isinstance(given, Sequence) or not all(isinstance(k, int) and not isinstance(k, bool) for k in given):
        raise InputTypeError(f"degrees must be an integer or a sequence of integers. Got {shown(degrees)}.")
    wanted = sorted(set(given))
    if not wanted or wanted[0] < 0:
        raise InputError(f"degrees must be whole numbers from 0 on, at least one. Got {shown(degrees)}.")
    return wanted
