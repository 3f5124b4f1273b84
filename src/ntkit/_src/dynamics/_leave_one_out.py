"""Leave-one-out predictions in closed form, for every ridge and every stopping time from one eigendecomposition."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from ntkit._src.common import Numbers, as_columns, check_times, listed
from ntkit._src.solvers import (
    Spectrum,
    check_gram,
    check_ridge,
    check_right_hand_side,
    decompose,
    factorize_exactly,
    inverse_diagonal,
)
from ntkit.errors import InputError

_NODES = 24
_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class LeaveOneOut:
    """Predictions for each training point from all others, for m candidates of ridge and stopping time.

    Attributes
    ----------
    ridges, times
        The candidates, each of shape (m,) and float64; every ridge with every time, ridges varying slowest. Infinity is
        training to the end.
    predictions
        Shape (m, n) or (m, n, k): entry i is the prediction for point i by the model fitted without it.
    errors
        Mean squared error of the predictions over points and outputs, shape (m,).
    best
        Index of the candidate with the smallest error.
    status
        One English sentence: how it was computed and what was done about a singular matrix.
    """

    ridges: Tensor
    times: Tensor
    predictions: Tensor
    errors: Tensor
    best: int
    status: str

    @property
    def ridge(self) -> float:
        """The ridge of the best candidate."""
        return float(self.ridges[self.best])

    @property
    def time(self) -> float:
        """The stopping time of the best candidate."""
        return float(self.times[self.best])


def leave_one_out(
    gram: Tensor | LinearOperator,
    y: Tensor,
    ridges: Numbers = 0.0,
    times: Numbers = math.inf,
) -> LeaveOneOut:
    r"""Predict each point by the model trained on all others, without training any of them.

    Let :math:`G(s) = (K + (\rho + s) I)^{-1}` with :math:`\rho` = ridge trace(K)/n. Kernel ridge regression without point i
    predicts it as [1]_

    .. math:: h_i(s) = y_i - \frac{(G(s)\, y)_i}{G(s)_{ii}}

    at s = 0. This is an identity of rational functions in s, and gradient flow from zero, stopped at t (with the ridge as
    decay of the weights), is kernel ridge regression integrated over complex ridges, since
    :math:`(1 - e^{-\mu t})/\mu = \frac{1}{2 \pi i} \int \frac{e^{st}}{s (\mu + s)}\, ds`. So the flow without point i
    predicts it as

    .. math:: f^{(-i)}_t(x_i) = \frac{1}{2 \pi i} \int \frac{e^{st}}{s}\, h_i(s)\, ds,

    exactly: no refit and no approximation of the smoother's diagonal. The integrand's singularities, zero and minus the
    eigenvalues of the matrices without a row, lie on the negative half-axis; 24 points on Talbot's contour around it [2]_
    give about twelve digits. The absolute ridge :math:`\rho` is that of all n points, even in the fits without one of them.

    Parameters
    ----------
    gram : Tensor of shape (n, n), or a stored one
        K(X, X), n at least 2, float32 or float64; computations are in float64.
    y : Tensor of shape (n,) or (n, k)
        Targets, of the Gram matrix's dtype and device. Subtract f_0(X) first if training starts from it.
    ridges : float or sequence of floats
        Candidates, relative to trace(K)/n. A single one with infinite time costs one Cholesky factorisation. Default 0.
    times : float or sequence of floats
        Candidate stopping times of gradient flow of half the **summed** squared error, ``f' = -K (f - y)``; infinity is kernel
        ridge regression. Default infinity.

    Returns
    -------
    LeaveOneOut

    See Also
    --------
    ntkit.evidence : chooses by marginal likelihood instead, including gains.
    ntkit.NTKRegressor, ntkit.NTKClassifier : use it with ``tune="loo"``.

    References
    ----------
    .. [1] Rasmussen, Williams, "Gaussian Processes for Machine Learning", 2006, section 5.4.2.
    .. [2] Trefethen, Weideman, Schmelzer, "Talbot quadratures and rational approximations", 2006.

    Examples
    --------
    >>> import torch
    >>> from ntkit import leave_one_out
    >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64)
    >>> gram = torch.exp(-((x[:, None] - x) ** 2) / 0.1)
    >>> y = torch.sin(3 * x) + 0.1 * torch.randn(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> found = leave_one_out(gram, y, ridges=[1e-6, 1e-2, 1e2])
    >>> found.ridge
    0.01
    >>> leave_one_out(gram, y, times=[0.01, 1.0, float("inf")]).time
    1.0
    """
    gram = check_gram(gram)
    check_right_hand_side(y, gram)
    if len(gram) < 2:
        raise InputError("leaving one point out needs at least two. Got a Gram matrix of shape (1, 1).")
    grid = [check_ridge(ridge) for ridge in listed(ridges, "ridges", "a number")[0]]
    stops, _ = check_times(times, "times")
    columns = as_columns(y).double()
    with torch.no_grad():
        wide = gram.detach().double()
        factor = factorize_exactly(wide, grid[0]) if len(grid) == 1 and stops == [math.inf] else None
        if factor is not None:
            predictions = (columns - factor.solve(columns).value / inverse_diagonal(factor.lower)[:, None])[None]
            status = "Cholesky factorisation; no jitter was needed."
        else:
            spectrum = decompose(wide, overwrite=gram.dtype != torch.float64)
            predictions = torch.stack([_prediction(spectrum, columns, ridge, t) for ridge in grid for t in stops])
            status = spectrum.status
        errors = ((predictions - columns) ** 2).mean((1, 2))
    pairs = torch.tensor([(ridge, t) for ridge in grid for t in stops], dtype=torch.float64)
    return LeaveOneOut(
        pairs[:, 0],
        pairs[:, 1],
        predictions.reshape(len(pairs), *y.shape).to(y.dtype),
        errors.to(y.dtype),
        int(errors.argmin()),
        status,
    )


def _prediction(spectrum: Spectrum, y: Tensor, ridge: float, t: float) -> Tensor:
    """Return the predictions from the other points, shape (n, k)."""
    if t == 0:
        return torch.zeros_like(y)
    shifted = spectrum.shifted(ridge)
    if math.isinf(t):
        # The limit of a vanishing ridge: directions that are only rounding get the smallest distinguishable ridge.
        inverse = 1 / shifted.clamp_min(spectrum.tolerance)
        return y - _ratios(spectrum.vectors, inverse[:, None], y)[0]
    nodes, weights = _talbot(t)
    nodes, weights = nodes.to(y.device), weights.to(y.device)
    inverse = 1 / (shifted[:, None] + nodes)  # (n, nodes)
    residuals = _ratios(spectrum.vectors, inverse, y)  # (nodes, n, k)
    # Only one of each pair of conjugate nodes is used, hence the real part.
    return torch.einsum("q,qik->ik", weights, y - residuals).real


def _ratios(vectors: Tensor, inverse: Tensor, y: Tensor) -> Tensor:
    """Return (G y)_i / G_ii for the matrices G = V diag(inverse[:, q]) V^T, shape (q, n, k)."""
    projected = vectors.T @ y
    filtered = torch.einsum("aq,ak->aqk", inverse, projected.to(inverse.dtype)).flatten(1)
    blocks = []
    for rows in torch.split(vectors, _BLOCK_ROWS):
        diagonal = _times(rows * rows, inverse)
        applied = _times(rows, filtered).view(len(rows), inverse.shape[1], -1)
        blocks.append(applied / diagonal[:, :, None])
    return torch.cat(blocks).movedim(1, 0)


def _times(real: Tensor, other: Tensor) -> Tensor:
    """Multiply a real matrix by a real or complex one, without a complex copy of the former."""
    if not other.is_complex():
        return real @ other
    parts = real @ torch.view_as_real(other).flatten(1)
    return torch.view_as_complex(parts.view(len(real), *other.shape[1:], 2))


def _talbot(t: float) -> tuple[Tensor, Tensor]:
    """Nodes s_q above the real axis and weights of the integral of e^{st}/s ds / (2 pi i) over Talbot's contour."""
    theta = (torch.arange(_NODES // 2, dtype=torch.float64) + 0.5) * (2 * math.pi / _NODES)
    angle = 0.6407 * theta
    s = _NODES * torch.complex(0.5017 * theta / torch.tan(angle) - 0.6122, 0.2645 * theta)
    slope = _NODES * torch.complex(
        0.5017 / torch.tan(angle) - 0.5017 * angle / torch.sin(angle) ** 2, torch.full_like(theta, 0.2645)
    )
    # ds/(2 pi i), each node twice for its conjugate; e^{st}/s does not change when s is measured in units of 1/t.
    weights = 2 * torch.exp(s) / s * slope / (1j * _NODES)
    return s / t, weights
