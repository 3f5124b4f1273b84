"""The conformance suite of rules: what every supported network must satisfy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ntkit._src.kernels import InfiniteWidth, Kernel, infinite_width
from ntkit._src.program import Program
from ntkit._src.rules import gram
from ntkit._src.rules._engine import covariance, moments, read_data
from ntkit._src.trace import GainRule, Tracer

from ._finite import Estimate, extrapolated_kernels, sampled_node_covariances
from ._kernels import KernelConformance


class RuleConformance(KernelConformance):
    """Tests of a new rule: subclass it in a test file and write :meth:`module` and :meth:`inputs`.

    Attributes
    ----------
    gains
        Arguments of :func:`ntkit.infinite_width`.
    tangent
        Whether the network has a tangent kernel.
    width, n_samples
        Width of the finite networks, of which twice as wide ones are drawn too, and the number of draws of each.
    """

    gains: Mapping[str, Any] = {}
    tangent: bool = True
    width: int = 48
    n_samples: int = 300
    _traced: InfiniteWidth

    def module(self, width: int) -> nn.Module:
        """Return a network of a hidden width, containing the rule."""
        raise NotImplementedError

    def inputs(self) -> Tensor:
        """Return at least four distinct inputs, shape (n, ...), float64."""
        raise NotImplementedError

    def kernels(self) -> list[Kernel]:
        """Return the kernels of the network's limit."""
        limit = self._limit()
        return [limit.nngp, limit.ntk] if self.tangent else [limit.nngp]

    @classmethod
    def _limit(cls) -> InfiniteWidth:
        """Return the limit, which is traced once for all tests of a class."""
        if "_traced" not in cls.__dict__:
            cls._traced = infinite_width(cls().module(8), **cls.gains)
        return cls._traced

    def test_monte_carlo(self) -> None:
        """The exact kernels lie within the error of kernels of finite networks, extrapolated to infinite width."""
        x = self.inputs()[:4]
        gains = GainRule(**self.gains)
        estimates = extrapolated_kernels(
            self.module(self.width), self.module(2 * self.width), x, None, gains, self.n_samples, seed=0
        )
        limit = self._limit()
        if self.gains.get("init", "ntk") != "ntk":
            limit = infinite_width(self.module(2 * self.width), **self.gains)
        ntk, nngp = estimates
        self._compare(limit.nngp(x[:2], x[1:]), nngp)
        if self.tangent:
            self._compare(limit.ntk(x[:2], x[1:]), ntk)

    def _compare(self, exact: Tensor, estimate: Estimate) -> None:
        mean, error = (part[:2, 1:] for part in (estimate.mean, estimate.error))
        deviation = (exact - mean).abs() / error.clamp_min(1e-12 * exact.abs().max())
        assert deviation.max() < 4, f"off by {deviation.max():.1f} standard errors: {exact} against {estimate}"

    def test_finite_form(self) -> None:
        """The covariance of every operation's finite form tends to its rule as the network grows wide."""
        x = self.inputs()[:3]
        rule = GainRule(**self.gains)
        narrow, wide = (
            sampled_node_covariances(self.module(width), x, rule, self.n_samples // 4, seed=width)
            for width in (self.width, 2 * self.width)
        )
        program, network = Tracer(self.module(2 * self.width), rule).finite_network(x.shape[1:])
        nodes = tuple(network.builder.nodes)
        for index, (a, b) in enumerate(zip(narrow, wide, strict=True)):
            part = Program(nodes[: index + 1], program.prefixes)
            own = moments(part, read_data(part, x), part.full_keeps)
            exact = covariance(part, own, own, ntk=False, keeps=part.full_keeps).nngp
            mean, error = 2 * b.mean - a.mean, (4 * b.error**2 + a.error**2).sqrt()
            deviation = (exact - mean).abs() / error.clamp_min(1e-12 * exact.abs().max())
            assert deviation.max() < 6, f"{nodes[index].op}: off by {deviation.max():.1f} standard errors"

    def test_cheapest_representation(self) -> None:
        """Keeping only what is needed gives the same kernel as keeping every pair of positions everywhere."""
        x1, x2 = self.inputs()[:3], self.inputs()[1:]
        program = self._limit().program(x1.shape[1:])
        cheap = gram(program, x1, x2, ntk=self.tangent, nngp=True)
        first, second = (moments(program, read_data(program, x), program.full_keeps) for x in (x1, x2))
        full = covariance(program, first, second, self.tangent, program.full_keeps)
        torch.testing.assert_close(cheap.nngp, full.nngp, rtol=1e-12, atol=1e-14)
        if cheap.ntk is not None and full.ntk is not None:
            torch.testing.assert_close(cheap.ntk, full.ntk, rtol=1e-12, atol=1e-14)

    def test_engines_agree(self) -> None:
        """If the native engine supports the network, it agrees with the reference engine."""
        x1, x2 = self.inputs(), self.inputs()[:3]
        limit = self._limit()
        if limit.explain(x1.shape[1:]).rows[0].engine != "native":
            return
        for kernel in (limit.nngp, limit.ntk) if self.tangent else (limit.nngp,):
            for other in (None, x2):
                native, reference = (kernel(x1, other, engine=engine) for engine in ("native", "reference"))
                torch.testing.assert_close(native, reference, rtol=1e-12, atol=1e-14)

    def test_tiles(self) -> None:
        """A byte budget that allows one pair at a time changes nothing."""
        x = self.inputs()
        program = self._limit().program(x.shape[1:])
        for x2 in (None, x[:2]):
            small = gram(program, x, x2, ntk=self.tangent, nngp=True, byte_budget=1)
            large = gram(program, x, x2, ntk=self.tangent, nngp=True)
            torch.testing.assert_close(small.nngp, large.nngp, rtol=1e-13, atol=1e-15)
            torch.testing.assert_close(small.ntk, large.ntk, rtol=1e-13, atol=1e-15)

    def test_finite_gradients(self) -> None:
        """Gradients with respect to the inputs exist where inputs coincide, and agree with differences elsewhere."""
        for kernel in self.kernels():
            x = self.inputs()[:3].clone().requires_grad_(True)
            kernel(x).sum().backward()
            assert x.grad is not None
            assert bool(torch.isfinite(x.grad).all())
            self._compare_slope(kernel)

    def _compare_slope(self, kernel: Kernel) -> None:
        x1, x2 = self.inputs()[:2].clone().requires_grad_(True), self.inputs()[2:4]
        direction = torch.randn(x1.shape, generator=torch.Generator().manual_seed(1), dtype=x1.dtype)
        (gradient,) = torch.autograd.grad(kernel(x1, x2).sum(), x1)
        step = 1e-5
        with torch.no_grad():
            ends = [kernel(x1 + sign * step * direction, x2).sum() for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * step)
        torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-7)
