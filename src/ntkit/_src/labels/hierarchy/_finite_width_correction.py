"""Predictions of a network of finite width during training, to first order in 1/width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from numpy.polynomial import legendre
from scipy.special import ive
from torch import Tensor, nn

from ntkit._src.common import Progress, check_integer, measuring, part_of
from ntkit._src.dynamics import GradientFlow, flow_filter
from ntkit._src.kernels import BYTE_BUDGET
from ntkit._src.solvers import Spectrum, decompose
from ntkit.errors import InputError, InputTypeError, SingularKernelError

from ._module_hierarchy import HierarchySource, ModuleHierarchy


@dataclass(frozen=True)
class FiniteWidthCorrection:
    """Predictions to first order in 1/width, by order, as :func:`finite_width_correction` returns them.

    Attributes
    ----------
    leading
        f^(0): the predictions of the constant kernel, shape (n,), or (m, n) for m times.
    correction
        f^(1): the contribution of the kernel's first-order motion, of the same shape.
    """

    leading: Tensor
    correction: Tensor

    @property
    def prediction(self) -> Tensor:
        """f^(0) + f^(1)."""
        return self.leading + self.correction


def finite_width_correction(
    module: nn.Module | HierarchySource,
    x: Tensor,
    y: Tensor,
    x_test: Tensor | None = None,
    t: float | Sequence[float] | Tensor = math.inf,
    *,
    n_samples: int = 0,
    generator: torch.Generator | None = None,
    centre: bool = False,
    output: int | None = None,
    nodes: int = 8,
    byte_budget: int = BYTE_BUDGET,
    progress: Progress | None = None,
) -> FiniteWidthCorrection:
    r"""Predict a network of finite width during gradient flow from its tangent hierarchy at the start.

    With :math:`H = K_2(X, X)`, :math:`r_s = e^{-Hs} (f_0(X) - y)` and :math:`a_s = \int_0^s r = H^{-1}(I - e^{-Hs}) r_0`, the
    kernel moves by

    .. math:: K^{(1)}_t(x, x') = - \langle K_3(x, x', \cdot), a_t \rangle + \int_0^t r_s^T K_4(x, x', \cdot, \cdot)\, a_s\, ds

    up to terms of order width^-2, and the prediction :math:`f^{(0)}` of the constant kernel K2 by

    .. math:: \dot f^{(1)}_t(x) = - K^{(1)}_t(x, X)\, r_t - K_2(x, X) f^{(1)}_t(X), \qquad f^{(1)}_0 = 0

    (Golikov et al. 2022, eqs 39-51; here the leading order is each network's own kernel and start instead of their
    limits, from which they differ by order width^-1/2, so that the error is of order width^-2 for each network too). Where
    they carry out the double integral, and in their eq. 158, r and a are contracted with each other's slot of K4. K3
    and K4 enter only contracted with r and a, once per quadrature time; the action of H in between is integrated exactly.

    Parameters
    ----------
    module
        A smooth module, as in :func:`ntkit.hierarchy_kernel`; kinks such as those of ReLU, max pooling or ELU are refused,
        because the kernel jumps when a neuron crosses one, and K3 and K4 by autograd miss that. Or a source of the
        hierarchy bound to ``x``, such as :class:`ntkit.labels.ModuleHierarchy`, which is assumed to be that of a network that
        starts at zero.
    x, y
        Training inputs, shape (n, ...), and targets, shape (n,).
    x_test
        Inputs to predict, shape (n_test, ...). Default None: the training inputs.
    t
        Times of gradient flow on :math:`\frac12 \sum (f - y)^2`, a **sum** over points as in :func:`ntkit.train`; infinity is
        training to the end, the default. The correction is useful as long as :math:`K^{(1)}_t` is small compared with K2.
    n_samples, generator
        Average over this many networks, drawn as by :func:`ntkit.monte_carlo`, each corrected by its own hierarchy and
        start, so that every correlation among them is kept. Default 0 and None: the module with its present parameters.
    centre
        Whether to train f - f_0, which starts at zero, as ``ntkit.train(centre=True)`` does. Default False.
    output
        Index of the output, for a module with several. Default None: there is only one.
    nodes
        Quadrature times per doubling of t, starting from half of 1 / (largest eigenvalue of H), default 8: about ten digits;
        6 give about eight.
    byte_budget
        About how many bytes may be held at a time, default 512 MiB.
    progress
        Called with the number of times done and their total. Default None.

    Returns
    -------
    FiniteWidthCorrection

    See Also
    --------
    ntkit.GradientFlow : The predictions of the constant kernel at any time.
    ntkit.train : Trains the network itself.
    ntkit.hierarchy_kernel : The kernels that move the tangent kernel.

    Raises
    ------
    SingularKernelError
        If t is infinite and H is singular: the kernel then moves forever.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = ntkit.parametrize_ntk(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).double(), w_std=1.0)
    >>> net = ntkit.initialize(net, generator=torch.Generator().manual_seed(0))
    >>> x, y = torch.eye(2, dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64)
    >>> found = ntkit.finite_width_correction(net, x, y, t=1.0)
    >>> run = ntkit.train(net, x, y[:, None], ntkit.Schedule("flow", time=1.0))
    >>> true = run.predictions[-1][:, 0]
    >>> bool((found.prediction - true).norm() < 0.1 * (found.leading - true).norm())
    True
    """
    check_integer("nodes", nodes, 2)
    if not isinstance(module, nn.Module):
        if not all(callable(getattr(module, name, None)) for name in ("second", "third", "fourth")):
            raise InputTypeError(
                f"module must be a torch.nn.Module or a source of the hierarchy. Got {type(module).__name__}. "
                "Write ntkit.labels.ModuleHierarchy(module, x)."
            )
        if n_samples or centre or output is not None:
            raise InputError(
                "n_samples, centre and output are for a module. Leave them out with a source of the hierarchy."
            )
        return _corrected(module, x, y, x_test, t, None, None, nodes, progress)
    drawn = ModuleHierarchy(module, x, n_samples, generator, output=output, byte_budget=byte_budget)
    drawn.check_smooth(4)
    count = max(1, n_samples)
    found = []
    for number, one in enumerate(drawn.networks()):
        source = ModuleHierarchy(one.module, x, output=output, byte_budget=byte_budget)
        one.check(x, x_test, trained=True)
        with torch.no_grad(), measuring(one.module):
            f0, f0_test = (None if centre or points is None else one(points)[:, 0] for points in (x, x_test))
        step = part_of(progress, number, count)
        found.append(_corrected(source, x, y, x_test, t, f0, f0_test, nodes, step))
    leading, corrections = (
        torch.stack(parts).mean(0) for parts in zip(*((o.leading, o.correction) for o in found), strict=True)
    )
    return FiniteWidthCorrection(leading, corrections)


def _corrected(
    source: HierarchySource,
    x: Tensor,
    y: Tensor,
    x_test: Tensor | None,
    t: float | Sequence[float] | Tensor,
    f0: Tensor | None,
    f0_test: Tensor | None,
    nodes: int,
    progress: Progress | None,
) -> FiniteWidthCorrection:
    """Return the prediction of one hierarchy and start, zero if None."""
    gram = source.second(x)
    if not isinstance(y, Tensor) or y.shape != (len(gram),):
        got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(f"y must be a tensor of shape {(len(gram),)}, one target for each training input. Got {got}.")
    cross = gram if x_test is None else source.second(x_test, x)
    flow = GradientFlow("precomputed").fit(gram, y, f0)
    spectrum = decompose(gram)
    times = torch.as_tensor(t, dtype=torch.float64).reshape(-1).tolist()
    if any(map(math.isinf, times)) and spectrum.rank < len(gram):
        raise SingularKernelError(
            f"the kernel of the training points is singular: {len(gram) - spectrum.rank} of its {len(gram)} eigenvalues are "
            "rounding, so its motion has no end. Pass a finite t, or leave out repeated inputs."
        )
    leading = flow.predict(None if x_test is None else cross, t, f0_test)
    start = -y if f0 is None else f0 - y
    motion = KernelMotion(source, x, x_test, spectrum, spectrum.vectors.T @ start, nodes)
    found = motion.at(times, progress)
    states = [found[time] for time in times]
    if x_test is None:
        rows = [spectrum.vectors @ state.outputs for state in states]
    else:
        rows = [-state.driven - cross @ (spectrum.vectors @ state.summed) for state in states]
    return FiniteWidthCorrection(leading, torch.stack(rows).reshape(leading.shape))


@dataclass(frozen=True)
class State:
    """The correction at a time s, in the eigenbasis V of H."""

    time: float
    outputs: Tensor  # V^T f1_s(X), shape (n,)
    summed: Tensor  # V^T int_0^s f1(X), shape (n,)
    driven: Tensor  # int_0^s K1_u(x_test, X) r_u du, shape (n_test,)
    fourth: Tensor  # int_0^s r^T K4 a of all points and the training points, shape (n + n_test, n)


class KernelMotion:
    """The integral over time, in panels of doubling length with a polynomial of the time in each."""

    def __init__(
        self, source: HierarchySource, x: Tensor, x_test: Tensor | None, spectrum: Spectrum, start: Tensor, nodes: int
    ) -> None:
        self.source, self.x = source, x
        self.points = x if x_test is None else torch.cat([x, x_test])
        self.values, self.vectors, self.start = spectrum.clean, spectrum.vectors, start
        points, weights = (torch.tensor(values).to(start) for values in legendre.leggauss(nodes))
        basis = torch.tensor(legendre.legvander(points.double().cpu().numpy(), nodes)).to(start)  # P_l(x_j) at (j, l)
        orders = torch.arange(nodes).to(start)
        self.nodes, self.weights = points, weights
        # The coefficients c_l of the polynomial through values at the nodes are transform @ values.
        self.transform = (orders + 0.5)[:, None] * weights * basis[:, :-1].T
        # From -1 to x, P_l integrates to (P_{l+1} - P_{l-1}) / (2l + 1), and P_0 to 1 + x.
        partial = (basis[:, 2:] - basis[:, :-2]) / (2 * orders[1:] + 1)
        self.partial = torch.cat([1 + points[:, None], partial], 1) @ self.transform

    def at(self, times: list[float], progress: Progress | None) -> dict[float, State]:
        """Return the state at each of the times."""
        smallest, largest = float(self.values[0]), float(self.values[-1])
        settled = (5 - math.log(torch.finfo(self.values.dtype).eps)) / smallest if smallest > 0 else math.inf
        finite = [settled if math.isinf(time) else time for time in times]
        breaks = _breaks(finite, 0.5 / largest)
        state = State(
            0.0,
            torch.zeros_like(self.start),
            torch.zeros_like(self.start),
            self.start.new_zeros(len(self.points) - len(self.x)),
            self.start.new_zeros(len(self.points), len(self.x)),
        )
        states = {0.0: state}
        for number, end in enumerate(breaks, 1):
            state = states[end] = self._panel(state, end)
            if progress is not None:
                progress(number, len(breaks))
        found = {time: states[end] for time, end in zip(times, finite, strict=True)}
        if math.inf in found:
            # From there on nothing drives the correction, and the remainder decays.
            last = found[math.inf]
            summed = last.summed + last.outputs / self.values
            found[math.inf] = State(math.inf, torch.zeros_like(self.start), summed, last.driven, last.fourth)
        return found

    def _panel(self, state: State, end: float) -> State:
        """Advance a state to a later time."""
        h, n = end - state.time, len(self.x)
        after = (1 + self.nodes) * (h / 2)
        decay = torch.stack([torch.exp(-self.values * (state.time + float(s))) for s in after])
        integral = torch.stack([flow_filter(self.values, state.time + float(s)) for s in after])
        residuals = (decay * self.start) @ self.vectors.T  # r at the nodes, (nodes, n)
        moved = (integral * self.start) @ self.vectors.T  # a at the nodes
        driven = state.fourth @ residuals.T  # K^(1) r at the nodes, (n + n_test, nodes)
        fourth = state.fourth
        for j, (residual, a) in enumerate(zip(residuals, moved, strict=True)):
            driven[:, j] -= self.source.third(self.points, self.x, a) @ residual
            rate = self.source.fourth(self.points, self.x, residual[None], a[None])
            driven += (h / 2) * self.partial[:, j] * (rate @ residuals.T)
            fourth = fourth + (h / 2) * self.weights[j] * rate
        modes = self.vectors.T @ driven[:n]
        once, twice = self._kernels(h)
        return State(
            end,
            torch.exp(-self.values * h) * state.outputs - (once * modes).sum(1),
            state.summed + flow_filter(self.values, h) * state.outputs - (twice * modes).sum(1),
            state.driven + driven[n:] @ self.weights * (h / 2),
            fourth,
        )

    def _kernels(self, h: float) -> tuple[Tensor, Tensor]:
        r"""Return the weights of the nodes, shape (n, nodes), in the integrals of :math:`e^{-\lambda (h - s)}` and of that.

        Both are exact for polynomials: :math:`\int_{-1}^1 e^{-z(1-x)} P_l = 2 \sqrt{\pi / 2z}\, e^{-z} I_{l+1/2}(z)`.
        """
        z = (self.values.double() * h / 2).clamp_min(1e-12).cpu()[:, None]
        orders = torch.arange(len(self.nodes), dtype=torch.float64) + 0.5
        bessel = torch.as_tensor(ive(orders.numpy(), z.numpy()))
        moments = (2 * (math.pi / (2 * z)).sqrt() * bessel).to(self.start)
        once = (h / 2) * moments @ self.transform
        plain = (h / 2) * self.weights
        left = (1 - self.nodes) * (h / 2)
        # The difference cancels if lambda h is small; then the nodes resolve the function itself.
        smooth = plain * torch.stack([flow_filter(self.values, float(s)) for s in left], 1)
        far = (self.values * h > 1)[:, None]
        return once, torch.where(far, (plain - once) / torch.where(far, self.values[:, None], 1), smooth)


def _breaks(times: list[float], first: float) -> list[float]:
    """Return the ends of the panels: the times, and a sequence that doubles."""
    last, ends = max(times), set(times)
    while first < last:
        ends.add(first)
        first *= 2
    return sorted(ends - {0.0})
