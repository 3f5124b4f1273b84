"""Kernels averaged over random networks: for limits without a closed form, and to check those with one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ntkit._src.common import (
    RANDOM,
    RANDOM_INSTEAD,
    OwnParameters,
    check_generator,
    check_integer,
    check_module,
    copy_module,
    drawing_layers,
    measuring,
    ntk_gains,
)
from ntkit._src.kernels import BYTE_BUDGET, Batch, Empirical, EmpiricalKernel, Estimate, Inputs, Kernel, as_inputs
from ntkit._src.trace import GainRule, Init, check_deterministic, fixed
from ntkit.errors import InputError

from ._initialize import initialize
from ._parametrize import gain_tensors, register_scalings
from .widening import widen


class MonteCarloKernel(Kernel):
    """One of the two kernels averaged over random networks: ``mc.ntk`` or ``mc.nngp``."""

    def __init__(self, mc: MonteCarlo, which: Literal["ntk", "nngp"]) -> None:
        self.mc = mc
        self.which = which

    def __call__(self, x1: Batch, x2: Batch | None = None) -> Tensor:
        """Return the mean kernel matrix, shape (n1, n2), in the dtype and on the device of the input.

        Inputs are what :func:`ntkit.empirical` takes: a tensor, a tuple of positional or a mapping of keyword arguments.
        """
        return self._moments(lambda emp: self._of(emp)(x1, x2), x1)[0]

    def diag(self, x: Batch) -> Tensor:
        """Return the mean of K(x_i, x_i), shape (n,)."""
        return self._moments(lambda emp: self._of(emp).diag(x), x)[0]

    def estimate(self, x1: Batch, x2: Batch | None = None) -> Estimate:
        """Return the mean and its standard error, std / sqrt(n_samples), both of shape (n1, n2)."""
        if self.mc.n_samples < 2:
            raise InputError("a standard error needs at least two networks. Got n_samples=1.")
        mean, squares = self._moments(lambda emp: self._of(emp)(x1, x2), x1)
        m = self.mc.n_samples
        return Estimate(mean, (squares / (m * (m - 1))).sqrt())

    def standard_error(self, x1: Batch, x2: Batch | None = None) -> Tensor:
        """Return the standard error of the mean, shape (n1, n2)."""
        return self.estimate(x1, x2).error

    def _of(self, emp: Empirical) -> EmpiricalKernel:
        return emp.ntk if self.which == "ntk" else emp.nngp

    def _moments(self, values: Callable[[Empirical], Tensor], x: Batch) -> tuple[Tensor, Tensor]:
        """Return the mean and the sum of squared deviations, one network at a time (Welford)."""
        mean = squares = torch.zeros(())
        for count, emp in enumerate(self.mc.networks(x), 1):
            value = values(emp)
            if count == 1:
                mean, squares = value, torch.zeros_like(value)
                continue
            deviation = value - mean
            mean = mean + deviation / count
            squares = squares + deviation * (value - mean)
        return mean, squares

    def __repr__(self) -> str:
        return f"{self.mc!r}.{self.which}"


class MonteCarlo:
    """Kernels of random networks of finite width, as :func:`monte_carlo` returns them.

    Attributes
    ----------
    ntk
        The mean of the networks' tangent kernels, a :class:`~ntkit.Kernel` with ``estimate`` and ``standard_error``.
    nngp
        The mean of the kernels of their last hidden features (see ``Empirical.nngp``), likewise.
    n_samples
        Number of networks.
    """

    def __init__(
        self,
        module: nn.Module,
        n_samples: int,
        width_scale: float,
        generator: torch.Generator | None,
        init: Init,
        gains: dict[str, object],
        deterministic: frozenset[str] = frozenset(),
        read: Callable[[Any], Tensor] | None = None,
    ) -> None:
        self.n_samples = n_samples
        self._deterministic, self._read = deterministic, read
        self._training = {path for path, layer in module.named_modules() if layer.training}
        self._module = copy_module(module).eval()
        self._guard = OwnParameters(module)
        self._guarded = False
        self._width_scale, self._init, self._gains = width_scale, init, gains
        self._rule = None if init == "ntk" else GainRule(init=init, **gains)  # type: ignore[arg-type]
        # One seed per network, drawn now, so that every call, whatever its batch, sees the same networks.
        self._seeds: list[int] = torch.randint(2**62, (n_samples,), generator=generator).tolist()
        self._network: nn.Module | None = None
        self._plain = self._module if width_scale == 1 else copy_module(self._module)
        self._scales = init == "ntk" and not ntk_gains(self._module)
        self._parametrize(self._module)
        if width_scale == 1:
            self._network = self._module.double()

    @property
    def ntk(self) -> MonteCarloKernel:
        """The mean tangent kernel."""
        return MonteCarloKernel(self, "ntk")

    @property
    def nngp(self) -> MonteCarloKernel:
        """The mean kernel of the last hidden features."""
        return MonteCarloKernel(self, "nngp")

    def networks(self, x: Batch) -> Iterator[Empirical]:
        """Draw the networks one after the other, for inputs like these; each replaces the one before."""
        inputs = as_inputs(x)
        if self._network is None:
            self._network = self._widened(inputs[:1])
        network = self._network.to(inputs.device)
        if not self._guarded:
            row = inputs[:1]
            row = row.like([t.double() if t.is_floating_point() else t for t in row.tensors.values()])
            with torch.no_grad(), measuring(network), self._guard:
                network(*row.args, **row.kwargs)
            self._refuse_drawing(network, row)
            self._guarded = True
        single = any(tensor.dtype == torch.float32 for tensor in inputs.tensors.values())
        kept = self._kept(network)
        gains = self._gains if self._init == "standard" else {}
        for seed in self._seeds:
            # Always drawn in float64, so that float32 inputs see the same networks, rounded.
            initialize(network, self._init, **gains, generator=torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
            with torch.no_grad():
                for name, value in kept.items():
                    network.get_parameter(name).copy_(value)
            drawn = copy.deepcopy(network).float() if single else network
            yield Empirical(drawn, "trace", "auto", BYTE_BUDGET, self._rule, self._read)

    def _parametrize(self, module: nn.Module) -> None:
        """Put a module into the NTK parametrisation, unless it already is or the networks are drawn in another one."""
        if not self._scales:
            return
        # Deterministic parameters keep their values, so their gains just must not be zero.
        own = {t.path: {"w_std": 1.0, "b_std": 1.0} for t in gain_tensors(module) if fixed(t.path, self._deterministic)}
        overrides = {**self._gains.get("overrides", {}), **own}  # type: ignore[dict-item]
        gains = {"w_std": None, "b_std": None, **self._gains, "overrides": overrides}
        register_scalings(module, **gains, drawn_afterwards=not self._deterministic)  # type: ignore[arg-type]

    def _widened(self, row: Inputs) -> nn.Module:
        if len(row.args) != 1 or row.kwargs:
            raise InputError(
                f"a module of several arguments cannot be widened by width_scale={self._width_scale}. Build it wider by its own "
                "constructor and write width_scale=1."
            )
        # Widen before scaling: layers that share a parameter may scale it differently.
        wide = widen(self._plain, self._width_scale, row.args[0], torch.Generator().manual_seed(0))
        self._parametrize(wide)
        return wide.double()

    def _refuse_drawing(self, network: nn.Module, rows: Inputs) -> None:
        """Refuse a module that was given in training mode and draws random numbers there."""
        drawing = drawing_layers(network, self._training, *rows.args, **rows.kwargs)
        found = [f"{path or 'the module'} ({kind})" for path, kind in drawing.items()]
        if found:
            raise InputError(f"{', '.join(found)}: {RANDOM}; {RANDOM_INSTEAD}.")

    def _kept(self, network: nn.Module) -> dict[str, Tensor]:
        """Return the values of the deterministic parameters, whose widths must not have changed."""
        kept = {}
        for name, parameter in self._module.named_parameters():
            if fixed(name.replace("parametrizations.", "").removesuffix(".original"), self._deterministic):
                kept[name] = parameter.detach().clone()
                if network.get_parameter(name).shape != parameter.shape:
                    raise InputError(
                        f"the deterministic parameter {name!r} would change its shape in the wider network. Write "
                        "width_scale=1, or build the wider module by its own constructor."
                    )
        return kept

    def __repr__(self) -> str:
        return f"monte_carlo({type(self._module).__name__}, {self.n_samples})"


def monte_carlo(
    module: nn.Module,
    n_samples: int,
    width_scale: float = 1,
    generator: torch.Generator | None = None,
    *,
    w_std: float | Tensor | None = None,
    b_std: float | Tensor | None = None,
    init: Init = "ntk",
    overrides: Mapping[str, Mapping[str, float | Tensor]] | None = None,
    deterministic: Sequence[str] = (),
    read: Callable[[Any], Tensor] | None = None,
) -> MonteCarlo:
    r"""Average the kernels of random networks: an estimate of the infinite-width limit if it has no closed form.

    The mean of M independent networks of width w differs from the limit by a bias of order 1/w and a random error of order
    :math:`1/\sqrt{M w}`, which ``estimate`` returns. It supports whatever :func:`ntkit.empirical` does: max pooling, batch
    norm in evaluation mode, attention, shared weights. A parameter that several layers share is one standard normal that each
    layer scales in its own way; an embedding uses it unscaled.

    Parameters
    ----------
    module
        The module, read in evaluation mode and not changed; refused in training mode if it draws random numbers there
        (dropout). Its weights do not matter: every network is drawn by
        :func:`ntkit.initialize`.
    n_samples
        Number of networks.
    width_scale
        Every hidden width is multiplied by this first (:func:`ntkit.widen`).
    generator
        Generator of the networks' seeds, drawn once: every call sees the same networks, so an entry does not depend on its batch.
    w_std, b_std, overrides
        Gains, as in :func:`ntkit.infinite_width`; default sqrt(2), 0 and none, or those of a module that is already in the
        NTK parametrisation.
    init
        ``"ntk"``, ``"standard"`` or ``"torch"``, as in :func:`ntkit.infinite_width`.
    deterministic
        Paths of submodules or parameters, all frozen, that keep their values and are not drawn.
    read
        Extracts the output tensor from what the module returns, as in :func:`ntkit.empirical`. Default None.

    Returns
    -------
    MonteCarlo
        With the kernels ``ntk`` and ``nngp``.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 1))
    >>> mc = ntkit.monte_carlo(net, n_samples=10, generator=torch.Generator().manual_seed(0))
    >>> x = torch.randn(3, 1, 8, 8)
    >>> mean, error = mc.ntk.estimate(x)
    >>> mean.shape, bool((error < 0.3 * mean.diagonal().max()).all())
    (torch.Size([3, 3]), True)
    """
    check_module(module)
    check_generator(generator)
    check_integer("n_samples", n_samples, 1)
    given = {"w_std": w_std, "b_std": b_std, "overrides": overrides}
    gains: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    if gains and init == "torch":
        raise InputError(
            f'{", ".join(gains)} must be left out with init="torch": PyTorch\'s default has its own variances.'
        )
    if gains and init == "ntk" and ntk_gains(module):
        raise InputError(
            f"{', '.join(gains)} must be left out: the module is in the NTK parametrisation and already has gains. "
            "Write ntkit.remove_ntk(module) first."
        )
    return MonteCarlo(
        module, n_samples, width_scale, generator, init, gains, check_deterministic(module, deterministic), read
    )
