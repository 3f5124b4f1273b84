"""The automatic model of tables: tangent and Laplace kernels in learnt metrics, added with weights from held-out predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ntkit._src.common import as_columns, check_choice, data_splits
from ntkit._src.features.rfm import (
    DifferentiableKernel,
    DistanceKernel,
    MetricKernel,
    MetricPart,
    MetricSum,
    RFMSettings,
)
from ntkit._src.kernels import infinite_width
from ntkit._src.solvers import cholesky
from ntkit.errors import SingularKernelError

from ._logistic import fit_logistic, one_hot
from ._rfm_choice import quiet_recursion
from ._training_data import KernelSource, default_module
from ._tuner import Choice, Tuner

_B_STD = 0.3
_DEPTHS = (1, 3)
_BANDWIDTHS = (1.0, 4.0)  # times the median distance
_METRICS = {"diagonal": (True, 1.0), "full": (False, 0.5)}  # whether M is diagonal, and the p of M = AGOP^p
_METRIC_RIDGE = 1e-2
_COARSE = tuple(10.0**power for power in range(-4, 2))
_FINE = tuple(float(10**power) for power in np.arange(-6, 2.25, 0.5))
_LEAST_FLOAT32 = 1e-4
_FEWEST_ROWS = 10  # with fewer nothing is held out
_LEAST_WEIGHT = 0.02
_DEFAULT_RIDGE = 1e-2
MANY_ROWS = (0.1, 0.3, 1.0)
"""Times the ridge that was the best for few rows: what the kernels cannot represent acts as noise there, and less so for many."""
_HELD_OUT = 0.1
_LOGISTIC = tuple(
    float(10**power) for power in np.arange(1, -5.25, -0.5)
)  # each starts from the solution of the one before
_LOGISTIC_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Effort:
    """How much the search may cost: the rows it sees, the folds, and after which updates of a metric kernels are tried."""

    rows: int
    folds: int
    updates: tuple[int, ...]
    metric_rows: int  # the final metrics are learnt from at most so many
    exact_rows: int  # of more rows Nystrom's method fits


EFFORTS = {
    "fast": Effort(400, 2, (2,), 1000, 3000),
    "default": Effort(1500, 3, (1, 3), 3000, 10_000),
    "best": Effort(3000, 8, (1, 2, 4), 6000, 20_000),
}


def read_effort(effort: str) -> Effort:
    """Return the effort of a name, or raise an error that lists the names."""
    check_choice("effort", effort, EFFORTS)
    return EFFORTS[effort]


@dataclass(frozen=True, eq=False)
class Blend:
    """What the automatic model chose, and how it predicted rows that it had not seen.

    Attributes
    ----------
    weights
        Of each kernel of the sum, by name; they add up to one.
    ridge
        Relative to trace(K)/n.
    errors
        The mean squared error of each kernel alone, with its best ridge, on rows held out; empty if nothing was held out.
    error
        That of the sum.
    rows
        The numbers of the rows that were held out in turn, shape (m,).
    folds
        In how many parts.
    predictions, variances
        Of these rows by the sum fitted to the other parts, shape (m, c); and the variances of the Gaussian process there, noise
        included, in units of its kernel, shape (m,), for numerical targets.
    logistic
        Whether it is a logistic regression: the error is the log loss, and the predictions are the scores.
    """

    weights: Mapping[str, float]
    ridge: float
    errors: Mapping[str, float]
    error: float
    rows: Tensor
    folds: int
    predictions: Tensor
    variances: Tensor
    logistic: bool = False

    def left_out(self, y: Tensor) -> Tensor:
        """Return the held-out predictions, shaped like the targets; NaN for rows that the search did not see."""
        found = torch.full_like(as_columns(y), torch.nan)
        found[self.rows.to(y.device)] = self.predictions.to(y)
        return found.reshape(y.shape)


@dataclass(frozen=True)
class BlendTuner(Tuner):
    """Kernels, their weights and the ridge by the error on rows held out in turn, of at most so many rows.

    The metrics are learnt again without the rows held out, for closed forms of leaving one out do not know that the metric has
    seen the labels. For ``classes`` the folds are stratified; with ``logistic`` the ridge is that of a logistic regression.
    """

    effort: Effort = EFFORTS["default"]
    classes: bool = False
    logistic: bool = False

    def choose_kernel(self, source: KernelSource, x: Tensor, y: Tensor, weights: Tensor | None) -> Choice:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        kernels: dict[str, MetricKernel] | None = None

        def seen(rows: int) -> tuple[_Search, Tensor, Tensor, Tensor]:
            nonlocal kernels
            chosen = order[:rows].sort().values.to(x.device)
            points = x[chosen].flatten(1).to(y.dtype)
            kernels = _kernels(points.shape[1]) if kernels is None else kernels
            center, scale = _standard(points)
            roots = None if weights is None else weights[chosen].sqrt()
            points = (points - center) * scale
            return _Search(points, as_columns(y)[chosen], roots, self.effort, kernels), center, scale, chosen

        with torch.no_grad():
            search, _, _, chosen = seen(self.effort.rows)
            enough = len(chosen) >= _FEWEST_ROWS
            found = search.blend(self.classes, self.logistic) if enough else search.fallback(self.logistic)
            search, center, scale, _ = seen(self.effort.metric_rows)
            parts = (
                replace(part, root=scale * part.root if part.root.ndim == 1 else scale[:, None] * part.root)
                for part in search.parts(found.weights)
            )
            return Choice(MetricSum(tuple(parts), center), found.ridge, record=replace(found, rows=chosen))

    @property
    def spectral(self) -> bool:
        """Whether several matrices of the size of the Gram matrix are needed."""
        return True

    def choose_ridge(self, choice: Choice, gram: Tensor, y: Tensor, unit: float = 1.0) -> Choice:
        """Choose the ridge again, on a tenth of the rows, if the search saw only some of them."""
        if self.logistic or len(gram) <= self.effort.rows:
            return choice
        ((fitted, left),) = data_splits(len(gram), _HELD_OUT, 0)
        rest, held = torch.from_numpy(fitted).to(gram.device), torch.from_numpy(left).to(gram.device)
        part, cross, targets = gram[rest][:, rest], gram[held][:, rest], as_columns(y)
        scale, errors = unit * float(gram.diagonal().double().mean()), {}
        for ridge in (factor * choice.ridge for factor in MANY_ROWS):
            lower, exists = cholesky(part, ridge * scale)
            if exists:
                found = cross @ torch.cholesky_solve(targets[rest], lower)
                errors[ridge] = float((found - targets[held]).double().square().mean())
        best = min(errors, key=lambda ridge: errors[ridge], default=choice.ridge)
        return replace(choice, ridge=best)


def _kernels(d: int) -> dict[str, MetricKernel]:
    """Return the kernels that are tried in every metric, by name."""
    kernels: dict[str, MetricKernel] = {}
    for depth in _DEPTHS:
        limit = infinite_width(default_module(d, depth), b_std=_B_STD)
        kernels[f"tangent kernel of depth {depth}"] = DifferentiableKernel(limit.ntk)
    for factor in _BANDWIDTHS:
        kernels[f"Laplace kernel of {factor:g} median distances"] = DistanceKernel("laplace", None, factor)
    return kernels


def _standard(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and one over the scale of every column: its deviation; of two values their distance; of one infinity."""
    center, low, high = x.mean(0), x.min(0).values, x.max(0).values
    two = ((x == low) | (x == high)).all(0)
    scale = torch.where(two, high - low, x.std(0, correction=0))
    return center, torch.where(high > low, 1 / torch.where(high > low, scale, 1), 0)


@dataclass(frozen=True, eq=False)
class _Search:
    """Points, shape (n, d), targets, shape (n, c), and roots of weights, shape (n,), of a search over some kernels."""

    x: Tensor
    y: Tensor
    roots: Tensor | None
    effort: Effort
    kernels: Mapping[str, MetricKernel]

    def at(self, rows: Tensor) -> _Search:
        """Return the search restricted to some rows."""
        roots = None if self.roots is None else self.roots[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], roots=roots)

    def metrics(self, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, Tensor]]:
        """Yield M^1/2 of every metric of which something is wanted, by name, of trace d: the identity and learnt ones."""
        if wanted("the plain metric"):
            yield "the plain metric", torch.ones_like(self.x[0])
        roots = None if self.roots is None else self.roots / self.roots.square().mean().sqrt()
        for kind, (diagonal, power) in _METRICS.items():
            names = {count: f"a {kind} metric of update {count}" for count in self.effort.updates}
            last = max((count for count, name in names.items() if wanted(name)), default=0)
            if last == 0:
                continue
            kernel = DistanceKernel("laplace", None)
            settings = RFMSettings(kernel, last, _METRIC_RIDGE, power, diagonal, False, "trace")
            for count, state in enumerate(quiet_recursion(self.x, self.y, settings, roots)):
                if count in names and wanted(names[count]):
                    yield names[count], state.metric.root

    def parts(self, wanted: Mapping[str, float] | None = None) -> Iterator[MetricPart]:
        """Yield every kernel in every metric, or those wanted with their weights; each is one on average over the points."""
        needed = None if wanted is None else {name.partition(" in ")[2] for name in wanted}
        for metric, root in self.metrics(lambda name: needed is None or name in needed):
            for kind, kernel in self.kernels.items():
                name = f"{kind} in {metric}"
                if wanted is None or name in wanted:
                    part = MetricPart(name, 1.0, root, kernel)
                    points = part.transform(self.x)
                    if isinstance(kernel, DistanceKernel):
                        kernel = kernel.with_median(points)
                    scale = float(kernel.diag(points).double().mean())
                    weight = 1.0 if wanted is None else wanted[name]
                    yield replace(part, kernel=kernel, weight=weight / scale if scale > 0 else weight)

    def fallback(self, logistic: bool) -> Blend:
        """Return what is used for too few rows to choose."""
        name = f"{next(reversed([one for one in self.kernels if one.startswith('tangent')]))} in the plain metric"
        nothing = torch.full_like(self.y, torch.nan)
        return Blend(
            {name: 1.0}, _DEFAULT_RIDGE, {}, torch.nan, torch.arange(len(self.y)), 0, nothing, nothing[:, 0], logistic
        )

    def blend(self, classes: bool, logistic: bool) -> Blend:
        """Choose: every kernel's ridge, then the weights of a convex combination, then the ridge of the sum."""
        codes = None
        if classes:
            codes = np.unique(self.y.cpu().numpy(), axis=0, return_inverse=True)[1].reshape(-1)
        splits = data_splits(len(self.x), self.effort.folds, 0, codes)
        folds = [tuple(torch.from_numpy(rows).to(self.x.device) for rows in split) for split in splits]
        coarse = _ridges(_COARSE, self.y.dtype)
        held: dict[str, Tensor] = {}
        found: list[list[MetricPart]] = []
        for fitted, left in folds:
            fold = self.at(fitted)
            found.append(list(fold.parts()))
            for part in found[-1]:
                kernel, tried = MetricSum((part,)), slice(None)
                if part.name in held:  # the best ridge of the first fold and its neighbours
                    first = self.at(folds[0][1]).errors(held[part.name][:, folds[0][1]]).argmin()
                    tried = slice(max(0, int(first) - 1), int(first) + 2)
                values = held.setdefault(part.name, self.y.new_full((len(coarse), *self.y.shape), torch.nan))
                values[tried, left] = fold.predict(kernel, self.x[left], coarse[tried])
        errors = {name: self.errors(values) for name, values in held.items()}
        best = {name: int(error.argmin()) for name, error in errors.items()}
        weights = self.convex({name: held[name][best[name]] for name in held})
        fine = _ridges(_LOGISTIC if logistic else _FINE, self.y.dtype)
        values, variances = self.y.new_zeros(len(fine), *self.y.shape), self.y.new_zeros(len(fine), len(self.y))
        for (fitted, left), parts in zip(folds, found, strict=True):
            chosen = [replace(one, weight=one.weight * weights[one.name]) for one in parts if one.name in weights]
            fold, kernel, spread = self.at(fitted), MetricSum(tuple(chosen)), variances[:, left]
            predict = fold.scores if logistic else fold.predict
            values[:, left] = predict(kernel, self.x[left], fine, spread)
            variances[:, left] = spread
        error = self.log_losses(values) if logistic else self.errors(values)
        ridge, where = int(error.argmin()), torch.arange(len(self.y))
        alone = {name: float(errors[name].min()) for name in errors}
        predictions, spread = values[ridge], variances[ridge]
        return Blend(weights, fine[ridge], alone, float(error[ridge]), where, len(folds), predictions, spread, logistic)

    def system(self, kernel: MetricSum, x: Tensor) -> tuple[Tensor, Tensor, float]:
        """Return S K S, K(x, X) S and the unit of ridges."""
        gram, cross = kernel(self.x), kernel(x, self.x)
        diagonal = gram.diagonal()
        if self.roots is None:
            return gram, cross, float(diagonal.mean())
        unit = float((self.roots.square() * diagonal).sum() / self.roots.square().sum())
        return self.roots[:, None] * gram * self.roots, cross * self.roots, unit

    def predict(self, kernel: MetricSum, x: Tensor, ridges: list[float], variances: Tensor | None = None) -> Tensor:
        """Return the predictions with each ridge, shape (r, m, c), NaN where K is singular; fill the variances, shape (r, m)."""
        gram, cross, unit = self.system(kernel, x)
        targets = self.y if self.roots is None else self.roots[:, None] * self.y
        prior = None if variances is None else kernel.diag(x)
        found = targets.new_full((len(ridges), len(x), targets.shape[1]), torch.nan)
        for number, ridge in enumerate(ridges):
            lower, exists = cholesky(gram, ridge * unit)
            if not exists:
                continue
            found[number] = cross @ torch.cholesky_solve(targets, lower)
            if variances is not None and prior is not None:
                half = torch.linalg.solve_triangular(lower, cross.T, upper=False)
                variances[number] = (prior - half.square().sum(0)).clamp_min(0) + ridge * unit
        return found

    def scores(self, kernel: MetricSum, x: Tensor, ridges: list[float], variances: Tensor | None = None) -> Tensor:
        """Return the scores of logistic regressions with each ridge, shape (r, m, c): the logits over the number of classes."""
        gram, cross, unit = self.system(kernel, x)
        classes, start = one_hot(self.y), None
        found = classes.new_full((len(ridges), len(x), classes.shape[1]), torch.nan)
        for number, ridge in enumerate(ridges):
            try:
                start, _ = fit_logistic(gram, classes, ridge * unit, self.roots, _LOGISTIC_TOLERANCE, start)
            except SingularKernelError:
                break  # smaller ones are no better
            found[number] = cross @ start / max(2, classes.shape[1])
        return found

    def log_losses(self, scores: Tensor) -> Tensor:
        """Return the weighted mean log losses of scores of all points, shape (r, n, c); infinite for NaN."""
        classes = one_hot(self.y)
        if classes.shape[1] == 1:
            each = torch.nn.functional.softplus(torch.where(classes > 0, -2 * scores, 2 * scores))[..., 0]
        else:
            each = -(torch.log_softmax(scores * classes.shape[1], -1) * classes).sum(-1)
        weights = torch.ones_like(each[0]) if self.roots is None else self.roots.square()
        return (each @ weights / weights.sum()).nan_to_num(nan=torch.inf)

    def errors(self, predictions: Tensor) -> Tensor:
        """Return the weighted mean squared errors of predictions of all points, shape (r, n, c); infinite for NaN."""
        squares = (predictions - self.y).square().mean(2)
        each = torch.ones_like(squares[0]) if self.roots is None else self.roots.square()
        return (squares @ each / each.sum()).nan_to_num(nan=torch.inf)

    def convex(self, predictions: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the weights, not negative and of sum 1, of the combination with the smallest squared error; none is tiny."""
        from scipy.optimize import nnls

        names = list(predictions)
        scale = torch.ones_like(self.y[:, 0]) if self.roots is None else self.roots
        columns = (
            torch.stack([(scale[:, None] * predictions[name]).flatten() for name in names], 1).double().cpu().numpy()
        )
        target = (scale[:, None] * self.y).flatten().double().cpu().numpy()
        # Sum one by a row of its own: of far more weight than all the others together.
        heavy = 1e3 * max(float(np.linalg.norm(target)), float(np.linalg.norm(columns)), 1e-300)
        usable = np.isfinite(columns).all(0)
        found = np.zeros(len(names))
        if usable.any():
            rows = np.vstack([columns[:, usable], np.full((1, int(usable.sum())), heavy)])
            found[usable] = nnls(rows, np.append(target, heavy))[0]
        if not found.sum() > 0:
            found[0] = 1.0
        found = np.where(found >= _LEAST_WEIGHT * found.sum(), found, 0)
        found /= found.sum()
        return {name: float(weight) for name, weight in zip(names, found, strict=True) if weight > 0}


def _ridges(ridges: tuple[float, ...], dtype: torch.dtype) -> list[float]:
    least = _LEAST_FLOAT32 if dtype == torch.float32 else 0.0
    return [ridge for ridge in ridges if ridge >= least]
