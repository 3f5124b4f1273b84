"""Which frequencies of a signal on a grid a kernel has learnt, over training time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit import GradientFlow, Kernel
from ntkit.errors import InputError, InputTypeError

__all__ = ["FrequencyCourse", "frequency_course", "grid_points"]

_ROUNDINGS = 100.0  # energy below this many squared machine epsilons counts as none


@dataclass(frozen=True, eq=False)
class FrequencyCourse:
    """What remains of each frequency of the targets during gradient flow.

    Attributes
    ----------
    times
        Shape (m,), float64.
    frequencies
        Periods over the side of the grid, 0, 1, 2, ...; in several dimensions the rounded length of the wave vector.
        Shape (b,), int64.
    energy
        The fraction of the targets' energy in each frequency, shape (b,); they sum to one.
    left
        The root of the residual's energy at each frequency over the targets', shape (m, b); 1 is untouched, 0 learnt, and
        NaN where the targets have no energy. It exceeds 1 where a kernel that is not translation invariant moves energy from
        one frequency to another.
    """

    times: Tensor
    frequencies: Tensor
    energy: Tensor
    left: Tensor


def frequency_course(kernel: Kernel, y: Tensor, t: float | Sequence[float], ridge: float = 0.0) -> FrequencyCourse:
    r"""Train on every point of a grid by gradient flow and return the spectrum of the residual :math:`y - f_t` over time.

    The grid has the points :math:`(i_1 / N_1, \ldots, i_d / N_d)` of the unit cube, and the residual
    :math:`e^{-\Theta t} y` of training from zero is Fourier transformed on it. For a kernel that is translation invariant
    on the periodic grid, such as that of a network after :class:`ntkit.layers.FourierFeatures` with integer frequencies, the
    waves are the eigenvectors, and each is learnt at the rate of its eigenvalue (Tancik et al. 2020 [1]_; Golikov et al. 2022
    [2]_, section 6.2).

    Parameters
    ----------
    kernel : Kernel
        A kernel of vectors with d coordinates.
    y : Tensor of shape (N_1, ..., N_d)
        The signal on the grid, float32 or float64, not zero.
    t : float or sequence of float
        Times.
    ridge : float
        As in :class:`ntkit.GradientFlow`. Default 0.

    Returns
    -------
    FrequencyCourse

    See Also
    --------
    ntkit.diagnostics.learning_times : The same by eigenvector, on any points.

    References
    ----------
    .. [1] Tancik et al., "Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains", 2020.
    .. [2] Golikov, Pokonechnyy, Korviakov, "Neural Tangent Kernel: A Survey", 2022.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(ntkit.layers.FourierFeatures(1, "basic"), nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> x = 2 * torch.pi * torch.arange(32) / 32
    >>> course = frequency_course(ntkit.infinite_width(net).ntk, x.sin() + (6 * x).sin(), [0.0, 0.2])
    >>> course.left[:, [1, 6]]
    tensor([[1.0000, 1.0000],
            [0.0408, 0.9553]])
    """
    if not isinstance(kernel, Kernel):
        raise InputTypeError(f"kernel must be an ntkit.Kernel. Got {type(kernel).__name__}.")
    if not isinstance(y, Tensor) or y.dtype not in (torch.float32, torch.float64):
        raise InputTypeError(
            f"y must be a tensor, float32 or float64. Got {getattr(y, 'dtype', type(y).__name__)}. Write y.double()."
        )
    if y.ndim == 0 or min(y.shape) < 2:
        raise InputError(
            f"y must be values on a grid of at least two points along each axis. Got shape {tuple(y.shape)}."
        )
    if not bool(torch.isfinite(y).all()):
        raise InputError("y must be finite. Got NaN or infinite values.")
    if not bool(y.any()):
        raise InputError("y is zero: there is nothing to learn. Pass a signal.")
    times = list(t) if isinstance(t, Sequence) else [t]
    flow = GradientFlow(kernel, ridge=ridge).fit(grid_points(y.shape, y), y.reshape(-1))
    residuals = y - flow.predict(t=times).reshape(len(times), *y.shape)
    frequencies, energy = _by_frequency(y[None])
    _, left = _by_frequency(residuals)
    there = energy[0] > _ROUNDINGS * torch.finfo(y.dtype).eps ** 2 * energy.sum()
    ratio = torch.where(there, (left / torch.where(there, energy, 1.0)).sqrt(), torch.nan)
    return FrequencyCourse(torch.tensor(times, dtype=torch.float64), frequencies, energy[0] / energy.sum(), ratio)


def grid_points(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return the points (i_1 / N_1, ..., i_d / N_d) of a grid in row-major order, shape (points, d)."""
    axes = [torch.arange(n, dtype=like.dtype, device=like.device) / n for n in shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, len(shape))


def _by_frequency(signals: Tensor) -> tuple[Tensor, Tensor]:
    """Return the frequencies and the energy of each signal at them, shapes (b,) and (m, b)."""
    shape = signals.shape[1:]
    waves = torch.fft.fftn(signals, dim=tuple(range(1, signals.ndim)))
    axes = [torch.fft.fftfreq(n, 1 / n, dtype=torch.float64, device=signals.device) for n in shape]
    lengths = sum(one.square() for one in torch.meshgrid(*axes, indexing="ij"))
    assert isinstance(lengths, Tensor)
    bins = lengths.sqrt().round().long().reshape(-1)
    energy = signals.new_zeros(len(signals), int(bins.max()) + 1)
    energy.index_add_(1, bins, waves.abs().square().reshape(len(signals), -1))
    return torch.arange(energy.shape[1]), energy
