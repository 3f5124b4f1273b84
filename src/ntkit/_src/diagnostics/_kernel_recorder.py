"""How the tangent kernel of a network moves during training."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ntkit._src.common import check_integer, check_labels, check_module, check_number, class_numbers, evaluation_mode
from ntkit._src.finite import Trajectory
from ntkit._src.kernels import empirical
from ntkit._src.labels import alignment
from ntkit._src.solvers import check_gram
from ntkit.errors import InputError, InputTypeError


def kernel_distance(H: Tensor, H2: Tensor) -> Tensor:
    r"""Return one minus the cosine of two Gram matrices.

    .. math:: \rho(H, H') = 1 - \frac{\operatorname{tr}(H H'^T)}{\sqrt{\operatorname{tr}(H H^T) \operatorname{tr}(H' H'^T)}}

    (Golikov et al. 2022 [1]_, eq. 148; Fort et al. 2020 [2]_). Zero for multiples of each other, at most one for positive
    semidefinite matrices, symmetric. For small changes it is *half the square* of the relative change that
    is not a mere scaling: a kernel that moves by 1 / width has a distance of 1 / width squared.

    Parameters
    ----------
    H, H2 : Tensor of shape (n, n)
        Gram matrices on the same points: symmetric, of the same dtype and device, not zero.

    Returns
    -------
    Tensor
        One number, in their dtype; it carries gradients if they do.

    Notes
    -----
    Computed as :math:`\frac12 |H / |H| - H' / |H'||^2`, which stays accurate if the matrices are nearly parallel.

    See Also
    --------
    ntkit.diagnostics.KernelRecorder : The distance along a training run.
    ntkit.alignment : The cosine with the kernel of the labels.

    References
    ----------
    .. [1] Golikov, Pokonechnyy, Korviakov, "Neural Tangent Kernel: A Survey", 2022.
    .. [2] Fort et al., "Deep Learning versus Kernel Learning: an Empirical Study of Loss Landscape Geometry and the Time
       Evolution of the Neural Tangent Kernel", 2020.

    Examples
    --------
    >>> import torch, ntkit
    >>> first, second = torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([1.0, 1.0]))
    >>> ntkit.diagnostics.kernel_distance(first, 3 * first), ntkit.diagnostics.kernel_distance(first, second)
    (tensor(0.), tensor(0.2929))
    """
    matrices = []
    for name, matrix in (("H", H), ("H2", H2)):
        checked = check_gram(matrix)
        norm = torch.linalg.matrix_norm(checked)
        if not float(norm.detach()) > 0:
            raise InputError(f"{name} must not be zero: it has no direction to compare.")
        matrices.append(checked / norm)
    if H.shape != H2.shape:
        raise InputError(f"H and H2 must be on the same points. Got shapes {tuple(H.shape)} and {tuple(H2.shape)}.")
    if H.dtype != H2.dtype or H.device != H2.device:
        raise InputTypeError(
            f"H and H2 must have the same dtype and device. Got {H.dtype} on {H.device} and {H2.dtype} on {H2.device}."
        )
    distance: Tensor = 0.5 * (matrices[0] - matrices[1]).square().sum()
    return distance


@dataclass(frozen=True, eq=False)
class KernelHistory:
    r"""The tangent kernel at m moments of training.

    Attributes
    ----------
    steps
        Steps taken, shape (m,), int64.
    times
        Amount of training, in the units of the recorder (steps over ``unit``) or of the run, shape (m,), float64.
    velocity
        Kernel distance from the previous record over the training between the two, shape (m,); NaN at the first.
    distance
        Kernel distance :math:`\rho(H_0, H_t)` from the start, shape (m,).
    movement
        :math:`|H_t - H_0| / |H_0|` in the Frobenius norm, shape (m,): unlike the distance it includes changes of scale, and is
        of first order in the change.
    alignment
        Alignment with the labels, shape (m,); NaN without labels.
    """

    steps: Tensor
    times: Tensor
    velocity: Tensor
    distance: Tensor
    movement: Tensor
    alignment: Tensor


class KernelRecorder:
    r"""Measures a network's tangent kernel on a probe set every few steps of training.

    With :math:`H_t` the empirical kernel on the probe points and the distance :math:`\rho` of
    :func:`ntkit.diagnostics.kernel_distance`, it records the velocity :math:`\rho(H_{t}, H_{t'}) / (t' - t)` between records,
    the distance from the start and the alignment with the labels (Golikov et al. 2022 [1]_, section 7; Fort et al. 2020 [2]_).
    All are the same for :math:`H_t` and for the normalised kernel :math:`H_t / n` of the standard parametrisation.

    The start is recorded when the recorder is created. In your own training loop, call :meth:`step` after every step; with
    :func:`ntkit.train` pass ``record=ntkit.Record(at, observe={"kernel": recorder.observe})`` and then call :meth:`adopt`.

    Parameters
    ----------
    module : nn.Module
        The module to train; it is measured in evaluation mode and left as it was: modes, buffers, gradients.
    x : Tensor of shape (n, ...)
        Probe points.
    y : Tensor of shape (n,), optional
        Their classes, two or more, for the alignment. Default None.
    every : int
        Number of steps between records. Default 1.
    unit : float
        Steps that count as one unit of training, such as the batches of an epoch. Default 1.
    output : str or int
        Which outputs, as in :func:`ntkit.empirical`: ``"trace"`` the mean over outputs, ``"full"`` all of them. Default
        ``"trace"``.

    See Also
    --------
    ntkit.alignment : Alignment with the labels.

    References
    ----------
    .. [1] Golikov, Pokonechnyy, Korviakov, "Neural Tangent Kernel: A Survey", 2022.
    .. [2] Fort et al., "Deep Learning versus Kernel Learning: an Empirical Study of Loss Landscape Geometry and the Time
       Evolution of the Neural Tangent Kernel", 2020.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    >>> x = torch.randn(16, 2)
    >>> y = (x[:, :1] > 0).float()
    >>> recorder = ntkit.diagnostics.KernelRecorder(net, x, y[:, 0], every=5)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    >>> for _ in range(10):
    ...     optimizer.zero_grad()
    ...     nn.functional.binary_cross_entropy_with_logits(net(x), y).backward()
    ...     optimizer.step()
    ...     recorder.step()
    >>> history = recorder.history
    >>> history.steps, bool(history.alignment[-1] > history.alignment[0])
    (tensor([ 0,  5, 10]), True)
    """

    def __init__(
        self,
        module: nn.Module,
        x: Tensor,
        y: Tensor | None = None,
        every: int = 1,
        unit: float = 1.0,
        output: str | int = "trace",
    ) -> None:
        check_module(module)
        check_integer("every", every, 1)
        check_number("unit", unit, positive=True)
        if y is not None:
            if not isinstance(x, Tensor):
                raise InputTypeError(f"x must be a tensor of probe points. Got {type(x).__name__}.")
            check_labels("y", y, len(x), x.device)
            if class_numbers(y)[2] < 2:
                raise InputError(
                    "y must have at least two classes, to align a kernel with. Got one: all labels are equal."
                )
        self.module, self.every, self.unit = module, every, float(unit)
        self._x, self._y, self._output = x, y, output
        self._taken = 0
        self._steps: list[int] = []
        self._times: list[float] = []
        self._rows: list[tuple[float, float, float, float]] = []
        self._first = self._last = self.measure()
        self._keep(0, 0.0, self._first)

    def measure(self) -> Tensor:
        """Return the present Gram matrix on the probe points, without recording it; (n k, n k) for ``"full"``."""
        with evaluation_mode(self.module):
            return empirical(self.module, self._output).ntk(self._x).detach()  # type: ignore[arg-type]

    def step(self) -> None:
        """Count a step, and record if it is time: call it after the optimiser's step."""
        self._taken += 1
        if self._taken % self.every == 0:
            self._keep(self._taken, self._taken / self.unit, self.measure())

    def observe(self, module: nn.Module) -> Tensor:
        """Return the Gram matrix, for :func:`ntkit.train` with ``Record(at, observe={"kernel": recorder.observe})``."""
        if module is not self.module:
            raise InputError("the recorder must observe the module it was created for. Got another one.")
        return self.measure()

    def adopt(self, run: Trajectory, name: str = "kernel") -> None:
        """Replace the records by the kernels that a run of :func:`ntkit.train` observed.

        Parameters
        ----------
        run
            The result of ``train``; its times are the units of training.
        name
            Name of the observation. Default "kernel".
        """
        if name not in run.observations:
            raise InputError(
                f"the run must have observed {name!r}. It observed {sorted(run.observations)}: write "
                f'train(..., record=ntkit.Record(at, observe={{"{name}": recorder.observe}})).'
            )
        grams = run.observations[name]
        self._steps, self._times, self._rows = [], [], []
        self._first = self._last = grams[0]
        for index, gram in zip(run.observed, grams, strict=True):
            self._keep(int(run.steps[index]), float(run.times[index]), gram)
        self._taken = int(run.state.step)

    @property
    def history(self) -> KernelHistory:
        """Everything recorded so far."""
        columns = torch.tensor(self._rows, dtype=torch.float64).T
        times = torch.tensor(self._times, dtype=torch.float64)
        return KernelHistory(torch.tensor(self._steps), times, *columns)

    def _keep(self, step: int, time: float, gram: Tensor) -> None:
        velocity = math.nan
        if self._times:
            velocity = float(_distance(self._last, gram)) / (time - self._times[-1])
        norm = float(torch.linalg.matrix_norm(self._first.double()))
        movement = float(torch.linalg.matrix_norm((gram - self._first).double())) / norm if norm > 0 else math.nan
        aligned = math.nan if self._y is None else float(alignment(_mean_over_outputs(gram, len(self._y)), self._y))
        self._rows.append((velocity, float(_distance(self._first, gram)), movement, aligned))
        self._steps.append(step)
        self._times.append(time)
        self._last = gram


def _distance(first: Tensor, second: Tensor) -> Tensor:
    return kernel_distance(first.double(), second.double())


def _mean_over_outputs(gram: Tensor, n: int) -> Tensor:
    """Return the mean of the outputs' own kernels, shape (n, n), from the matrix of all outputs."""
    k = len(gram) // n
    return torch.einsum("akbk->ab", gram.double().reshape(n, k, n, k)) / k
