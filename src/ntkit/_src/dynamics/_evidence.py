"""The marginal likelihood of a Gaussian process with a kernel as covariance, and the gains that maximise it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn

from ntkit._src.common import (
    as_columns,
    check_choice,
    check_gram_memory,
    check_integer,
    check_number,
    check_tensor,
    shown,
    why_singular,
)
from ntkit._src.kernels import InfiniteWidth, infinite_width
from ntkit._src.solvers import check_gram, check_ridge, check_right_hand_side, factorize_exactly
from ntkit._src.trace import W_STD
from ntkit.errors import InputError, InputTypeError, QuadratureError, SingularKernelError

_GAINS = {"w_std": W_STD, "b_std": 0.1}  # where the search for gains starts, in their logarithms
# Bounds of the search: smaller parameters no longer change a float64 kernel; larger ones match no data.
_BOUNDS = {"w_std": (1e-2, 1e2), "b_std": (1e-4, 1e2), "ridge": (1e-9, 1e3)}


@dataclass(frozen=True)
class Evidence:
    """The gains, ridge and depth with the largest marginal likelihood.

    Attributes
    ----------
    log_marginal_likelihood
        log p(y | X), summed over outputs, at these parameters.
    w_std, b_std, ridge
        The parameters; the ridge is relative to trace(K)/n, and a gain is None if each layer of the module has its own.
    depth
        The depth, if depths were given.
    limit
        The network's limit at these parameters.
    by_depth
        log p(y | X) at the best parameters of each depth.
    status
        One English sentence: how the search ended.
    """

    log_marginal_likelihood: float
    w_std: float | None
    b_std: float | None
    ridge: float
    depth: int | None
    limit: InfiniteWidth
    by_depth: Mapping[int, float]
    status: str


def log_marginal_likelihood(gram: Tensor, y: Tensor, ridge: float | Tensor = 0.0) -> Tensor:
    r"""Return log p(y | X) of a Gaussian process with this covariance and observation noise.

    .. math:: -\tfrac{1}{2} y^T A^{-1} y - \tfrac{1}{2} \log \det A - \tfrac{n}{2} \log 2 \pi,
              \qquad A = K + r\,\tfrac{\operatorname{tr} K}{n} I,

    summed over the columns of y, which share the kernel (Rasmussen and Williams 2006, eq. 2.30). Differentiable (once) with
    respect to the Gram matrix, y and the ridge.

    Parameters
    ----------
    gram : Tensor of shape (n, n)
        K.
    y : Tensor of shape (n,) or (n, k)
        Targets.
    ridge : float or Tensor of one element
        r. Default 0.

    Returns
    -------
    Tensor
        A scalar.

    Raises
    ------
    SingularKernelError
        If A is numerically singular, so that the density does not exist.

    See Also
    --------
    evidence : maximises it.

    Examples
    --------
    >>> import torch
    >>> from ntkit import log_marginal_likelihood
    >>> log_marginal_likelihood(torch.eye(2), torch.zeros(2))
    tensor(-1.8379)
    """
    gram = check_gram(gram)
    check_right_hand_side(y, gram)
    r = check_ridge(ridge.item() if isinstance(ridge, Tensor) else ridge)
    shift = ridge * gram.diagonal().mean()
    matrix = gram + shift * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    factor = factorize_exactly(matrix, 0.0)
    if factor is None:
        raise SingularKernelError(
            f"the Gram matrix is numerically singular with ridge={r:.1e}, so the density of y does not exist: "
            f"{why_singular(gram)}. Pass a larger ridge"
            + (", or compute the kernel in float64." if gram.dtype == torch.float32 else ".")
        )
    columns = as_columns(y)
    with torch.no_grad():
        weights = factor.solve(columns).value
        log_det = 2 * factor.lower.diagonal().log().sum()
        value = -(columns * weights).sum() / 2 - columns.shape[1] / 2 * (log_det + len(gram) * math.log(2 * math.pi))
        slope = (weights @ weights.T - columns.shape[1] * torch.cholesky_inverse(factor.lower)) / 2
    # A term with value zero and derivative d log p = <slope, dA> - <A^-1 y, dy>.
    if torch.is_grad_enabled() and (matrix.requires_grad or y.requires_grad):
        value = value + (slope * (matrix - matrix.detach())).sum() - (weights * (columns - columns.detach())).sum()
    return value


def evidence(
    module: nn.Module | InfiniteWidth | Callable[[int], nn.Module],
    x: Tensor,
    y: Tensor,
    kernel: Literal["nngp", "ntk"] = "nngp",
    w_std: float | None = None,
    b_std: float | None = None,
    ridge: float = 1e-2,
    fixed: Sequence[str] = (),
    depths: Sequence[int] | None = None,
    max_steps: int = 50,
    weights: Tensor | None = None,
) -> Evidence:
    r"""Choose the gains, the ridge and the depth under which the data are most probable.

    Maximises log p(y | X) of the Gaussian process with the network's kernel as covariance and the ridge as observation
    noise, by L-BFGS in the logarithms of the parameters, with derivatives through the reference engine: a local maximum.
    For ``kernel="nngp"`` this is the Bayesian evidence of the infinitely wide network; the NTK is not the prior of a network
    (Golikov et al. 2022, section 8.1), but can still serve as the covariance of a Gaussian process.

    Parameters
    ----------
    module : nn.Module, InfiniteWidth, or callable from a depth to a module
        The network, or its limit, which is then not traced again; with ``depths``, a function from a depth to its network.
    x : Tensor of shape (n, ...)
        Inputs, float32 or float64; computations are in float64.
    y : Tensor of shape (n,) or (n, k)
        Targets; centre and scale them so that a zero-mean process is a fair model.
    kernel : {"nngp", "ntk"}
        Which kernel is the covariance. Default ``"nngp"``.
    w_std, b_std : float, optional
        Starting values of the search for the gains, positive (except fixed ones). Default None: sqrt(2) and 0.1. A module in
        the NTK parametrisation has gains of its own, which stay.
    ridge : float
        Starting value of the ridge. Default 0.01.
    fixed : sequence of str
        Names among ``"w_std"``, ``"b_std"``, ``"ridge"`` that keep their starting value. The b_std of a module without biases
        has no effect and stays fixed too. Default: none.
    depths : sequence of int, optional
        Depths to try, each with its own search. Default None: the module as given.
    max_steps : int
        Maximum number of L-BFGS steps per depth. Default 50.
    weights : Tensor of shape (n,), optional
        How often each point counts, positive: with :math:`w_i` whole numbers, log p(y | X) is that of :math:`w_i` copies of
        the point, each with noise of its own,

        .. math:: \log p(S y \mid S K S) - \tfrac{1}{2} \sum_i (w_i - 1) \log 2 \pi \sigma^2, \qquad S = W^{1/2},

        with noise :math:`\sigma^2 = r \sum_i w_i K_{ii} / \sum_i w_i`. Default None: once each.

    Returns
    -------
    Evidence

    See Also
    --------
    log_marginal_likelihood : what is maximised.
    ntkit.leave_one_out : chooses ridge and stopping time by prediction error instead.
    ntkit.as_gpytorch_kernel, ntkit.as_sklearn_kernel : the same search with other libraries.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(20, 1, generator=generator, dtype=torch.float64)
    >>> y = torch.sin(2 * x) + 0.1 * torch.randn(20, 1, generator=generator, dtype=torch.float64)
    >>> net = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> start = ntkit.evidence(net, x, y, max_steps=0)
    >>> best = ntkit.evidence(net, x, y)
    >>> best.log_marginal_likelihood > start.log_marginal_likelihood
    True
    """
    start = _start(w_std, b_std, ridge, fixed)
    check_choice("kernel", kernel, ("nngp", "ntk"))
    check_integer("max_steps", max_steps, 0)
    check_tensor("x", x)
    check_tensor("y", y)
    # The kernel, its autograd graph (about one matrix per layer of the network), the factor and the inverse.
    check_gram_memory(len(x), len(x), torch.float64, x.device, matrices=4, what="a search by evidence")
    points, targets = x.detach().double(), y.detach().double()
    if weights is not None:
        check_tensor("weights", weights)
        if tuple(weights.shape) != (len(x),) or not bool((weights > 0).all()):
            raise InputError(f"weights must be {len(x)} positive numbers. Got {shown(weights)}.")
        weights = weights.detach().to(points)
    searches: list[tuple[int | None, nn.Module | InfiniteWidth]]
    if depths is None:
        if not isinstance(module, (nn.Module, InfiniteWidth)):
            raise InputTypeError("without depths, module must be an nn.Module. Got a callable: pass depths=[1, 2, 3].")
        searches = [(None, module)]
    else:
        if isinstance(module, (nn.Module, InfiniteWidth)) or not depths:
            raise InputTypeError(
                "depths must have at least one value, and goes with a callable from a depth to a module. "
                f"Got depths={shown(depths)} and {type(module).__name__}: write lambda depth: nn.Sequential(...)."
            )
        searches = [(depth, module(depth)) for depth in depths]
    found = [_search(net, points, targets, weights, kernel, start, fixed, depth, max_steps) for depth, net in searches]
    best = max(found, key=lambda one: one.log_marginal_likelihood)
    scores = {one.depth: one.log_marginal_likelihood for one in found if one.depth is not None}
    return replace(best, by_depth=scores)


def _start(w_std: float | None, b_std: float | None, ridge: float, fixed: Sequence[str]) -> dict[str, float | None]:
    """Check the starting values; None for gains that are not given."""
    start = {"w_std": w_std, "b_std": b_std, "ridge": ridge}
    if isinstance(fixed, str) or any(name not in start for name in fixed):
        raise InputError(f"fixed must be a sequence of names among {', '.join(map(repr, start))}. Got {shown(fixed)}.")
    for name, value in start.items():
        if value is None and name != "ridge":
            continue
        low, high = _BOUNDS[name]
        if not low <= check_number(name, value, 0) <= high and name not in fixed:
            raise InputError(
                f"{name} must start between {low:g} and {high:g}, where the search goes. Got {value}: start inside, or "
                f"keep it with fixed=({name!r},)."
            )
    return {name: None if value is None else float(value) for name, value in start.items()}


def _search(
    module: nn.Module | InfiniteWidth,
    x: Tensor,
    y: Tensor,
    weights: Tensor | None,
    kernel: str,
    given: Mapping[str, float | None],
    fixed: Sequence[str],
    depth: int | None,
    max_steps: int,
) -> Evidence:
    start: dict[str, Any] = dict(given)
    traced = module if isinstance(module, InfiniteWidth) else infinite_width(module, given["w_std"], given["b_std"])
    if traced.gains.parametrized:
        fixed = (*fixed, *_GAINS)
    else:
        start.update({name: value for name, value in _GAINS.items() if given[name] is None})
    free = [name for name in start if name not in fixed]

    def limit_at(values: Mapping[str, Any]) -> InfiniteWidth:
        return traced if traced.gains.parametrized else traced.with_gains(values["w_std"], values["b_std"])

    def objective(log_values: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        logs = torch.tensor(log_values, dtype=torch.float64, device=x.device, requires_grad=True)
        values: dict[str, Any] = {**start, **dict(zip(free, logs.exp(), strict=True))}
        limit = limit_at(values)
        gram = limit.ntk(x) if kernel == "ntk" else limit.nngp(x)
        value = _weighted(gram, y, values["ridge"], weights)
        if not free:
            return -value.item(), np.zeros(0)
        (slope,) = torch.autograd.grad(value, logs)
        return -value.item(), -slope.cpu().numpy()

    origin = np.log([start[name] for name in free])
    first, _ = objective(origin)
    best, value, status = origin, first, "The parameters given; no search."
    if free and max_steps:
        bounds = [tuple(np.log(_BOUNDS[name])) for name in free]
        result = minimize(
            _guarded(objective), origin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": max_steps}
        )
        if result.fun <= value:
            best, value = result.x, float(result.fun)
        status = f"L-BFGS: {result.nit} steps, {result.nfev} evaluations; {str(result.message).strip().lower()}."
    chosen = {**start, **dict(zip(free, np.exp(best).tolist(), strict=True))}
    return Evidence(-value, chosen["w_std"], chosen["b_std"], chosen["ridge"], depth, limit_at(chosen), {}, status)


def _weighted(gram: Tensor, y: Tensor, ridge: float | Tensor, weights: Tensor | None) -> Tensor:
    """Return log p(y | X), shapes (n, n) and (n,) or (n, k), of as many copies of each point as its weight says."""
    if weights is None:
        return log_marginal_likelihood(gram, y, ridge)
    roots, total, columns = weights.sqrt(), weights.sum(), as_columns(y)
    noise = ridge * (weights * gram.diagonal()).sum() / total
    # Relative to the trace of S K S, which has the weights in it.
    value = log_marginal_likelihood(roots[:, None] * gram * roots, roots[:, None] * columns, ridge * len(gram) / total)
    return value - columns.shape[1] * (total - len(gram)) / 2 * torch.log(2 * math.pi * noise)


def _guarded(
    objective: Callable[[NDArray[Any]], tuple[float, NDArray[Any]]],
) -> Callable[[NDArray[Any]], tuple[float, NDArray[Any]]]:
    """Let a line search step back from points where the kernel is singular or out of range instead of failing."""

    def value(log_values: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        try:
            return objective(log_values)
        except (SingularKernelError, InputError, QuadratureError):
            return 1e300, np.zeros_like(log_values)

    return value
