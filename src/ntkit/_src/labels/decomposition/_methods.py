"""The three methods of a Hoeffding decomposition: all label vectors, only pairs of labels, and random label vectors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ntkit._src.common import Progress
from ntkit.errors import InputError, InputTypeError

from ._label_law import LabelLaw

Values = Callable[[Tensor], Tensor]
Found = dict[str, Tensor]
"""mean (s,), first (n, c-1, s), second (n, n, c-1, c-1, s), levels (4, s), and what else a method provides."""


class Evaluator:
    """The kernel's values as rows of float64 numbers, checked."""

    def __init__(self, values: Values, law: LabelLaw, total: int, progress: Progress | None) -> None:
        self._values, self._law, self._total, self._progress = values, law, total, progress
        self.shape: torch.Size | None = None
        self.eps = torch.finfo(torch.float64).eps
        self.evaluations = 0

    def __call__(self, numbers: Tensor) -> Tensor:
        """Evaluate at vectors of class numbers, shape (m, n), one after the other; shape (m, s)."""
        return torch.stack([self._one(row) for row in numbers])

    def _one(self, numbers: Tensor) -> Tensor:
        with torch.no_grad():
            value = self._values(self._law.labels(numbers))
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise InputTypeError(
                f"values must return a floating-point tensor of kernel values. Got {type(value).__name__}"
                f"{f' of {value.dtype}' if isinstance(value, Tensor) else ''}."
            )
        if self.shape is None:
            self.shape = value.shape
            self.eps = torch.finfo(value.dtype).eps
        if value.shape != self.shape or value.numel() == 0:
            raise InputError(
                f"values must return the same shape for all labels, with at least one entry. Got {tuple(self.shape)} and then "
                f"{tuple(value.shape)}."
            )
        if not bool(torch.isfinite(value).all()):
            raise InputError(
                f"values returned NaN or infinite numbers for the labels {self._law.labels(numbers).tolist()}."
            )
        self.evaluations += 1
        if self._progress is not None:
            self._progress(self.evaluations, self._total)
        return value.reshape(-1).to(device=self._law.probabilities.device, dtype=torch.float64)


def by_enumeration(evaluate: Evaluator, law: LabelLaw) -> Found:
    """Evaluate at all c^n label vectors and transform along one label after the other (Walsh-Hadamard for fair coins)."""
    numbers = law.every()
    values = evaluate(numbers)
    n, c, s = law.size, law.classes, values.shape[1]
    coefficients = values
    for i, matrix in enumerate(law.analysis()):
        axes = coefficients.reshape(c**i, c, -1)
        coefficients = torch.einsum("ka,pas->pks", matrix, axes)
    coefficients = coefficients.reshape(-1, s)
    level = (numbers > 0).sum(1)  # each digit of a coefficient's index is a function of one label; 0 is the constant
    place = c ** torch.arange(n - 1, -1, -1, device=numbers.device)
    alphas = torch.arange(1, c, device=numbers.device)
    first = coefficients[place[:, None] * alphas]
    second = coefficients.new_zeros(n, n, c - 1, c - 1, s)
    for i in range(n):
        for j in range(i + 1, n):
            block = coefficients[place[i] * alphas[:, None] + place[j] * alphas]
            second[i, j], second[j, i] = block, block.transpose(0, 1)
    norms = [coefficients[level == r].square().sum(0) for r in range(3)] + [coefficients[level > 2].square().sum(0)]
    mean = coefficients[0]
    # Orthogonality is measured on the parts as functions of the labels, not on their coefficients.
    design = law.design(numbers)
    parts = [mean.expand_as(values), torch.einsum("mia,ias->ms", design, first), second_part(design, second)]
    stacked = torch.stack([*parts, values - parts[0] - parts[1] - parts[2]])
    inner = torch.einsum("m,rms,qms->rq", law.weights(numbers), stacked, stacked) / s
    return {"mean": mean, "first": first, "second": second, "levels": torch.stack(norms), "inner_products": inner}


def by_pairs(evaluate: Evaluator, law: LabelLaw, checks: int, tolerance: float | None) -> Found:
    """Expand the function around one label vector: exact for sums of functions of at most two labels each.

    K(y) = K(e) + sum_i D_i(y_i) + sum_{i<j} D_ij(y_i, y_j), with D the differences caused by changing one label of e, and then
    another. Each D is then projected separately.
    """
    n, c = law.size, law.classes
    anchor = torch.arange(n, device=law.probabilities.device) % c  # contains every class, as far as n allows
    base = evaluate(anchor[None])[0]
    s = len(base)
    single = base.new_zeros(n, c, s)
    for i in range(n):
        for a in range(c):
            if a != int(anchor[i]):
                single[i, a] = evaluate(_changed(anchor, (i, a))[None])[0] - base
    analysis = law.analysis()
    mean = base + torch.einsum("ia,ias->s", law.probabilities, single)
    first = torch.einsum("ika,ias->iks", analysis[:, 1:], single)
    second = base.new_zeros(n, n, c - 1, c - 1, s)
    double = base.new_zeros(c, c, s)
    for i in range(n):
        for j in range(i + 1, n):
            double.zero_()
            for a in range(c):
                for b in range(c):
                    if a != int(anchor[i]) and b != int(anchor[j]):
                        value = evaluate(_changed(anchor, (i, a), (j, b))[None])[0]
                        double[a, b] = value - base - single[i, a] - single[j, b]
            block = torch.einsum("ka,lb,abs->kls", analysis[i], analysis[j], double)
            mean = mean + block[0, 0]
            first[i] += block[1:, 0]
            first[j] += block[0, 1:]
            second[i, j], second[j, i] = block[1:, 1:], block[1:, 1:].transpose(0, 1)
    norms = mean.square(), first.square().sum((0, 1)), 0.5 * second.square().sum((0, 1, 2, 3)), torch.zeros_like(mean)
    found = {"mean": mean, "first": first, "second": second, "levels": torch.stack(norms)}
    _check_pairs(evaluate, law, found, checks, tolerance)
    return found


def _check_pairs(evaluate: Evaluator, law: LabelLaw, found: Found, checks: int, tolerance: float | None) -> None:
    # These vectors only test the assumption and enter no result: a fixed seed suffices.
    numbers = law.draw(checks, torch.Generator().manual_seed(law.size))
    values, design = evaluate(numbers), law.design(numbers)
    linear = found["mean"] + torch.einsum("mia,ias->ms", design, found["first"])
    rest = values - linear - second_part(design, found["second"])
    worst, scale = float(rest.abs().max()), float(values.abs().max())
    # Rounding of n^2 / 2 second differences, which add up like a random walk.
    allowed = (tolerance if tolerance is not None else max(1e-8, 100 * law.size * evaluate.eps)) * scale
    if worst > allowed:
        raise InputError(
            f'method="quadratic" needs a function without joint effects of three labels or more. Got a difference of '
            f"{worst:.2e} from its quadratic part where {allowed:.1e} is rounding (largest value {scale:.2e}). "
            'Use method="monte-carlo", or fix what else depends on the labels, such as the strength of a label-aware kernel.'
        )


def by_sampling(evaluate: Evaluator, law: LabelLaw, n_samples: int, generator: torch.Generator) -> Found:
    r"""Estimate from random label vectors, without bias, with standard errors.

    The squared norm of level r is :math:`\mathrm{E}\, K(y) K(y') W_r(y, y')` over two independent label vectors, with
    :math:`W_r = \sum_{|A| = r} \prod_{i \in A} \kappa_i` and :math:`\kappa_i = 1\{y_i = y_i'\} / P(y_i) - 1`: a U-statistic,
    whose error comes from the jackknife. For r > 0 the mean of the draws is subtracted from K first, which preserves the
    expectation up to the factor 1 - 2/N + 2/N^2 and removes the noise of the level below.
    """
    count = n_samples
    numbers = law.draw(count, generator)
    values, design = evaluate(numbers), law.design(numbers)
    mean = values.mean(0)
    rest = values - mean
    first = torch.einsum("mia,ms->ias", design, rest) / (count - 1)
    second = _moments(design, rest) / (count - 1)
    squares = rest.square()
    spread_first = torch.einsum("mia,ms->ias", design.square(), squares) / count - first.square()
    spread_second = _moments(design.square(), squares) / count - second.square()
    found = {"mean": mean, "first": first, "second": second}
    found["mean_error"] = rest.std(0) / count**0.5
    found["first_error"] = (spread_first.clamp(min=0) / count).sqrt()
    found["second_error"] = (spread_second.clamp(min=0) / count).sqrt()
    estimates, omitted = [], []
    unbiased = 1 - 2 / count + 2 / count**2
    factors = (1.0, unbiased, unbiased)
    for data, weights, factor in zip((values, rest, rest), _weights(law, numbers), factors, strict=True):
        rows = data * (weights @ data) / factor
        total = rows.sum(0)
        estimates.append(total / (count * (count - 1)))
        omitted.append((total - 2 * rows) / ((count - 1) * (count - 2)))
    variance = squares.sum(0) / (count - 1)
    estimates.append(variance - estimates[1] - estimates[2])
    without = ((count - 1) * variance - squares * count / (count - 1)) / (count - 2)
    omitted.append(without - omitted[1] - omitted[2])
    found["levels"] = torch.stack(estimates)
    found["levels_error"] = torch.stack([one.std(0, correction=0) * (count - 1) ** 0.5 for one in omitted])
    return found


def _weights(law: LabelLaw, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return W_0, W_1 and W_2 of all pairs of draws, zero on the diagonal."""
    inverse = 1 / law.probabilities
    one_hot = torch.nn.functional.one_hot(numbers, law.classes).to(inverse)
    hits = one_hot.flatten(1)
    # sum kappa_i, and sum kappa_i^2 with kappa^2 = 1{y = y'} (1/p^2 - 2/p) + 1
    once = (one_hot * inverse).flatten(1) @ hits.T - law.size
    squares = (one_hot * (inverse.square() - 2 * inverse)).flatten(1) @ hits.T + law.size
    weights = (torch.ones_like(once), once, 0.5 * (once.square() - squares))
    for one in weights:
        one.fill_diagonal_(0)
    return weights


def _moments(design: Tensor, values: Tensor) -> Tensor:
    """Return the sums over draws of phi_i phi_j K for i != j, shape (n, n, c - 1, c - 1, s)."""
    n, functions = design.shape[1:]
    flat = design.flatten(1)
    sums = torch.stack([flat.T @ (flat * column[:, None]) for column in values.T], -1)
    result = sums.reshape(n, functions, n, functions, -1).permute(0, 2, 1, 3, 4).contiguous()
    result[torch.arange(n), torch.arange(n)] = 0
    return result


def second_part(design: Tensor, second: Tensor) -> Tensor:
    """Return the sum over pairs i < j of second-order parts, shape (m, s), from phi of (m, n, c - 1) labels."""
    return 0.5 * torch.einsum("mia,mjb,ijabs->ms", design, design, second)


def _changed(numbers: Tensor, *changes: tuple[int, int]) -> Tensor:
    result = numbers.clone()
    for i, a in changes:
        result[i] = a
    return result
