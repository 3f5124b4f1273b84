"""Local elasticity: how much more similar a kernel finds points of the same class than points of different classes."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.labels import check_labels, class_numbers
from ntkit.errors import InputError, InputTypeError


def local_elasticity(
    gram: Tensor,
    y1: Tensor,
    y2: Tensor | None = None,
    diag1: Tensor | None = None,
    diag2: Tensor | None = None,
    *,
    diagonal: bool = False,
) -> Tensor:
    r"""Return the relative ratio of a kernel's similarities within classes and between them.

    With :math:`\bar{K}(x, x') = K(x, x') / \sqrt{K(x, x) K(x', x')}`

    .. math:: \mathrm{RR}(K) = \frac{\sum_{S_1} \bar{K}(x, x') / |S_1|}{\sum_{S_1} \bar{K}(x, x') / |S_1| + \sum_{S_2}
              \bar{K}(x, x') / |S_2|},

    where :math:`S_1` are the pairs within a class and :math:`S_2` those between classes (Chen, He, Su 2020 [1]_, eq. 9). A kernel
    that does not distinguish the classes has RR = 1/2; that of a network's tangent kernel rises above it during training.

    Parameters
    ----------
    gram : Tensor of shape (n1, n2)
        Train-train pairs: the square K(x, x). Test-train pairs: K(x_test, x_train).
    y1 : Tensor of shape (n1,)
        Classes of the rows, two or more, any numbers.
    y2 : Tensor of shape (n2,), optional
        Classes of the columns. Default None: rows and columns are the same points.
    diag1, diag2 : Tensor of shape (n1,) and (n2,), optional
        K(x, x) of the rows' and of the columns' points, ``kernel.diag``. Needed with ``y2``, and only then;
        default None.
    diagonal : bool, default False
        Whether the pairs i = j of a square Gram matrix count, as they do in the numbers of [1]_.

    Returns
    -------
    Tensor
        RR, one number in the dtype of the kernel; it carries gradients if the kernel does. It exceeds 1 if pairs of different
        classes are negative on average.

    Raises
    ------
    InputError
        Among others, if there is no pair within a class or between two; if K(x, x) is not positive; and if the two means
        add up to zero or less, so that their ratio has no meaning.

    Notes
    -----
    A point paired with itself always has similarity 1 and would raise RR for any kernel, by an amount that falls with n: with
    ``y2=None`` the pairs i = j are left out unless ``diagonal``, and with ``y2`` all pairs count. Two points that happen to be
    equal are a pair like any other.

    See Also
    --------
    ntkit.diagnostics.KernelRecorder : the kernel of a network while it trains.
    ntkit.alignment : The cosine of a kernel and the kernel of the labels.

    References
    ----------
    .. [1] Chen, He, Su, "Label-Aware Neural Tangent Kernel: Toward Better Generalization and Local Elasticity", 2020.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> ntk = ntkit.infinite_width(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))).ntk
    >>> x, y = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.1, 1.0], [-0.1, 1.0]]), torch.tensor([0, 0, 1, 1])
    >>> ntkit.local_elasticity(ntk(x), y)
    tensor(0.8528)
    >>> new, new_y = torch.tensor([[1.0, 0.5], [0.5, 1.0]]), torch.tensor([0, 1])
    >>> ntkit.local_elasticity(ntk(new, x), new_y, y, ntk.diag(new), ntk.diag(x))
    tensor(0.6576)
    """
    _check_matrix(gram, square=y2 is None)
    check_labels("y1", y1, len(gram), gram.device)
    if y2 is None:
        if diag1 is not None or diag2 is not None:
            raise InputError("diag1 and diag2 go with y2: the diagonal of a square Gram matrix is read from it.")
        diag1 = diag2 = gram.diagonal()
    else:
        check_labels("y2", y2, gram.shape[1], gram.device)
        if diag1 is None or diag2 is None:
            raise InputError(
                "pairs of two sets need diag1 and diag2, K(x, x) of the rows' and the columns' points. "
                "Write kernel.diag(x_test), kernel.diag(x_train)."
            )
        for name, values, n in (("diag1", diag1, gram.shape[0]), ("diag2", diag2, gram.shape[1])):
            if not isinstance(values, Tensor) or values.dtype != gram.dtype or values.device != gram.device:
                raise InputTypeError(f"{name} must be a {gram.dtype} tensor on {gram.device}, as the Gram matrix is.")
            if values.shape != (n,):
                raise InputError(f"{name} must have shape ({n},). Got {tuple(values.shape)}.")
    _check_diagonal(diag1)
    _check_diagonal(diag2)
    numbers1, numbers2, _ = class_numbers(y1, y2)
    same = numbers1[:, None] == numbers2[None, :]
    other = ~same
    if y2 is None and not diagonal:
        same.fill_diagonal_(False)
    for pairs, kind, hint in (
        (same, "of one class", "at least two points of a class" if y2 is None else "a class that both sets have"),
        (other, "of two classes", "at least two classes"),
    ):
        if not bool(pairs.any()):
            raise InputError(f"there is no pair {kind}: RR needs {hint}. Got {_counts(y1, y2)}.")
    similarity = gram * diag1.rsqrt()[:, None] * diag2.rsqrt()[None, :]
    intra, inter = similarity[same].mean(), similarity[other].mean()
    total = intra + inter
    if not float(total.detach()) > 0:
        raise InputError(
            f"the mean similarities within classes, {float(intra):.3g}, and between them, {float(inter):.3g}, add up to "
            "nothing or less, so that RR has no meaning. Is the kernel centred? Use the kernel itself."
        )
    return intra / total


def _check_matrix(gram: Tensor, square: bool) -> None:
    if not isinstance(gram, Tensor):
        raise InputTypeError(f"gram must be a torch.Tensor. Got {type(gram).__name__}. Write torch.as_tensor(gram).")
    if gram.dtype not in (torch.float32, torch.float64):
        raise InputTypeError(f"gram must be float32 or float64. Got {gram.dtype}. Write gram.to(torch.float64).")
    if gram.ndim != 2 or gram.numel() == 0:
        raise InputError(f"gram must have shape (n1, n2) with at least one row and column. Got {tuple(gram.shape)}.")
    if square and gram.shape[0] != gram.shape[1]:
        raise InputError(
            f"gram must be square without y2: rows and columns are the same points. Got {tuple(gram.shape)}. "
            "Write local_elasticity(gram, y_test, y_train, kernel.diag(x_test), kernel.diag(x_train)) for pairs of two sets."
        )
    if not bool(torch.isfinite(gram.detach()).all()):
        raise InputError("gram has NaN or infinite entries; check the inputs of the kernel.")


def _check_diagonal(values: Tensor) -> None:
    bad = ~((values > 0) & torch.isfinite(values))  # NaN included
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise InputError(
            f"K(x, x) must be positive and finite, to divide by. Got {float(values[row]):.3g} at point {row}, "
            f"and {int(bad.sum())} such points in all. Remove inputs that are zero; a kernel that is not positive semidefinite "
            "(a label-aware one of large strength) has no similarities."
        )


def _counts(y1: Tensor, y2: Tensor | None) -> str:
    texts = []
    for name, labels in (("y1", y1), ("y2", y2)):
        if labels is not None:
            values, numbers = torch.unique(labels, return_counts=True)
            found = ", ".join(f"{v:g}: {c}" for v, c in zip(values.tolist()[:5], numbers.tolist()[:5], strict=True))
            texts.append(f"{name} with {{{found}{', ...' if len(values) > 5 else ''}}}")
    return " and ".join(texts)
