"""The curse of label-agnosticism: for a kernel that works, labels on which it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

import ntkit
from ntkit import Kernel, solve
from ntkit.errors import InputError, InputTypeError
from ntkit.extending import check_integer, check_number

from ._classes import check_labels

__all__ = ["Curse", "LabelAwareModel", "Relabelling", "curse_of_label_agnosticism", "relabel"]

_RANK = 1e-10  # eigenvalues below this fraction of the largest are rounding


@runtime_checkable
class LabelAwareModel(Protocol):
    """A model that learns a kernel from labels, such as :class:`ntkit.LabelAware`."""

    def fit(self, x: Tensor, y: Tensor) -> Kernel:
        """Return the kernel for these points and labels."""
        ...


@dataclass(frozen=True, eq=False)
class Relabelling:
    r"""Two orthogonal directions in the feature space of a kernel, and the labels of the quadrants between them.

    Attributes
    ----------
    kernel, x
        The kernel, and the n points that span the directions.
    coefficients
        Coefficients of :math:`w_1 = \sum_i a_i \phi(x_i)` and :math:`w_2 = \sum_i b_i \phi(x_i)`, of norm 1, shape (n, 2).
    """

    kernel: Kernel
    x: Tensor
    coefficients: Tensor

    def coordinates(self, x: Tensor) -> Tensor:
        """Return the inner products of w1 and w2 with phi(x), shape (m, 2)."""
        with torch.no_grad():
            return self.kernel(x, self.x) @ self.coefficients

    def labels(self, x: Tensor) -> Tensor:
        """Return the new labels of any points, +1 where the two coordinates differ in sign and -1 otherwise, shape (m,)."""
        first, second = self.coordinates(x).unbind(1)
        return torch.where(first * second < 0, 1.0, -1.0).to(first.dtype)


@dataclass(frozen=True, eq=False)
class Curse:
    """Kernel regression under two label systems.

    Attributes
    ----------
    names
        The k kernels: ``"label-agnostic"`` and then the label-aware ones.
    accuracy
        Accuracy on the test points, shape (k, 2): under the given labels, and under the new ones.
    train_accuracy
        Accuracy on the training points, likewise.
    chance
        The fraction of the larger class of each system among the test points, shape (2,).
    relabelling
        The new labels, as a function of points.
    y, y_test
        The labels of training and test points in both systems, -1 and +1, shape (n, 2).
    """

    names: tuple[str, ...]
    accuracy: Tensor
    train_accuracy: Tensor
    chance: Tensor
    relabelling: Relabelling
    y: Tensor
    y_test: Tensor


def relabel(kernel: Kernel, x: Tensor, y: Tensor, ridge: float = 1e-3, direction: int = 0) -> Relabelling:
    r"""Find the labels of Claim 1.1: natural for the features of a kernel, but not separable by a hyperplane among them.

    With :math:`w_1` the direction that kernel regression fits to the given labels and :math:`w_2` one orthogonal to it, a point
    is labelled +1 where :math:`\langle w_1, \phi(x) \rangle \langle w_2, \phi(x) \rangle < 0` and -1 otherwise (Chen, He, Su
    2020 [1]_, eq. 10 and Fig. 2). The paper allows any orthogonal :math:`w_2`; here it is a direction of largest variance
    among those that are also orthogonal to the mean of :math:`\phi` over each class. Without that, all the points could lie on
    one side of the second plane, or each class on one, and the new labels would be the old ones or nearly constant.

    Parameters
    ----------
    kernel : Kernel
        Label-agnostic.
    x : Tensor of shape (n, ...)
        Points.
    y : Tensor of shape (n,)
        Their classes, two.
    ridge : float, default 1e-3
        Ridge of the kernel regression, relative to trace(K)/n.
    direction : int, default 0
        Which :math:`w_2`: 0 is the one of the largest variance. The kernel sees less of later ones.

    See Also
    --------
    curse_of_label_agnosticism : Scores a kernel, and label-aware ones, on these labels.

    Returns
    -------
    Relabelling

    References
    ----------
    .. [1] Chen, He, Su, "Label-Aware Neural Tangent Kernel: Toward Better Generalization and Local Elasticity", 2020.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> x = torch.randn(2000, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> x = x * torch.tensor([1.0, 1.0, 0.5, 0.5, 0.5], dtype=torch.float64)
    >>> linear = ntkit.infinite_width(nn.Linear(5, 1, bias=False)).ntk
    >>> new = relabel(linear, x, x[:, 0] > 0).labels(x)
    >>> bool((new == torch.where(x[:, 0] * x[:, 1] < 0, 1.0, -1.0)).double().mean() > 0.85)  # the labels of XOR
    True
    """
    signs, gram = _check(kernel, x, y)
    check_integer("direction", direction, 0)
    values, vectors = torch.linalg.eigh(gram.double())
    kept = values > _RANK * values[-1]
    scale, basis = values[kept].sqrt(), vectors[:, kept]
    points = basis * scale  # phi(x_i), one per row, in an orthonormal basis of their span
    first = points.T @ _fit(gram, signs, check_number("ridge", ridge, 0)).double()
    means = [points[signs == sign].mean(0) for sign in (-1, 1)]
    fixed = torch.stack([first / torch.linalg.vector_norm(first), *means], 1)
    left, sizes, _ = torch.linalg.svd(fixed, full_matrices=False)
    away = torch.eye(len(scale), dtype=scale.dtype, device=scale.device)
    away = away - (span := left[:, sizes > 1e-8 * sizes[0]]) @ span.T
    room = len(scale) - span.shape[1]
    if direction >= room:
        raise InputError(
            f"the features of the points span {len(scale)} dimensions, which leaves {room} directions orthogonal to w1 and to "
            f"the means of the classes. Got direction={direction}: take a smaller one, more points, or a kernel of higher rank."
        )
    second = torch.linalg.eigh(away * scale.square() @ away)[1][:, -1 - direction]
    second = second * second[second.abs().argmax()].sign()
    coefficients = (basis / scale) @ torch.stack([fixed[:, 0], second], 1)
    return Relabelling(kernel, x, coefficients.to(gram.dtype))


def curse_of_label_agnosticism(
    kernel: Kernel,
    x: Tensor,
    y: Tensor,
    x_test: Tensor,
    y_test: Tensor,
    *,
    aware: Mapping[str, LabelAwareModel] | None = None,
    ridge: float = 1e-3,
    direction: int = 0,
) -> Curse:
    r"""Demonstrate Claim 1.1: relabel the points so that a kernel fails, and see how label-aware kernels perform.

    Kernel regression on the training points, with the given labels and with those of :func:`relabel`, is scored on the test
    points. How strongly the claim applies depends on the kernel (the proof has one hyperplane in a feature space whose other
    directions play no role). A linear kernel falls to chance: its features contain no product of two of them. A neural tangent
    kernel is universal: its features contain such products with small weight, and it fails only as long as there are too few
    points to find them, about the square of the dimension.

    Parameters
    ----------
    kernel : Kernel
        Label-agnostic.
    x, y : Tensor of shape (n, ...) and (n,)
        Training points and their classes, two.
    x_test, y_test : Tensor
        Fresh points and their classes, the same two.
    aware : mapping, optional
        Label-aware kernels by name, with a method ``fit(x, y)`` that returns the kernel, such as ``ntkit.LabelAware(kernel)``.
        One that is not positive semidefinite is taken as it is (:class:`ntkit.solvers.Indefinite`). Default None: no such kernel.
    ridge, direction
        See :func:`relabel` (defaults 1e-3 and 0); the ridge is that of all kernel regressions.

    See Also
    --------
    relabel : Only the labels.
    ntkit.LabelAware : A label-aware kernel.

    Returns
    -------
    Curse

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> x = torch.randn(600, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> linear = ntkit.infinite_width(nn.Linear(5, 1, bias=False)).ntk
    >>> curse = curse_of_label_agnosticism(linear, x[:300], x[:300, 0] > 0, x[300:], x[300:, 0] > 0)
    >>> old, new = curse.accuracy[0]
    >>> bool(old > 0.9), bool(new < 0.6)
    (True, True)
    """
    models = dict(aware or {})
    for name, model in models.items():
        if not isinstance(model, LabelAwareModel):
            raise InputTypeError(
                f"aware[{name!r}] must have a method fit(x, y) that returns a Kernel. Got {type(model).__name__}."
            )
    if not isinstance(x_test, Tensor) or len(x_test) == 0:
        raise InputError("x_test must be a tensor with at least one fresh point.")
    relabelling = relabel(kernel, x, y, ridge, direction)
    check_labels("y_test", y_test, len(x_test))
    classes, both = torch.unique(
        torch.cat([y, y_test.to(torch.promote_types(y.dtype, y_test.dtype))]), return_inverse=True
    )
    if len(classes) != 2:
        raise InputError(f"y_test must have the two classes of y. Got {len(classes)} in all.")
    dtype = relabelling.coefficients.dtype
    old, old_test = ((2 * one - 1).to(dtype) for one in both.split([len(y), len(y_test)]))
    systems = torch.stack([old, relabelling.labels(x)], 1)
    systems_test = torch.stack([old_test, relabelling.labels(x_test)], 1)
    share = (systems_test > 0).double().mean(0)
    scores = [_scores(kernel, x, systems, x_test, systems_test, ridge)]
    for model in models.values():
        # One system after the other: a fit may return the model itself, which the next fit changes.
        columns = [
            _scores(model.fit(x, systems[:, k]), x, systems[:, [k]], x_test, systems_test[:, [k]], ridge)
            for k in (0, 1)
        ]
        scores.append((torch.cat([c[0] for c in columns]), torch.cat([c[1] for c in columns])))
    test, train = (torch.stack([pair[k] for pair in scores]) for k in (0, 1))
    return Curse(
        ("label-agnostic", *models), test, train, torch.maximum(share, 1 - share), relabelling, systems, systems_test
    )  # fmt: skip


def _scores(
    kernel: Kernel, x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, ridge: float
) -> tuple[Tensor, Tensor]:
    """Return test and training accuracy of each column of labels."""
    with torch.no_grad():
        gram = ntkit.gram(kernel, x)
        weights = _fit(gram, y, ridge)
        found = [
            ((block @ weights > 0) == (labels > 0)).double().mean(0)
            for block, labels in ((kernel(x_test, x), y_test), (gram, y))
        ]
    return found[0], found[1]


def _fit(gram: Tensor, y: Tensor, ridge: float) -> Tensor:
    """Solve for the coefficients of kernel regression, with a kernel that need not be positive semidefinite."""
    return solve(gram, y, method="indefinite", ridge=ridge).value


def _check(kernel: Kernel, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if not isinstance(kernel, Kernel):
        raise InputTypeError(f"kernel must be an ntkit Kernel. Got {type(kernel).__name__}.")
    with torch.no_grad():
        gram = ntkit.gram(kernel, x)
    check_labels("y", y, len(x))
    found, numbers = torch.unique(y, return_inverse=True)
    if (classes := len(found)) != 2:
        raise InputError(f"y must have two classes: the relabelling is of a hyperplane's two sides. Got {classes}.")
    return (2 * numbers - 1).to(gram.dtype), gram
