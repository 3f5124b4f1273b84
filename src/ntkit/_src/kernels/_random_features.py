"""Random features of tangent kernels: vectors whose inner products estimate the kernel, for very many rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ntkit._src.common import check_batches, check_integer
from ntkit._src.rules import CountSketch, Draws, check_sketchable, random_features
from ntkit.errors import InputError, InputTypeError

from ._infinite_width_kernel import InfiniteWidthKernel
from .finite_network import Empirical, as_inputs
from .finite_network._products import forward

_BLOCK_BYTES = 1 << 27


class SketchedFeatures:
    r"""Random features of ``limit.ntk`` or ``limit.nngp`` of an infinitely wide network, without a finite network.

    Each activation's expectation becomes a mean over ``width`` random neurons (None: half the number of features), so entries
    have an error of order :math:`1/\sqrt{width}` per layer.
    """

    def __init__(
        self,
        kernel: InfiniteWidthKernel,
        n_components: int,
        input_shape: Sequence[int],
        seed: int = 0,
        width: int | None = None,
    ) -> None:
        if not isinstance(kernel, InfiniteWidthKernel):
            raise InputTypeError(
                f"kernel must be limit.ntk or limit.nngp of an infinite-width limit. Got {type(kernel).__name__}."
            )
        self.n_components = check_integer("n_components", n_components, 1)
        self.kernel, self.input_shape = kernel, tuple(input_shape)
        self._program = kernel.limit._program(self.input_shape, kernel.which == "ntk")
        check_sketchable(self._program)
        own = max(1, n_components // 2) if width is None else width
        # The last layer's tangent kernel has three parts: the features of its inputs, its bias, and psi.
        self._draws = Draws(own, max(1, n_components - own - 1), torch.Generator().manual_seed(seed))
        self._positions = max(math.prod(node.positions) for node in self._program.nodes)
        self._last: CountSketch | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return the features of x of shape (n, *input_shape), shape (n, n_components)."""
        check_batches(x, None)
        if tuple(x.shape[1:]) != self.input_shape:
            raise InputError(f"x must have shape (n, {', '.join(map(str, self.input_shape))}). Got {tuple(x.shape)}.")
        size = max(1, _BLOCK_BYTES // (16 * self.n_components * self._positions * x.element_size()))
        with torch.no_grad():
            return torch.cat([self._block(part) for part in torch.split(x, size)])

    def _block(self, x: Tensor) -> Tensor:
        features = random_features(self._program, x, self.kernel.which == "ntk", self._draws)
        missing = self.n_components - features.shape[1]
        if missing >= 0:
            return torch.nn.functional.pad(features, (0, missing))
        if self._last is None:
            self._last = CountSketch.draw(features.shape[1], self.n_components, features, self._draws.generator)
        return self._last(features)


class JacobianFeatures:
    r"""Random features of the tangent kernel of any finite module: its derivatives, projected.

    With s standard normal over the parameters and r random signs over the c outputs, feature j is
    :math:`r_j^T J(x)\, s_j / \sqrt{c\, m}`: a derivative along s_j, by one forward pass. The mean of its products is
    :math:`\frac{1}{c} \sum_o J_o(x) J_o(x')^T`, the empirical tangent kernel (output="trace").
    """

    def __init__(self, empirical: Empirical, n_components: int, seed: int = 0) -> None:
        if not isinstance(empirical, Empirical):
            raise InputTypeError(f"empirical must come from ntkit.empirical(module). Got {type(empirical).__name__}.")
        if empirical.output != "trace":
            raise InputError(
                f'random features exist for the mean over outputs, output="trace". Got {empirical.output!r}.'
            )
        self.empirical, self.seed = empirical, seed
        self.n_components = check_integer("n_components", n_components, 1)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the features of x of shape (n, ...), shape (n, n_components)."""
        inputs = as_inputs(x)
        survey = self.empirical._survey(inputs, None)
        c, generator = survey.outputs, torch.Generator().manual_seed(self.seed)
        columns = []
        for _ in range(self.n_components):
            # Redrawn in the same order for each batch, so that no matrix of size (features, parameters) is stored.
            trained = ((name, survey.network.trained[name]) for name in survey.names)
            tangents = {
                name: torch.randn(weight.shape, generator=generator, dtype=torch.float64).to(weight)
                for name, weight in trained
            }
            signs = (2 * torch.randint(2, (c,), generator=generator) - 1).to(survey.like)
            columns.append(forward(survey, inputs, tangents) @ signs)
        return torch.stack(columns, 1).detach() / math.sqrt(c * self.n_components)
