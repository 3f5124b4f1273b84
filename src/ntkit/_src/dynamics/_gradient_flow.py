"""Networks trained by gradient flow or gradient descent with a constant kernel, at any time and point."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from ntkit._src.common import (
    Loss,
    LossFunction,
    Numbers,
    Progress,
    as_columns,
    check_batches,
    check_gram_memory,
    check_number,
    check_pairs,
    check_steps,
    check_tensor,
    check_times,
    find_loss,
    read_targets,
    shown,
    split_rows,
)
from ntkit._src.kernels import InfiniteWidthKernel, Kernel
from ntkit._src.solvers import check_gram, check_ridge
from ntkit.errors import InputError, InputTypeError, NotFittedError

from ._integrate import Integrator, KernelTraining, descend, integrate
from ._squared_error import Descent, LearningCurves, SquaredError, largest_gram_eigenvalue

Start = Tensor | Callable[[Tensor], Tensor]
"""f_0: its values at the points, shape (n,) or (n, k), or a function that returns them."""


class GradientFlow:
    r"""The outputs of a network with constant tangent kernel during training.

    With :math:`\Theta` the kernel, X the training points and L the loss summed over them, gradient flow of the weights moves
    the outputs by :math:`f_t'(x) = -\Theta(x, X)\, \partial L / \partial f_t(X)`. For :math:`L = \frac{1}{2} \sum (f - y)^2`

    .. math:: f_t(x) = f_0(x) + \Theta(x, X)\, \Theta(X, X)^{-1} \left( I - e^{-\Theta(X, X) t} \right) (y - f_0(X))

    (Golikov et al. 2022, eq. 9): one eigendecomposition serves every time and output, and t infinite needs only a Cholesky
    factorisation. Other losses are integrated. A ridge r decays the weights towards their start: it adds
    :math:`\frac{\rho}{2} |\theta - \theta_0|^2` with :math:`\rho = r \operatorname{tr} \Theta(X, X) / n` to the loss, so that
    :math:`f' = -\Theta\, \partial L / \partial f - \rho (f - f_0)`; in the formula :math:`\Theta(X, X) + \rho I` takes the place
    of :math:`\Theta(X, X)`, and t infinite is kernel ridge regression.

    Parameters
    ----------
    kernel : Kernel or "precomputed"
        The kernel; with ``"precomputed"``, ``fit`` takes K(X, X) and ``predict`` K(x, X) in place of points. No default.
    loss : {"mse", "cross_entropy", "binary_cross_entropy"} or callable
        ``"mse"`` is half the sum of squares. Cross-entropies take logits as outputs. A function takes outputs and targets, both
        shaped like y, and returns the sum over points, differentiable by torch. Default ``"mse"``.
    ridge : float
        Relative to trace(K)/n. Default 0.
    integrator, rtol, atol, max_evaluations
        For losses without closed form: a method of ``scipy.integrate.solve_ivp`` (``"RK45"`` needs one product with K per
        evaluation; ``"LSODA"`` is faster on stiff problems of a few hundred outputs), or ``"RKC"``, the Runge-Kutta-Chebyshev
        method for stiff problems of any size in float64, with errors of about rtol^(2/3); its tolerances, and the number of
        evaluations after which it gives up. Defaults ``"RK45"``, 1e-6, 1e-8 and 200,000.

    Attributes
    ----------
    status : str
        What has been computed so far, and what was done about a singular matrix (jitter, truncation).

    Notes
    -----
    Times are those of gradient flow of the loss **summed** over the points, ``f' = -Theta dL/df``, not of its mean, as
    everywhere in ntkit: a step of gradient descent with learning rate eta takes the time eta. Nothing here carries gradients.

    See Also
    --------
    ntkit.posterior : the spread of an ensemble as well as its mean.
    ntkit.train : the same training of a finite network.
    ntkit.leave_one_out : chooses when to stop.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> x = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None]
    >>> y = torch.sin(3 * x[:, 0])
    >>> net = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 1))
    >>> flow = ntkit.GradientFlow(ntkit.infinite_width(net, b_std=0.5).ntk).fit(x, y)
    >>> flow.predict(x, t=[0.0, 1.0]).shape
    torch.Size([2, 5])
    >>> bool((flow.predict(x) - y).abs().max() < 1e-9)
    True
    """

    def __init__(
        self,
        kernel: Kernel | Literal["precomputed"],
        loss: str | LossFunction = "mse",
        ridge: float = 0.0,
        *,
        integrator: str = "RK45",
        rtol: float = 1e-6,
        atol: float = 1e-8,
        max_evaluations: int = 200_000,
    ) -> None:
        if not isinstance(kernel, Kernel) and kernel != "precomputed":
            raise InputTypeError(f'kernel must be a Kernel or "precomputed". Got {shown(kernel)}.')
        self.kernel = kernel
        self.loss = find_loss(loss)
        self.ridge = check_ridge(ridge)
        self.integrator = Integrator(integrator, rtol, atol, max_evaluations)
        self._fitted = False

    def fit(
        self, x: Tensor | LinearOperator, y: Tensor, f0: Start | None = None, overwrite: bool = False
    ) -> GradientFlow:
        """Store the training data; the first prediction does the work, which later ones reuse.

        Parameters
        ----------
        x : Tensor of shape (n, ...)
            Training points, or K(X, X) for a precomputed kernel, which may be stored (:func:`ntkit.open_gram`).
        y : Tensor
            Targets, shape (n,) or (n, k), in the dtype of the kernel; for cross-entropy also classes, integers of shape (n,).
        f0 : Tensor or callable, optional
            The outputs before training: on the training points, or as a function of points. Default None: zero.
        overwrite : bool
            Let the eigenvectors replace K(X, X) in memory when a finite time is requested: then at most 3 n^2 values are
            held, including a matrix that you pass. With kernels of ``infinite_width`` this happens automatically.
            Default False.
        """
        if isinstance(x, LinearOperator) and not isinstance(self.kernel, Kernel):
            x = x.to_dense()
        check_tensor("x", x)
        gram = x
        if isinstance(self.kernel, Kernel):
            check_batches(x, None)
            # K, and its factor or eigenvectors.
            check_gram_memory(len(x), len(x), x.dtype, x.device, matrices=2, what="a gradient flow")
            with torch.no_grad():
                gram = check_pairs(self.kernel(x), (len(x), len(x)))
        gram = check_gram(gram).detach()
        targets = read_targets(self.loss, y, gram)
        self._shape, self._f0 = tuple(targets.shape[1:]), f0
        self._x = x if isinstance(self.kernel, Kernel) else None
        self._dtype = gram.dtype
        self._targets = as_columns(targets)
        self._start = torch.zeros_like(self._targets) if f0 is None else as_columns(self._read_start(f0, x))
        self._loss = _columns_of(self.loss, self._shape)
        self._shift = self.ridge * float(gram.diagonal().double().mean())
        self._found: dict[tuple[Descent | None, float], Tensor] = {}
        # Only one reference to the matrix is held, so that its eigenvectors can replace it.
        self._squared: SquaredError | None = None
        self._problem: KernelTraining | None = None
        if self.loss.closed_form:
            # Another kernel may return a matrix that it keeps.
            owned = overwrite or isinstance(self.kernel, InfiniteWidthKernel)
            self._squared = SquaredError(gram, self._targets - self._start, self.ridge, owned)
        else:
            self._problem = KernelTraining(gram, self._start, self._targets, self._loss, self._shift)
        self._fitted = True
        return self

    @property
    def status(self) -> str:
        """What has been computed so far, and what was done about a singular matrix."""
        self._check_fitted()
        if self._squared is not None:
            return self._squared.status
        return f"{self.loss.name} has no closed form: integrated with {self.integrator.method}, rtol {self.integrator.rtol:g}."

    def predict(
        self,
        x: Tensor | None = None,
        t: Numbers = math.inf,
        f0: Start | None = None,
        descent: Descent | None = None,
        progress: Progress | None = None,
    ) -> Tensor:
        """Return the outputs at time t, shape (n,) or (n, k); for a sequence of times with one more dimension in front.

        Parameters
        ----------
        x : Tensor, optional
            Points, or K(x, X) for a precomputed kernel. Default None: the training points.
        t : float or sequence of floats
            Times from 0 on. Infinity is training to the end, which only the squared error has in closed form. Default
            infinity.
        f0 : Tensor or callable, optional
            The outputs at x before training; needed if ``fit`` was given values instead of a function. Default None.
        descent : Descent, optional
            Gradient descent instead of gradient flow; t then counts steps. Default None.
        progress : callable, optional
            Called with the number of steps done and their total, if steps are taken one by one. Default None.
        """
        self._check_fitted()
        times, single = self._times(t, descent)
        with torch.no_grad():
            if x is None:
                outputs = self._start + self._moved(times, descent, progress)
            else:
                weights = self._weights(times, descent, progress)
                start = self._start_at(x, f0)
                moved = self._apply(x, weights.movedim(0, 1).flatten(1)).view(-1, *weights.shape[::2])
                outputs = moved.movedim(1, 0) + start
        outputs = outputs.reshape(len(times), -1, *self._shape)
        return outputs[0] if single else outputs

    def loss_at(self, t: Numbers, descent: Descent | None = None) -> Tensor:
        """Return the training loss L (without the ridge's part) at the times, shape () or (m,)."""
        outputs = self.predict(None, t, descent=descent)
        many = outputs.ndim > 1 + len(self._shape)
        values = [self._loss.value(as_columns(one), self._targets) for one in (outputs if many else [outputs])]
        return torch.stack(values) if many else values[0]

    def time_to_loss(self, value: float, t_max: float = math.inf, descent: Descent | None = None) -> float:
        """Return the first time, or with a descent the first step, at which the training loss is at most ``value``.

        Infinity if the loss does not reach it by ``t_max``. Losses without closed form are integrated up to that event, and
        predictions at the time found then cost nothing more; with a descent they need a finite ``t_max``.
        """
        self._check_fitted()
        (limit,), _ = check_times(t_max, "t_max")
        value = check_number("value", value, 0)
        with torch.no_grad():
            if self._squared is not None:
                return self._squared.time_to_loss(value, limit, descent)
            if float(self._loss.value(self._start, self._targets)) <= value:
                self._found = {(descent, 0.0): torch.zeros_like(self._start)}
                return 0.0
            if descent is not None and math.isinf(limit):
                raise InputError("with a descent t_max must be finite, the most steps to take. Got infinity.")
            return self._run([limit], descent, value, None)

    def learning_curves(self, t: Numbers, descent: Descent | None = None) -> LearningCurves:
        r"""Return the outputs along each eigenvector of the kernel at the times, for the squared error.

        Without ridge :math:`u_{t,k} = v_k^T y - e^{-\lambda_k t} (v_k^T y - u_{0,k})` (Golikov et al. 2022, eq. 108), with a
        descent :math:`(1 - \eta \lambda_k)^t` in place of the exponential (eq. 99).
        """
        self._check_fitted()
        squared = self._squared
        if squared is None:
            raise InputError(
                f"eigendirections learn independently only under the squared error. The loss is {self.loss.name}."
            )
        times, _ = self._times(t, descent)
        with torch.no_grad():
            moved = squared.coordinates(times, descent).flip(1)
            vectors = squared.spectrum.vectors.flip(1)
            start, targets = vectors.T @ self._start, vectors.T @ self._targets
        shape = (len(targets), *self._shape)
        return LearningCurves(
            squared.spectrum.clean.flip(0),
            targets.reshape(shape),
            (start + moved).reshape(len(times), *shape),
            torch.tensor(times, dtype=torch.float64),
        )

    def max_learning_rate(self, momentum: float = 0.0, nesterov: bool = False) -> float:
        """Return the learning rate below which gradient descent converges: see :func:`ntkit.max_learning_rate`.

        For cross-entropies it is sufficient, from a bound on their curvature.
        """
        self._check_fitted()
        if self.loss.curvature is None:
            raise InputError(
                f"the curvature of the loss {self.loss.name} is not known: use ntkit.max_learning_rate(gram, curvature=...)."
            )
        if self._squared is not None and self._squared.gram is None:
            top = float(self._squared.spectrum.values[-1])
        else:
            held = self._squared or self._problem
            assert held is not None
            assert held.gram is not None
            top = largest_gram_eigenvalue(held.gram)
        largest = self.loss.curvature * top + self._shift
        return Descent(1.0, momentum, nesterov).stability / largest if largest > 0 else math.inf

    def _times(self, t: Numbers, descent: Descent | None) -> tuple[list[float], bool]:
        if not isinstance(descent, Descent | None):
            raise InputTypeError(f"descent must be a Descent. Got {descent!r}: write Descent(learning_rate=0.1).")
        times, single = check_times(t)
        if descent is not None:
            check_steps([one for one in times if math.isfinite(one)] or [0])
        if not self.loss.closed_form and any(map(math.isinf, times)):
            raise InputError(
                f"t must be finite for {self.loss.name}, whose training has no end in closed form. Got infinity: pass a time, or "
                "flow.time_to_loss(value) for the time at which the loss is small enough."
            )
        return times, single

    def _weights(self, times: list[float], descent: Descent | None, progress: Progress | None) -> Tensor:
        """Return a with f_t = f_0 + K a, shape (m, n, k)."""
        if self._squared is not None:
            return self._squared.weights(times, descent)
        if not all((descent, t) in self._found for t in times):
            self._run(times, descent, None, progress)
        return torch.stack([self._found[descent, t] for t in times])

    def _run(
        self, times: list[float], descent: Descent | None, stop_loss: float | None, progress: Progress | None
    ) -> float:
        """Train with a loss that has no closed form, keep the weights, and return when the loss fell to ``stop_loss``."""
        assert self._problem is not None
        found: dict[int, Tensor] | dict[float, Tensor]
        if descent is None:
            found, stop = integrate(self._problem, times, self.integrator, stop_loss)
        else:
            found, stop = descend(self._problem, [int(t) for t in times], descent, stop_loss, progress)
        self._found = {(descent, float(t)): weights for t, weights in found.items()}
        return float(stop)

    def _moved(self, times: list[float], descent: Descent | None, progress: Progress | None) -> Tensor:
        """Return f_t - f_0 on the training points, shape (m, n, k)."""
        if self._squared is not None:
            return self._squared.outputs(times, descent)
        assert self._problem is not None
        return torch.stack([self._problem.gram @ one for one in self._weights(times, descent, progress)])

    def _apply(self, x: Tensor, columns: Tensor) -> Tensor:
        """Return K(x, X) times columns, one block of rows at a time."""
        if not isinstance(self.kernel, Kernel):
            if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] != len(columns) or x.dtype != columns.dtype:
                raise InputError(
                    f"for a precomputed kernel x must be K(x, X) of shape (points, {len(columns)}) and {columns.dtype}. "
                    f"Got {getattr(x, 'dtype', type(x).__name__)} of shape {tuple(getattr(x, 'shape', ()))}."
                )
            return x @ columns
        return torch.cat([self.kernel(block, self._x) @ columns for block in split_rows(x, len(columns))])

    def _start_at(self, x: Tensor, f0: Start | None) -> Tensor:
        if self._f0 is None:
            if f0 is not None:
                raise InputError("f0 was not given to fit, so training starts from zero. Got f0: pass it to fit too.")
            return torch.zeros((), dtype=self._dtype, device=x.device)
        start = f0 if f0 is not None else self._f0
        if isinstance(start, Tensor) and f0 is None:
            raise InputError(
                "fit was given the values of f0 on the training points, so predict needs those at x: pass f0=..., or a function "
                "of points to fit, or leave x out for the training points."
            )
        return as_columns(self._read_start(start, x))

    def _read_start(self, f0: Start, x: Tensor) -> Tensor:
        if not isinstance(f0, Tensor) and not callable(f0):
            raise InputTypeError(f"f0 must be a tensor of values or a function of points. Got {type(f0).__name__}.")
        if not isinstance(f0, Tensor) and not isinstance(self.kernel, Kernel):
            raise InputError("with a precomputed kernel there are no points, so f0 must be its values. Got a function.")
        values = (f0 if isinstance(f0, Tensor) else f0(x)).detach()
        shape = (len(x), *self._shape)
        if tuple(values.shape) != shape:
            raise InputError(f"f0 must have shape {shape}, like the targets. Got {tuple(values.shape)}.")
        if values.dtype != self._dtype or not bool(torch.isfinite(values).all()):
            raise InputError(f"f0 must be finite and {self._dtype}, like the kernel. Got {values.dtype}.")
        return values

    def _check_fitted(self) -> None:
        if not self._fitted:
            raise NotFittedError("this GradientFlow has no training data yet: call fit(x, y) first.")


def _columns_of(loss: Loss, shape: tuple[int, ...]) -> Loss:
    """Pass outputs and targets to a user's loss in the shape of y, (n,) if y has that shape."""
    if shape or loss.curvature is not None:
        return loss
    return Loss(
        loss.name,
        lambda f, y: loss.value(f[:, 0], y[:, 0]),
        lambda f, y: loss.slope(f[:, 0], y[:, 0])[:, None],
        None,
    )
