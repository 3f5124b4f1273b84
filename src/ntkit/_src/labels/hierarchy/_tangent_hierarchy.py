"""LANTK-NTH: the label-aware kernel that approximately solves the tangent hierarchy."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ntkit._src.common import (
    check_batches,
    check_integer,
    check_module,
    check_number,
    check_pair,
    check_ridge,
    check_tensor,
)
from ntkit._src.kernels import Kernel
from ntkit.errors import AccuracyWarning, InputError, InputTypeError, NotFittedError

from ._module_hierarchy import HierarchySource, ModuleHierarchy
from ._residuals import Residuals, check_time
from ._two_layer_hierarchy import Accuracy, TwoLayerHierarchy, check_activation, draw_until, measure


class TangentHierarchy(Kernel):
    r"""The kernel of a network during training on labelled data, to first order in 1 / width.

    This is LANTK-NTH of Chen, He and Su (2020, eq. 5 and Prop. A.2). In gradient flow of the summed loss
    :math:`\frac12 \sum_i (f(x_i) - y_i)^2` the tangent kernel K2 moves by K3, and K3 by K4 (their eq. 3). With K4 held, and the
    residuals those of the kernel H = E K2 on the training points, :math:`y - h_t = e^{-t H} y`, the kernel at time t is

    .. math:: K_t(x, x') = E K_2(x, x') + \int_0^t \int_0^u
        (y - h_u)^\top E K_4(x, x', \cdot, \cdot) (y - h_v) \, dv \, du,

    quadratic in the labels. At t = infinity it is their eq. (5). In the eigenvectors of H, with eigenvalues d, the weights of
    E K4 are then :math:`y_k y_l / (d_k (d_k + d_l))`. As a matrix they have a numerical rank of ten or twenty, so E K4 is
    only ever contracted with that many pairs of vectors. Golikov et al. (2022, eq. 158) print the weights
    :math:`y_k y_l / (d_l (d_k + d_l))`: there the last two slots of O_4, which is not symmetric in them, are swapped. The third
    slot belongs to the outer, later time, the fourth to the inner one.

    The expectations are either those of a two-layer network f(x) = a . sigma(W x) / sqrt(width), a and W standard normal,
    over random neurons (``activation``), or means over random networks of any architecture (``module``). For the ReLU E K4
    is infinite where a training point is parallel to x or x', so at every training point, and its finite part is taken: see
    :class:`~ntkit.labels.TwoLayerHierarchy`.

    The kernel need not be positive semidefinite: the label part, of the order of 1 / width, is not.

    Parameters
    ----------
    activation
        ``"relu"``, ``"erf"``, ``"gelu"``, ``"sigmoid"``, ``"silu"``, ``"sin"``, ``"softplus"``, ``"tanh"``, or a smooth
        elementwise function. Default None: pass a ``module`` instead.
    module
        Any smooth module with one output, instead of the two-layer network. Default None. Derivatives are autograd's, which
        leaves out the delta functions of kinks, so modules with ReLU, max pooling, ELU and the like are refused.
    width
        The width of the two-layer network, default 1024. The label part is proportional to 1 / width.
    rtol
        Default 0.02. Random neurons of a two-layer network are drawn until the largest standard error of the label part on the
        training points is at most this fraction of its largest entry. Labels along small eigenvalues of H take the most:
        for inputs of condition number 4,000 a few hundred thousand neurons. Ignored if ``n_samples`` or a module is given.
    max_samples
        Maximum number of neurons for ``rtol``, default 2^19. An :class:`~ntkit.errors.AccuracyWarning` says if they do not
        suffice.
    n_samples
        The number of random neurons, regardless of the error; default None: as many as ``rtol`` takes. With a
        module, the number of random networks, default 8; 0 for the module's own parameters.
    time
        The training time t, default infinity, which is training to the end. The unit of time is that of gradient flow of the
        summed loss, as in :class:`ntkit.GradientFlow` and :func:`ntkit.train`.
    ridge
        Added to H, relative to its mean diagonal, in the residuals. Default 0.
    linear_term
        Whether to add the K3 term of Proposition A.2, linear in the labels. Default False: its expectation is zero. That of a
        given network (``n_samples=0``) is not.
    generator
        Generator of the random neurons or networks, on the CPU. Default None, torch's global one.

    Attributes
    ----------
    source_
        Where the expectations come from, once fitted.
    accuracy_
        The error reached and the number of neurons, with ``.error`` and ``.n_samples``; for a two-layer network, once fitted.
    rank_
        The number of pairs of vectors that E K4 is contracted with.

    See Also
    --------
    ntkit.LabelAware : The label-aware kernel by pairwise regression, for any base kernel.
    ntkit.hierarchy_kernel : The kernels K2, K3, K4, ... of a given network.
    ntkit.finite_width_correction : The predictions that follow from the moving kernel.
    ntkit.GradientFlow : Training with a constant kernel, in the same unit of time.

    References
    ----------
    .. [1] Chen, He, Su, "Label-Aware Neural Tangent Kernel: Toward Better Generalization and Local Elasticity", 2020.

    Examples
    --------
    >>> import torch, ntkit
    >>> x = torch.eye(3, dtype=torch.float64)
    >>> y = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    >>> generator = torch.Generator().manual_seed(0)
    >>> nth = ntkit.TangentHierarchy("erf", width=64, generator=generator).fit(x, y)
    >>> part = nth.label_part(x)
    >>> bool(part[0, 1] > part[0, 2])  # closer in the same class
    True
    >>> nth.accuracy_.reached
    True
    >>> torch.allclose(nth.at(0.0)(x), nth.label_free(x))
    True
    """

    def __init__(
        self,
        activation: str | Callable[[Tensor], Tensor] | None = None,
        *,
        module: nn.Module | None = None,
        width: int = 1024,
        rtol: float = 0.02,
        max_samples: int = 2**19,
        n_samples: int | None = None,
        time: float = math.inf,
        ridge: float = 0.0,
        linear_term: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        if (activation is None) == (module is None):
            raise InputTypeError(
                'give either the activation of a two-layer network, TangentHierarchy("relu", width=1024), or a module, '
                f"TangentHierarchy(module=net). Got activation={activation!r} and module={type(module).__name__}."
            )
        if module is not None:
            check_module(module)
        if activation is not None:
            check_activation(activation)
        if n_samples is not None:
            check_integer("n_samples", n_samples, 64 if module is None else 0)
        self.activation, self.module, self.width = activation, module, check_integer("width", width, 1)
        self.rtol = check_number("rtol", rtol, positive=True)
        self.max_samples = check_integer("max_samples", max_samples, 64)
        self.n_samples, self.linear_term, self.generator = n_samples, linear_term, generator
        self.time, self.ridge = check_time(time), check_ridge(ridge)
        self._residuals: Residuals | None = None
        self._accuracy: Accuracy | None = None

    def fit(self, x: Tensor, y: Tensor) -> TangentHierarchy:
        """Bind the kernel to training data.

        Parameters
        ----------
        x
            Inputs, shape (n, d) for a two-layer network and (n, ...) for a module.
        y
            Targets, real or +-1, shape (n,) or (n, 1).

        Raises
        ------
        InputError
            If the module has kinks: K4 then has delta functions.
        SingularKernelError
            If the Gram matrix of E K2 has an eigenvalue that is zero to rounding, as with repeated inputs.

        Warns
        -----
        AccuracyWarning
            If ``max_samples`` neurons do not reach ``rtol``.
        """
        check_batches(x, None)
        y = _check_targets(y, x)
        if self.module is not None:
            count = 8 if self.n_samples is None else self.n_samples
            source = ModuleHierarchy(self.module, x, count, self.generator)
            if self.time > 0:
                source.check_smooth(4)
            self.source_: HierarchySource = source
        else:
            assert self.activation is not None
            count = self.max_samples if self.n_samples is None else self.n_samples
            self.source_ = TwoLayerHierarchy(self.activation, x, self.width, count, self.generator)
        # A module has its own dtype; two-layer expectations are computed in float64 whatever the dtype of the inputs.
        self._dtype = x.dtype if self.module is not None else torch.float64
        self._x, self._residuals = x, Residuals.of(self.source_.second(x.to(self._dtype)), y, self.ridge)
        self._set_time(self.time)
        if isinstance(self.source_, TwoLayerHierarchy) and self.n_samples is None and self.time > 0:
            u, v = self._second
            self._accuracy = draw_until(self.source_, u, v, self.rtol, self.max_samples)
            if not self._accuracy.reached:
                warnings.warn(
                    f"the label part of the tangent hierarchy has a {self._accuracy}. Raise max_samples, rtol or ridge.",
                    AccuracyWarning,
                    stacklevel=2,
                )
        return self

    def at(self, t: float) -> TangentHierarchy:
        """Return the kernel at another training time, for the same data and the same random neurons or networks."""
        self._check_fitted()
        other = copy.copy(self)
        other._set_time(check_time(t))
        return other

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return the kernel matrix at the time ``self.time``, shape (n1, n2)."""
        return self.label_free(x1, x2) + self.label_part(x1, x2)

    def diag(self, x: Tensor) -> Tensor:
        """Return K_t(x_a, x_a), shape (n1,)."""
        self._check(x, None)
        total = self.source_.second_diag(x)
        if self.time == 0:
            return total
        if self.linear_term:
            total = total + self.source_.third_diag(x, self._first)
        return total + self.source_.fourth_diag(x, *self._second)

    def label_free(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return E K2, the part that does not depend on the labels, shape (n1, n2)."""
        self._check(x1, x2)
        return self.source_.second(x1, x2)

    def label_part(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return the part of the kernel that depends on the labels, shape (n1, n2)."""
        self._check(x1, x2)
        if self.time == 0:
            return x1.new_zeros(len(x1), len(x1 if x2 is None else x2))
        total = self.source_.fourth(x1, x2, *self._second)
        return total + self.source_.third(x1, x2, self._first) if self.linear_term else total

    def standard_error(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return the standard error of :meth:`label_part` over the random neurons of a two-layer network, shape (n1, n2)."""
        self._check(x1, x2)
        return self._sampled.estimate_fourth(x1, x2, *self._second).error

    @property
    def accuracy_(self) -> Accuracy:
        """The error of the label part on training points, and the number of neurons."""
        self._check_fitted()
        if self._accuracy is None:
            self._accuracy = measure(self._sampled, *self._second)
        return self._accuracy

    @property
    def _sampled(self) -> TwoLayerHierarchy:
        if not isinstance(self.source_, TwoLayerHierarchy):
            raise InputTypeError(
                "only a two-layer network's random neurons have a standard error. Compare several seeds."
            )
        return self.source_

    @property
    def rank_(self) -> int:
        """The number of pairs of vectors that E K4 is contracted with."""
        self._check_fitted()
        return len(self._second[0])

    def _set_time(self, t: float) -> None:
        assert self._residuals is not None
        self.time = t
        self._accuracy = None  # the weights changed; measured again on request
        self._first = self._residuals.first(t).to(self._dtype)
        u, v = self._residuals.second(t)
        self._second = (u.to(self._dtype), v.to(self._dtype))

    def _check_fitted(self) -> None:
        if self._residuals is None:
            raise NotFittedError("this TangentHierarchy has seen no labels yet: call fit(x, y) first.")

    def _check(self, x1: Tensor, x2: Tensor | None) -> None:
        self._check_fitted()
        check_batches(x1, x2)
        check_pair(x1, self._x.to(x1.dtype))

    def __repr__(self) -> str:
        of = repr(self.activation) if self.module is None else f"module={type(self.module).__name__}"
        return f"TangentHierarchy({of}, width={self.width}, time={self.time})"


def _check_targets(y: Tensor, x: Tensor) -> Tensor:
    """Return real targets as a vector, shape (n,)."""
    check_tensor("y", y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or len(y) != len(x):
        raise InputError(
            f"y must have one number for each of the {len(x)} inputs, such as +1 and -1. Got shape {tuple(y.shape)}. For several "
            "classes fit one kernel to each: TangentHierarchy(...).fit(x, 2.0 * (labels == k) - 1)."
        )
    if y.dtype == torch.bool:
        raise InputTypeError("y must be numbers. Got booleans. Write 2.0 * y - 1.")
    y = y.to(torch.float64)
    if not bool(torch.isfinite(y).all()):
        raise InputError("y must be finite. Got NaN or infinite values.")
    return y.to(x.device)
