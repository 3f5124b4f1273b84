"""What theorems about wide two-layer networks guarantee for given data, with their assumptions checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ntkit._src.common import (
    check_batches,
    check_gram_memory,
    check_integer,
    check_number,
    check_pairs,
    check_right_hand_side,
)
from ntkit._src.kernels import Kernel
from ntkit._src.solvers import check_gram, decompose
from ntkit.errors import InputError, InputTypeError

from ._two_layer_gram import two_layer_gram

_EQUAL = 1e-5  # tolerance for unit norms and for equality of the two kernels, in any dtype

Unit = Literal["", "risk", "width"]


@dataclass(frozen=True)
class Assumption:
    """An assumption of a theorem.

    Attributes
    ----------
    text
        The assumption in words.
    holds
        Whether it holds; None if that cannot be decided from the arguments.
    """

    text: str
    holds: bool | None

    def __str__(self) -> str:
        return f"{self.text}: {'not checked' if self.holds is None else 'yes' if self.holds else 'NO'}"


@dataclass(frozen=True)
class Bound:
    """One value from a theorem.

    Attributes
    ----------
    name
        Name of the field of :class:`Bounds`.
    value
        The number; infinite if the smallest eigenvalue cannot be distinguished from zero.
    source
        Equation or theorem.
    meaning
        What is bounded, in words.
    assumptions
        Its assumptions.
    vacuous
        Whether it says nothing: a risk or a complexity of one or more, a width above the network's.
    """

    name: str
    value: float
    source: str
    meaning: str
    assumptions: tuple[Assumption, ...]
    vacuous: bool

    @property
    def holds(self) -> bool | None:
        """Whether all assumptions hold; None if none fails but some could not be checked."""
        found = [one.holds for one in self.assumptions]
        return False if False in found else None if None in found else True


@dataclass(frozen=True)
class Bounds:
    r"""The bounds for m points and a network of width n; ``print(bounds)`` is the table.

    Attributes
    ----------
    points, width, delta
        m, n and the probability of failure.
    lambda_0
        Smallest eigenvalue of H.
    rounding
        Its rounding error; a smaller :math:`\lambda_0` counts as zero.
    quadratic_form
        :math:`(y - u_0)^T H^{-1} (y - u_0)`, the squared distance that the weights travel at infinite width (eq. 133).
    rate
        :math:`2 \lambda_0`: the squared error of a constant kernel is at most :math:`e^{-2 \lambda_0 t}` of its start (eq. 117).
    guaranteed_rate
        :math:`\lambda_0`: the same for the network, with probability :math:`1 - \delta` (theorem 3).
    movement
        Largest distance that the weights of one neuron travel (eq. 127).
    rademacher
        Complexity of the networks that training can reach (eq. 138).
    risk
        Zero-one risk after training to the end (eq. 143).
    lipschitz_risk
        Risk of any 1-Lipschitz loss with values in [0, 1] (Arora et al. 2019a, theorem 5.1), the constant of its second
        term taken as one.
    width_du, width_song, width_arora
        Widths that theorems 3, 4 and 5 require (eqs. 125, 128, 142), their unspecified constants taken as one.
    """

    points: int
    width: int
    delta: float
    lambda_0: float
    rounding: float
    quadratic_form: float
    rate: Bound
    guaranteed_rate: Bound
    movement: Bound
    rademacher: Bound
    risk: Bound
    lipschitz_risk: Bound
    width_du: Bound
    width_song: Bound
    width_arora: Bound

    @property
    def all(self) -> tuple[Bound, ...]:
        """Every bound, in the order of the table."""
        widths = (self.width_du, self.width_song, self.width_arora)
        return (
            self.rate,
            self.guaranteed_rate,
            self.movement,
            self.rademacher,
            self.risk,
            self.lipschitz_risk,
            *widths,
        )

    def loss_at(self, t: float, start: float = 1.0, guaranteed: bool = True) -> float:
        """Return the bound on the squared error at time t for one of ``start`` at time zero."""
        bound = self.guaranteed_rate if guaranteed else self.rate
        return start * math.exp(-bound.value * t)

    def __str__(self) -> str:
        known = "" if self.lambda_0 > self.rounding else ", which is rounding: no bound holds"
        lines = [
            f"{self.points} points, width {self.width:,}, delta {self.delta:g}",
            f"lambda_0 = {self.lambda_0:.4g} (rounding {self.rounding:.1g}){known}; y^T H^-1 y = {self.quadratic_form:.4g}",
            "",
        ]
        for one in self.all:
            word = f"  vacuous{' for practice' if one.name.startswith('width') else ''}" if one.vacuous else ""
            lines.append(f"{one.name:16} {one.value:12.4g}{word}   {one.meaning} ({one.source})")
        lines.append("")
        seen = dict.fromkeys(assumption for one in self.all for assumption in one.assumptions)
        return "\n".join([*lines, *map(str, seen)])


def bounds(
    kernel_or_gram: Kernel | Tensor,
    y: Tensor,
    width: int,
    delta: float = 0.05,
    *,
    x: Tensor | None = None,
    f0: Tensor | None = None,
) -> Bounds:
    r"""Evaluate the convergence and generalisation theorems for two-layer networks on given data.

    With :math:`\lambda_0` the smallest eigenvalue of H and :math:`B^2 = (y - u_0)^T H^{-1} (y - u_0)`:

    .. math:: |y - f_t|^2 \le e^{-\lambda_0 t} |y - u_0|^2, \qquad
              |w_i(t) - w_i(0)| \le \frac{2 \sqrt m}{\lambda_0 \sqrt n} |y - u_0|, \qquad
              \mathrm{Rad} \le \frac{B}{\sqrt m} \sqrt{\frac12 + \sqrt{\frac{\log(1/\delta)}{2n}}},

    .. math:: R \le \frac{1 + B}{\sqrt m} \sqrt{\frac12 + \sqrt{\frac{\log(1/\delta)}{2n}}} + \sqrt{\frac{\log(1/\delta)}{2m}}

    (Golikov et al. 2022 [1]_, theorem 3, eqs. 127, 138, 143; Du et al. 2019; Song and Yang 2019), and
    :math:`\sqrt{2 y^T H^{-1} y / m} + \sqrt{\log(m / (\lambda_0 \delta)) / m}` (Arora et al. 2019a [2]_, theorem 5.1).
    Training goes to the end, so the risk on the training points is zero.

    Parameters
    ----------
    kernel_or_gram : Kernel or Tensor of shape (m, m)
        H: the limit kernel, with ``x``, or its Gram matrix. The theorems are about :func:`two_layer_gram`; for another
        kernel only ``rate`` is meaningful, and the table says so.
    y : Tensor of shape (m,)
        Targets of magnitude at most one; labels -1 and +1 for the risks.
    width : int
        n, the neurons of the network.
    delta : float
        Probability of failure, between 0 and 1. Default 0.05.
    x : Tensor of shape (m, d), optional
        The inputs. Without them the assumptions on inputs and kernel can only be refuted, by the diagonal of H. Default None.
    f0 : Tensor of shape (m,), optional
        :math:`u_0`, outputs at the start. Default None: zero.

    Returns
    -------
    Bounds
        Every value with its assumptions and whether it is vacuous.

    Raises
    ------
    InputError
        For a delta outside (0, 1), incompatible shapes, and values that are not finite.

    Notes
    -----
    The survey's B in eqs. 134 to 143 is the *square root* of the quadratic form of eq. 133; as printed it is the form itself.
    Its eq. 143 applies a bound for classifiers with values -1 and +1 to real outputs, and drops the price of choosing B
    after seeing the data (:math:`\delta_j` in eq. 141): use ``lipschitz_risk`` if that matters. The survey says
    :math:`|x_k| \ge 1`; Du et al. assume, and eq. 135 needs, norms of one. In eq. 142 :math:`\delta^{-p}` has an unspecified
    power p > 0 and is left out, so ``width_arora`` is smaller than what the theorem requires.

    See Also
    --------
    ntkit.diagnostics.two_layer_gram : The kernel of the theorems.
    ntkit.train : The same quantities measured.

    References
    ----------
    .. [1] Golikov, Pokonechnyy, Korviakov, "Neural Tangent Kernel: A Survey", 2022.
    .. [2] Arora, Du, Hu, Li, Wang, "Fine-Grained Analysis of Optimization and Generalization for Overparameterized Two-Layer
       Neural Networks", 2019.

    Examples
    --------
    >>> import torch, ntkit
    >>> x, y = torch.eye(100, dtype=torch.float64), torch.ones(100, dtype=torch.float64)
    >>> found = ntkit.diagnostics.bounds(ntkit.diagnostics.two_layer_gram(x), y, width=4096, x=x)
    >>> found.lambda_0, found.quadratic_form, found.risk.vacuous
    (0.5, 200.0, True)
    >>> found.width_du.vacuous, found.width_du.holds
    (True, True)
    """
    gram = _gram(kernel_or_gram, x)
    y = _targets("y", y, gram)
    _check_numbers(width, delta)
    m, n = len(gram), width
    residual = y if f0 is None else y - _targets("f0", f0, gram)
    check_gram_memory(m, m, torch.float64, gram.device, matrices=3, what="the eigendecomposition")
    spectrum = decompose(gram)
    lambda_0, rounding = float(spectrum.values[0]), float(spectrum.tolerance)
    positive = lambda_0 > rounding
    form = math.inf
    if positive:
        turned = spectrum.vectors.double().T @ residual
        form = float((turned.square() / spectrum.values.double()).sum())
    size, log = float(residual.norm()), math.log(1 / delta)
    factor = math.sqrt(0.5 + math.sqrt(log / (2 * n)))
    norm = math.sqrt(form)
    inverse = 1 / lambda_0 if positive else math.inf

    kernel, unit = _inputs_hold(gram, x)
    definite = Assumption("lambda_0 is above rounding", positive)
    bounded = Assumption("|y| is at most 1", bool((y.abs() <= 1).all()))
    signs = Assumption("y is -1 or +1", bool((y.abs() == 1).all()))
    setting = (kernel, unit, bounded, definite)
    first = m**2 * inverse**2 * math.log(2 * m / delta)
    asked = {
        "width_du": (m**6 * inverse**4 / delta**3, "eq. 125"),
        "width_song": (m**4 * inverse**4 * math.log(m / delta) ** 3, "eq. 128"),
        "width_arora": (m**7 * inverse**4, "eq. 142, without delta^-p"),
    }
    widths = {
        name: _bound(name, max(value, first), source, "width asked for, constants taken as one", setting, "width", n)
        for name, (value, source) in asked.items()
    }
    wide = {
        name: Assumption(f"the width is that of {one.source}, constants taken as one", n > one.value)
        for name, one in widths.items()
    }
    training = (*setting, wide["width_du"])
    risks = (*setting, signs, wide["width_arora"])
    second = math.sqrt(max(math.log(m * inverse / delta), 0.0) / m) if positive else math.inf
    return Bounds(
        m,
        n,
        float(delta),
        lambda_0,
        rounding,
        form,
        _bound("rate", 2 * lambda_0 if positive else 0.0, "eq. 117", "decay of the squared error, constant kernel", (definite,)),
        _bound("guaranteed_rate", lambda_0 if positive else 0.0, "theorem 3", "decay of the squared error, network", training),
        _bound("movement", 2 * math.sqrt(m / n) * inverse * size, "eq. 127", "distance of one neuron's weights", training),
        _bound("rademacher", norm / math.sqrt(m) * factor, "eq. 138", "Rademacher complexity", setting, "risk"),
        _bound(
            "risk",
            (1 + norm) / math.sqrt(m) * factor + math.sqrt(log / (2 * m)),
            "eq. 143",
            "zero-one risk after training",
            risks,
            "risk",
        ),
        _bound(
            "lipschitz_risk",
            math.sqrt(2 * form / m) + second,
            "Arora et al. 2019a, theorem 5.1",
            "1-Lipschitz risk after training",
            (*setting, wide["width_arora"]),
            "risk",
        ),
        **widths,
    )  # fmt: skip


def _bound(
    name: str,
    value: float,
    source: str,
    meaning: str,
    assumptions: tuple[Assumption, ...],
    unit: Unit = "",
    width: int = 0,
) -> Bound:
    vacuous = {"": not 0 < value < math.inf, "risk": not value < 1, "width": not value < width}[unit]
    return Bound(name, value, source, meaning, assumptions, vacuous)


def _inputs_hold(gram: Tensor, x: Tensor | None) -> tuple[Assumption, Assumption]:
    """Return whether H is the kernel of eq. 124 and whether the inputs have norm one."""
    kernel, unit = "H is the two-layer kernel (eq. 124)", "the inputs have norm 1"
    if x is not None:
        expected = two_layer_gram(x)
        off = float((gram - expected.to(gram)).abs().max()) / float(expected.abs().max().clamp(min=1e-300))
        norms = torch.linalg.vector_norm(x.double(), dim=1)
        return Assumption(kernel, off <= _EQUAL), Assumption(unit, bool(((norms - 1).abs() <= _EQUAL).all()))
    # Without the inputs: for unit inputs the kernel has one half on the diagonal and at most that elsewhere.
    diagonal = bool(((gram.diagonal() - 0.5).abs() <= _EQUAL).all())
    small = bool((gram.abs() <= 0.5 + _EQUAL).all())
    found = None if diagonal and small else False
    return Assumption(kernel, found), Assumption(unit, found)


def _gram(given: Kernel | Tensor, x: Tensor | None) -> Tensor:
    if isinstance(given, Kernel):
        if not isinstance(x, Tensor):
            raise InputTypeError(f"x must be the inputs where a kernel is given, shape (m, d). Got {type(x).__name__}.")
        check_batches(x, None)
        check_gram_memory(len(x), len(x), x.dtype, x.device, matrices=3, what="the eigendecomposition")
        return check_gram(check_pairs(given(x), (len(x), len(x))).detach())
    if not isinstance(given, Tensor):
        raise InputTypeError(
            f"kernel_or_gram must be an ntkit.Kernel or a Gram matrix. Got {type(given).__name__}: write "
            "ntkit.diagnostics.two_layer_gram(x)."
        )
    gram = check_gram(given.detach())
    if x is not None and len(x) != len(gram):
        raise InputError(f"x must have {len(gram)} rows, those of the Gram matrix. Got {len(x)}.")
    return gram


def _targets(name: str, values: Tensor, gram: Tensor) -> Tensor:
    check_right_hand_side(values, gram)
    if values.ndim != 1:
        raise InputError(f"{name} must have shape ({len(gram)},), one output. Got {tuple(values.shape)}.")
    return values.double()


def _check_numbers(width: int, delta: float) -> None:
    check_integer("width", width, 1)
    if not 0 < check_number("delta", delta) < 1:
        raise InputError(f"delta must lie between 0 and 1, a probability of failure such as 0.05. Got {delta}.")
