"""The distance between two kernels on the same points, regardless of their scale."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.solvers import check_gram
from ntkit.errors import InputError, InputTypeError


def kernel_distance(H: Tensor, H2: Tensor) -> Tensor:
    r"""Return one minus the cosine of two Gram matrices.

    .. math:: \rho(H, H') = 1 - \frac{\operatorname{tr}(H H'^T)}{\sqrt{\operatorname{tr}(H H^T) \operatorname{tr}(H' H'^T)}}

    (Golikov et al. 2022 [1]_, eq. 148; Fort et al. 2020 [2]_). Zero for multiples of each other, at most one for positive
    semidefinite matrices, symmetric. For small changes it is *half the square* of the relative change that
    is not a mere scaling: a kernel that moves by 1 / width has a distance of 1 / width squared.

    Parameters
    ----------
    H, H2 : Tensor of shape (n, n)
        Gram matrices on the same points: symmetric, of the same dtype and device, not zero.

    Returns
    -------
    Tensor
        One number, in their dtype; it carries gradients if they do.

    Notes
    -----
    Computed as :math:`\frac12 |H / |H| - H' / |H'||^2`, which stays accurate if the matrices are nearly parallel.

    See Also
    --------
    ntkit.diagnostics.KernelRecorder : The distance along a training run.
    ntkit.alignment : The cosine with the kernel of the labels.

    References
    ----------
    .. [1] Golikov, Pokonechnyy, Korviakov, "Neural Tangent Kernel: A Survey", 2022.
    .. [2] Fort et al., "Deep Learning versus Kernel Learning: an Empirical Study of Loss Landscape Geometry and the Time
       Evolution of the Neural Tangent Kernel", 2020.

    Examples
    --------
    >>> import torch, ntkit
    >>> first, second = torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([1.0, 1.0]))
    >>> ntkit.diagnostics.kernel_distance(first, 3 * first), ntkit.diagnostics.kernel_distance(first, second)
    (tensor(0.), tensor(0.2929))
    """
    matrices = []
    for name, matrix in (("H", H), ("H2", H2)):
        checked = check_gram(matrix)
        norm = torch.linalg.matrix_norm(checked)
        if not float(norm.detach()) > 0:
            raise InputError(f"{name} must not be zero: it has no direction to compare.")
        matrices.append(checked / norm)
    if H.shape != H2.shape:
        raise InputError(f"H and H2 must be on the same points. Got shapes {tuple(H.shape)} and {tuple(H2.shape)}.")
    if H.dtype != H2.dtype or H.device != H2.device:
        raise InputTypeError(
            f"H and H2 must have the same dtype and device. Got {H.dtype} on {H.device} and {H2.dtype} on {H2.device}."
        )
    distance: Tensor = 0.5 * (matrices[0] - matrices[1]).square().sum()
    return distance
