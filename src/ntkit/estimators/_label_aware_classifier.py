"""The label-aware kernel as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import nn

from ntkit.errors import InputError
from ntkit.kernels import Kernel
from ntkit.labels import STRENGTHS, Definiteness, LabelAware, PairEstimator, shift_needed
from ntkit.solvers import check_ridge

from ._base import KernelEstimator
from ._classifier import NTKClassifier
from ._settings import build_kernel, read_device, read_dtype

__all__ = ["LabelAwareClassifier"]


class LabelAwareClassifier(NTKClassifier):
    r"""Classification with a label-aware kernel over the infinite-width kernel of a network, or over any other.

    Regression on centred one-hot targets as in :class:`NTKClassifier`, with :class:`ntkit.LabelAware` [1]_ in place of K:

    .. math:: f(x) = K^{(HR)}(x, X)\, \Bigl(A + r\,\tfrac{\operatorname{tr} A}{n} I\Bigr)^{-1} Y, \qquad
              A = K^{(HR)}(X, X) + s I, \qquad K^{(HR)} = K + \lambda Z

    The sum need not be positive semidefinite. Where its smallest eigenvalue is negative, by more than half the ridge, the
    shift s is twice that, which turns its sign; otherwise it is zero.

    Parameters
    ----------
    model : torch.nn.Module, optional
        The network of the base kernel K. None is a ReLU network of three hidden layers.
    input_shape : tuple of int, optional
        The shape of one input of the model, such as ``(3, 32, 32)``: images come flattened, one a row of X.
    kernel : {"ntk", "nngp"} or Kernel
        Which kernel of the model; or your own base kernel, in place of a model.
    pairs : {"kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2"} or PairEstimator
        The estimator Z of "same class?".
    strength : float, sequence of float or "auto"
        The size of the label-aware part relative to K. Of several, the one that best predicts training points left out of the
        fit is taken; "auto" is those of the paper, 0.001, 0.01, 0.1 and 1.
    ridge : float
        r, relative to ``trace(K)/n``; also that of K^-1 in ``"kr-v2"`` and of the regressions that choose the strength.
    solver : {"exact", "fjlt"}
        Of ``"fjlt-v1"`` and ``"fjlt-v2"``: over all pairs, or the sketch of the paper.
    eps : float
        The relative accuracy of the sketch.
    validation : int or float
        How strengths are compared: the number of folds, or the fraction of the points in a single validation set.
    random_state : int, RandomState or None
        Of splits and sketches.
    w_std, b_std, dtype, device, encoding, calibration
        As in :class:`NTKClassifier`.

    Attributes
    ----------
    kernel_ : LabelAware
        The fitted label-aware kernel; ``kernel_.base`` is K, ``kernel_.estimator`` is Z.
    strength_ : float
        The strength in use.
    search_ : StrengthSearch or None
        How the candidates for the strength did on points left out.
    shift_ : float
        s.
    definiteness_ : Definiteness
        The smallest eigenvalue of the training Gram matrix and what it needs to be definite; computed when asked for, from
        the matrix anew.
    classes_, ridge_, X_fit_, dual_coef_, jitter_, solution_status_, temperature_, n_features_in_, feature_names_in_
        As in :class:`NTKClassifier`.

    References
    ----------
    .. [1] Chen, He, Su, "Label-Aware Neural Tangent Kernel: Toward Better Generalization and Local Elasticity", 2020.

    Examples
    --------
    >>> import ntkit
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = ntkit.LabelAwareClassifier(pairs="fjlt-v1", random_state=0).fit(X[::8], y[::8])
    >>> bool(model.score(X[1::8], y[1::8]) > 0.9)
    True
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        input_shape: Sequence[int] | None = None,
        kernel: str | Kernel = "ntk",
        pairs: str | PairEstimator = "kr-v1",
        strength: float | str | Sequence[float] = "auto",
        ridge: float = 0.0,
        solver: str = "exact",
        eps: float = 0.1,
        validation: int | float = 5,
        random_state: int | np.random.RandomState | None = None,
        w_std: float = 2**0.5,
        b_std: float = 0.0,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        encoding: str = "centered",
        calibration: str | None = "loo",
    ) -> None:
        super().__init__(
            model, input_shape, kernel, ridge, w_std, b_std, dtype, device, encoding=encoding, calibration=calibration
        )
        self.pairs = pairs
        self.strength = strength
        self.solver = solver
        self.eps = eps
        self.validation = validation
        self.random_state = random_state

    def _fit_targets(self, X: NDArray[Any], targets: NDArray[Any], left_out: bool = False) -> NDArray[Any] | None:
        """Fit the label-aware kernel to the classes that the targets stand for, then the regression on its Gram matrix."""
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        base = build_kernel(self.kernel, self.model, self.input_shape, X.shape[1], self.w_std, self.b_std)
        if base is None:
            raise InputError(
                "a label-aware kernel needs the inputs, so kernel must not be 'precomputed'. Write "
                "ntkit.LabelAware(base).fit_gram(x, y, gram=...), which takes a base Gram matrix and gives the label-aware one."
            )
        ridge = check_ridge(self.ridge)  # type: ignore[arg-type]  # refuses what is not a number
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        aware = LabelAware(
            base,
            self.pairs,
            self._strengths(),
            solver=self.solver,
            eps=self.eps,
            ridge=ridge,
            validation=self.validation,
            generator=torch.Generator().manual_seed(seed),
        )
        codes = torch.from_numpy(targets > 0 if targets.ndim == 1 else targets.argmax(1)).to(device)
        with torch.no_grad():
            gram = aware.fit_gram(self._batch(X, dtype, device), codes)
            shift = shift_needed(gram, ridge)
            gram.diagonal().add_(shift)
        regression = KernelEstimator(kernel="precomputed", ridge=ridge, dtype=self.dtype, device=self.device)
        predictions = regression._fit_targets(gram.cpu().numpy(), targets, left_out)
        self.kernel_: Kernel | str = aware
        self.X_fit_ = X
        self.dual_coef_ = regression.dual_coef_
        self.jitter_, self.solution_status_ = regression.jitter_, regression.solution_status_
        self.shift_, self.ridge_ = shift, ridge
        self.strength_, self.search_ = aware.strength, aware.search
        return predictions

    @property
    def definiteness_(self) -> Definiteness:
        """The smallest eigenvalue of the training Gram matrix, and what it needs to be definite."""
        if not isinstance(getattr(self, "kernel_", None), LabelAware):
            raise AttributeError("definiteness_ is there after fit(X, y).")
        aware: LabelAware = self.kernel_  # type: ignore[assignment]
        return aware.definiteness()

    def _strengths(self) -> float | Sequence[float]:
        if not isinstance(self.strength, str):
            return self.strength
        if self.strength != "auto":
            raise InputError(f"strength must be a number, a sequence of numbers or 'auto'. Got {self.strength!r}.")
        return STRENGTHS
