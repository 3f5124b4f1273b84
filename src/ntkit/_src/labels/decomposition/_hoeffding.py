"""Hoeffding's decomposition of a label-aware kernel into parts that depend on no label, on one, on two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ntkit._src.common import Progress, check_choice, check_integer
from ntkit.errors import InputError, InputTypeError

from ._label_law import LabelLaw, label_law, number_of_vectors
from ._methods import Evaluator, Values, by_enumeration, by_pairs, by_sampling, second_part

_MOST_ENUMERATED = 2**14
_CHECKS = 8

Method = Literal["auto", "enumerate", "quadratic", "monte-carlo"]


@dataclass(frozen=True, eq=False)
class Hoeffding:
    r"""A function of independent labels as a sum of orthogonal parts, as :func:`hoeffding` returns it.

    S stands for the shape of the function's values (a kernel matrix, or its entries at chosen pairs), n for the number of
    labels, c for the number of classes. Everything is float64.

    Attributes
    ----------
    mean
        Level 0, :math:`\mathrm{E}\, K`, label-agnostic, shape S.
    first
        Coefficients of level 1, shape (n, c - 1, \*S): :math:`K_i(y_i) = \sum_\alpha` ``first[i, alpha]``
        :math:`\varphi_{i\alpha}(y_i)`.
    second
        Coefficients of level 2, shape (n, n, c - 1, c - 1, \*S), zero for i = j: :math:`K_{ij}(y_i, y_j) = \sum_{\alpha\beta}`
        ``second[i, j, alpha, beta]`` :math:`\varphi_{i\alpha}(y_i) \varphi_{j\beta}(y_j)`, the same part for (i, j) and (j, i).
    levels
        Squared norms :math:`\mathrm{E} P^2` of levels 0, 1, 2 and of all higher levels together, shape (4, \*S). They
        add up to :math:`\mathrm{E} K^2`. Estimates are unbiased, and so may be slightly negative.
    law
        The labels: ``law.probabilities`` of shape (n, c), and ``law.functions``, the orthonormal :math:`\varphi`. For two
        classes :math:`\varphi_{i1}(y) = (y - \mathrm{E} y_i) / \mathrm{std}\, y_i`.
    method
        ``"enumerate"``, ``"quadratic"`` or ``"monte-carlo"``.
    evaluations
        Number of calls of the function.
    errors
        Standard errors of an estimate: ``"mean"``, ``"first"``, ``"second"``, ``"levels"``, shaped like those. Empty if exact.
    inner_products
        :math:`\mathrm{E} P_r P_q` of the parts (levels 0, 1, 2, above), averaged over S, shape (4, 4), as measured over all label
        vectors: diagonal, up to rounding. None for the other methods, whose parts are orthogonal by their basis.
    """

    mean: Tensor
    first: Tensor
    second: Tensor
    levels: Tensor
    law: LabelLaw
    method: str
    evaluations: int
    errors: dict[str, Tensor]
    inner_products: Tensor | None

    @property
    def shares(self) -> Tensor:
        """The fractions of E K^2, summed over S, in levels 0, 1, 2 and above, shape (4,)."""
        sums = self.levels.reshape(4, -1).sum(1)
        if not float(sums.sum()) > 0:
            raise InputError("the function is zero for all labels: no level has a share of it.")
        return sums / sums.sum()

    @property
    def variance_shares(self) -> Tensor:
        """The fractions of the variance over labels, summed over S, in levels 1, 2 and above, shape (3,)."""
        sums = self.levels.reshape(4, -1).sum(1)
        # A label-agnostic kernel varies only by rounding.
        if not float(sums[1:].sum()) > 1e-24 * float(sums.sum()):
            raise InputError("the function does not depend on the labels: there is no variance to share out.")
        return sums[1:] / sums[1:].sum()

    def part(self, level: Literal[0, 1, 2], labels: Tensor) -> Tensor:
        r"""Return the part of one level at one label vector, shape (n,) to S, or at many, (m, n) to (m, \*S).

        Parameters
        ----------
        level
            0, 1 or 2. The remainder of the function is its part of higher levels.
        labels
            -1 and +1, or class numbers, as passed to the function.
        """
        if check_integer("level", level, 0) > 2:
            raise InputError(f"level must be 0, 1 or 2. Got {level!r}.")
        numbers = self.law.numbers(labels)
        design = self.law.design(numbers.reshape(-1, self.law.size))
        if level == 0:
            values = self.mean.reshape(1, -1).expand(len(design), -1)
        elif level == 1:
            values = torch.einsum("mia,ias->ms", design, self.first.reshape(*self.first.shape[:2], -1))
        else:
            values = second_part(design, self.second.reshape(*self.second.shape[:4], -1))
        return values.reshape((*labels.shape[:-1], *self.mean.shape))

    def first_order(self, i: int) -> Tensor:
        r"""Return K_i(y_i) for every class of label i, shape (c, \*S), ascending classes."""
        return torch.einsum("ka,k...->a...", self.law.functions[i, 1:], self.first[i])

    def second_order(self, i: int, j: int) -> Tensor:
        r"""Return K_ij(y_i, y_j) for every pair of classes, shape (c, c, \*S)."""
        functions = self.law.functions[:, 1:]
        return torch.einsum("ka,lb,kl...->ab...", functions[i], functions[j], self.second[i, j])

    def __repr__(self) -> str:
        shares = ", ".join(f"{100 * float(share):.3g}%" for share in self.shares)
        return f"Hoeffding({self.method}, {self.law.size} labels, levels 0, 1, 2, above: {shares} of E K^2)"


def hoeffding(
    values: Values,
    n: int,
    eta: float | Tensor | None = None,
    *,
    method: Method = "auto",
    n_samples: int = 1024,
    generator: torch.Generator | None = None,
    tolerance: float | None = None,
    progress: Progress | None = None,
) -> Hoeffding:
    r"""Decompose a label-aware kernel into parts that depend on no label, on one, on two, and on more.

    Given the points, labels are independent with :math:`P(y_i = +1) = \eta_i`. Every function of them is a sum of orthogonal
    parts (Hoeffding 1948; Chen, He, Su 2020 [1]_, Lemma 2.2),

    .. math:: K(x, x', S) = K_\emptyset(x, x') + \sum_i K_i(x, x', y_i) + \sum_{i < j} K_{ij}(x, x', y_i, y_j) + \dots,
              \qquad \mathrm{E}[K_A \mid y_B] = 0 \text{ for all } B \text{ with } |B| < |A|.

    The label-aware kernels of pairwise regression (of fixed strength) and of the tangent hierarchy are quadratic in the
    labels: they end at the second level.

    Parameters
    ----------
    values : callable
        Maps labels, shape (n,), to kernel values of any fixed shape S. Labels are float64 -1 and +1, or int64 0, ..., c - 1 if
        ``eta`` has c columns. It must return the same values for the same labels, even if it uses random numbers. For a
        label-aware kernel use ``ntkit.labels.function_of_labels(LabelAware(base).fit(x, y), x, x1, x2)``, which is quadratic
        in the labels. ``lambda y: LabelAware(base).fit(x, y)(x1, x2)`` is not: each fit chooses :math:`\lambda` by the size of Z.
    n : int
        The number of labels.
    eta : float or Tensor, optional
        :math:`P(y_i = +1)`: one number or shape (n,), 1/2 if not given; or the probabilities of c classes, shape (n, c). Strictly
        between 0 and 1.
    method : {"auto", "enumerate", "quadratic", "monte-carlo"}, default "auto"
        ``"enumerate"``: exact, all :math:`c^n` label vectors. ``"quadratic"``: exact for functions without joint effects of three
        labels, from :math:`1 + n (c - 1) + n (n - 1) (c - 1)^2 / 2` evaluations, and an error for others (8 more evaluations
        test it). ``"monte-carlo"``: unbiased, with standard errors, for any function. ``"auto"``: ``"enumerate"`` up to 16,384
        label vectors, beyond that ``"monte-carlo"``.
    n_samples, generator
        For Monte Carlo: the number of label vectors, at least 4 (default 1024), and their generator, on the CPU (default None,
        an error for Monte Carlo). The error of level 2 falls as
        n / n_samples, so take many more samples than labels.
    tolerance : float, optional
        For ``"quadratic"``: how far, relative to the largest value, the function may be from its quadratic part. None
        (default) allows only for rounding.
    progress : callable, optional
        Called after each evaluation with the number done and the total. Default None.

    Returns
    -------
    Hoeffding

    See Also
    --------
    ntkit.labels.function_of_labels : A label-aware kernel as a function of the labels.
    ntkit.plots.plot_levels : Draws the shares of the levels.

    References
    ----------
    .. [1] Chen, He, Su, "Label-Aware Neural Tangent Kernel: Toward Better Generalization and Local Elasticity", 2020.

    Examples
    --------
    >>> import torch, ntkit
    >>> found = ntkit.hoeffding(lambda y: 3 + 2 * y[0] + y[0] * y[1] + y[0] * y[1] * y[2], n=3)
    >>> found
    Hoeffding(enumerate, 3 labels, levels 0, 1, 2, above: 60%, 26.7%, 6.67%, 6.67% of E K^2)
    >>> found.levels
    tensor([9., 4., 1., 1.], dtype=torch.float64)
    >>> found.part(1, torch.tensor([-1.0, 1.0, 1.0]))
    tensor(-2., dtype=torch.float64)

    A label-aware kernel on four points, with fixed :math:`\lambda` and refitted to each label vector:

    >>> from torch import nn
    >>> x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> base = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))).ntk
    >>> kernel = ntkit.LabelAware(base, strength=0.5).fit(x, torch.tensor([1.0, -1.0, 1.0, -1.0]))
    >>> held = ntkit.hoeffding(ntkit.labels.function_of_labels(kernel, x, x), 4, method="quadratic")
    >>> anew = ntkit.hoeffding(lambda y: ntkit.LabelAware(base, strength=0.5).fit(x, y)(x), 4)
    >>> bool(held.shares[3] == 0), bool(anew.shares[3] > 1e-4)
    (True, True)
    """
    if not callable(values):
        raise InputTypeError(f"values must be a function of labels. Got {type(values).__name__}.")
    law = label_law(n, eta)
    chosen, total = _choose(method, law, n_samples, generator)
    evaluate = Evaluator(values, law, total, progress)
    if chosen == "enumerate":
        found = by_enumeration(evaluate, law)
    elif chosen == "quadratic":
        found = by_pairs(evaluate, law, _CHECKS, tolerance)
    else:
        assert generator is not None
        found = by_sampling(evaluate, law, n_samples, generator)
    shape = evaluate.shape or torch.Size()
    inner = found.pop("inner_products", None)
    shaped = {name: value.reshape((*value.shape[:-1], *shape)) for name, value in found.items()}
    errors = {name.removesuffix("_error"): value for name, value in shaped.items() if name.endswith("_error")}
    return Hoeffding(
        shaped["mean"], shaped["first"], shaped["second"], shaped["levels"], law, chosen, evaluate.evaluations, errors, inner
    )  # fmt: skip


def _choose(method: str, law: LabelLaw, n_samples: int, generator: torch.Generator | None) -> tuple[str, int]:
    """Return the method and its number of evaluations."""
    check_choice("method", method, ("auto", "enumerate", "quadratic", "monte-carlo"))
    vectors = number_of_vectors(law)
    if method == "auto":
        method = "enumerate" if vectors <= _MOST_ENUMERATED else "monte-carlo"
    if method == "enumerate":
        if vectors > 2**20:
            raise InputError(
                f'method="enumerate" would evaluate {vectors:.3g} label vectors. Use "monte-carlo", or "quadratic" for a '
                "function of at most pairs of labels."
            )
        return method, int(vectors)
    if method == "quadratic":
        n, other = law.size, law.classes - 1
        return method, 1 + n * other + n * (n - 1) // 2 * other**2 + _CHECKS
    check_integer("n_samples", n_samples, 4)
    if not isinstance(generator, torch.Generator) or generator.device.type != "cpu":
        raise InputError(
            f"{law.size} labels of {law.classes} classes are too many to enumerate: Monte Carlo needs a generator on the CPU. "
            'Write generator=torch.Generator().manual_seed(0), or method="quadratic" for a function of at most pairs of labels.'
        )
    return method, n_samples
