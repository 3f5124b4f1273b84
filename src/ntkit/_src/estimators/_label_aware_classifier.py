"""The label-aware kernel as a scikit-learn classifier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from torch import Tensor, nn

from ntkit._src.common import DEPRECATED, check_gram_memory, shown, warn_renamed
from ntkit._src.kernels import Kernel
from ntkit._src.labels import STRENGTHS, Definiteness, LabelAware, PairEstimator
from ntkit._src.solvers import Solution, check_ridge, solve
from ntkit.errors import InputError, NotFittedError

from ._classifier import NTKClassifier
from ._inputs import as_batch, as_tensor
from ._settings import build_kernel, read_device, read_dtype
from ._weighting import Weighting

__all__ = ["LabelAwareClassifier"]

_FOLDS = 5


class LabelAwareClassifier(NTKClassifier):
    r"""Classification with a label-aware kernel over the infinite-width kernel of a network, or over any other.

    Regression on centred one-hot targets as in :class:`NTKClassifier`, with :class:`ntkit.LabelAware` [1]_ in place of K:

    .. math:: f(x) = K^{(HR)}(x, X)\, \Bigl(A + r\,\tfrac{\operatorname{tr} |A|}{n} \operatorname{sgn} A\Bigr)^{-1} Y, \qquad
              A = K^{(HR)}(X, X), \qquad K^{(HR)} = K + \lambda Z

    A need not be positive semidefinite. The system is solved as it is, as in the paper, and a ridge is added to the absolute
    values of its eigenvalues (:class:`ntkit.solvers.Indefinite`); for a positive semidefinite A this is the usual ridge.
    ``definiteness_`` has the smallest eigenvalue, and ``solution_status_`` says how many are negative.

    Parameters
    ----------
    module : torch.nn.Module, optional
        The network of the base kernel K. Default None: a ReLU network of three hidden layers.
    input_shape : tuple of int, optional
        The shape of one input of the module, such as ``(3, 32, 32)``, if X is flattened. Default None.
    kernel : {"ntk", "nngp"} or Kernel
        Which kernel of the module; or your own base kernel, instead of a module. Default ``"ntk"``.
    pairs : {"kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2"} or PairEstimator
        The estimator Z of "same class?". Default ``"kr-v1"``.
    strength : float, sequence of float or "auto"
        The size of the label-aware part relative to K. Of several, the one that best predicts training points left out of the
        fit is chosen; "auto" stands for those of the paper, 0.001, 0.01, 0.1 and 1. Default ``"auto"``.
    ridge : float
        r, relative to the mean size of the eigenvalues; also that of K^-1 in ``"kr-v2"`` and of the regressions that
        choose the strength. Default 0. Where A has many small eigenvalues of both signs, as with
        ``"fjlt-v1"`` and ``"fjlt-v2"`` at a large strength and few points, a solution without ridge fits
        noise: let the strength be chosen, or pass 0.01 to 0.1.
    solver : {"exact", "fjlt"}
        Solver of ``"fjlt-v1"`` and ``"fjlt-v2"``: over all pairs, or the sketch of the paper. Default ``"exact"``.
    eps : float
        The relative accuracy of the sketch. Default 0.1.
    validation : int or float
        How strengths are compared: the number of folds, or the fraction of the points in a single validation set.
        Default 5.
    calibration : {"cv"}, optional
        ``"cv"``: the temperature of the probabilities, ``temperature_``, is fitted to scores of models whose kernel and
        regression were fitted without the point's label, in five folds; only the strength is that of all points. (The
        leave-one-out formula would not be valid: the kernel itself has seen every label.) A fit then takes about five times as
        long. None: T = 1. Default ``"cv"``.
    random_state : int, RandomState or None
        Seed of splits and sketches. Default None.
    w_std, b_std, encoding, dtype, device, model
        As in :class:`NTKClassifier`.

    Attributes
    ----------
    kernel_ : LabelAware
        The fitted label-aware kernel; ``kernel_.base`` is K, ``kernel_.estimator`` is Z.
    strength_ : float
        The strength in use.
    search_ : StrengthSearch or None
        The scores of the candidate strengths on left-out points.
    definiteness_ : Definiteness
        The smallest and largest eigenvalue of the training Gram matrix, and how many are negative; computed on request
        from the recomputed matrix.
    classes_, ridge_, X_fit_, dual_coef_, jitter_, solution_status_, temperature_, n_features_in_, feature_names_in_
        As in :class:`NTKClassifier`.

    See Also
    --------
    ntkit.LabelAware : the kernel.
    NTKClassifier : without it.

    References
    ----------
    .. [1] Chen, He, Su, "Label-Aware Neural Tangent Kernel: Toward Better Generalization and Local Elasticity", 2020.

    Examples
    --------
    >>> import ntkit
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = ntkit.LabelAwareClassifier(pairs="fjlt-v1", random_state=0).fit(X[::8], y[::8])
    >>> bool(classifier.score(X[1::8], y[1::8]) > 0.9)
    True
    """

    def __init__(
        self,
        module: nn.Module | None = None,
        *,
        pairs: str | PairEstimator = "kr-v1",
        strength: float | str | Sequence[float] = "auto",
        solver: str = "exact",
        eps: float = 0.1,
        validation: int | float = 5,
        random_state: int | np.random.RandomState | None = None,
        input_shape: Sequence[int] | None = None,
        kernel: str | Kernel = "ntk",
        w_std: float | None = None,
        b_std: float | None = None,
        encoding: str = "centered",
        calibration: str | None = "cv",
        ridge: float = 0.0,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        model: nn.Module | None = DEPRECATED,
    ) -> None:
        gains: dict[str, Any] = {"w_std": w_std, "b_std": b_std}
        place: dict[str, Any] = {"dtype": dtype, "device": device}
        targets: dict[str, Any] = {"encoding": encoding, "calibration": calibration, "ridge": ridge}
        super().__init__(module, input_shape=input_shape, kernel=kernel, model=model, **gains, **place, **targets)
        self.pairs = pairs
        self.strength = strength
        self.solver: str = solver
        self.eps = eps
        self.validation = validation
        self.random_state = random_state

    def _large_solver(self) -> None:
        """Return None: the label-aware kernel needs every pair of points; ``solver`` refers to the pair regression."""
        return None

    def fit(self, X: ArrayLike, y: ArrayLike) -> LabelAwareClassifier:  # type: ignore[override]
        """Fit the label-aware kernel to the labels, then the regression.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_train, n_features), or array of shape (n_train, channels, ...)
            The inputs.
        y : array of shape (n_train,)
            Labels of one type: integers, strings, booleans.
        """
        super().fit(X, y)
        return self

    def _fit_targets(
        self, X: NDArray[Any], targets: NDArray[Any], weighting: Weighting, left_out: bool = False
    ) -> NDArray[Any] | None:
        """Fit the label-aware kernel to the classes that the targets represent, then the regression on its Gram matrix."""
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        base = build_kernel(self.kernel, self._network(), self.input_shape_, X.shape[1], self.w_std, self.b_std)
        if base is None:
            raise InputError(
                "a label-aware kernel needs the inputs, so kernel must not be 'precomputed'. Write "
                "ntkit.LabelAware(base).fit_gram(x, y, gram=...), which takes a base Gram matrix and returns the label-aware one."
            )
        ridge = check_ridge(self.ridge)  # type: ignore[arg-type]  # refuses what is not a number
        check_gram_memory(len(X), len(X), dtype, device, matrices=4, what="a fit")
        generator = torch.Generator().manual_seed(int(check_random_state(self.random_state).randint(2**31 - 1)))
        batch, y = as_batch(self, X, device), as_tensor(targets, dtype, device)
        codes = y > 0 if y.ndim == 1 else y.argmax(1)
        with torch.no_grad():
            gram = base(batch)
            aware, fit = self._regress(base, batch, codes, y, gram, self._strengths(), ridge, generator)
            predictions = None
            if left_out:
                predictions = self._cross_fit(base, batch, codes, y, gram, aware.strength, ridge, generator)
        self.kernel_: Kernel | str = aware
        self.X_fit_ = X
        self.dual_coef_ = fit.value.cpu().numpy()
        self.jitter_, self.solution_status_ = 0.0, str(fit.status)
        self.ridge_ = ridge
        self.strength_, self.search_ = aware.strength, aware.search
        return None if predictions is None else predictions.double().cpu().numpy()

    def _regress(
        self,
        base: Kernel,
        x: Tensor,
        codes: Tensor,
        y: Tensor,
        gram: Tensor,
        strength: float | Sequence[float],
        ridge: float,
        generator: torch.Generator,
    ) -> tuple[LabelAware, Solution]:
        """Return the label-aware kernel of these points, and the regression on it."""
        aware = LabelAware(
            base,
            self.pairs,
            strength,
            solver=self.solver,
            eps=self.eps,
            ridge=ridge,
            validation=self.validation,
            generator=generator,
        )
        return aware, solve(aware.fit_gram(x, codes, gram), y, method="indefinite", ridge=ridge)

    def _cross_fit(
        self,
        base: Kernel,
        x: Tensor,
        codes: Tensor,
        y: Tensor,
        gram: Tensor,
        strength: float,
        ridge: float,
        generator: torch.Generator,
    ) -> Tensor:
        """Return the scores of each point by kernel and regression without its fold, shaped like y; NaN if there are none."""
        folds = _folds(codes, generator)
        scores = torch.full_like(y, math.nan)
        for fold in range(int(folds.max()) + 1):
            held, rest = (folds == fold).nonzero()[:, 0], (folds != fold).nonzero()[:, 0]
            if len(codes[rest].unique()) < 2:
                continue  # only one class
            own = gram[rest[:, None], rest]
            aware, fit = self._regress(base, x[rest], codes[rest], y[rest], own, strength, ridge, generator)
            scores[held] = aware.from_base(gram[held[:, None], rest], x[held], x[rest]) @ fit.value
        return scores

    def _check_calibration(self) -> None:
        if self.calibration == "loo":
            warn_renamed("calibration='loo'", "calibration='cv'", stacklevel=5)
        elif self.calibration not in ("cv", None):
            raise InputError(f"calibration must be 'cv' or None. Got {self.calibration!r}.")

    @property
    def definiteness_(self) -> Definiteness:
        """The smallest and largest eigenvalue of the training Gram matrix, and how many are negative."""
        if not isinstance(getattr(self, "kernel_", None), LabelAware):
            raise NotFittedError("definiteness_ is available after fit(X, y).")
        aware: LabelAware = self.kernel_  # type: ignore[assignment]
        return aware.definiteness()

    def _strengths(self) -> float | Sequence[float]:
        if not isinstance(self.strength, str):
            return self.strength
        if self.strength != "auto":
            raise InputError(f"strength must be a number, a sequence of numbers or 'auto'. Got {shown(self.strength)}.")
        return STRENGTHS


def _folds(codes: Tensor, generator: torch.Generator) -> Tensor:
    """Assign each point to one of at most five folds, shape (n,), stratified by class."""
    drawn = torch.randperm(len(codes), generator=generator).to(codes.device)
    order = drawn[codes[drawn].to(torch.int64).sort(stable=True).indices]
    folds = torch.empty(len(codes), dtype=torch.int64, device=codes.device)
    folds[order] = torch.arange(len(codes), device=codes.device) % min(_FOLDS, len(codes))
    return folds
