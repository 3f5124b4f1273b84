"""Predictions of an ensemble of infinitely wide networks after training, and the Bayesian posterior."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from ntkit._src.common import (
    Numbers,
    as_columns,
    available_bytes,
    block_rows,
    check_choice,
    check_gram_memory,
    check_integer,
    check_pairs,
    check_tensor,
    check_times,
)
from ntkit._src.kernels import InfiniteWidth, Kernel
from ntkit._src.solvers import best_factor, check_gram, check_ridge, check_right_hand_side, decompose
from ntkit.errors import InputError, InputTypeError, SingularKernelError

from ._squared_error import learned_filter


class Kernels(Protocol):
    """An object with both kernels of a network, such as ``infinite_width``, ``empirical`` and ``monte_carlo`` return."""

    @property
    def ntk(self) -> Kernel:
        """The neural tangent kernel."""

    @property
    def nngp(self) -> Kernel:
        """The covariance of the outputs at initialisation."""


@dataclass(frozen=True)
class Posterior:
    """A Gaussian process at n test points; outputs are independent and share the covariance.

    For a sequence of m training times every field except ``noise`` and ``log_marginal_likelihood`` has one more dimension in
    front, of length m.

    Attributes
    ----------
    mean
        Shape (n,) or (n, k), like the targets.
    covariance
        Shape (n, n), of the outputs without observation noise; None if only its diagonal was computed.
    variance
        Its diagonal, shape (n,), never negative.
    noise
        The variance of the observation noise, ridge trace(K)/n: a new observation has variance ``variance + noise``.
    log_marginal_likelihood
        log p(y | X) of the network's prior, the NNGP, with that noise, summed over outputs; None for the NTK, whose ensemble
        is not the posterior of any prior, and if the matrix is singular.
    status
        One English sentence: how it was computed and what was done about a singular matrix.
    times
        The training times, shape (m,), float64; None if a single time was given.

    See Also
    --------
    ntkit.plots.plot_posterior : draws mean and band.
    """

    mean: Tensor
    covariance: Tensor | None
    variance: Tensor
    noise: float
    log_marginal_likelihood: float | None
    status: str
    times: Tensor | None = None

    def band(self, deviations: float = 2.0, noisy: bool = False) -> tuple[Tensor, Tensor]:
        """Return the edges of the ensemble's band: the mean minus and plus some standard deviations, shaped like the mean.

        Parameters
        ----------
        deviations
            Half the width of the band in standard deviations. Default 2, which contains about 95 % of the networks.
        noisy
            Whether to include the observation noise: the band of new observations, not of the function. Default False.
        """
        variance = self.variance + (self.noise if noisy else 0.0)
        spread = deviations * (variance if variance.ndim == self.mean.ndim else variance[..., None]).sqrt()
        return self.mean - spread, self.mean + spread

    def sample(self, n_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw functions, without observation noise, shape (n_samples, n) or (n_samples, n, k).

        For a sequence of m times, (n_samples, m, n) or (n_samples, m, n, k); draws at different times are independent.

        Parameters
        ----------
        n_samples
            Number of draws.
        generator
            Generator of the draws. Default None: torch's global one.
        """
        if self.covariance is None:
            raise InputError(
                'samples need the full covariance. Got only its diagonal: pass covariance="full" to posterior.'
            )
        check_integer("n_samples", n_samples, 1)
        values, vectors = torch.linalg.eigh(self.covariance)
        root = vectors * values.clamp_min(0).sqrt()[..., None, :]
        columns = self.mean if self.mean.ndim > self.variance.ndim else self.mean[..., None]
        drawn = torch.randn(
            (n_samples, *columns.shape), generator=generator, dtype=columns.dtype, device=columns.device
        )
        samples: Tensor = columns + root @ drawn
        return samples.reshape(n_samples, *self.mean.shape)


def posterior(
    limit: Kernels | Kernel,
    x_train: Tensor,
    y_train: Tensor,
    x_test: Tensor,
    mode: Literal["ntk", "nngp", "last_layer"] = "ntk",
    t: Numbers = math.inf,
    ridge: float = 0.0,
    covariance: Literal["auto", "full", "diagonal"] = "auto",
    noisy_targets: bool = False,
) -> Posterior:
    r"""Return mean and covariance of infinitely wide networks after training, over their random initialisation.

    A network starts as a Gaussian process with covariance K (the NNGP) and is trained with the tangent kernel
    :math:`\Theta` by gradient flow on :math:`\frac{1}{2} \sum (f - y)^2`. With
    :math:`\Phi_t = \Theta(X, X)^{-1} (I - e^{-\Theta(X, X) t})` and :math:`W = \Phi_t \Theta(X, x)` it stays one, with

    .. math::
        \mu_t(x) &= W^T y, \\
        \Sigma_t(x, x') &= K(x, x') - W^T K(X, x') - K(x, X) W' + W^T K(X, X) W'

    (Golikov et al. 2022, eqs. 152-156; Lee et al. 2019). A ridge r decays the weights towards their start and puts
    :math:`\Theta(X, X) + \rho I`, :math:`\rho = r \operatorname{tr} \Theta(X, X) / n`, in place of :math:`\Theta(X, X)` in
    :math:`\Phi_t`.

    Parameters
    ----------
    limit : InfiniteWidth or another with ``ntk`` and ``nngp``, or Kernel
        The network's kernels; the covariance alone suffices for ``"nngp"`` and ``"last_layer"``.
    x_train : Tensor of shape (n, ...)
        Training points.
    y_train : Tensor of shape (n,) or (n, k)
        Targets, of the dtype of ``x_train``.
    x_test : Tensor of shape (m, ...)
        Test points, where the process is evaluated.
    mode : {"ntk", "nngp", "last_layer"}
        ``"ntk"``: how do networks that start at random differ after all their layers are trained? ``"last_layer"``: the same
        where only the last layer is trained, so :math:`\Theta = K`. ``"nngp"``: what does a Bayesian believe whose prior has
        covariance K (eqs. 149, 150), with the ridge as variance of the observation noise? Default ``"ntk"``.
    t : float or sequence of floats
        Training time of gradient flow of half the **summed** squared error, infinite for ``"nngp"``. A sequence costs one
        eigendecomposition for all its times, and the result has one more dimension in front. Default infinity.
    ridge : float
        Relative to the trace/n of the matrix it is added to. Default 0.
    covariance : {"auto", "full", "diagonal"}
        ``"auto"`` computes the full covariance unless it and its computation would not fit into half of the free memory.
        Default ``"auto"``.
    noisy_targets : bool
        Whether each network of the ensemble is trained on targets with its own noise, of variance :math:`\rho`, which adds
        :math:`\rho W^T W'`. With ``"last_layer"`` and t infinite that ensemble is the Bayesian posterior. Default False.

    Returns
    -------
    Posterior

    Notes
    -----
    For one finite network, ``limit = ntkit.empirical(net)``, K is the kernel of its last hidden features. ``"ntk"`` then asks how
    trained networks differ that all have these features and this tangent kernel, with last layers drawn afresh; that is no
    statement about what the network's own weights could still be.

    That other question is answered by the linearised Laplace approximation (Khan et al. 2019; Immer et al. 2021): replace the
    network by its linearisation at its weights w, :math:`f(x) + J(x) (v - w)`, with the Gaussian prior
    :math:`v - w \sim N(0, \tau^2 I)` and observation noise of variance :math:`\sigma^2`. The posterior of v has covariance
    :math:`(J^T J / \sigma^2 + I / \tau^2)^{-1}`. In the space of functions it is a Gaussian process with covariance
    :math:`\tau^2 \Theta`, the empirical tangent kernel, so for a network of one output

    .. code-block:: python

        kernel = tau**2 * ntkit.empirical(net).ntk
        ridge = sigma**2 / float(kernel.diag(x_train).mean())
        found = ntkit.posterior(kernel, x_train, y_train - net(x_train)[:, 0], x_test, mode="nngp", ridge=ridge)

    ``found.variance`` is the variance of the Laplace approximation, whose mean is ``net(x_test)``;
    ``net(x_test)[:, 0] + found.mean`` is the posterior mean of the linearised network.

    See Also
    --------
    ntkit.GradientFlow : only the mean, also for other losses and for gradient descent.
    ntkit.evidence : chooses gains, ridge and depth.
    ntkit.plots.plot_posterior : draws mean and band.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 1))
    >>> limit = ntkit.infinite_width(net, b_std=0.5)
    >>> x = torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float64)
    >>> y = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    >>> found = ntkit.posterior(limit, x, y, torch.tensor([[1.0], [3.0]], dtype=torch.float64))
    >>> found.variance.round(decimals=6).tolist()
    [0.0, 0.606511]
    >>> found.sample(5, torch.Generator().manual_seed(0)).shape
    torch.Size([5, 2])

    Many times for the cost of one decomposition:

    >>> many = ntkit.posterior(limit, x, y, torch.tensor([[3.0]], dtype=torch.float64), t=[0.0, 1.0, float("inf")])
    >>> many.variance.shape
    torch.Size([3, 1])
    """
    ridge, bayesian = check_ridge(ridge), mode == "nngp"
    times, single = check_times(t)
    check_choice("mode", mode, ("ntk", "nngp", "last_layer"))
    check_choice("covariance", covariance, ("auto", "full", "diagonal"))
    if bayesian and any(map(math.isfinite, times)):
        raise InputError(f'the Bayesian posterior has no time. Got t={t}: use mode="last_layer", which tends to it.')
    check_tensor("x_train", x_train)
    check_tensor("x_test", x_test)
    pair = _Pair.of(limit, mode)
    # Both kernels, and the factor or the eigenvectors.
    matrices = 3 if pair.tangent is not pair.prior else 2
    check_gram_memory(len(x_train), len(x_train), x_train.dtype, x_train.device, matrices=matrices, what="a posterior")
    with torch.no_grad():
        theta, prior = pair.both(x_train)
        check_right_hand_side(y_train, check_gram(theta))
        check_gram(prior)
        columns = as_columns(y_train.detach())
        trained = _train(theta, columns, ridge, times, owned=pair.limit is not None)
        del theta
        noise = ridge * trained.scale
        added = noise if bayesian or noisy_targets else 0.0
        free, n_test = available_bytes(prior.device), len(x_test)
        # The full covariances and their terms.
        needed = prior.element_size() * n_test * ((2 + len(times)) * n_test + 4 * len(prior))
        full = covariance == "full" or (covariance == "auto" and (free is None or needed <= free / 2))
        size = len(x_test) if full else block_rows(len(prior), prior.element_size())
        means, variances, matrix = [], [], None
        for block in torch.split(x_test, size):
            cross, between = pair.both(block, x_train)
            means.append(cross @ trained.weights)
            start = pair.prior(block) if full else pair.prior.diag(block)
            moved = [_moved(prior, between, w, added, full) for w in trained.apply(cross.mT)]
            found = start + torch.stack(moved)
            if full:
                matrix = found
            variances.append((found.diagonal(dim1=1, dim2=2) if full else found).clamp_min(0))
    mean = torch.cat(means, 1).reshape(len(times), len(x_test), *y_train.shape[1:])
    variance = torch.cat(variances, 1)
    return Posterior(
        mean[0] if single else mean,
        matrix[0] if matrix is not None and single else matrix,
        variance[0] if single else variance,
        noise,
        None if mode == "ntk" else trained.log_density,
        trained.status,
        None if single else torch.tensor(times, dtype=torch.float64),
    )


def _moved(prior: Tensor, between: Tensor, w: Tensor, added: float, full: bool) -> Tensor:
    """Return the change of the covariance at p points by training with W, shape (n, p): (p, p), or its diagonal."""
    spread = prior @ w + added * w - 2 * between.mT
    if not full:
        return (w * spread).sum(0)
    # W^T (K + added) W - K(x, X) W - W^T K(X, x), halved and added to its transpose: symmetric to the bit.
    half = w.mT @ spread
    return (half + half.mT) / 2


@dataclass(frozen=True)
class _Pair:
    """The kernel of the training and the covariance before it."""

    tangent: Kernel
    prior: Kernel
    limit: InfiniteWidth | None

    @staticmethod
    def of(limit: Kernels | Kernel, mode: str) -> _Pair:
        if isinstance(limit, Kernel):
            if mode == "ntk":
                raise InputTypeError(
                    'mode="ntk" needs both kernels of a network. Got one kernel: pass ntkit.infinite_width(module).'
                )
            return _Pair(limit, limit, None)
        ntk, nngp = getattr(limit, "ntk", None), getattr(limit, "nngp", None)
        if not isinstance(nngp, Kernel) or not isinstance(ntk, Kernel):
            raise InputTypeError(
                f"limit must have the kernels ntk and nngp. Got {type(limit).__name__}: pass ntkit.infinite_width(module)."
            )
        if mode != "ntk":
            return _Pair(nngp, nngp, None)
        return _Pair(ntk, nngp, limit if isinstance(limit, InfiniteWidth) else None)

    def both(self, x1: Tensor, x2: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return Theta(x1, x2) and K(x1, x2), the same tensor if they are the same kernel."""
        if self.limit is not None:
            return self.limit.both(x1, x2)
        shape = (len(x1), len(x1 if x2 is None else x2))
        prior = check_pairs(self.prior(x1, x2), shape)
        return (prior if self.tangent is self.prior else check_pairs(self.tangent(x1, x2), shape)), prior


@dataclass(frozen=True)
class _Trained:
    """Phi y at each of m times, shape (m, n, k), Phi as a function of columns, time by time, and what came with them."""

    weights: Tensor
    apply: Callable[[Tensor], Iterator[Tensor]]
    scale: float
    log_density: float | None
    status: str


def _train(theta: Tensor, y: Tensor, ridge: float, times: list[float], owned: bool) -> _Trained:
    if times == [math.inf]:
        try:
            factor, solution = best_factor(theta, y, ridge, stacklevel=5)
        except SingularKernelError:
            pass
        else:
            log_det = 2 * float(factor.lower.diagonal().double().log().sum())
            known = _log_density(float((y.double() * solution.value.double()).sum()), log_det, y)
            value, status = solution.value[None], str(solution.status)
            return _Trained(value, lambda columns: iter([factor.solve(columns).value]), factor.scale, known, status)
    spectrum = decompose(theta, overwrite=owned)
    mu, projected = spectrum.shifted(ridge), spectrum.vectors.T @ y
    filters = [learned_filter(spectrum, ridge, t)[:, None] for t in times]
    density: float | None = None
    if bool((mu > 0).all()):
        density = _log_density(float(((projected**2).sum(1) / mu).double().sum()), float(mu.double().log().sum()), y)

    def apply(columns: Tensor) -> Iterator[Tensor]:
        coordinates = spectrum.vectors.T @ columns
        for values in filters:
            yield spectrum.vectors @ (values * coordinates)

    weights = torch.stack([spectrum.vectors @ (values * projected) for values in filters])
    return _Trained(weights, apply, spectrum.scale, density, str(spectrum.status))


def _log_density(fit: float, log_det: float, y: Tensor) -> float:
    """Return log p(y) from y^T A^-1 y, log det A and y, shape (n, k)."""
    return -fit / 2 - y.shape[1] / 2 * (log_det + len(y) * math.log(2 * math.pi))
