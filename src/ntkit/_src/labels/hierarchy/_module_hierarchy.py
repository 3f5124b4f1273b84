"""The tangent hierarchy of any module at finite width, with its present parameters or averaged over random ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from ntkit._src.common import Kink, check_integer, check_module, check_tensor, find_kinks, measuring
from ntkit._src.finite import monte_carlo
from ntkit._src.kernels import BYTE_BUDGET, Empirical, Network
from ntkit.errors import InputError, InputTypeError

from ._tangents import Tangents


def scalar_network(module: nn.Module, output: int | None, x1: Tensor, x2: Tensor | None = None) -> Network:
    """Return one output of a module as a network, and refuse modules without a kernel."""
    check_module(module)
    if output is not None:
        check_integer("output", output)
    network = Network(module, 0 if output is None else output)
    network.check(x1, x2, trained=True)
    if output is None:
        with torch.no_grad(), measuring(module):
            values = module(x1[:1])
        if values.numel() != 1:
            raise InputError(
                f"the tangent hierarchy is that of one output. The module has {values.numel()}. Write output=0, or another index."
            )
    kinds = {(p.dtype, p.device) for p in network.trained.values()}
    if len(kinds) > 1:
        raise InputError(f"the trained parameters must have the same dtype and device. Got {sorted(map(str, kinds))}.")
    return network


def check_weights(name: str, value: object, shape: tuple[int, ...], like: Tensor) -> None:
    """Refuse weights of the training points that are not a finite tensor of the shape, dtype and device."""
    if not isinstance(value, Tensor):
        raise InputTypeError(f"{name} must be a tensor of shape {shape}. Got {type(value).__name__}.")
    if tuple(value.shape) != shape:
        raise InputError(
            f"{name} must have shape {shape}: one weight for each training point. Got {tuple(value.shape)}."
        )
    if value.dtype != like.dtype or value.device != like.device:
        raise InputTypeError(
            f"{name} must be {like.dtype} on {like.device}, like the network. Got {value.dtype} on {value.device}. "
            f"Write {name}.to({like.dtype})."
        )
    if not bool(torch.isfinite(value).all()):
        raise InputError(f"{name} must be finite. Got NaN or infinite values.")


class HierarchySource(Protocol):
    r"""Expected kernels of the hierarchy (Chen, He and Su 2020, eq. 3), bound to the n training inputs x_i at creation.

    With g(x) the gradient of f(x) with respect to the parameters,

    * K2(x, x') = g(x) . g(x'),
    * K3(x, x', x_i) is the derivative of K2(x, x') along g(x_i),
    * K4(x, x', x_i, x_j) is the derivative of K3(x, x', x_i) along g(x_j), where g(x_i) moves too.

    K4 is symmetric in x and x' but in general not in i and j. In gradient flow i belongs to the later of two times: K3 is
    integrated against the residual at time u and is itself moved by the residuals at the times v <= u, which j carries.

    No method forms a tensor of order three or four. Batches have the shape and dtype of the training inputs; the results
    follow the dtype.
    """

    def second(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return E K2(x1_a, x2_b), shape (n1, n2); ``x2=None`` means ``x2 = x1``."""

    def second_diag(self, x: Tensor) -> Tensor:
        """Return E K2(x_a, x_a), shape (n1,)."""

    def third(self, x1: Tensor, x2: Tensor | None, u: Tensor) -> Tensor:
        """Return sum_i u_i E K3(x1_a, x2_b, x_i), shape (n1, n2), for u of shape (n,)."""

    def third_diag(self, x: Tensor, u: Tensor) -> Tensor:
        """Return sum_i u_i E K3(x_a, x_a, x_i), shape (n1,)."""

    def fourth(self, x1: Tensor, x2: Tensor | None, u: Tensor, v: Tensor) -> Tensor:
        """Return sum_q sum_ij u_qi v_qj E K4(x1_a, x2_b, x_i, x_j), shape (n1, n2), for u and v of shape (Q, n)."""

    def fourth_diag(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Return sum_q sum_ij u_qi v_qj E K4(x_a, x_a, x_i, x_j), shape (n1,)."""


class ModuleHierarchy:
    r"""K2, K3 and K4 of a module of finite width, contracted over the training points.

    The kernels are those of :func:`ntkit.hierarchy_kernel`: exact for each network, and averaged over ``n_samples`` networks
    drawn like those of :func:`ntkit.monte_carlo`, each contraction on the same networks.
    ``ntkit.TangentHierarchy(module=...)`` and :func:`ntkit.finite_width_correction` are computed from it.

    Parameters
    ----------
    module
        Any module with one output that :func:`ntkit.hierarchy_kernel` accepts; it is copied. If it is redrawn, it is put into
        the NTK parametrisation with the default gains unless it already is (:func:`ntkit.parametrize_ntk`), and into
        evaluation mode. K3 and K4 need a smooth module: kinks such as those of ReLU and max pooling put delta functions into
        both, and those of ELU into K4. A module that has them is refused when these kernels are asked for.
    x_train
        The n training inputs, shape (n, ...).
    n_samples
        Number of networks. Default 0: the module with its present parameters.
    generator
        Generator of the networks' seeds, on the CPU. Default None, torch's global one.
    output
        Index of the output, for a module with several. Default None: there is only one.
    byte_budget
        About how many bytes may be held at a time, default 512 MiB.

    See Also
    --------
    TwoLayerHierarchy : The same for two-layer networks, in expectation.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit.labels import ModuleHierarchy
    >>> net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1))
    >>> x, u = torch.randn(5, 2), torch.randn(5)
    >>> hierarchy = ModuleHierarchy(net, x, n_samples=4, generator=torch.Generator().manual_seed(0))
    >>> hierarchy.second(x[:3], x).shape, hierarchy.fourth(x[:3], x, u[None], u[None]).shape
    (torch.Size([3, 5]), torch.Size([3, 5]))
    """

    def __init__(
        self,
        module: nn.Module,
        x_train: Tensor,
        n_samples: int = 0,
        generator: torch.Generator | None = None,
        *,
        output: int | None = None,
        byte_budget: int = BYTE_BUDGET,
    ) -> None:
        check_integer("n_samples", n_samples, 0)
        check_module(module)
        check_tensor("x_train", x_train)
        self.x_train, self.n_samples, self.output, self.byte_budget = x_train, n_samples, output, byte_budget
        self._module = copy.deepcopy(module)
        self._drawn = monte_carlo(module, n_samples, generator=generator) if n_samples else None
        first = next(self.networks())
        self._tangents = Tangents(first, x_train, byte_budget)
        parameters = {name: value.detach().clone().requires_grad_() for name, value in first.trained.items()}
        self._kinks = find_kinks(lambda: first(x_train[:2], parameters))

    def networks(self) -> Iterator[Network]:
        """Yield the networks one after the other; each overwrites the one before."""
        if self._drawn is None:
            yield scalar_network(self._module, self.output, self.x_train)
            return
        for drawn in self._drawn.networks(self.x_train):
            yield scalar_network(drawn.module, self.output, self.x_train)

    def check_smooth(self, order: int) -> None:
        """Refuse the kernel of an order, 3 or 4, if the module has kinks that put delta functions into it."""
        check_smooth(self._kinks, order)

    def second(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return K2(x1_a, x2_b), shape (n1, n2)."""
        return self._mean(lambda network: self._empirical(network).ntk(x1, x2))

    def second_diag(self, x: Tensor) -> Tensor:
        """Return K2(x_a, x_a), shape (n,)."""
        return self._mean(lambda network: self._empirical(network).ntk.diag(x))

    def third(self, x1: Tensor, x2: Tensor | None, u: Tensor) -> Tensor:
        """Return sum_i u_i K3(x1_a, x2_b, x_i) over the training points, for u of shape (n,), shape (n1, n2)."""
        return self._contracted(x1, x2, {"u": u[None] if isinstance(u, Tensor) else u})

    def third_diag(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the diagonal of ``third(x, x, u)``, shape (n,)."""
        return self._contracted(x, None, {"u": u[None] if isinstance(u, Tensor) else u}, diag=True)

    def fourth(self, x1: Tensor, x2: Tensor | None, u: Tensor, v: Tensor) -> Tensor:
        """Return sum_q sum_ij u_qi v_qj K4(x1_a, x2_b, x_i, x_j), for u and v of shape (Q, n), shape (n1, n2)."""
        return self._contracted(x1, x2, {"u": u, "v": v})

    def fourth_diag(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Return the diagonal of ``fourth(x, x, u, v)``, shape (n,)."""
        return self._contracted(x, None, {"u": u, "v": v}, diag=True)

    def _contracted(self, x1: Tensor, x2: Tensor | None, weights: dict[str, Tensor], diag: bool = False) -> Tensor:
        self.check_smooth(2 + len(weights))
        x2 = None if x2 is x1 else x2

        def value(network: Network) -> Tensor:
            network.check(x1, x2, trained=True)
            like = next(iter(network.trained.values()))
            count = max(1, len(weights["u"])) if isinstance(weights["u"], Tensor) and weights["u"].ndim else 1
            for name, vectors in weights.items():
                check_weights(name, vectors, (count, len(self.x_train)), like)
            tangents = self._tangents.of(network)
            fields = list(zip(*weights.values(), strict=True))
            return tangents.diag(x1, fields) if diag else tangents.gram(x1, x2, fields)

        return self._mean(value)

    def _empirical(self, network: Network) -> Empirical:
        return Empirical(network.module, network.output, "auto", self.byte_budget)

    def _mean(self, value: Callable[[Network], Tensor]) -> Tensor:
        total: Tensor | None = None
        for network in self.networks():
            with measuring(network.module):
                found = value(network)
            total = found if total is None else total + found
        assert total is not None
        return total / max(1, self.n_samples)

    def __repr__(self) -> str:
        return f"ModuleHierarchy({type(self._module).__name__}, n={len(self.x_train)}, n_samples={self.n_samples})"


# Random points of an elementwise function: wide enough that no clipping of interest is beyond them.
_POINTS = torch.linspace(-4, 4, 65, dtype=torch.float64)


def check_smooth(kinks: Sequence[Kink], order: int) -> None:
    """Refuse a network whose kernel of an order has delta functions, with an InputError.

    :math:`K^{(r)}` has derivatives of f up to the order r - 1. Where the k-th derivative of an activation jumps, the next
    is a delta function, which autograd takes for zero. In the mean over networks, or in the motion of the kernel over time,
    it counts as much as the rest: it is how the kernel changes when a neuron crosses its kink. So jumps of the slope (k = 1)
    are missing from K3 on, and jumps of the curvature (k = 2) from K4 on.
    """
    slopes, curves = ([kink.name for kink in kinks if kink.order == k] for k in (1, 2))
    curves = curves if order >= 4 else []
    if order < 3 or not slopes + curves:
        return
    parts = [
        f"{', '.join(names)}, whose {what} jumps (K{first} and higher kernels then have delta functions)"
        for names, what, first in ((slopes, "value or slope", 3), (curves, "curvature", 4))
        if names
    ]
    raise InputError(
        f"the tangent hierarchy up to K{order} needs a network whose derivatives up to the order {order - 2} are continuous. "
        f"Got {'; and '.join(parts)}. Derivatives by autograd leave the delta functions out: for two layers of ReLU that "
        "changes the label-aware part by a fifth. Write nn.GELU, nn.SiLU, nn.Softplus or nn.Tanh instead, or for two layers of "
        'ReLU ntkit.TangentHierarchy("relu"), which adds them.'
    )


def check_smooth_function(function: Callable[[Tensor], Tensor]) -> None:
    """Refuse an elementwise activation that jumps, or whose first two derivatives do: its K4 has delta functions."""
    z = _POINTS.clone().requires_grad_()
    kinks = find_kinks(lambda: function(z))
    if kinks:
        names = ", ".join(kink.name for kink in kinks)
        raise InputError(
            f"activation must be a function with two continuous derivatives. Got {names}, with a jump of the value, slope or "
            'curvature: its K4 has delta functions. Write activation="relu" for the ReLU, or a smooth function such as "gelu".'
        )
