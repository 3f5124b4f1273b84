"""The label-aware kernel as a scikit-learn classifier."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

from ntkit._src.common import check_choice, check_gram_memory, data_splits
from ntkit._src.kernels import Kernel
from ntkit._src.labels import STRENGTHS, Definiteness, LabelAware, PairEstimator, StrengthSearch
from ntkit._src.solvers import Indefinite, Method, Solution, check_ridge, solve
from ntkit.errors import InputError

from ._inputs import check_fitted, store
from ._ntk_estimators import KernelClassifier
from ._regression import DualFit, read_method
from ._training_data import TrainingData, Weighting
from ._tuner import Choice

_FOLDS = 5


class LabelAwareClassifier(KernelClassifier):
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
    pairs : {"kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2"} or PairEstimator
        The estimator Z of "same class?". Default ``"kr-v1"``.
    strength : float, sequence of float or "auto"
        The size of the label-aware part relative to K. Of several, the one that best predicts training points left out of the
        fit is chosen; "auto" stands for those of the paper, 0.001, 0.01, 0.1 and 1. Default ``"auto"``.
    input_shape : tuple of int, optional
        The shape of one input of the module, such as ``(3, 32, 32)``, if X is flattened. Default None.
    kernel : {"ntk", "nngp"} or Kernel
        Which kernel of the module; or your own base kernel, instead of a module, such as
        ``ntkit.infinite_width(module, b_std=0.1).ntk``; or a :class:`ntkit.LabelAware` kernel, fitted or not, for all of its
        settings: base, pairs, strength, sketch and validation are then those that it was built with. Default ``"ntk"``.
    ridge : float
        r, relative to the mean size of the eigenvalues; also that of K^-1 in ``"kr-v2"`` and of the regressions that
        choose the strength. Default 0. Where A has many small eigenvalues of both signs, as with
        ``"fjlt-v1"`` and ``"fjlt-v2"`` at a large strength and few points, a solution without ridge fits
        noise: let the strength be chosen, or pass 0.01 to 0.1.
    calibration : {"cv"}, optional
        ``"cv"``: the temperature of the probabilities, ``temperature_``, is fitted to scores of models whose kernel and
        regression were fitted without the point's label, in five folds; only the strength is that of all points. (The
        leave-one-out formula would not be valid: the kernel itself has seen every label.) A fit then takes about five times as
        long. None: T = 1. Default ``"cv"``.
    class_weight, dtype, device
        As in :class:`NTKClassifier`. Weights count in the regression; Z counts every pair once.
    solver : {"auto", "cholesky", "cg", "nystrom", "falkon", "eigenpro"} or Method, optional
        As in :class:`NTKClassifier`, for the Gram matrix of all pairs, which is in memory. All of them need a positive
        semidefinite A, except :class:`ntkit.solvers.Indefinite`. Default None: that one.
    random_state : int, RandomState or None
        Seed of splits and sketches. Default None.

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

    pairs: str | PairEstimator
    strength: float | str | Sequence[float]
    ridge: float
    random_state: int | np.random.RandomState | None
    _calibrations = ("cv",)

    def __init__(
        self,
        module: nn.Module | None = None,
        *,
        pairs: str | PairEstimator = "kr-v1",
        strength: float | str | Sequence[float] = "auto",
        input_shape: Sequence[int] | None = None,
        kernel: str | Kernel = "ntk",
        ridge: float = 0.0,
        calibration: str | None = "cv",
        class_weight: Mapping[Any, float] | str | None = None,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        solver: str | Method | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        store(self, locals())

    def _solve(self, data: TrainingData) -> tuple[Choice, DualFit]:
        """Fit the label-aware kernel to the classes that the targets represent, then the regression on its Gram matrix."""
        y, ridge = data.y, check_ridge(self.ridge)
        check_gram_memory(len(y), len(y), y.dtype, y.device, matrices=4, what="a fit")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        aware = self._label_aware(data.source.kernel, ridge, seed)
        codes = (y > 0).long() if y.ndim == 1 else y.argmax(1)
        with torch.no_grad():
            gram = data.gram(aware.base)
            solution = self._regress(aware, data, codes, gram, slice(None))
            scores = None
            if data.left_out:
                scores = torch.full_like(y, math.nan)
                for split in data_splits(len(y), _FOLDS, seed, codes.cpu().numpy()):
                    rest, held = (torch.from_numpy(rows).to(y.device) for rows in split)
                    if len(codes[rest].unique()) > 1:
                        part = aware.with_strength(aware.strength)  # fitted again, to the labels of the rest
                        dual = self._regress(part, data, codes, gram[rest[:, None], rest], rest)
                        cross = part.from_base(gram[held[:, None], rest], data.points[held], data.points[rest])
                        scores[held] = cross @ dual.value
        jitter = solution.stats.get("jitter", 0.0)
        return Choice(aware, ridge), DualFit(solution.value, scores, jitter, str(solution.status))

    def _label_aware(self, base: Kernel | None, ridge: float, seed: int) -> LabelAware:
        if base is None:
            raise InputError(
                "a label-aware kernel needs the inputs, so kernel must not be 'precomputed'. Write "
                "ntkit.LabelAware(base).fit_gram(x, y, gram=...), which takes a base Gram matrix and returns the label-aware one."
            )
        if isinstance(base, LabelAware):
            return copy.copy(base)  # a fit must not change the user's object
        strength = self.strength
        if isinstance(strength, str):
            check_choice("strength", strength, ("auto",), ", a number or a sequence of numbers")
            strength = STRENGTHS
        return LabelAware(base, self.pairs, strength, ridge=ridge, generator=torch.Generator().manual_seed(seed))

    def _regress(self, aware: LabelAware, data: TrainingData, codes: Tensor, gram: Tensor, rows: Any) -> Solution:
        """Fit the label-aware kernel to some rows, whose base Gram matrix is given; return the regression on it."""
        roots = data.weighting.roots
        weighting = Weighting(None if roots is None else roots[rows])
        system = aware.fit_gram(data.points[rows], codes[rows], gram)
        unit = weighting.ridge_unit(system.diagonal())
        system, columns = weighting.apply_to_gram(system, owned=True), weighting.scale(data.y[rows])
        method = Indefinite() if self.solver is None else read_method(self.solver)
        found = solve(system, columns, method=method, ridge=unit * self.ridge)
        value = found.value
        if found.centres is not None:
            value = torch.zeros_like(columns)
            value[found.centres.to(value.device)] = found.value
        return replace(found, value=weighting.scale(value), centres=None)

    @property
    def _fitted_kernel(self) -> LabelAware:
        check_fitted(self)
        assert isinstance(self.kernel_, LabelAware)
        return self.kernel_

    @property
    def strength_(self) -> float:
        """The strength in use."""
        return self._fitted_kernel.strength

    @property
    def search_(self) -> StrengthSearch | None:
        """The scores of the candidate strengths on left-out points; None if there was one strength."""
        return self._fitted_kernel.search

    @property
    def definiteness_(self) -> Definiteness:
        """The smallest and largest eigenvalue of the training Gram matrix, and how many are negative."""
        return self._fitted_kernel.definiteness()
