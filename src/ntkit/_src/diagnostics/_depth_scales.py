"""How far signals travel through a deep network: correlation map, fixed points, depth scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ntkit._src.common import check_integer, check_module, check_number
from ntkit._src.kernels import InfiniteWidth, infinite_width
from ntkit._src.trace import Init
from ntkit.errors import InputError

_LEAST, _MOST = 1e-12, 1e12  # variances beyond which a fixed point counts as zero or infinite
_CRITICAL = 1e-6
_STEPS = 100
Step = Callable[[float, float], tuple[float, float, float, float]]
"""From q and c to q', c', dq'/dq and dc'/dc."""


@dataclass(frozen=True, eq=False)
class DepthScales:
    r"""Fixed points of a block that is applied again and again, and how fast they are approached.

    Attributes
    ----------
    variance
        :math:`q^*`, the second moment of a unit after many blocks; 0 or inf if it dies or grows without bound.
    correlation
        :math:`c^*`, the correlation of two inputs after many blocks, from any start below 1.
    chi
        :math:`\chi_1 = dc'/dc` at c = 1: perturbations shrink below 1 and grow above it.
    slope
        dc'/dc at :math:`c^*`.
    variance_scale, correlation_scale
        :math:`\xi = -1 / \log |\text{slope}|`, the depths over which variance and correlation approach their fixed points by a
        factor e; inf where the approach is slower than exponential.
    """

    variance: float
    correlation: float
    chi: float
    slope: float
    variance_scale: float
    correlation_scale: float
    _step: Step = field(repr=False)

    @property
    def phase(self) -> str:
        """``"ordered"`` (chi below 1: inputs become alike), ``"chaotic"`` (above: they part), or ``"critical"``."""
        return "critical" if abs(self.chi - 1) <= _CRITICAL else "ordered" if self.chi < 1 else "chaotic"

    def correlation_map(self, correlation: float, variance: float | None = None) -> float:
        """Return c', the correlation of two outputs of a block whose inputs have correlation c and equal variance.

        Parameters
        ----------
        correlation
            c, between -1 and 1.
        variance
            Of both inputs. Default: the fixed point.
        """
        check_number("correlation", correlation, -1, 1)
        return self._step(_clipped(self.variance) if variance is None else variance, correlation)[1]

    def course(self, depth: int, correlation: float, variance: float) -> Tensor:
        """Return variance and correlation after 0 to ``depth`` blocks, shape (depth + 1, 2), float64.

        Parameters
        ----------
        depth
            Number of blocks.
        correlation, variance
            Of the inputs.
        """
        check_integer("depth", depth, 0)
        check_number("correlation", correlation, -1, 1)
        found = [(variance, correlation)]
        for _ in range(depth):
            found.append(self._step(*found[-1])[:2])
        return torch.tensor(found, dtype=torch.float64)


def depth_scales(
    block: nn.Module,
    features: int | None = None,
    w_std: float | None = None,
    b_std: float | None = None,
    init: Init = "ntk",
    overrides: Mapping[str, Mapping[str, float]] | None = None,
    variance: float = 1.0,
) -> DepthScales:
    r"""Return how variances and correlations of infinitely wide networks evolve with depth: order, chaos, and the edge between.

    A deep network is a block applied many times, with weights of its own each time. In the limit, a block maps the second moment
    q of its inputs' units and the correlation c of two inputs to

    .. math:: q' = V(q) = K(q, 1), \qquad c' = K(q, c) / V(q),

    with K the block's :func:`ntkit.infinite_width` covariance for Gaussian inputs; for a linear layer and an activation,
    :math:`K(q, c) = E[\phi(u) \phi(v)]` for :math:`u, v \sim N(0, w^2 q + b^2)` of covariance :math:`w^2 q c + b^2`. The fixed
    points, the slopes there and the depth scales :math:`\xi` follow (Poole et al. 2016 [1]_, Schoenholz et al. 2017 [2]_; the
    latter find networks trainable up to about :math:`6 \xi` layers).

    Parameters
    ----------
    block : nn.Module
        Any module with a limit from vectors to vectors of as many features: ``nn.Sequential(nn.Linear(64, 64), nn.Tanh())``, a
        residual block, one with ``LayerNorm``.
    features : int, optional
        Number of features. Default: what the first ``nn.Linear`` reads.
    w_std, b_std, init, overrides : optional
        As in :func:`ntkit.infinite_width`.
    variance : float
        Where to start from; it decides between several fixed points. Default 1.

    Returns
    -------
    DepthScales

    Raises
    ------
    UnsupportedLayerError
        If the block has no limit.
    InputError
        If the block does not map vectors to vectors.

    See Also
    --------
    ntkit.normalized_ntk : The tangent kernel along depth.

    References
    ----------
    .. [1] Poole, Lahiri, Raghu, Sohl-Dickstein, Ganguli, "Exponential expressivity in deep neural networks through transient
       chaos", 2016.
    .. [2] Schoenholz, Gilmer, Ganguli, Sohl-Dickstein, "Deep information propagation", 2017.

    Examples
    --------
    >>> import ntkit
    >>> from torch import nn
    >>> block = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    >>> ordered, critical = (ntkit.diagnostics.depth_scales(block, w_std=w, b_std=0.1) for w in (1.0, 2.0**0.5))
    >>> ordered.phase, round(ordered.chi, 4), round(ordered.correlation_scale, 4), critical.phase
    ('ordered', 0.5, 1.4427, 'critical')
    """
    check_module(block)
    check_number("variance", variance, _LEAST)
    if features is None:
        features = next((one.in_features for one in block.modules() if isinstance(one, nn.Linear)), None)
        if features is None:
            raise InputError("the block has no nn.Linear to read the number of features from. Write features=...")
    check_integer("features", features, 1)
    # A linear layer of gain 1 before the block makes its inputs Gaussian and keeps their covariance.
    first = nn.Linear(features, features, bias=False)
    named = {f"1.{name}": dict(values) for name, values in (overrides or {}).items()}
    limit = infinite_width(nn.Sequential(first, block), w_std, b_std, init, overrides={"0": {"w_std": 1.0}} | named)
    step = _step_of(limit, features)
    fixed = _fixed_variance(step, float(variance))
    q = _clipped(fixed)
    _, _, grown, chi = step(q, 1.0)
    correlation, slope = _fixed_correlation(step, q, chi)
    return DepthScales(fixed, correlation, chi, slope, _scale(grown), _scale(slope), step)


def _clipped(variance: float) -> float:
    return min(max(variance, _LEAST), _MOST)


def _step_of(limit: InfiniteWidth, features: int) -> Step:

    def step(q: float, c: float) -> tuple[float, float, float, float]:
        same = torch.tensor(q, dtype=torch.float64, requires_grad=True)
        other = torch.tensor(q * c, dtype=torch.float64, requires_grad=True)
        with torch.enable_grad():
            prior = limit.with_prior("stationary", input_shape=(2, features), same=same, other=other)
            positions = prior.program.nodes[prior.program.output].positions
            if positions != (2,):
                raise InputError(
                    f"the block must map vectors of {features} features to vectors, two of them to two. Got outputs of the shape "
                    f"{positions}. Leave flattening and pooling out of the block."
                )
            found = prior.nngp.positions()
        own, cross = found[0, 0], found[0, 1]
        (grown,) = torch.autograd.grad(own, same, retain_graph=True, materialize_grads=True, allow_unused=True)
        (slope,) = torch.autograd.grad(cross, other, materialize_grads=True, allow_unused=True)
        after = float(own.detach())
        if after <= 0:
            raise InputError(f"the block's outputs vanish for inputs of variance {q:g}: they have no correlation.")
        return after, min(1.0, max(-1.0, float(cross.detach()) / after)), float(grown), float(slope) * q / after

    return step


def _fixed_variance(step: Step, start: float) -> float:
    """Return the fixed point that is reached from a start: go up where the map does, down where it does, then close in."""
    value, _, slope, _ = step(start, 1.0)
    if abs(value - start) <= 1e-12 * start:
        return start
    up, near, far = value > start, start, start
    while (value > far) == up:
        near, far = far, far * (4.0 if up else 0.25)
        if not _LEAST <= far <= _MOST:
            return math.inf if up else 0.0
        value, _, slope, _ = step(far, 1.0)
    q = far
    for _ in range(_STEPS):  # Newton's steps, and the middle where they leave the bracket
        aim = q + (value - q) / (1 - slope) if slope != 1 else math.nan
        last, q = q, aim if min(near, far) < aim < max(near, far) else math.sqrt(near * far)
        if abs(q - last) <= 1e-14 * q:
            break
        value, _, slope, _ = step(q, 1.0)
        near, far = (q, far) if (value > q) == up else (near, q)
    return q


def _fixed_correlation(step: Step, q: float, chi: float) -> tuple[float, float]:
    """Return the stable fixed point of the correlation and the slope there.

    The map is a power series of c without negative coefficients, as it is a covariance for points of any number. So it is convex
    between 0 and 1, where Newton's steps from 0 rise to the first fixed point; that is 1 unless the slope there is above 1.
    """
    if chi <= 1 + _CRITICAL:
        return 1.0, chi
    c = 0.0
    for _ in range(_STEPS):
        _, value, _, slope = step(q, c)
        last, c = c, c + (value - c) / (1 - slope)
        if abs(c - last) <= 1e-14:
            break
    return c, slope


def _scale(slope: float) -> float:
    size = abs(slope)
    if abs(size - 1) <= _CRITICAL:
        return math.inf
    return -1 / math.log(size) if 0 < size < 1 else 0.0 if size == 0 else math.inf
