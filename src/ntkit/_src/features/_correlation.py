"""The correlation of two matrices, and matrices with the same spectrum but other eigenvectors."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ntkit._src.common import check_choice, random_rotation
from ntkit.errors import InputError, InputTypeError

Kind = Literal["cosine", "pearson"]


def correlation(a: Tensor, b: Tensor, kind: Kind = "cosine") -> float:
    r"""Return the correlation of two matrices (or of their diagonals, or any two tensors of the same shape).

    .. math:: \rho(A, B) = \frac{\operatorname{tr}(A^T B)}{|A| |B|}

    in Frobenius norms: the cosine of the angle between them. ``"pearson"`` subtracts from each matrix the mean of its entries
    first (Beaglehole et al. 2024, section 2 and appendix K).

    Parameters
    ----------
    a, b
        Tensors of the same shape, dtype and device.
    kind
        ``"cosine"`` or ``"pearson"``.

    Returns
    -------
    float
        Between -1 and 1; **nan** if a matrix is zero (for ``"pearson"``: constant), which has no direction.

    See Also
    --------
    nfa : the correlations of the neural feature ansatz.

    Examples
    --------
    >>> import torch
    >>> from ntkit.features import correlation
    >>> a, b = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    >>> round(correlation(a, b), 4), round(correlation(a, b, kind="pearson"), 4)
    (0.7071, 0.5774)
    >>> correlation(a, torch.zeros(2, 2))
    nan
    """
    check_kind(kind)
    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, Tensor):
            raise InputTypeError(f"{name} must be a torch.Tensor. Got {type(value).__name__}.")
        if value.dtype not in (torch.float32, torch.float64):
            raise InputTypeError(f"{name} must be float32 or float64. Got {value.dtype}: write {name}.double().")
    if a.shape != b.shape:
        raise InputError(f"a and b must have the same shape. Got {tuple(a.shape)} and {tuple(b.shape)}.")
    if a.dtype != b.dtype or a.device != b.device:
        raise InputTypeError(
            f"a and b must have the same dtype and device. Got {a.dtype} on {a.device} and {b.dtype} on {b.device}."
        )
    cosine = float((_directed(a.detach(), kind) * _directed(b.detach(), kind)).sum()) if a.numel() else math.nan
    return cosine if math.isnan(cosine) else max(-1.0, min(1.0, cosine))


def check_kind(kind: str) -> None:
    """Refuse an unknown kind of correlation."""
    check_choice("kind", kind, ("cosine", "pearson"))


def _directed(values: Tensor, kind: Kind) -> Tensor:
    """Return the matrix divided by its norm; NaN for a zero one. Scaled first: squares of tiny entries underflow."""
    largest = values.abs().max() if values.numel() else values.new_zeros(())
    values = values / largest
    if kind == "pearson":
        mean = values.mean()
        values = values - mean
        if bool(values.abs().max() <= 8 * torch.finfo(values.dtype).eps * mean.abs()):
            values = torch.zeros_like(values)  # constant up to rounding
    directed: Tensor = values / torch.linalg.vector_norm(values)
    return directed


def randomize_eigenvectors(matrix: Tensor, generator: torch.Generator) -> Tensor:
    """Return a symmetric matrix with the same eigenvalues and eigenvectors drawn at random.

    In place of K in :math:`W^T K W` it shows what of the neural feature ansatz is due to the eigenvectors of K
    (Beaglehole et al. 2024, figures 1 and 13).

    Parameters
    ----------
    matrix
        Symmetric, shape (d, d).
    generator
        Generator of the draw.

    Examples
    --------
    >>> import torch
    >>> from ntkit.features import randomize_eigenvectors
    >>> q = randomize_eigenvectors(torch.diag(torch.tensor([3.0, 1.0])), torch.Generator().manual_seed(0))
    >>> torch.linalg.eigvalsh(q).round(decimals=4)
    tensor([1., 3.])
    """
    if not isinstance(matrix, Tensor) or not matrix.is_floating_point():
        raise InputTypeError(f"matrix must be a floating-point torch.Tensor. Got {type(matrix).__name__}.")
    if not isinstance(generator, torch.Generator):
        raise InputTypeError(
            f"generator must be a torch.Generator. Got {type(generator).__name__}: write torch.Generator().manual_seed(0)."
        )
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.numel() == 0:
        raise InputError(f"matrix must have shape (d, d). Got {tuple(matrix.shape)}.")
    if not bool(torch.isfinite(matrix).all()):
        raise InputError("matrix must be finite. Got NaN or infinite entries.")
    if float((matrix - matrix.T).abs().max()) > 1e-4 * float(matrix.abs().max()):
        raise InputError("matrix must be symmetric. Got one that differs from its transpose.")
    values = torch.linalg.eigvalsh(matrix.detach())
    rotation = random_rotation(len(matrix), generator).to(matrix)
    result: Tensor = (rotation * values) @ rotation.T
    return (result + result.T) / 2
