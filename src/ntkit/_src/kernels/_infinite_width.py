"""The exact kernels of a network whose hidden layers are infinitely wide."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ntkit._src.common import (
    Progress,
    check_batches,
    check_gram_memory,
    check_input_size,
    check_integers,
    check_result,
    shown,
    without_derivatives,
)
from ntkit._src.native import NativeEngine, ranges, single_precision, unsupported_reason
from ntkit._src.program import LogitSamples, Owners, Program, Structure
from ntkit._src.rules import Kernels, gram
from ntkit._src.trace import Arguments, GainRule, Init, Tracer
from ntkit.errors import InputError, InputTypeError

from ._estimate import logit_samples
from ._explain import Explanation
from ._gain_grid import check_grid, kernels_over
from ._groups import Group, GroupedGram, Inputs, is_plain
from ._infinite_width_kernel import Engine, InfiniteWidthKernel, check_differentiable, run_on
from ._prior_limit import PriorLimit, prior_of, with_prior_input


class NtkAndNngp(NamedTuple):
    """Both kernels of one pass, each of shape (n1, n2)."""

    ntk: Tensor
    nngp: Tensor


class InfiniteWidth:
    """The limit of a module as its hidden layers become infinitely wide, as :func:`infinite_width` returns it.

    Attributes
    ----------
    ntk
        The neural tangent kernel Theta(x, x') = E[sum over parameters of df(x)/dw df(x')/dw], a :class:`Kernel`.
    nngp
        The covariance K(x, x') of the network's outputs at initialisation, a :class:`Kernel`.
    """

    def __init__(
        self,
        module: nn.Module,
        gains: GainRule,
        check: bool = True,
        deterministic: Sequence[str] = (),
        samples: LogitSamples | None = None,
    ) -> None:
        self._tracer = Tracer(module, gains, check, deterministic, samples)
        self._name = type(module).__name__
        self._engines: dict[Program, NativeEngine] = {}
        # Shared by the same limit with other gains: engines, whose tapes have the numbers of one choice of gains, and the
        # structures that have a tangent kernel.
        self._planned: dict[Structure, NativeEngine] = {}
        self._differentiable: set[Structure] = set()
        self._packed: dict[Arguments, InfiniteWidth] = {}  # of forwards with several arguments
        self._owners: dict[tuple[int, ...], Owners] = {}

    @property
    def ntk(self) -> InfiniteWidthKernel:
        """The neural tangent kernel."""
        return InfiniteWidthKernel(self, "ntk")

    @property
    def nngp(self) -> InfiniteWidthKernel:
        """The kernel of the network's outputs at initialisation."""
        return InfiniteWidthKernel(self, "nngp")

    def both(
        self,
        x1: Inputs,
        x2: Inputs | None = None,
        engine: Engine = "auto",
        progress: Progress | None = None,
        *,
        gains: Tensor | None = None,
    ) -> NtkAndNngp:
        """Return both kernels in one pass, each of shape (n1, n2), or (g, n1, n2) for a grid of ``gains`` as in a call."""
        kernels = self._compute(x1, x2, engine, progress, ntk=True, nngp=True, gains=gains)
        assert kernels.ntk is not None
        assert kernels.nngp is not None
        return NtkAndNngp(kernels.ntk, kernels.nngp)

    @property
    def gains(self) -> GainRule:
        """The gains of the limit."""
        return self._tracer.gains

    @property
    def module(self) -> nn.Module:
        """The module whose limit this is: a copy, as the module was when the limit was made, with plain weights."""
        return self._tracer.module

    @property
    def was_read(self) -> bool:
        """Whether the module was read for some input shape, so that layers without a limit would have been refused."""
        return self._tracer.was_read

    def program(self, input_shape: Sequence[int]) -> Program:
        """Return the operations that were read from the module for inputs of one shape (without the batch).

        Its ``nodes`` are in the order of execution: each has its operation ``op``, its path in the module, the numbers of the
        nodes it reads, and its positions. Both engines run it, and ``explain`` prints it as a table.

        Examples
        --------
        >>> import ntkit
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> [node.op.label() for node in ntkit.infinite_width(net).program((3,)).nodes]
        ['input', 'linear', 'relu', 'linear']
        """
        return self._program(check_input_size(input_shape), ntk=False)

    def with_gains(self, w_std: float | Tensor | None, b_std: float | Tensor | None) -> InfiniteWidth:
        """Return the limit of the same module with other gains, without tracing it again.

        ``init`` and ``overrides`` stay the same.
        """
        rule, other = self._tracer.gains, copy.copy(self)
        other._tracer = self._tracer.with_gains(GainRule(w_std, b_std, rule.init, dict(rule.overrides)))
        other._planned, other._packed, other._owners = self._planned, {}, {}
        return other

    def with_prior(
        self,
        covariance: Tensor | Literal["stationary"],
        input_shape: Sequence[int] | None = None,
        *,
        same: float | Tensor = 1 / 300,
        other: float | Tensor = 1 / 400,
    ) -> PriorLimit:
        r"""Propagate a covariance of the input through the network instead of data.

        The input is one random image or sequence, the same for all networks, such as the noise that an inpainting
        network reads; the kernels are between positions of the output.

        Parameters
        ----------
        covariance
            :math:`K_0[p, p']` of the input, shape (\*positions, \*positions), or ``"stationary"``: ``same`` where p = p'
            and ``other`` elsewhere.
        input_shape
            Shape of the input without the batch, channels included. Default: the channels that the first layer reads with
            the positions of ``covariance``.
        same, other
            Entries of ``"stationary"``. Default 1/300 and 1/400, the values for noise that is uniform on [0, 0.1].

        Returns
        -------
        PriorLimit
            With ``ntk.positions(at=None)`` and ``nngp.positions(at=None)``, of shape (\*out, \*out) or (m, m).

        Examples
        --------
        >>> import ntkit
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Conv1d(1, 64, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.Conv1d(64, 1, 1))
        >>> prior = ntkit.infinite_width(net).with_prior("stationary", input_shape=(1, 4))
        >>> prior.nngp.positions(at=[0, 1]) * 300
        tensor([[2.0000, 1.5760],
                [1.5760, 2.0000]], dtype=torch.float64)
        """
        positions = tuple(covariance.shape[: covariance.ndim // 2]) if isinstance(covariance, Tensor) else ()
        guesses = self._tracer.input_shapes(positions)
        prior, shape, like = prior_of(covariance, input_shape, guesses, same, other)
        return PriorLimit(with_prior_input(self._program(shape, ntk=False, positions=True), prior), like)

    def explain(self, input_shape: Sequence[int]) -> Explanation:
        """Explain how the kernels of inputs of one shape (without the batch) are computed, in a table of operations.

        Where the reference engine computes them, the last line says what the native engine lacks. Where the native engine covers
        a limited range of inputs, such as by the tables of tanh, a line names the layer and the range: for inputs beyond it
        ``engine="auto"`` takes the reference engine, and ``engine="native"`` raises.

        Examples
        --------
        >>> import ntkit
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 1))
        >>> print(ntkit.infinite_width(net).explain((1, 8)))
        operation  path  positions  between x and x'  of x itself  entries per pair  bytes per pair  engine
        input      0     8          same              same                      8            64  native
        conv 3     0     6          same              same                      6            48  native
        relu       1     6          same              nothing                   6            48  native
        flatten    3     -          same              nothing                   1             8  native
        linear     3     -          same              nothing                   1             8  native
        """
        program = self._program(check_input_size(input_shape), ntk=False)
        reason = unsupported_reason(program)
        if reason is not None:
            return Explanation.of(program, reason)
        return Explanation.of(program, None, single_precision(program), ranges(program))

    def _program(self, input_shape: Sequence[int], ntk: bool, positions: bool = False) -> Program:
        program = self._tracer.known(tuple(input_shape), positions)
        if program is None:
            with without_derivatives(), torch.enable_grad():  # the program does not depend on who differentiates
                program = self._tracer.program(input_shape, positions)
        if ntk and program.structure not in self._differentiable:
            check_differentiable(program)
            self._differentiable.add(program.structure)
        return program

    def _compute(
        self,
        x1: Any,
        x2: Any,
        engine: Engine,
        progress: Progress | None,
        *,
        ntk: bool,
        nngp: bool,
        gains: Tensor | None = None,
    ) -> Kernels:
        if not (is_plain(x1) and (x2 is None or is_plain(x2))):
            if gains is not None:
                raise InputError(
                    "a grid of gains takes inputs of one size in one tensor. Got several. Write limit.with_gains for each."
                )
            return GroupedGram(self, engine, ntk, nngp).gram(x1, x2, progress)
        self._check_batches(x1, x2)
        rows, columns = x1.shape[0], (x1 if x2 is None else x2).shape[0]
        dtype = x1.dtype if x1.is_floating_point() else torch.float64
        if gains is not None:
            gains = check_grid(gains)
            check_gram_memory(rows, columns, dtype, x1.device, matrices=2 * len(gains) * (ntk + nngp))
            kernels = kernels_over(self, gains, x1, x2, engine, progress, ntk=ntk, nngp=nngp)
        else:
            check_gram_memory(rows, columns, dtype, x1.device, matrices=ntk + nngp)
            program = self._program(x1.shape[1:], ntk)
            kernels = run_on(
                engine,
                lambda: unsupported_reason(program, x1, x2),
                native=lambda: self._native(program).gram(x1, x2, ntk, nngp, progress),
                reference=lambda: gram(program, x1, x2, ntk, nngp, progress=progress),
            )
        for matrix in kernels:
            if matrix is not None:
                check_result(matrix)
        return kernels

    def of_arguments(self, group: Group) -> InfiniteWidth:
        """Return the limit as a function of the packed rows of a group; of plain inputs it is itself."""
        arguments = group.arguments
        if arguments is None:
            return self
        if arguments not in self._packed:
            other = self._packed[arguments] = copy.copy(self)
            other._tracer = self._tracer.with_arguments(arguments, group.x)
            other._engines, other._packed, other._owners = {}, {}, {}
        return self._packed[arguments]

    def owners(self, input_shape: tuple[int, ...]) -> Owners:
        """Return the paths of the parameters that each node of a program applies."""
        if input_shape not in self._owners:
            self._owners[input_shape] = self._tracer.owners(input_shape)
        return self._owners[input_shape]

    def _check_batches(self, x1: Tensor, x2: Tensor | None) -> None:
        integers = [isinstance(x, Tensor) and x.dtype in (torch.int32, torch.int64) for x in (x1, x2)]
        if integers[0] and self._tracer.embeddings and (x2 is None or integers[1]):
            check_integers(x1, x2)
        else:
            check_batches(x1, x2)

    def _native(self, program: Program) -> NativeEngine:
        if program not in self._engines:
            planned = self._planned.setdefault(program.structure, NativeEngine(program))
            self._engines[program] = planned if planned.program is program else planned.with_gains(program)
        return self._engines[program]

    def __getstate__(self) -> dict[str, object]:
        # Tapes live in the core and are planned again.
        return {**self.__dict__, "_engines": {}, "_planned": {}, "_packed": {}}

    def __repr__(self) -> str:
        return f"infinite_width({self._name})"


def infinite_width(
    module: nn.Module,
    w_std: float | Tensor | None = None,
    b_std: float | Tensor | None = None,
    init: Init = "ntk",
    overrides: Mapping[str, Mapping[str, float | Tensor]] | None = None,
    *,
    deterministic: Sequence[str] = (),
    check: bool = True,
    attention_samples: int | None = None,
    generator: torch.Generator | None = None,
) -> InfiniteWidth:
    r"""Compute the infinite-width limit of a module, whose kernels are exact and deterministic.

    With K the covariance of a layer's pre-activations and :math:`\Theta` its tangent kernel, a linear layer gives
    :math:`K' = w^2 K + b^2` and :math:`\Theta' = K' + w^2 \Theta`, an activation :math:`K' = E[\phi(u) \phi(v)]` and
    :math:`\Theta' = \Theta E[\phi'(u) \phi'(v)]` for :math:`(u, v)` Gaussian with covariance K (Jacot et al. 2018);
    convolutions and pooling average over positions (Arora et al. 2019).

    The kernel is that of the module as it stands, or ntkit refuses: before it returns a kernel, it replays the operations read
    from the module as a finite network with the module's parameters, which must reproduce the module's output and its
    derivatives to rounding. Hooks, overridden forwards, buffers and values of affine parameters are all part of the module.

    Parameters
    ----------
    module
        Any ``nn.Module`` with one input and supported layers. It is read in its present state and in evaluation mode; one in
        training mode that draws random numbers there (dropout) is refused: write ``module.eval()``. Its widths only set the
        proportions of concatenated channels (and fan-ins, unless ``init`` is ``"ntk"``). Parameters with
        ``requires_grad=False`` are random but not trained. If the module's output keeps positions, a call averages its
        kernel over them, and ``limit.ntk.positions`` returns all of it.
    w_std, b_std
        Gains of the weights and biases of every ``Linear`` and ``Conv`` layer; a layer without bias has no ``b_std``.
        Default sqrt(2) and 0. A module that went through :func:`ntkit.parametrize_ntk` already has gains, and different
        ones are an error. Pass tensors of one element to differentiate with respect to them.
    init
        ``"ntk"``, ``"standard"`` (unscaled weights, whose tangent kernel grows with the fan-in), or ``"torch"``
        (standard, with the variances of PyTorch's default initialisation).
    overrides
        Gains of individual layers by path: ``{"4": {"w_std": 1.0}}``; default none.
    deterministic
        Paths of submodules or parameters, all frozen, that keep their present values instead of being random, such as a
        fixed encoder in front of the network; default none. Buffers are always deterministic.
    check
        Whether to replay the program, once per input shape; default True. It costs a few forward and backward passes over
        two inputs. With ``False`` nothing proves that the kernel is that of the module.
    attention_samples
        Number of sampled logits over which softmax attention at 1/sqrt(d) is averaged (``nn.MultiheadAttention``,
        ``nn.TransformerEncoderLayer``, :class:`ntkit.layers.SelfAttention`), as it has no closed form; the default None
        refuses it. Every pair of inputs and every call use the same samples; ``limit.ntk.estimate`` returns the standard
        error, which falls as samples^-1/2. The kernel of attention directly on the data is positive semidefinite by
        construction, that of attention on hidden layers only up to that error.
    generator
        Generator of the samples' seed, on the CPU; None: torch's global generator. Equal seeds give identical bits.

    Returns
    -------
    InfiniteWidth
        With the kernels ``ntk`` and ``nngp``, ``both`` and ``explain``.

    Raises
    ------
    UnsupportedLayerError
        Names every place in the module that has no closed-form limit, why, and what to use instead.
    InputError
        For gains that contradict the module's own, and overrides of layers or biases that the module does not have.

    See Also
    --------
    empirical : the kernel of one finite network.
    monte_carlo : the mean kernel of random networks, for modules without a closed-form limit.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
    >>> limit = ntkit.infinite_width(net)
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    >>> limit.ntk(x)
    tensor([[2.0000, 0.3183],
            [0.3183, 2.0000]], dtype=torch.float64)
    >>> limit.nngp.diag(x)
    tensor([1.0000, 1.0000], dtype=torch.float64)
    """
    if not isinstance(overrides, Mapping | None):
        raise InputTypeError(
            f'overrides must be a mapping from layers to gains. Got {shown(overrides)}. Write {{"0": {{"w_std": 1.0}}}}.'
        )
    rule = GainRule(w_std, b_std, init, dict(overrides or {}))
    return InfiniteWidth(module, rule, check, deterministic, logit_samples(attention_samples, generator))
