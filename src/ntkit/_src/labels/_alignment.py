"""How well a kernel agrees with the labels: its alignment with the kernel of the labels."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.common import check_labels, class_numbers
from ntkit._src.solvers import check_gram
from ntkit.errors import InputError


def alignment(gram: Tensor, y: Tensor, centred: bool = False) -> Tensor:
    r"""Return the alignment of a kernel with the kernel of the labels, the cosine of the two matrices.

    .. math:: A(K, K^*) = \frac{\langle K, K^* \rangle}{\sqrt{\langle K, K \rangle \langle K^*, K^* \rangle}}, \qquad
              \langle K, K^* \rangle = \sum_{ij} K_{ij} K^*_{ij},

    with the "optimal" kernel :math:`K^*_{ij} = y_i y_j` for two classes, whatever their names, taken as -1 and +1, and
    :math:`K^*_{ij} = 1\{y_i = y_j\}` for more (Cristianini et al. 2002 [1]_; Chen, He, Su 2020 [2]_, sections 2.1, 3.1 and
    C). For a positive semidefinite kernel it lies between 0 and 1, and is 1 for multiples of the optimal kernel only. The
    label-aware kernel :math:`K + \lambda \mathcal{Z}` is a way to raise it: :math:`\langle K + \lambda \mathcal{Z}, y y^T
    \rangle = \langle K, y y^T \rangle + \lambda \langle \mathcal{Z}, y y^T \rangle` ([2]_, section C).

    Parameters
    ----------
    gram : Tensor of shape (n, n)
        K(x, x), symmetric.
    y : Tensor of shape (n,)
        The classes, at least two.
    centred : bool, default False
        Whether to centre both kernels in feature space first, :math:`H K H` with :math:`H = I - 1 1^T / n` (Cortes et al.
        2012 [3]_): a constant added to the kernel, or classes of different sizes, then have no effect.

    Returns
    -------
    Tensor
        One number, in the dtype of the kernel; it carries gradients if the kernel does.

    See Also
    --------
    ntkit.local_elasticity : Similarities within classes against those between them.

    References
    ----------
    .. [1] Cristianini, Shawe-Taylor, Elisseeff, Kandola, "On Kernel-Target Alignment", 2002.
    .. [2] Chen, He, Su, "Label-Aware Neural Tangent Kernel: Toward Better Generalization and Local Elasticity", 2020.
    .. [3] Cortes, Mohri, Rostamizadeh, "Algorithms for Learning Kernels Based on Centered Alignment", 2012.

    Examples
    --------
    >>> import torch, ntkit
    >>> y = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    >>> gram = torch.eye(4, dtype=torch.float64)
    >>> ntkit.alignment(gram, y), ntkit.alignment(gram + 10 * torch.outer(y, y), y)
    (tensor(0.5000, dtype=torch.float64), tensor(0.9991, dtype=torch.float64))
    """
    check_gram(gram)
    check_labels("y", y, len(gram), gram.device)
    numbers, _, classes = class_numbers(y)
    if classes < 2:
        raise InputError("y must have at least two classes: the alignment says how a kernel tells them apart. Got one.")
    if classes == 2:
        signs = (2 * numbers - 1).to(gram.dtype)
        target = torch.outer(signs, signs)
    else:
        target = (numbers[:, None] == numbers[None, :]).to(gram.dtype)
    kernel = gram
    if centred:
        kernel, target = _centre(kernel), _centre(target)
    norm: Tensor = torch.linalg.matrix_norm(kernel)
    # Centring a constant kernel leaves only rounding errors, whose direction means nothing.
    if float(norm.detach()) <= 8 * torch.finfo(gram.dtype).eps * float(torch.linalg.matrix_norm(gram.detach())):
        kind = "constant" if centred and bool(gram.any()) else "zero"
        raise InputError(f"the Gram matrix must not be {kind}: it has no direction to compare.")
    value: Tensor = (kernel * target).sum() / (norm * torch.linalg.matrix_norm(target))
    return value


def _centre(matrix: Tensor) -> Tensor:
    rows = matrix - matrix.mean(0, keepdim=True)
    return rows - rows.mean(1, keepdim=True)
