"""A label-aware kernel as a function of the labels it was fitted to."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from ntkit.errors import InputError, InputTypeError

from ._label_aware import LabelAware
from ._pairs import Pairs


def function_of_labels(
    kernel: LabelAware, x: Tensor, x1: Tensor, x2: Tensor | None = None, label_part: bool = False
) -> Callable[[Tensor], Tensor]:
    r"""Return :math:`y \mapsto K(x_1, x_2) + \lambda Z_y(x_1, x_2)`, all but the labels held fixed, for :func:`ntkit.hoeffding`.

    The factor :math:`\lambda` stays that of the fit, although refitting would choose it by the size of Z. With it, Z of the
    estimators ``"kr-v1"``, ``"kr-v2"``, ``"fjlt-v1"`` and ``"fjlt-v2"`` is a quadratic form in the labels (Chen, He, Su 2020,
    sections 2.1 and 2.3). The base kernel is computed once.

    Parameters
    ----------
    kernel : LabelAware
        A kernel fitted to x and any labels.
    x : Tensor of shape (n, ...)
        The training points.
    x1, x2 : Tensor
        The points whose kernel matrix the function returns; ``x2=None``, the default, means ``x2 = x1``.
    label_part : bool, default False
        Whether to return only :math:`\lambda Z`.

    See Also
    --------
    ntkit.hoeffding : Decomposes such a function by how many labels its parts depend on.

    Returns
    -------
    callable
        Labels of shape (n,), floating-point -1 and +1 or integer classes from 0 on, to a matrix of shape (n1, n2).

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> base = ntkit.infinite_width(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))).ntk
    >>> kernel = ntkit.LabelAware(base, strength=0.5).fit(x, torch.arange(8) % 2)
    >>> found = ntkit.hoeffding(ntkit.labels.function_of_labels(kernel, x, x), 8, method="quadratic")
    >>> bool(found.levels[1].max() < 1e-20), bool(found.levels[2].min() > 0)  # fair coins: no level 1
    (True, True)
    """
    if not isinstance(kernel, LabelAware):
        raise InputTypeError(
            f"kernel must be a LabelAware kernel. Got {type(kernel).__name__}: for others write the function of labels yourself, "
            "lambda y: model.fit(x, y)(x1, x2)."
        )
    weight = kernel.weight
    with torch.no_grad():
        train = Pairs(x, None, kernel.base(x))
        asked = Pairs(x1, x2, kernel.base(x1, x2))
    estimator = copy.deepcopy(kernel.estimator)

    def values(y: Tensor) -> Tensor:
        if not isinstance(y, Tensor) or y.shape != (len(x),):
            raise InputError(f"labels must be a tensor of shape ({len(x)},).")
        targets = y.double()[:, None] if y.is_floating_point() else torch.nn.functional.one_hot(y).double()
        with torch.no_grad():
            estimator.fit(train, targets)
            part = weight * estimator(asked)
        return part if label_part else asked.k + part

    return values
