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
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from ntkit._src.common import check_choice, check_number, data_splits, shown
from ntkit._src.features.rfm import DifferentiableKernel, DistanceKernel, MetricKernel, RFMSettings, RFMState, Scale
from ntkit._src.kernels import Kernel, check_input_shape, infinite_width
from ntkit.errors import InputError, InputTypeError, JitterWarning

from ._inputs import as_tensor, check_fitted, numpy_dtype, read_device, read_dtype
from ._rfm_choice import Candidate, Error, RFMChoice, choose, listed_numbers, quiet_recursion

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
        """Choose the settings and fit; X has been validated, targets have shape (n,) or (n, c)."""
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        x, y = as_tensor(X, dtype, device), as_tensor(targets.reshape(len(X), -1), dtype, device)
        own, grid = self._own_kernel(), self._grid()
        parts = self._parts(len(X), codes) if any(len(values) > 1 for values in grid.values()) else []
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
        check_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=numpy_dtype(self.dtype))
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        x = as_tensor(rows, dtype, device)
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
        if self.scale is not None:
            check_choice("scale", self.scale, ("max", "trace"), " or None")
        kernel: MetricKernel | None = own
        if kernel is None:
            width: Any = candidate.bandwidth
            known, factor = (
                (None, width[1]) if isinstance(width, tuple) else (None if width == "median" else width, 1.0)
            )
            kernel = DistanceKernel(cast(Any, self.kernel), known, factor)
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
        """Hold out random parts, stratified by class: one of many rows, three in turn of few, none of very few."""
        share = check_number("held_out", self.held_out)
        if not 0 < share < 1:
            raise InputError(f"held_out must lie between 0 and 1. Got {share}.")
        if n < _FEWEST_ROWS:
            return []
        seed = check_random_state(self.random_state)
        return data_splits(n, share, seed, codes, repeats=1 if n >= _MANY_ROWS else _PARTS)
