"""Which training points caused a prediction: leave-one-out for the network linearised at its trained parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ntkit._src.common import Progress, check_choice, check_integer, check_number, check_pair, measuring
from ntkit._src.kernels.finite_network import Batch, Network, empirical
from ntkit.errors import InputError, InputTypeError

from ._influence import influence_of_features, influence_of_kernel
from ._sketch import Sketch, sketched_derivatives

Method = Literal["auto", "exact", "projection"]
_BYTES = 2**31


@dataclass(frozen=True, eq=False)
class Attribution:
    """How much each training point moved each prediction, as :func:`attribute` returns it.

    Attributes
    ----------
    scores
        Shape (m, n), or (m, n, k) for a regression of k > 1 outputs: entry (j, i) is the output of test point j minus what
        it would be without training point i. Positive: the point raised the output.
    outputs
        The attributed outputs, shape (m,) or (m, k): for classes the margin log(p / (1 - p)) of the test point's class,
        otherwise the network's outputs. Averaged over the checkpoints.
    labels
        The class whose margin is attributed for each test point, shape (m,); None for a regression.
    leverage
        How far each training point determines its own output, between 0 and 1, shape (n,), averaged over the checkpoints
        and outputs.
    method
        ``"exact"`` or ``"projection"``.
    """

    scores: Tensor
    outputs: Tensor
    labels: Tensor | None
    leverage: Tensor
    method: str

    def top(self, count: int = 5) -> tuple[Tensor, Tensor]:
        """Return the scores of largest magnitude for each test point, and their training points, each (m, count, ...)."""
        if not 0 < count <= self.scores.shape[1]:
            raise InputError(f"count must be between 1 and the {self.scores.shape[1]} training points. Got {count}.")
        points = self.scores.abs().topk(count, dim=1).indices
        return self.scores.gather(1, points), points


def attribute(
    module: nn.Module,
    x_train: Tensor,
    y_train: Tensor,
    x_test: Tensor,
    y_test: Tensor | None = None,
    *,
    method: Method = "auto",
    checkpoints: Sequence[Mapping[str, Tensor]] | None = None,
    ridge: float = 1.0,
    dim: int = 2048,
    generator: torch.Generator | None = None,
    byte_budget: int = _BYTES,
    progress: Progress | None = None,
) -> Attribution:
    r"""Compute how much each training point moved each prediction of a trained network.

    The network is linearised at its trained parameters: :math:`g(x; \theta + \delta) = g(x) +
    \phi(x) \cdot \delta` with the tangent features :math:`\phi = \nabla_\theta g`. Its loss :math:`\sum_i \ell_i(g(x_i))`
    plus a quadratic regulariser of curvature :math:`\lambda` is assumed to be stationary there. Without point i the minimum
    of the quadratic model moves, and the output changes by

    .. math::

        g(x) - g_{-i}(x) = \phi(x)^T H^{-1} \phi_i\, q_i / (1 - w_i \phi_i^T H^{-1} \phi_i),\qquad
        H = \Phi^T W \Phi + \lambda I,

    where :math:`q_i = -\ell_i'` and :math:`w_i = \ell_i''`. All of it follows from the empirical tangent kernel
    :math:`K = \Phi \Phi^T`, since :math:`\phi(x)^T H^{-1} \Phi^T = k(x)^T (W K + \lambda I)^{-1}`.

    For real-valued targets the loss is the squared error, :math:`q = y - g`, :math:`w = 1`, and the result equals that of
    retraining the linearised network without the point. For classes g is the margin :math:`\log(p / (1 - p))` of a
    point's own class, as in TRAK (Park et al. 2023), with the logistic loss, :math:`q = 1 - p`, :math:`w = p (1 - p)`, and
    the result is one Newton step of that retraining (Pregibon 1981). Without the denominator this is the influence
    function of Koh and Liang (2017); TRAK also sets W to I.

    Parameters
    ----------
    module
        A trained module that maps (n, ...) to (n, k); see :func:`ntkit.empirical` for what it may contain.
    x_train
        Training inputs, shape (n, ...), in the dtype and on the device of the module's parameters.
    y_train
        Integers: classes below k, shape (n,); with one output, 0 and 1. Floating point: targets, shape (n,) or (n, k).
    x_test
        Inputs whose predictions to attribute, shape (m, ...).
    y_test
        The class whose margin to attribute for each test point, shape (m,). Default None: the predicted class.
    method
        ``"exact"``: from the n x n tangent kernel (n k for a regression). ``"projection"``: from tangent features projected
        to ``dim`` random directions, each parameter entering two of them with random signs (a sparse
        Johnson-Lindenstrauss transform). ``"auto"``, the default: exact if its matrices fit into ``byte_budget``.
    checkpoints
        State dictionaries of ``module`` at several trained parameters, from different seeds or times, whose scores are
        averaged. Default None: the module's present parameters.
    ridge
        :math:`\lambda` relative to trace(W K) / n, positive. The default of 1 predicts retraining well if networks
        are stopped before they forget their initialisation; ``benchmarks/attribution.py`` tries others.
    dim
        Number of random directions, default 2048.
    generator
        Source of the projection's randomness. Default None: a seed of zero, so that calls agree.
    byte_budget
        Bytes for matrices, default 2 GiB.
    progress
        Called with the number of checkpoints done and their total.

    Returns
    -------
    Attribution
        Scores in the dtype and on the device of the inputs; sums of them over a set of points predict the effect of
        leaving the set out.

    Raises
    ------
    InputError, InputTypeError
        For inputs that do not fit the module or each other, classes out of range, a ridge that is not positive.

    See Also
    --------
    ntkit.empirical : the kernel behind the scores.
    ntkit.leave_one_out : leave-one-out predictions of kernel regression.

    References
    ----------
    S. M. Park, K. Georgiev, A. Ilyas, G. Leclerc, A. Madry, "TRAK: Attributing model behavior at scale", 2023.
    P. W. Koh, P. Liang, "Understanding black-box predictions via influence functions", 2017.
    D. Pregibon, "Logistic regression diagnostics", 1981.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(20, 3, generator=generator)
    >>> net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
    >>> found = ntkit.attribute(net, x, (x[:, 0] > 0).long(), x[:4])
    >>> found.scores.shape, found.method
    (torch.Size([4, 20]), 'exact')
    """
    states = [None] if checkpoints is None else list(checkpoints)
    classes = _check(module, x_train, y_train, x_test, y_test, method, states, ridge, dim, byte_budget)
    worker = copy.deepcopy(module)  # checkpoints are loaded into the copy; the given module is not changed
    if y_test is None and classes:
        y_test = _predicted(worker, states, x_test)
    total: list[Tensor] = []
    chosen = ""
    for index, state in enumerate(states):
        _load(worker, state)
        one = (
            _Problem(worker, x_train, y_train, x_test, y_test)
            if classes
            else _Problem(worker, x_train, y_train, x_test)
        )
        chosen = _choose(method, len(x_train) * one.width, len(x_test) * one.width, byte_budget)
        if chosen == "exact":
            parts = influence_of_kernel(*one.kernels(byte_budget), one.force, one.curvature, ridge)
        else:
            seed = torch.Generator(x_train.device).manual_seed(0) if generator is None else generator
            parts = influence_of_features(*one.features(dim, seed, byte_budget), one.force, one.curvature, ridge)
        found = (*parts, one.outputs)
        total = [new / len(states) + (total[i] if total else 0) for i, new in enumerate(found)]
        if progress is not None:
            progress(index + 1, len(states))
    scores, leverage, outputs = (
        values.to(x_test.dtype if x_test.is_floating_point() else values.dtype) for values in total
    )
    if outputs.shape[1] == 1:
        scores, outputs = scores[..., 0], outputs[:, 0]
    return Attribution(scores, outputs, y_test if classes else None, leverage, chosen)


class _Combined(nn.Module):
    """Each input's own combination of the outputs, with the weights as a second input."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        combined: Tensor = (self.module(x).flatten(1) * weights).sum(1, keepdim=True)
        return combined


class _Problem:
    """The outputs to attribute at one state of the network, shape (m, width), width 1 for margins.

    ``force`` and ``curvature`` are q and w of the training points, shape (n, width), float64.
    """

    def __init__(
        self, module: nn.Module, x_train: Tensor, y_train: Tensor, x_test: Tensor, y_test: Tensor | None = None
    ) -> None:
        with torch.no_grad():
            f_train, f_test = (module(x).flatten(1).double() for x in (x_train, x_test))
        self.module: nn.Module = module
        self.x_train: Batch = x_train
        self.x_test: Batch = x_test
        if y_test is None:
            targets = y_train.reshape(len(y_train), -1).double()
            self.outputs, self.force, self.curvature = f_test, targets - f_train, torch.ones_like(f_train)
        else:
            # A margin's derivative is a combination of the outputs', with weights that are fixed at the present outputs.
            g_train, c_train = _margins(f_train, y_train)
            g_test, c_test = _margins(f_test, y_test)
            dtype = next(module.parameters()).dtype
            self.module = _Combined(module)
            self.x_train, self.x_test = (x_train, c_train.to(dtype)), (x_test, c_test.to(dtype))
            self.outputs, self.force = g_test[:, None], torch.sigmoid(-g_train)[:, None]
            self.curvature = torch.sigmoid(g_train)[:, None] * self.force
        self.width = self.outputs.shape[1]

    def kernels(self, byte_budget: int) -> tuple[Tensor, Tensor]:
        """Return the tangent kernel of the training points and of the test points with them, float64."""
        kernel = empirical(self.module, output="full", byte_budget=max(byte_budget // 4, 1)).ntk
        return kernel(self.x_train).double(), kernel(self.x_test, self.x_train).double()

    def features(self, dim: int, generator: torch.Generator, byte_budget: int) -> tuple[Tensor, Tensor]:
        """Return projected tangent features, shape (n width, dim) and (m width, dim), float64."""
        sketch = Sketch.draw(self.module, dim, generator)
        return (
            sketched_derivatives(self.module, self.x_train, sketch, byte_budget // 4),
            sketched_derivatives(self.module, self.x_test, sketch, byte_budget // 4),
        )


def _margins(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return log(p / (1 - p)) of each row's class, (n,), and its derivative with respect to the outputs, (n, k)."""
    if f.shape[1] == 1:
        sign = 2.0 * y.to(f.dtype)[:, None] - 1
        return (sign * f)[:, 0], sign
    own = torch.nn.functional.one_hot(y, f.shape[1]).bool()
    others = f.masked_fill(own, -math.inf)
    return f[own] - others.logsumexp(1), own.to(f.dtype) - others.softmax(1)


def _predicted(module: nn.Module, states: Sequence[Mapping[str, Tensor] | None], x: Tensor) -> Tensor:
    """Return the class predicted by the average of the checkpoints' outputs, shape (m,)."""
    total: Tensor | float = 0.0
    for state in states:
        _load(module, state)
        with torch.no_grad():
            total = total + module(x).flatten(1).double()
    assert isinstance(total, Tensor)
    return (total[:, 0] > 0).long() if total.shape[1] == 1 else total.argmax(1)


def _load(module: nn.Module, state: Mapping[str, Tensor] | None) -> None:
    if state is None:
        return
    try:
        module.load_state_dict(state)
    except (RuntimeError, AttributeError, TypeError) as error:
        raise InputError(f"a checkpoint does not fit the module: {error}") from error


def _choose(method: Method, n: int, m: int, byte_budget: int) -> str:
    if method == "auto":
        # The kernel, its inverse and LAPACK's copy, and two matrices of the test points' size.
        return "exact" if 8 * (3 * n * n + 2 * m * n) <= byte_budget else "projection"
    return method


def _check(
    module: nn.Module,
    x_train: Tensor,
    y_train: Tensor,
    x_test: Tensor,
    y_test: Tensor | None,
    method: Method,
    states: Sequence[Mapping[str, Tensor] | None],
    ridge: float,
    dim: int,
    byte_budget: int,
) -> bool:
    """Refuse bad arguments; return whether the targets are classes."""
    if not isinstance(module, nn.Module):
        raise InputTypeError(f"module must be a torch.nn.Module. Got {type(module).__name__}.")
    for name, value in (("x_train", x_train), ("y_train", y_train), ("x_test", x_test), ("y_test", y_test)):
        if not isinstance(value, Tensor) and not (name == "y_test" and value is None):
            raise InputTypeError(
                f"{name} must be a torch.Tensor. Got {type(value).__name__}. Write torch.as_tensor({name})."
            )
    check_choice("method", method, ("auto", "exact", "projection"))
    if not states:
        raise InputError("checkpoints must hold at least one state dictionary. Got none.")
    check_number("ridge", ridge, positive=True)  # without it every point fits itself alone
    for name, size in (("dim", dim), ("byte_budget", byte_budget)):
        check_integer(name, size, 1)
    check_pair(x_train, x_test)
    Network(module, "full").check(x_train, x_test, trained=True)  # what has no tangent kernel has no attribution
    k = _outputs(module, x_train)
    classes = not y_train.is_floating_point()
    if not classes:
        if len(y_train) != len(x_train) or y_train.reshape(len(y_train), -1).shape[1] != k:
            raise InputError(
                f"y_train must have shape ({len(x_train)}, {k}), as the outputs. Got {tuple(y_train.shape)}."
            )
        if not bool(torch.isfinite(y_train).all()):
            raise InputError("y_train must be finite. Got NaN or infinite targets.")
        if y_test is not None:
            raise InputError("y_test names the classes to attribute; a regression has none. Leave it out.")
        return False
    for name, y, x in (("y_train", y_train, x_train), ("y_test", y_test, x_test)):
        if y is not None:
            _check_classes(name, y, len(x), max(k, 2))
    return True


def _check_classes(name: str, y: Tensor, n: int, count: int) -> None:
    if y.shape != (n,) or y.is_floating_point():
        raise InputError(f"{name} must hold {n} integers, shape ({n},). Got {y.dtype} of shape {tuple(y.shape)}.")
    if not bool(((y >= 0) & (y < count)).all()):
        raise InputError(f"{name} must hold classes from 0 to {count - 1}. Got {int(y.min())} to {int(y.max())}.")


def _outputs(module: nn.Module, x: Tensor) -> int:
    with torch.no_grad(), measuring(module):
        return int(module(x[:1]).flatten(1).shape[1])
