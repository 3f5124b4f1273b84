"""The label-aware kernel by regression on pairs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from ntkit._src.common import (
    check_batches,
    check_choice,
    check_generator,
    check_labels,
    check_number,
    check_pairs,
    class_numbers,
)
from ntkit._src.kernels import Kernel
from ntkit._src.solvers import check_gram, check_ridge
from ntkit.errors import InputError, InputTypeError, NotFittedError

from ._pair_regression import KernelRegression, PairRegression
from ._pairs import PairEstimator, Pairs
from ._strength import StrengthSearch, choose_strength, mean_ratio

# Rounding moves the eigenvalues of an n x n matrix, n up to some thousands, by a few eps times the largest.
_ROUNDING = 10.0


@dataclass(frozen=True)
class Definiteness:
    """The smallest and largest eigenvalue of a Gram matrix, and how many are negative by more than rounding."""

    smallest: float
    largest: float
    negative: int


def definiteness(gram: Tensor) -> Definiteness:
    """Find the smallest eigenvalue of a Gram matrix, shape (n, n), in float64, and how many are negative.

    All are computed: iterations for the smallest take as long, because the low end of a kernel's spectrum is crowded.
    """
    matrix = check_gram(gram).detach()
    values = torch.linalg.eigvalsh(matrix.double())
    rounding = _ROUNDING * torch.finfo(matrix.dtype).eps * float(values.abs().max())
    return Definiteness(float(values[0]), float(values[-1]), int((values < -rounding).sum()))


STRENGTHS = (0.001, 0.01, 0.1, 1.0)
"""The candidates of section D.3 of the paper."""

_NAMES = ("kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2")
_DIAGONAL_ROWS = 16


@dataclass(frozen=True)
class _Fit:
    """The result of a fit: the estimator Z, the strength, lambda over the strength, the search, the training inputs."""

    estimator: PairEstimator
    strength: float
    unit: float
    search: StrengthSearch | None
    x: Tensor


class LabelAware(Kernel):
    r"""The label-aware kernel of Chen, He and Su [1]_ by higher-order regression, over any base kernel.

    .. math:: K^{(HR)}(x, x') = K(x, x') + \lambda\, Z(x, x'), \qquad
              \lambda = \text{strength} \cdot \frac{\operatorname{mean} |K|}{\operatorname{mean} |Z|}

    Z, fitted to the training pairs, estimates whether two inputs have the same class: :math:`y_i y_j` with labels -1 and 1 for
    two classes, :math:`1\{y_i = y_j\}` for more. The means are over all ordered training pairs. Every entry, for training and
    test points and on the diagonal, comes from the same Z(x, x'); true labels never replace it.

    Z is symmetric but need not be positive semidefinite, nor need the sum: :meth:`definiteness` returns its smallest
    eigenvalue. Kernel regression solves the indefinite system as it is, ``ntkit.solve(gram, y, method="indefinite")``:
    adding to the diagonal what would make it definite hides the kernel behind a multiple of the identity. Gradient flow and
    Gaussian processes need a positive semidefinite kernel, and refuse the sum if it is not. Pair features are those of
    flattened inputs.

    Parameters
    ----------
    base : Kernel
        K.
    pairs : {"kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2"} or PairEstimator, default "kr-v1"
        Z. ``"kr-v1"``, ``"kr-v2"``: kernel regression on K alone, with the labels or with K^-1 times the labels as weights.
        ``"fjlt-v1"``: linear regression on ten features of a pair. ``"fjlt-v2"``: also on those of the first five principal
        components. Or your own estimator, an object with the two methods of :class:`ntkit.labels.PairEstimator`; it is copied
        before each fit.
    strength : float or sequence of floats, default 0.1
        The size of the label-aware part relative to the base kernel. Of several, :meth:`fit` chooses the one that best predicts
        training points left out of the fit; test data play no role.
    solver : {"exact", "fjlt"}, default "exact"
        Solver of the linear regression: over all pairs, streamed; or the sketch of the paper.
    eps : float, default 0.1
        The relative accuracy of the sketch.
    ridge : float, default 0
        Of K^-1 in ``"kr-v2"``, relative to trace(K)/n, and of the kernel regressions that choose a strength, as in
        :class:`ntkit.solvers.Indefinite`.
    validation : int or float, default 5
        How several strengths are compared: the number of folds of a cross-validation, or the fraction of the training points
        in a single validation set. Either way the splits are stratified by class.
    generator : torch.Generator, optional
        Generator of splits and sketches, on the CPU. Default None, torch's global one.

    See Also
    --------
    ntkit.LabelAwareClassifier : The same as a scikit-learn estimator.
    ntkit.TangentHierarchy : The label-aware kernel of a network during training.
    ntkit.alignment : How well a kernel agrees with labels.

    References
    ----------
    .. [1] Chen, He, Su, "Label-Aware Neural Tangent Kernel: Toward Better Generalization and Local Elasticity", 2020,
       sections 2.1 and D.3.

    Examples
    --------
    >>> import torch, ntkit
    >>> x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> y = x[:, 0] * x[:, 1] > 0
    >>> base = ntkit.infinite_width(torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))).ntk
    >>> kernel = ntkit.LabelAware(base, pairs="fjlt-v1", strength=0.1).fit(x[:30], y[:30])
    >>> kernel(x[30:], x[:30]).shape
    torch.Size([10, 30])

    Pass the base kernel to compute it only once:

    >>> gram = base(x[:30])
    >>> aware = ntkit.LabelAware(base, pairs="kr-v1").fit_gram(x[:30], y[:30], gram=gram)
    >>> bool(abs((aware - gram).abs().mean() / gram.abs().mean() - 0.1) < 1e-12)
    True
    """

    def __init__(
        self,
        base: Kernel,
        pairs: str | PairEstimator = "kr-v1",
        strength: float | Sequence[float] = 0.1,
        *,
        solver: str = "exact",
        eps: float = 0.1,
        ridge: float = 0.0,
        validation: int | float = 5,
        generator: torch.Generator | None = None,
    ) -> None:
        if not isinstance(base, Kernel):
            raise InputTypeError(
                f"base must be an ntkit Kernel. Got {type(base).__name__}: write ntkit.infinite_width(module).ntk, or wrap your "
                "function in a subclass of ntkit.Kernel."
            )
        if isinstance(pairs, str) or not isinstance(pairs, PairEstimator):
            check_choice("pairs", pairs, _NAMES, ", or an object with methods fit(pairs, labels) and __call__(pairs)")
        check_choice("solver", solver, ("exact", "fjlt"))
        check_number("eps", eps, most=1, positive=True)
        check_generator(generator)
        self._base, self._pairs, self._strengths, self._solver = base, pairs, _check_strengths(strength), solver
        self._eps, self._ridge, self._validation, self._generator = eps, check_ridge(ridge), validation, generator
        self._fit: _Fit | None = None

    def fit(self, x: Tensor, y: Tensor, gram: Tensor | LinearOperator | None = None) -> LabelAware:
        """Fit the estimator of "same class?" to all pairs of training points, and choose the strength if there are several.

        Parameters
        ----------
        x : Tensor of shape (n, ...)
            The training inputs, float32 or float64; kept by reference.
        y : Tensor of shape (n,)
            Their classes: any numbers, usually at least two; with only one, every pair has the same class, and Z says just that.
        gram : Tensor of shape (n, n), optional
            The base Gram matrix of x, if it is already known.
        """
        self.fit_gram(x, y, gram)
        return self

    def fit_gram(self, x: Tensor, y: Tensor, gram: Tensor | LinearOperator | None = None) -> Tensor:
        """Fit, and return the label-aware Gram matrix of the training points, shape (n, n), which the fit computes anyway.

        The parameters are those of :meth:`fit`.
        """
        check_batches(x, None)
        with torch.no_grad():
            k = self._base(x) if gram is None else gram.to_dense() if isinstance(gram, LinearOperator) else gram
            _check_block("gram" if gram is not None else "base(x)", k, x, x)
            pairs = Pairs(x.detach(), None, check_gram(k).detach())
            codes, labels = _labels(y, x)
            search = None
            if len(self._strengths) > 1:
                how = self._ridge, self._validation, self._generator
                search = choose_strength(pairs, labels, codes, self._estimator, self._strengths, *how)
            estimator = self._estimator()
            estimator.fit(pairs, labels)
            z = _check_values(estimator(pairs), pairs.k)
            strength = self._strengths[0] if search is None else search.strength
            self._fit = _Fit(estimator, strength, mean_ratio(pairs.k, z), search, x)
            return z.mul(self.weight).add_(pairs.k)

    def _estimator(self) -> PairEstimator:
        if not isinstance(self._pairs, str):
            return copy.deepcopy(self._pairs)
        family, version = self._pairs.split("-")
        if family == "kr":
            return KernelRegression(version == "v2", self._ridge)
        return PairRegression(version == "v2", self._solver, self._eps, self._generator)

    @property
    def base(self) -> Kernel:
        """The base kernel K."""
        return self._base

    @property
    def estimator(self) -> PairEstimator:
        """Z, fitted."""
        return self._fitted.estimator

    @property
    def strength(self) -> float:
        """The strength in use, the chosen one of several."""
        return self._fitted.strength

    @property
    def weight(self) -> float:
        """The factor lambda of Z."""
        return self._fitted.strength * self._fitted.unit

    @property
    def search(self) -> StrengthSearch | None:
        """The scores of the candidate strengths; None if only one was given."""
        return self._fitted.search

    def with_strength(self, strength: float) -> LabelAware:
        """Return this fitted kernel with another strength, without refitting."""
        (value,) = _check_strengths(strength)
        other = copy.copy(self)
        other._strengths, other._fit = (value,), replace(self._fitted, strength=value, search=None)
        return other

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return K(x1_i, x2_j) + lambda Z(x1_i, x2_j), shape (n1, n2)."""
        self._check_inputs(x1, x2)
        return self.from_base(self._base(x1, x2), x1, x2)

    def from_base(self, k: Tensor, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return the label-aware kernel, shape (n1, n2), from the base kernel k of the same shape.

        Without x2, k is the Gram matrix of x1.
        """
        return k + self._label_part(k, x1, x2)

    def label_part(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return only the label-aware part, lambda Z(x1_i, x2_j), shape (n1, n2)."""
        self._check_inputs(x1, x2)
        return self._label_part(self._base(x1, x2), x1, x2)

    def diag(self, x: Tensor) -> Tensor:
        """Return K(x_i, x_i) + lambda Z(x_i, x_i), shape (n,)."""
        self._check_inputs(x, None)
        k = self._base.diag(x)
        parts = []
        for rows, values in zip(x.split(_DIAGONAL_ROWS), k.split(_DIAGONAL_ROWS), strict=True):
            # Each entry depends only on its own pair, so off-diagonal entries may have any base kernel.
            block = values[:, None].expand(len(rows), len(rows))
            parts.append(self.estimator(Pairs(rows, rows, block)).diagonal())
        return k + self.weight * torch.cat(parts)

    def definiteness(self, gram: Tensor | None = None) -> Definiteness:
        """Return the smallest and largest eigenvalue of the training Gram matrix, and how many are negative.

        Parameters
        ----------
        gram : Tensor of shape (n, n), optional
            The result of :meth:`fit_gram`; None recomputes it.
        """
        with torch.no_grad():
            return definiteness(self(self._fitted.x) if gram is None else gram)

    @property
    def _fitted(self) -> _Fit:
        if self._fit is None:
            raise NotFittedError("this LabelAware kernel has seen no labels yet: call fit(x, y) first.")
        return self._fit

    def _check_inputs(self, x1: Tensor, x2: Tensor | None) -> None:
        known = self._fitted.x
        check_batches(x1, x2)
        if x1.shape[1:] != known.shape[1:]:
            raise InputError(
                f"inputs must have the shape of the training inputs except for the batch, {tuple(known.shape[1:])}. "
                f"Got {tuple(x1.shape[1:])}."
            )

    def _label_part(self, k: Tensor, x1: Tensor, x2: Tensor | None) -> Tensor:
        self._check_inputs(x1, x2)
        _check_block("k", k, x1, x1 if x2 is None else x2)
        return self.weight * _check_values(self.estimator(Pairs(x1, x2, k)), k)


def _labels(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numbers of the classes, shape (n,), and the matrix whose products are the targets of pairs, float64."""
    check_labels("y", y, len(x), x.device)
    codes, _, count = class_numbers(y)
    if y.is_floating_point() and count > 2 and not torch.equal(y, y.round()):
        raise InputError(
            f"y must hold classes, two numbers of any kind or more of them that are whole. Got {count} different fractions: "
            "is this a regression target?"
        )
    if count <= 2:  # with one class the product of any two labels is 1, whatever their sign
        return codes, (2.0 * codes.double() - 1)[:, None]
    return codes, torch.nn.functional.one_hot(codes, count).double()


def _check_strengths(strength: float | Sequence[float]) -> tuple[float, ...]:
    given = strength if isinstance(strength, Sequence) and not isinstance(strength, str) else [strength]
    if not given:
        raise InputError("strength must be a number or a sequence of them. Got an empty sequence.")
    return tuple(check_number("strength", value, 0) for value in given)


def _check_block(name: str, k: Tensor, x1: Tensor, x2: Tensor) -> None:
    check_pairs(k, (len(x1), len(x2)), f"{name}, the base kernel of the inputs,")
    if k.dtype != x1.dtype or k.device != x1.device:
        raise InputTypeError(
            f"{name} must have the dtype and device of the inputs, {x1.dtype} on {x1.device}. Got {k.dtype} on {k.device}: write "
            f"{name}.to(x)."
        )


def _check_values(z: Tensor, k: Tensor) -> Tensor:
    if not isinstance(z, Tensor) or z.shape != k.shape or z.dtype != k.dtype or z.device != k.device:
        got = f"{z.dtype} of shape {tuple(z.shape)} on {z.device}" if isinstance(z, Tensor) else type(z).__name__
        raise InputError(
            f"the estimator of pairs must return {k.dtype} of shape {tuple(k.shape)} on {k.device}, like pairs.k. Got {got}."
        )
    if not bool(torch.isfinite(z.detach()).all()):
        raise InputError(
            "the estimator of pairs returned NaN or infinite values; check the inputs, and the estimator if it is yours."
        )
    return z
