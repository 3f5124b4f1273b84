"""Shared by the recursive feature machines: reading the parameters, choosing the settings, fitting, scoring in blocks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from ntkit._src.common import check_input_shape, shown
from ntkit._src.features.rfm import DifferentiableKernel, DistanceKernel, MetricKernel, RFMSettings, RFMState, Scale
from ntkit._src.kernels import Kernel, infinite_width
from ntkit.errors import InputError, InputTypeError, JitterWarning

from ._rfm_choice import Candidate, Error, RFMChoice, choose, listed_numbers, quiet_recursion
from ._settings import numpy_dtype, read_device, read_dtype

__all__ = ["RFMBase", "RFMIteration"]

_BLOCK_BYTES = 2**26
_ITERATIONS = (0, 1, 2, 3, 4, 5)
_RIDGES = (1e-3, 1e-1)
_POWERS = (0.5, 1.0)
_BANDWIDTHS = ("median", ("median", 4.0))
_DIAGONAL = (False, True)
_FEWEST_ROWS = 10  # with fewer rows no part is held out
_MANY_ROWS = 1000  # from this many rows on a single part is held out
_PARTS = 3


@dataclass(frozen=True)
class RFMIteration:
    """One update of the metric.

    Attributes
    ----------
    iteration
        Updates so far.
    bandwidth
        Bandwidth of the kernel; nan for a kernel without one.
    train_error
        The mean squared error on the training targets.
    jitter
        What was added to the ridge because the Gram matrix is singular.
    """

    iteration: int
    bandwidth: float
    train_error: float
    jitter: float


class RFMBase(BaseEstimator):
    """Kernel regression in a learnt metric, for targets that a subclass provides."""

    def __init__(
        self,
        kernel: str | Kernel | nn.Module = "laplace",
        iterations: int | str | Sequence[int] = "auto",
        ridge: float | str | Sequence[float] = "auto",
        bandwidth: float | str | Sequence[float] = "auto",
        power: float | str | Sequence[float] = "auto",
        diagonal: bool | str = "auto",
        center_gradients: bool = False,
        scale: str | None = "max",
        held_out: float = 0.2,
        w_std: float | None = None,
        b_std: float | None = None,
        input_shape: Sequence[int] | None = None,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.kernel = kernel
        self.iterations = iterations
        self.ridge = ridge
        self.bandwidth = bandwidth
        self.power = power
        self.diagonal = diagonal
        self.center_gradients = center_gradients
        self.scale = scale
        self.held_out = held_out
        self.w_std = w_std
        self.b_std = b_std
        self.input_shape = input_shape
        self.dtype = dtype
        self.device = device
        self.random_state = random_state

    def _fit_targets(self, X: NDArray[Any], targets: NDArray[Any], error: Error, codes: NDArray[Any] | None) -> None:
        """Choose the settings and fit; X has been validated, targets have shape (n, c)."""
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        x = torch.from_numpy(np.require(X, requirements=["C", "W"])).to(device=device, dtype=dtype)
        y = torch.from_numpy(np.ascontiguousarray(targets)).to(device=device, dtype=dtype)
        own = self._own_kernel()
        grid = self._grid()
        choosing = any(len(values) > 1 for values in grid.values())
        parts = self._parts(len(X), codes) if choosing else []
        choice = choose(x, y, grid, lambda candidate: self._settings(candidate, own), parts, error)
        self._keep(x, y, choice, self._settings(choice.best, own))

    def _keep(self, x: Tensor, y: Tensor, choice: RFMChoice, settings: RFMSettings) -> None:
        history, state = [], None
        for number, state in enumerate(quiet_recursion(x, y, settings)):
            width = state.kernel.bandwidth if isinstance(state.kernel, DistanceKernel) else None
            jitter = state.solution.stats["jitter"]
            history.append(RFMIteration(number, float("nan") if width is None else width, state.residual, jitter))
        assert state is not None
        self.choice_ = choice
        self.history_ = tuple(history)
        self._state = state
        self.metric_ = state.metric.matrix.cpu().numpy()
        self.dual_coef_ = state.solution.value.cpu().numpy()
        self.jitter_ = history[-1].jitter
        self.ridge_, self.power_ = choice.best.ridge, choice.best.power
        self.bandwidth_ = history[-1].bandwidth
        self.diagonal_ = choice.best.diagonal
        self.n_iter_ = len(history) - 1
        self.solution_status_ = state.solution.status
        if self.jitter_ > 0:
            warnings.warn(
                f"the Gram matrix is singular: {self.jitter_:.1e} was added to the ridge. Pass a larger ridge, or remove "
                "repeated rows.",
                JitterWarning,
                stacklevel=4,
            )

    def _scores(self, X: ArrayLike) -> NDArray[Any]:
        """Return f(X) of the centred targets, shape (n, c)."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=numpy_dtype(self.dtype))
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        x = torch.from_numpy(np.require(rows, requirements=["C", "W"])).to(device=device, dtype=dtype)
        state: RFMState = self._state
        size = max(64, _BLOCK_BYTES // (len(state.points) * dtype.itemsize))
        with torch.no_grad():
            scores = torch.cat([state.predict(block) for block in x.split(size)])
        return scores.double().cpu().numpy()

    def _grid(self) -> dict[str, list[Any]]:
        """Return the candidates of every setting, in the order of the fields of a candidate."""
        if not isinstance(self.diagonal, (bool, np.bool_)) and self.diagonal != "auto":
            raise InputError(f'diagonal must be True, False or "auto". Got {self.diagonal!r}.')
        return {
            "bandwidth": self._bandwidths(),
            "ridge": listed_numbers("ridge", self.ridge, _RIDGES, positive=False),
            "power": listed_numbers("power", self.power, _POWERS, positive=True),
            "diagonal": list(_DIAGONAL) if self.diagonal == "auto" else [bool(self.diagonal)],
            "iterations": sorted(
                set(listed_numbers("iterations", self.iterations, _ITERATIONS, positive=False, whole=True))
            ),
        }

    def _bandwidths(self) -> list[Any]:
        if not isinstance(self.kernel, str):
            if isinstance(self.bandwidth, str) and self.bandwidth in ("auto", "median"):
                return [None]
            raise InputError(
                f'bandwidth is that of kernel="laplace" or "gaussian". Got {shown(self.bandwidth)} with a kernel of its own: '
                "leave it out."
            )
        if self.bandwidth == "median":
            return ["median"]
        return listed_numbers("bandwidth", self.bandwidth, _BANDWIDTHS, positive=True)

    def _own_kernel(self) -> DifferentiableKernel | None:
        """Return the kernel of a module or the user's own kernel; None for a named one."""
        if isinstance(self.kernel, str):
            if self.kernel not in ("laplace", "gaussian"):
                raise InputError(
                    f'kernel must be "laplace", "gaussian", an ntkit Kernel or a torch.nn.Module. Got {shown(self.kernel)}.'
                )
            if self.input_shape is not None:
                raise InputError("input_shape is only for the kernel of a module. Leave it out.")
            return None
        shape = check_input_shape(self.input_shape)
        if isinstance(self.kernel, nn.Module):
            return DifferentiableKernel(infinite_width(self.kernel, self.w_std, self.b_std).ntk, shape)
        if isinstance(self.kernel, Kernel):
            return DifferentiableKernel(self.kernel, shape)
        raise InputTypeError(
            f'kernel must be "laplace", "gaussian", an ntkit Kernel or a torch.nn.Module. Got {shown(self.kernel)} of type '
            f"{type(self.kernel).__name__}."
        )

    def _settings(self, candidate: Candidate, own: DifferentiableKernel | None) -> RFMSettings:
        if self.scale not in ("max", "trace", None):
            raise InputError(f'scale must be "max", "trace" or None. Got {self.scale!r}.')
        kernel: MetricKernel
        if own is not None:
            kernel = own
        else:
            width = candidate.bandwidth
            shape = cast(Any, self.kernel)
            if isinstance(width, tuple):
                kernel = DistanceKernel(shape, None, width[1])
            else:
                kernel = DistanceKernel(shape, None if width == "median" else cast(float, width))
        return RFMSettings(
            kernel,
            candidate.iterations,
            candidate.ridge,
            candidate.power,
            candidate.diagonal,
            bool(self.center_gradients),
            cast(Scale, self.scale),
        )

    def _parts(self, n: int, codes: NDArray[Any] | None) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Hold out random parts in turn, stratified by class: one of many rows, three of few, none of very few."""
        share = self.held_out
        if isinstance(share, bool) or not isinstance(share, (int, float)):
            raise InputTypeError(f"held_out must be a number. Got {share!r}.")
        if not 0 < share < 1:
            raise InputError(f"held_out must lie between 0 and 1. Got {share}.")
        if n < _FEWEST_ROWS:
            return []
        order = check_random_state(self.random_state).permutation(n)
        if codes is not None:
            order = order[np.argsort(_ranks(codes[order]), kind="stable")]
        size = max(1, round(share * n))
        count = 1 if n >= _MANY_ROWS else min(_PARTS, n // size)
        held_out = [np.sort(order[number * size : (number + 1) * size]) for number in range(count)]
        return [(np.setdiff1d(np.arange(n), rows), rows) for rows in held_out]


def _ranks(codes: NDArray[Any]) -> NDArray[np.float64]:
    """Return each row's rank within its class, between 0 and 1, so that sorting by it mixes the classes evenly."""
    ranks = np.empty(len(codes))
    for code in np.unique(codes):
        members = np.flatnonzero(codes == code)
        ranks[members] = (np.arange(len(members)) + 0.5) / len(members)
    return ranks
