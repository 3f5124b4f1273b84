"""Elementwise functions: those with closed forms, and any other by quadrature."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src.layers import Elementwise
from ntkit._src.program import Activation, Pointwise, Sum

from .._builder import EMPIRICAL, Builder, Refused, tensor_number
from .._values import Block, Field, Weight
from ._linear import check_plain, layer_parameters
from ._registry import matches

__all__ = ["apply_activation", "holds_parameters", "sigmoid"]

_CLOSED = "closed form"
_QUADRATURE = "by quadrature"
_ACTIVATED = "it has passed through another activation"


def apply_activation(builder: Builder, x: Field, phi: Activation) -> Field:
    """Apply phi to every channel; each block of a concatenation has its own variance."""
    if phi.name == "rectified" and phi.parameters[0] == phi.parameters[1] == 1.0:
        return x
    odd = (
        phi.name in ("erf", "sin", "sign")
        or (phi.name == "polynomial" and not any(phi.parameters[::2]))
        or (phi.name == "rectified" and phi.parameters[0] == phi.parameters[1])
    )

    def apply(block: Block) -> int:
        info = builder.info[block.node]
        if not info.gaussian and _skip_after_activation(builder, block.node):
            raise Refused(
                "an activation of a sum whose skip connection has passed through an activation already, so that the sum is not "
                "Gaussian (a residual block with its activation after the sum)",
                "use pre-activation blocks, without an activation after the sum: "
                "h = x + conv2(act(conv1(act(x)))) instead of h = act(x + conv2(act(conv1(x)))), and one act before the head",
                x,
            )
        if not info.gaussian:
            raise Refused(
                f"an activation of a value that is not Gaussian: {info.why_not}",
                "put a layer with its own weights (nn.Linear, nn.Conv) before it, or wrap a composed elementwise function "
                "in ntkit.Elementwise",
                x,
            )
        if info.affine == "part":
            raise Refused(
                "an activation of a value only part of which a trained affine weight multiplies, or whose weights per "
                "position were then averaged over; the tangent kernel of such a weight has no rule",
                "freeze the normalisation's weight (weight.requires_grad_(False)), or put a layer between",
                x,
            )
        sources = info.sources | builder.own_source()
        return builder.add(
            Pointwise(phi),
            (block.node,),
            builder.nodes[block.node].positions,
            gaussian=False,
            why_not=f"{_ACTIVATED} ({phi}) with no layer between",
            centred=odd,
            sources=sources,
        )

    return builder.each_block(x, apply)


def _skip_after_activation(builder: Builder, node: int) -> bool:
    """Return whether a node is a sum of Gaussian values and of values after an activation."""
    infos = [builder.info[term] for term in builder.nodes[node].inputs]
    activated = any(_ACTIVATED in info.why_not for info in infos)
    return isinstance(builder.nodes[node].op, Sum) and activated and any(info.gaussian for info in infos)


def _fixed(phi: Activation) -> Callable[..., Field]:
    return lambda builder, x, *arguments, **options: apply_activation(builder, x, phi)


def _no_arguments(module: Any, path: str) -> dict[str, Any]:
    return {}


def _register(phi: Activation, *functions: object, module: type[nn.Module] | None = None) -> None:
    note = _QUADRATURE if phi.name == "quadrature" else _CLOSED
    modules = {} if module is None else {module: _no_arguments}
    matches(*functions, modules=modules, family=f"activation, {note}")(_fixed(phi))


_register(
    Activation("rectified", (0.0, 1.0), label="relu"),
    F.relu,
    F.relu_,
    torch.relu,
    torch.relu_,
    "relu",
    "relu_",
    module=nn.ReLU,
)
_register(
    Activation("rectified", (-1.0, 1.0), label="abs"),
    torch.abs,
    torch.absolute,
    operator.abs,
    "abs",
    "abs_",
    "absolute",
)
_register(Activation("erf"), torch.erf, torch.special.erf, "erf", "erf_")
_register(Activation("sin"), torch.sin, "sin", "sin_")
_register(Activation("cos"), torch.cos, "cos", "cos_")
_register(Activation("exp"), torch.exp, "exp", "exp_")
_register(Activation("sinh"), torch.sinh, "sinh", "sinh_")
_register(Activation("cosh"), torch.cosh, "cosh", "cosh_")
_register(Activation("expm1"), torch.expm1, torch.special.expm1, "expm1", "expm1_")
_register(Activation("polynomial", (0.0, 0.0, 1.0), label="square"), torch.square, "square", "square_")
_register(Activation("sign"), torch.sign, torch.sgn, "sign", "sgn", "sign_")


@matches(
    F.leaky_relu, F.leaky_relu_, "leaky_relu", "leaky_relu_",
    modules={nn.LeakyReLU: lambda module, path: {"negative_slope": module.negative_slope}},
    family=f"activation, {_CLOSED}",
)  # fmt: skip
def leaky_relu(builder: Builder, x: Field, negative_slope: float = 0.01, inplace: bool = False) -> Field:
    """Apply a min(z, 0) + max(z, 0)."""
    return apply_activation(builder, x, Activation("rectified", (float(negative_slope), 1.0), label="leaky relu"))


@matches(
    F.prelu, torch.prelu, "prelu",
    modules={nn.PReLU: lambda module, path: {"weight": layer_parameters(module, path)["weight"]}},
    family=f"activation, {_CLOSED}",
    note="PReLU with one frozen slope; sign and step for the NNGP kernel alone",
)  # fmt: skip
def prelu(builder: Builder, x: Field, weight: object) -> Field:
    """Leaky ReLU with the slope that the module holds."""
    if isinstance(weight, Weight):
        check_plain(weight, then=x)
    if isinstance(weight, Weight) and weight.trained:
        raise Refused(
            "a trained PReLU slope: it is one number for all channels, so its gradient stays random however wide they are",
            "freeze it: module.weight.requires_grad_(False)",
            x,
        )
    slope = tensor_number(weight)
    if slope is None:
        raise Refused("PReLU with a slope per channel, so that channels differ", "use one slope: nn.PReLU()", x)
    return apply_activation(builder, x, Activation("rectified", (slope, 1.0), label="prelu"))


@matches(
    F.gelu, torch._C._nn.gelu, "gelu",
    modules={nn.GELU: lambda module, path: {"approximate": module.approximate}},
    family=f"activation, {_CLOSED}",
)  # fmt: skip
def gelu(builder: Builder, x: Field, *, approximate: str = "none") -> Field:
    """z Phi(z) in closed form; the tanh approximation by quadrature."""
    if approximate == "none":
        return apply_activation(builder, x, Activation("gelu"))
    return apply_activation(builder, x, Activation("quadrature", function=_tanh_gelu, label="gelu (tanh)"))


def _tanh_gelu(z: Tensor) -> Tensor:
    return F.gelu(z, approximate="tanh")


@matches(operator.pow, torch.pow, "pow", "pow_", family=f"activation, {_CLOSED}")
def power(builder: Builder, x: Any, exponent: Any) -> Field:
    """z^k for a whole k >= 0."""
    number = tensor_number(exponent)
    if not isinstance(x, Field) or number is None or number < 0 or number != int(number):
        raise Refused(
            f"a power of a random value with exponent {exponent}", "use a whole exponent >= 0, or ntkit.Elementwise", x
        )
    if number == 1:
        return x
    coefficients = (0.0,) * int(number) + (1.0,)
    return apply_activation(builder, x, Activation("polynomial", coefficients, label=f"power {int(number)}"))


@matches(torch.heaviside, "heaviside", family=f"activation, {_CLOSED}")
def step(builder: Builder, x: Field, values: Any) -> Field:
    """Heaviside's step."""
    at_zero = tensor_number(values)
    if at_zero is None:
        raise Refused("heaviside with a tensor of values at zero", "give one number", x)
    return apply_activation(builder, x, Activation("step", (at_zero,)))


@matches(operator.gt, operator.ge, torch.gt, torch.ge, "gt", "ge")
def threshold_at_zero(builder: Builder, x: Any, y: Any) -> Field:
    """x > 0 as zeros and ones: the step function."""
    if not isinstance(x, Field) or tensor_number(y) != 0:
        raise Refused("a comparison of random values with something that is not zero", "compare with 0", x)
    return apply_activation(builder, x, Activation("step", (0.0,)))


def _bounded(builder: Builder, x: Field, low: float | None, high: float | None) -> Field:
    """Apply min(max(z, low), high)."""
    if (low, high) == (None, None):
        return x
    if (low, high) == (0.0, None):
        return apply_activation(builder, x, Activation("rectified", (0.0, 1.0), label="relu"))
    if (low, high) == (None, 0.0):
        return apply_activation(builder, x, Activation("rectified", (1.0, 0.0), label="min(z, 0)"))
    bounds = tuple(bound for bound in (low, high) if bound is not None)
    function = partial(torch.clamp, min=low, max=high)
    phi = Activation("quadrature", function=function, kinks=bounds, label=f"clamp {bounds}")
    return apply_activation(builder, x, _unique.setdefault((torch.clamp, low, high), phi))


@matches(
    torch.clamp, torch.clip, "clamp", "clamp_", "clip", "clip_", family=f"activation, {_CLOSED}", note="clamp at zero"
)
def clamp(builder: Builder, x: Field, min: Any = None, max: Any = None) -> Field:
    """min(max(z, a), b) with numbers a and b."""
    return _clamped(builder, x, min, max)


def _clamped(builder: Builder, x: Field, low: Any, high: Any) -> Field:
    bounds = [None if bound is None else tensor_number(bound) for bound in (low, high)]
    if any(bound is None and given is not None for bound, given in zip(bounds, (low, high), strict=True)):
        raise Refused("it clamps with bounds that are not numbers", "clamp with one number for all channels", x)
    return _bounded(builder, x, *bounds)


@matches("clamp_min", "clamp_min_", torch.clamp_min)
def clamp_min(builder: Builder, x: Field, min: Any) -> Field:
    """max(z, a)."""
    return _clamped(builder, x, min, None)


@matches("clamp_max", "clamp_max_", torch.clamp_max)
def clamp_max(builder: Builder, x: Field, max: Any) -> Field:
    """min(z, b)."""
    return _clamped(builder, x, None, max)


def _extreme(builder: Builder, x: Any, y: Any, larger: bool) -> Field:
    field, other = (x, y) if isinstance(x, Field) else (y, x)
    number = tensor_number(other)
    if number is None:
        name = "larger" if larger else "smaller"
        raise Refused(
            f"the {name} of two random or unequal values has no closed-form covariance",
            f"compare with one number, as torch.clamp does; or {EMPIRICAL}",
            field,
        )
    return _bounded(builder, field, number if larger else None, None if larger else number)


@matches(torch.maximum, torch.fmax, "maximum", "fmax")
def maximum(builder: Builder, x: Any, y: Any) -> Field:
    """max(z, a)."""
    return _extreme(builder, x, y, larger=True)


@matches(torch.minimum, torch.fmin, "minimum", "fmin")
def minimum(builder: Builder, x: Any, y: Any) -> Field:
    """min(z, b)."""
    return _extreme(builder, x, y, larger=False)


@matches(
    modules={Elementwise: lambda module, path: {"function": module.function, "kinks": module.kinks}},
    family=f"activation, {_QUADRATURE}",
    note="with an error estimate; any other function through `ntkit.Elementwise`",
)
def elementwise(builder: Builder, x: Field, function: Callable[[Tensor], Tensor], kinks: tuple[float, ...]) -> Field:
    """Any function."""
    if holds_parameters(function):
        raise Refused(
            "its function holds trained parameters, whose tangent kernel has no rule",
            "freeze them with requires_grad_(False), or write the function with numbers",
            x,
        )
    label = getattr(function, "__name__", "function")
    return apply_activation(builder, x, Activation("quadrature", function=function, kinks=kinks, label=label))


def holds_parameters(function: object) -> bool:
    """Return whether a function closes over, is bound to or is called with trained parameters."""
    held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _filled(cell)]
    held += [*(getattr(function, "__defaults__", None) or ()), getattr(function, "__self__", None), function]
    if isinstance(function, partial):
        held += [*function.args, *function.keywords.values()]
        if holds_parameters(function.func):
            return True
    tensors = [t for value in held for t in (value.parameters() if isinstance(value, nn.Module) else (value,))]
    return any(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in tensors)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # an unbound name
        return False


def _quadrature(
    function: Callable[..., Tensor],
    *keys: object,
    module: type[nn.Module] | None = None,
    options: tuple[str, ...] = (),
    kinks: Callable[..., tuple[float, ...]] = lambda: (),
) -> None:
    """Register a function whose expectations are integrated numerically; ``options`` are its parameters in order."""

    def build(builder: Builder, x: Field, *arguments: Any, inplace: bool = False, **named: Any) -> Field:
        given = {**dict(zip(options, arguments, strict=False)), **{k: v for k, v in named.items() if k in options}}
        bound = partial(function, **given) if given else function
        phi = Activation("quadrature", function=bound, kinks=kinks(**given), label=function.__name__)
        return apply_activation(builder, x, _unique.setdefault((function, tuple(sorted(given.items()))), phi))

    modules = {} if module is None else {module: lambda m, path: {name: getattr(m, name) for name in options}}
    matches(function, *keys, function.__name__, modules=modules, family=f"activation, {_QUADRATURE}")(build)


# One Activation per function and setting, so that equal layers share their tables.
_unique: dict[Any, Activation] = {}


def _at_zero(**options: Any) -> tuple[float, ...]:
    return (0.0,)


_quadrature(torch.tanh, F.tanh, "tanh_", module=nn.Tanh)
_quadrature(torch.sigmoid, F.sigmoid, torch.special.expit, "sigmoid_", module=nn.Sigmoid)


def sigmoid(builder: Builder, x: Field) -> Field:
    """Apply the logistic function."""
    phi = Activation("quadrature", function=torch.sigmoid, label="sigmoid")
    return apply_activation(builder, x, _unique.setdefault((torch.sigmoid, ()), phi))


_quadrature(F.silu, "silu_", module=nn.SiLU)
_quadrature(F.elu, F.elu_, "elu_", module=nn.ELU, options=("alpha",), kinks=_at_zero)
_quadrature(F.selu, torch.selu, "selu_", module=nn.SELU, kinks=_at_zero)
_quadrature(F.celu, torch.celu, "celu_", module=nn.CELU, options=("alpha",), kinks=_at_zero)
_quadrature(
    F.softplus, torch._C._nn.softplus, module=nn.Softplus, options=("beta", "threshold"),
    kinks=lambda beta=1.0, threshold=20.0: (threshold / beta,),
)  # fmt: skip
_quadrature(F.mish, module=nn.Mish)
_quadrature(F.softsign, module=nn.Softsign, kinks=_at_zero)
_quadrature(
    F.hardtanh, F.hardtanh_, "hardtanh_", module=nn.Hardtanh, options=("min_val", "max_val"),
    kinks=lambda min_val=-1.0, max_val=1.0: (min_val, max_val),
)  # fmt: skip
_quadrature(F.relu6, module=nn.ReLU6, kinks=lambda **options: (0.0, 6.0))
_quadrature(F.hardswish, "hardswish_", module=nn.Hardswish, kinks=lambda **options: (-3.0, 3.0))
_quadrature(F.hardsigmoid, "hardsigmoid_", module=nn.Hardsigmoid, kinks=lambda **options: (-3.0, 3.0))
_quadrature(F.logsigmoid, torch._C._nn.log_sigmoid, module=nn.LogSigmoid)
_quadrature(F.tanhshrink, module=nn.Tanhshrink)
_quadrature(
    F.softshrink, torch._C._nn.softshrink, module=nn.Softshrink, options=("lambd",),
    kinks=lambda lambd=0.5: (-lambd, lambd),
)  # fmt: skip
_quadrature(torch.atan, torch.arctan, "atan_", "arctan")
