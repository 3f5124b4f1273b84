"""The first-order motion of a network's kernel and its effect on the predictions, integrated over time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from numpy.polynomial import legendre
from scipy.special import ive
from torch import Tensor

from ntkit._src.common import Progress
from ntkit._src.dynamics import flow_filter
from ntkit._src.solvers import Spectrum

from ._hierarchy_source import HierarchySource

__all__ = ["KernelMotion", "State"]


@dataclass(frozen=True)
class State:
    r"""The correction at a time s, in the eigenbasis of H.

    Attributes
    ----------
    time
        s.
    outputs
        :math:`V^T f^{(1)}_s(X)`, shape (n,).
    summed
        :math:`V^T \int_0^s f^{(1)}(X)`, shape (n,).
    driven
        :math:`\int_0^s K^{(1)}_u(x_{test}, X)\, r_u\, du`, shape (n_test,).
    fourth
        :math:`\int_0^s r^T K_4 a` of all points and the training points, shape (n + n_test, n).
    """

    time: float
    outputs: Tensor
    summed: Tensor
    driven: Tensor
    fourth: Tensor


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
        r"""Return the weights of a panel's nodes in the integrals of :math:`e^{-\lambda (h - s)}` and of its own integral.

        Both of shape (n, nodes), exact for polynomials however large :math:`\lambda h` is:
        :math:`\int_{-1}^1 e^{-z(1-x)} P_l = 2 \sqrt{\pi / 2z}\, e^{-z} I_{l+1/2}(z)`.
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
