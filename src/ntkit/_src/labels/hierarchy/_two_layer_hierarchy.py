"""The tangent hierarchy of two-layer networks in expectation over Gaussian weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntkit._src.common import check_batches, check_choice
from ntkit._src.finite import Estimate
from ntkit._src.kernels import Kernel, infinite_width
from ntkit._src.layers import Elementwise
from ntkit.errors import InputError, InputTypeError

from ._delta_terms import input_terms, pair_terms, train_terms
from ._module_hierarchy import check_smooth_function
from ._neuron_terms import Contraction, Function, Neurons, fourth_of_neurons

_NAMED: tuple[Any, ...] = (F.relu, torch.erf, F.gelu, torch.sigmoid, F.silu, torch.sin, F.softplus, torch.tanh)
ACTIVATIONS: dict[str, Function] = {function.__name__: function for function in _NAMED}
BATCHES = 16  # independent batches of neurons, whose spread gives the standard error, itself known to about a fifth
CHUNK = 2**24  # approximate number of entries of the largest array


class TwoLayerHierarchy:
    r"""E K2, E K3 and E K4 of f(x) = a . sigma(W x) / sqrt(width), a and W standard normal (Chen, He and Su 2020, B.2 and B.3).

    E K2 is exact: it is the infinite-width tangent kernel. E K3 is zero, like every expectation of odd order. width E K4 is the
    mean over ``n_samples`` random neurons of the terms of eq. (15), with the outer weight integrated out; for the ReLU, whose
    sigma'' is a delta function, over neurons conditioned on hyperplanes. Every call uses the same neurons, so that the values are
    those of one function; :meth:`estimate_fourth` also returns their standard error.

    The expected K4(x, x', x_i, x_j) of the ReLU is finite unless x_j is parallel to x or to x'. There it is infinite: that of
    ReLUs smoothed over a width ``h |x|`` is c / h + k + O(h), where for x_j parallel to x alone
    ``c = -3 |x_j| / (sqrt(8) pi |x|) x . x' x . x_i E[sigma'(z_i) sigma'(z')]`` over the neurons orthogonal to x. So at a
    training point the expansion in 1 / width itself breaks down, and only the finite part k is used. Smooth activations have
    no such points.

    Parameters
    ----------
    activation
        A name in ``ACTIVATIONS``, or a smooth elementwise function, torch in, torch out.
    x_train
        Training inputs, shape (n, d).
    width
        The number of neurons of the network.
    n_samples
        The number of random neurons, at least 64, default 2048.
    generator
        Generator of the neurons, on the CPU. Default None, torch's global one.

    See Also
    --------
    ModuleHierarchy : The same for any module of finite width.
    """

    def __init__(
        self,
        activation: str | Function,
        x_train: Tensor,
        width: int,
        n_samples: int = 2048,
        generator: torch.Generator | None = None,
    ) -> None:
        check_batches(x_train, None)
        if x_train.ndim != 2:
            raise InputError(
                f"a two-layer network takes inputs of shape (n, features). Got {tuple(x_train.shape)}. Write x.flatten(1)."
            )
        self.activation, self.function = activation, check_activation(activation)
        self.x_train, self.width, self.n_samples = x_train, width, n_samples
        self.smooth = activation != "relu"
        self._seed = int(torch.randint(2**40, (), generator=generator))
        known = isinstance(activation, str)
        self._ntk: Kernel = infinite_width(_TwoLayer(self.function, known, x_train.shape[1]), w_std=1.0).ntk

    def second(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return E K2(x1_a, x2_b), shape (n1, n2)."""
        scale = x1.shape[1] ** 0.5  # ntkit's first layer divides x . x' by the number of features
        return self._ntk(scale * x1, None if x2 is None else scale * x2)

    def second_diag(self, x: Tensor) -> Tensor:
        """Return E K2(x_a, x_a), shape (n1,)."""
        return self._ntk.diag(x.shape[1] ** 0.5 * x)

    def third(self, x1: Tensor, x2: Tensor | None, u: Tensor) -> Tensor:
        """Return zeros, shape (n1, n2): K3 is odd in the outer weights."""
        return x1.new_zeros(len(x1), len(x1 if x2 is None else x2))

    def third_diag(self, x: Tensor, u: Tensor) -> Tensor:
        """Return zeros, shape (n1,)."""
        return x.new_zeros(len(x))

    def fourth(self, x1: Tensor, x2: Tensor | None, u: Tensor, v: Tensor) -> Tensor:
        """Return sum_q sum_ij u_qi v_qj E K4(x1_a, x2_b, x_i, x_j), shape (n1, n2)."""
        return self.estimate_fourth(x1, x2, u, v).mean

    def fourth_diag(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Return the diagonal of ``fourth(x, x, u, v)``, shape (n1,)."""
        # A block of few columns costs little compared with the work on the training points.
        return torch.cat([self.fourth(block, None, u, v).diagonal() for block in x.split(16)])

    def estimate_fourth(self, x1: Tensor, x2: Tensor | None, u: Tensor, v: Tensor) -> Estimate:
        """Return the value of :meth:`fourth` and its standard error over independent batches of neurons."""
        same = x2 is None or x2 is x1
        one = x1.double()
        two = one if same or x2 is None else x2.double()
        contraction = Contraction.of(self.x_train.double(), u.double(), v.double())
        values = (self._expected_smooth if self.smooth else self._expected_relu)(contraction, one, two) / self.width
        if same:
            values = (values + values.mT) / 2  # symmetric to the bit
        mean, error = values.mean(0), values.std(0) / BATCHES**0.5
        return Estimate(mean.to(x1.dtype), error.to(x1.dtype))

    def _expected_smooth(self, c: Contraction, x1: Tensor, x2: Tensor) -> Tensor:
        """Return width E K4, contracted, for every batch of neurons, shape (BATCHES, n1, n2), float64."""
        neurons = Neurons(c.x, self._seed)
        return torch.stack([self._plain(c, x1, x2, neurons.draw(self._each)[0].to(x1.device)) for _ in range(BATCHES)])

    def _expected_relu(self, c: Contraction, x1: Tensor, x2: Tensor) -> Tensor:
        """Return the same for ReLUs: the terms that are functions of a neuron and its opposite, and those with deltas."""

        def both(terms: Callable[..., Tensor], *neurons: Tensor) -> Tensor:
            first = terms(c, x1, x2, *neurons)
            return first + (first if x2 is x1 else terms(c, x2, x1, *neurons)).mT

        neurons = Neurons(c.x, self._seed)
        parts = [both(pair_terms, *some) for some in self._pair_neurons(neurons, c, max(len(x1), len(x2)))]
        total = torch.cat(parts)
        for batch in range(BATCHES):
            w, noise = (drawn.to(x1.device) for drawn in neurons.draw(self._each, 1))
            total[batch] += self._plain(c, x1, x2, torch.cat([w, -w], 1))
            total[batch] += both(input_terms, w, noise[0]) + train_terms(c, x1, x2, w, noise[0])
        return total

    def _pair_neurons(self, neurons: Neurons, c: Contraction, points: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Draw what :func:`pair_terms` needs, as many batches at a time as fit into memory."""
        n, d = c.x.shape
        # A power of two, so that each point's run is evenly spread.
        each = 2 ** int(math.log2(max(1, 2 * self._each // n)))
        group = max(1, min(BATCHES, CHUNK // (n * each * (d + n + 2 * points))))
        for start in range(0, BATCHES, group):
            drawn = [neurons.draw(n * each, 2) for _ in range(min(group, BATCHES - start))]
            w, noise = (torch.stack(parts).to(c.x.device) for parts in zip(*drawn, strict=True))
            yield w, noise.unflatten(2, (n, each))

    @property
    def _each(self) -> int:
        """The number of neurons in a batch."""
        return -(-self.n_samples // BATCHES)

    def _plain(self, c: Contraction, x1: Tensor, x2: Tensor, w: Tensor) -> Tensor:
        """Return the mean over neurons of the terms that are functions of them, in parts that fit into memory."""
        ones = torch.ones(w.shape[1], dtype=w.dtype, device=w.device)  # E a^2 = 1, E a^4 = 3
        rows = max(len(c.x), 2 * len(c.u) * (len(x1) + len(x2)))
        total = torch.zeros(len(x1), len(x2), dtype=w.dtype, device=w.device)
        for part in torch.arange(w.shape[1], device=w.device).split(max(1, CHUNK // rows)):
            total += fourth_of_neurons(self.function, self.smooth, w[:, part], ones[part], 3 * ones[part], c, x1, x2)
        return total / w.shape[1]

    def __repr__(self) -> str:
        return f"TwoLayerHierarchy({self.activation!r}, n={len(self.x_train)}, width={self.width}, n_samples={self.n_samples})"


def check_activation(activation: str | Function) -> Function:
    """Return the function of an activation given by name or as a function."""
    if isinstance(activation, str):
        check_choice("activation", activation, ACTIVATIONS, ", or a smooth elementwise function")
        return ACTIVATIONS[activation]
    if not callable(activation):
        raise InputTypeError(
            f"activation must be a name or a smooth elementwise function. Got {type(activation).__name__}."
        )
    check_smooth_function(activation)
    return activation


class _TwoLayer(nn.Module):
    """sigma between two layers, for the infinite-width limit, in which the widths do not matter."""

    def __init__(self, function: Function, known: bool, d: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(d, 8, bias=False), nn.Linear(8, 1, bias=False)
        self.sigma = function if known else Elementwise(function)

    def forward(self, x: Tensor) -> Tensor:
        """Return a . sigma(W x)."""
        result: Tensor = self.last(self.sigma(self.first(x)))
        return result


FIRST = 2048  # neurons of the first attempt
PROBES = 32  # maximum number of training points at which the error is measured
MARGIN = 1.2  # safety factor on the number of neurons, which assumes that the error falls with its square root


@dataclass(frozen=True)
class Accuracy:
    """How accurately a label part is known from ``n_samples`` random neurons.

    ``error`` is the largest standard error over the largest entry of the label part, on (at most 32 of) the training points, and
    ``rtol`` the requested one; None if the number of neurons was given instead.
    """

    error: float
    n_samples: int
    rtol: float | None = None

    @property
    def reached(self) -> bool:
        """Whether the requested error was reached."""
        return self.rtol is None or self.error <= self.rtol

    def __str__(self) -> str:
        text = f"standard error {self.error:.1e} of the largest entry, from {self.n_samples} neurons"
        return text if self.rtol is None else f"{text}, where {self.rtol:.1e} was asked for"


def measure(source: TwoLayerHierarchy, u: Tensor, v: Tensor, rtol: float | None = None) -> Accuracy:
    """Measure the standard error of ``source.fourth`` on training points, for weights u and v of shape (Q, n)."""
    x = source.x_train
    step = -(-len(x) // PROBES)
    mean, error = source.estimate_fourth(x[::step].double(), None, u, v)
    largest = float(mean.abs().max())
    return Accuracy(float(error.max()) / largest if largest > 0 else 0.0, source.n_samples, rtol)


def draw_until(source: TwoLayerHierarchy, u: Tensor, v: Tensor, rtol: float, most: int) -> Accuracy:
    """Raise ``source.n_samples`` until the error is at most ``rtol``, or the number of neurons ``most``."""
    source.n_samples = min(FIRST, most)
    while True:
        found = measure(source, u, v, rtol)
        if found.reached or source.n_samples >= most:
            return found
        # Between 2 and 16 times as many: an error measured on few neurons says little about how it falls.
        factor = min(16.0, max(2.0, MARGIN * (found.error / rtol) ** 2))
        source.n_samples = min(most, 2 ** math.ceil(math.log2(source.n_samples * factor)))
