"""Solving a linear system with a Gram matrix, and predicting from the solution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from ntkit._src.common import (
    as_columns,
    block_rows,
    bytes_text,
    check_batches,
    check_choice,
    check_gram,
    check_pairs,
    check_ridge,
    check_right_hand_side,
)
from ntkit._src.gram import DenseGram, GramOperator, KernelGram
from ntkit._src.kernels import Kernel
from ntkit.errors import InputError, InputTypeError, MemoryLimitError

from ._blocked_cholesky import BlockedCholesky
from ._choice import choose, estimate
from ._cholesky import best_factor
from ._conjugate_gradients import CG
from ._eigenpro import EigenPro
from ._falkon import Falkon
from ._indefinite import Indefinite
from ._method import Method, OnNote, Solution, System, memory_limit
from ._nystrom import Nystrom

METHODS: dict[str, Callable[[], Method]] = {
    "cholesky": BlockedCholesky,
    "indefinite": Indefinite,
    "cg": CG,
    "nystrom": Nystrom,
    "falkon": Falkon,
    "eigenpro": EigenPro,
}
_SMALL = 8192  # rows up to which a kernel's Gram matrix is simply computed and factorised


def solve(
    gram_or_kernel: Tensor | LinearOperator | Kernel,
    y: Tensor,
    method: str | Method = "auto",
    ridge: float = 0.0,
    x: Tensor | None = None,
    *,
    memory: int | None = None,
    note: OnNote | None = None,
    keep_system: bool = False,
) -> Solution:
    r"""Solve :math:`(K + r\,\frac{\operatorname{tr} K}{n} I)\, a = y`.

    With a the coefficients of kernel regression, :math:`f(x) = K(x, X)\, a`, which for r = 0 and K the neural tangent
    kernel is the infinitely wide network trained to convergence from zero output [1]_ [2]_.

    Parameters
    ----------
    gram_or_kernel : Tensor of shape (n, n), LinearOperator or Kernel
        The Gram matrix, symmetric and, except for ``"indefinite"``, positive semidefinite: a tensor, or one stored
        by :func:`ntkit.gram` (:func:`ntkit.open_gram`); or a kernel, whose points are then ``x``.
    y : Tensor of shape (n,) or (n, k)
        The right-hand side, one or many columns, of the Gram matrix's dtype and device.
    method : {"auto", "cholesky", "indefinite", "cg", "nystrom", "falkon", "eigenpro"} or Method, default "auto"
        ``"cholesky"`` adds a multiple of the identity (jitter) only if the factorisation needs it, and then issues a
        :class:`~ntkit.errors.JitterWarning`; for stored matrices and kernels it is
        :class:`~ntkit.solvers.BlockedCholesky`. ``"indefinite"`` is for matrices that are not positive semidefinite; it applies
        the ridge to the absolute values of their eigenvalues. It and the others are classes of :mod:`ntkit.solvers` with
        their own settings: ``method=ntkit.solvers.Nystrom(2000)``. For a method of your own, write a subclass of
        :class:`~ntkit.solvers.Method`. ``"auto"``: Cholesky for tensors and up to 8,192 rows; beyond that it decides by rows,
        measured seconds per entry, memory and disk: exact if that takes at most half an hour, otherwise Nystrom. It
        reports its choice and the reason to ``note`` before it starts.
    ridge : float, default 0
        r, relative to ``trace(K)/n``, so that the scale of the kernel never changes the answer.
    x : Tensor of shape (n, ...), optional
        The points, if a kernel is given.
    memory : int, optional
        Bytes that may be used. None (default): four fifths of what is available.
    note : callable, optional
        Called with sentences: first the method with its time and memory, then its progress. ``print`` works.
    keep_system : bool, default False
        Whether the solution keeps the factorised system: ``solution.system.solve(y)`` then solves for further right-hand
        sides without factorising again. It occupies a matrix of the size of K, or of the centres.

    Returns
    -------
    Solution
        ``value`` is a, shaped like ``y``, or with one row per centre if ``centres`` is not None. By
        Cholesky factorisation of a tensor it carries first-order gradients if the Gram matrix or ``y`` does.

    Raises
    ------
    InputError, InputTypeError
        For shapes, dtypes, devices or values that do not form a linear system.
    SingularKernelError
        If the matrix stays singular after the largest jitter.
    MemoryLimitError
        If the method does not fit into memory; the message says what would.

    See Also
    --------
    ntkit.solvers.predict : f(x) from a solution, in blocks.
    ntkit.gram : Compute and store the Gram matrix.

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
    if not isinstance(method, Method):
        check_choice("method", method, ("auto", *METHODS), ", or a Method of ntkit.solvers")
    ridge = check_ridge(ridge)
    operand = _operand(gram_or_kernel, x)
    simple = method == "auto" or method == "cholesky"
    if isinstance(operand, KernelGram) and simple and operand.shape[0] <= _SMALL:
        points, operand = len(operand.x1), operand.kernel(operand.x1)
        if isinstance(y, Tensor) and len(y) == points:  # otherwise there may be a row for each output of a point
            check_pairs(operand, (points, points))
    if isinstance(operand, Tensor):
        gram = check_gram(operand)
        check_right_hand_side(y, gram)
        if simple:
            return _kept(*best_factor(gram, y, ridge, stacklevel=4), keep_system)
        operand = DenseGram(gram.detach())
        if method == "indefinite" or isinstance(method, Indefinite):
            # The matrix is in memory, and measuring this machine's speed would take longer than a small system.
            return _solved(Indefinite(), operand, ridge, y, note, keep_system)
    like = torch.empty(1, 1, dtype=operand.dtype, device=operand.device).expand(*operand.shape)  # takes no memory
    check_right_hand_side(y, like)
    if operand.shape[0] != operand.shape[1] or not operand.symmetric:
        raise InputError(f"the stored matrix must be K(x, x). Got K(x1, x2) of shape {tuple(operand.shape)}.")
    chosen = _chosen(method, operand, as_columns(y).shape[1], memory, note)
    return _solved(chosen, operand, ridge, y, note, keep_system)


def _solved(
    method: Method, gram: GramOperator, ridge: float, y: Tensor, note: OnNote | None, keep_system: bool
) -> Solution:
    with torch.no_grad():
        system = method.set_up(gram, ridge, y, note)
        return _kept(system, system.solve(y), keep_system)


def _kept(system: System, solution: Solution, keep_system: bool) -> Solution:
    return replace(solution, system=system) if keep_system else solution


def _chosen(method: str | Method, gram: GramOperator, outputs: int, memory: int | None, note: OnNote | None) -> Method:
    tell: OnNote = note or (lambda sentence: None)
    if method == "auto":
        best, why = choose(gram, outputs, memory)
        tell(f"Chosen: {why}")
        return best.method
    chosen = method if isinstance(method, Method) else METHODS[str(method)]()
    limit = memory_limit(memory)
    expected = estimate(chosen, gram, outputs, limit)
    if expected is None:
        tell(f"{type(chosen).__name__}: its time and memory are not known.")
        return chosen
    if expected.memory > limit:
        try:
            instead = f"This would fit: {choose(gram, outputs, memory)[0]}."
        except MemoryLimitError:
            instead = "Nothing else would fit either; use fewer centres or a larger machine."
        raise MemoryLimitError(f"{expected}, and {bytes_text(limit)} can be used. {instead}")
    tell(f"{expected}.")
    return chosen


def _operand(gram_or_kernel: Tensor | LinearOperator | Kernel, x: Tensor | None) -> Tensor | GramOperator:
    if isinstance(gram_or_kernel, Kernel):
        if x is None:
            raise InputError("a kernel needs the points too: write solve(kernel, y, x=x), or solve(kernel(x), y).")
        check_batches(x, None)
        return KernelGram(gram_or_kernel, x)
    if x is not None:
        raise InputError("x goes with a kernel. Got a Gram matrix and x: leave x out.")
    if isinstance(gram_or_kernel, (Tensor, GramOperator)):
        return gram_or_kernel
    if isinstance(gram_or_kernel, LinearOperator):
        dense: Tensor = gram_or_kernel.to_dense()
        return dense
    raise InputTypeError(
        f"the Gram matrix must be a torch.Tensor, a stored one or a kernel. Got {type(gram_or_kernel).__name__}: write "
        "torch.as_tensor(gram)."
    )


def predict(kernel: Kernel, x: Tensor, x_train: Tensor, solution: Solution) -> Tensor:
    """Return f(x) = K(x, Z) a, shape (m,) or (m, k), Z being the training points or their centres.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the system.
    x : Tensor of shape (m, ...)
        Where to predict.
    x_train : Tensor of shape (n, ...)
        The points that the system was solved for.
    solution : Solution
        The result of :func:`ntkit.solve`.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> kernel = ntkit.infinite_width(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))).ntk
    >>> x = torch.randn(30, 2, dtype=torch.float64)
    >>> y = x.sum(1)
    >>> solution = ntkit.solve(kernel, y, x=x, ridge=1e-8)
    >>> bool((ntkit.solvers.predict(kernel, x, x, solution) - y).abs().max() < 1e-4)
    True
    """
    points = x_train if solution.centres is None else x_train[solution.centres.to(x_train.device)]
    with torch.no_grad():
        blocks = torch.split(x, block_rows(len(points), 8))
        return torch.cat([kernel(part, points).to(solution.value.dtype) @ solution.value for part in blocks])
