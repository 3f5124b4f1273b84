"""The one entry point to the solvers: checks the input, then hands over to the method."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ntkit.common import check_gram, check_ridge, check_right_hand_side
from ntkit.errors import InputError
from ntkit.kernels import Kernel

from ._cholesky import solve_cholesky
from ._solution import Solution

__all__ = ["solve"]

_METHODS: dict[str, Callable[[Tensor, Tensor, float], Solution]] = {
    "auto": solve_cholesky,
    "cholesky": solve_cholesky,
}


def solve(
    gram_or_kernel: Tensor | Kernel,
    y: Tensor,
    method: str = "auto",
    ridge: float = 0.0,
    x: Tensor | None = None,
) -> Solution:
    r"""Solve :math:`(K + r\,\frac{\operatorname{tr} K}{n} I)\, a = y`.

    With a the coefficients of kernel regression, :math:`f(x) = K(x, X)\, a`, which for r = 0 and K the neural tangent
    kernel is the infinitely wide network trained to convergence from zero output [1]_ [2]_.

    Parameters
    ----------
    gram_or_kernel : Tensor of shape (n, n) or Kernel
        The Gram matrix, symmetric and positive semidefinite; or a kernel, and then ``x`` gives the points.
    y : Tensor of shape (n,) or (n, k)
        The right-hand side, one or many columns, of the Gram matrix's dtype and device.
    method : {"auto", "cholesky"}
        ``"cholesky"`` adds a multiple of the identity (jitter) only where the factorisation needs it, and then gives a
        :class:`~ntkit.errors.JitterWarning`. ``"auto"`` is Cholesky.
    ridge : float
        r, relative to ``trace(K)/n``, so that the scale of the kernel never changes the answer.
    x : Tensor of shape (n, ...), optional
        The points, when a kernel is given.

    Returns
    -------
    Solution
        ``value`` is a, shaped like ``y``. It carries gradients (first order) where the Gram matrix or ``y`` does.

    Raises
    ------
    InputError, InputTypeError
        For shapes, dtypes, devices or values that make no linear system.
    SingularKernelError
        When the matrix stays singular after the largest jitter.

    References
    ----------
    .. [1] Jacot, Gabriel, Hongler, "Neural Tangent Kernel: Convergence and Generalization in Neural Networks", 2018.
    .. [2] Arora, Du, Hu, Li, Salakhutdinov, Wang, "On Exact Computation with an Infinitely Wide Neural Net", 2019.

    Examples
    --------
    >>> import torch, ntkit
    >>> gram = torch.tensor([[2.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    >>> ntkit.solve(gram, torch.tensor([5.0, 7.0], dtype=torch.float64), ridge=1.0).value
    tensor([1., 1.], dtype=torch.float64)
    """
    if not isinstance(method, str) or method not in _METHODS:
        raise InputError(f"method must be one of {', '.join(map(repr, _METHODS))}. Got {method!r}.")
    gram = _gram(gram_or_kernel, x)
    check_right_hand_side(y, gram)
    return _METHODS[method](gram, y, check_ridge(ridge))


def _gram(gram_or_kernel: Tensor | Kernel, x: Tensor | None) -> Tensor:
    if isinstance(gram_or_kernel, Kernel):
        if x is None:
            raise InputError("a kernel needs the points too: write solve(kernel, y, x=x), or solve(kernel(x), y).")
        gram = gram_or_kernel(x)
    elif x is not None:
        raise InputError("x goes with a kernel. Got a Gram matrix and x: leave x out.")
    else:
        gram = gram_or_kernel
    return check_gram(gram)
