"""Elementwise functions: those with closed forms, and any other by quadrature."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src import program as ops
from ntkit._src.layers import Elementwise

from .._builder import EMPIRICAL, Builder, Refused, tensor_number
from .._values import Block, Field, Weight
from ._linear import check_plain, layer_parameters
from ._registry import matches

_CLOSED = "closed form"
_QUADRATURE = "by quadrature"


def apply_activation(builder: Builder, x: Field, phi: ops.Activation) -> Field:
    """Apply phi to every channel; each block of a concatenation has its own variance."""
    if phi.slopes() == (1.0, 1.0):
        return x

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
        return builder.add(
            ops.Pointwise(phi),
            (block.node,),
            builder.nodes[block.node].positions,
            why_not=f"it has passed through another activation ({phi}) with no layer between",
            centred=phi.odd,
            sources=info.sources | builder.own_source(),
        )

    return builder.each_block(x, apply)


def _skip_after_activation(builder: Builder, node: int) -> bool:
    """Return whether a node is a sum of Gaussian values and of values after an activation."""
    terms = builder.nodes[node].inputs
    return (
        isinstance(builder.nodes[node].op, ops.Sum)
        and any(builder.info[term].gaussian for term in terms)
        and any(_activated(builder, term) for term in terms)
    )


def _activated(builder: Builder, node: int) -> bool:
    """Return whether a value has passed through an activation, with only linear operations without weights since."""
    op = builder.nodes[node].op
    if builder.info[node].gaussian or isinstance(op, (ops.Attention, ops.Product)):
        return False
    return isinstance(op, ops.Pointwise) or any(_activated(builder, read) for read in builder.nodes[node].inputs)


def _register(
    make: Callable[..., ops.Activation],
    *keys: object,
    module: type[nn.Module] | None = None,
    options: tuple[str, ...] = (),
    note: str = "",
) -> None:
    """Register functions and a module class that apply ``make(**options)``, ordered as the function's; others are ignored."""
    activation = lru_cache(maxsize=256)(make)  # one object for equal settings, so that equal layers share their tables

    def build(builder: Builder, x: Field, *arguments: Any, **named: Any) -> Field:
        given = {**dict(zip(options, arguments, strict=False)), **{k: v for k, v in named.items() if k in options}}
        return apply_activation(builder, x, activation(**given))

    modules = {} if module is None else {module: lambda m, path: {name: getattr(m, name) for name in options}}
    family = _CLOSED if make().closed_form else _QUADRATURE
    matches(*keys, modules=modules, family=f"activation, {family}", note=note)(build)


def _relu() -> ops.Activation:
    return ops.Rectified(0.0, 1.0, label="relu")


def _leaky_relu(negative_slope: float = 0.01) -> ops.Activation:
    return ops.Rectified(float(negative_slope), 1.0, label="leaky relu")


def _gelu(approximate: str = "none") -> ops.Activation:
    return ops.GELU() if approximate == "none" else ops.any_function(_tanh_gelu, (), "gelu (tanh)")


def _tanh_gelu(z: Tensor) -> Tensor:
    return F.gelu(z, approximate="tanh")


_register(_relu, F.relu, F.relu_, torch.relu, torch.relu_, "relu", "relu_", module=nn.ReLU)
_register(
    partial(ops.Rectified, -1.0, 1.0, label="abs"), torch.abs, torch.absolute, operator.abs, "abs", "abs_", "absolute"
)
_register(ops.Erf, torch.erf, torch.special.erf, "erf", "erf_")
_register(partial(ops.NormalCDF, label="normal cdf"), torch.special.ndtr, "ndtr", "special_ndtr")
_register(ops.Sin, torch.sin, "sin", "sin_")
_register(ops.Cos, torch.cos, "cos", "cos_")
_register(ops.Exp, torch.exp, "exp", "exp_")
_register(ops.Sinh, torch.sinh, "sinh", "sinh_")
_register(ops.Cosh, torch.cosh, "cosh", "cosh_")
_register(ops.Expm1, torch.expm1, torch.special.expm1, "expm1", "expm1_")
_register(partial(ops.Polynomial, (0.0, 0.0, 1.0), label="square"), torch.square, "square", "square_")
_register(ops.Sign, torch.sign, torch.sgn, "sign", "sgn", "sign_")
_register(
    _leaky_relu, F.leaky_relu, F.leaky_relu_, "leaky_relu", "leaky_relu_",
    module=nn.LeakyReLU, options=("negative_slope",),
)  # fmt: skip


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
    return apply_activation(builder, x, ops.Rectified(slope, 1.0, label="prelu"))


_register(_gelu, F.gelu, torch._C._nn.gelu, "gelu", module=nn.GELU, options=("approximate",))


@matches(operator.pow, torch.pow, "pow", "pow_", family=f"activation, {_CLOSED}")
def power(builder: Builder, x: Any, exponent: Any) -> Field:
    """z^k for a whole k >= 0."""
    number = tensor_number(exponent)
    if not isinstance(x, Field) or number is None or number < 0 or number != int(number):
        raise Refused(
            f"a power of a random value with exponent {exponent}", "use a whole exponent >= 0, or ntkit.Elementwise", x
        )
    coefficients = (0.0,) * int(number) + (1.0,)
    return apply_activation(builder, x, ops.Polynomial(coefficients, label=f"power {int(number)}"))


@matches(torch.heaviside, "heaviside", family=f"activation, {_CLOSED}")
def step(builder: Builder, x: Field, values: Any) -> Field:
    """Heaviside's step."""
    at_zero = tensor_number(values)
    if at_zero is None:
        raise Refused("heaviside with a tensor of values at zero", "give one number", x)
    return apply_activation(builder, x, ops.Step(at_zero))


@matches(operator.gt, operator.ge, torch.gt, torch.ge, "gt", "ge")
def threshold_at_zero(builder: Builder, x: Any, y: Any) -> Field:
    """x > 0 as zeros and ones: the step function."""
    if not isinstance(x, Field) or tensor_number(y) != 0:
        raise Refused("a comparison of random values with something that is not zero", "compare with 0", x)
    return apply_activation(builder, x, ops.Step(0.0))


@matches(
    torch.clamp, torch.clip, "clamp", "clamp_", "clip", "clip_", family=f"activation, {_CLOSED}", note="clamp at zero"
)
def clamp(builder: Builder, x: Field, min: Any = None, max: Any = None) -> Field:
    """min(max(z, a), b) with numbers a and b."""
    bounds = tuple(None if bound is None else tensor_number(bound) for bound in (min, max))
    if any(bound is None and given is not None for bound, given in zip(bounds, (min, max), strict=True)):
        raise Refused("it clamps with bounds that are not numbers", "clamp with one number for all channels", x)
    return x if bounds == (None, None) else apply_activation(builder, x, _clamped(*bounds))


matches("clamp_min", "clamp_min_", torch.clamp_min)(clamp)
matches("clamp_max", "clamp_max_", torch.clamp_max)(lambda builder, x, max: clamp(builder, x, None, max))


@lru_cache(maxsize=256)  # one function for equal bounds, so that equal layers share their tables
def _clamped(low: float | None, high: float | None) -> ops.Activation:
    """Return min(max(z, low), high); None is no bound."""
    if (low, high) == (0.0, None):
        return _relu()
    if (low, high) == (None, 0.0):
        return ops.Rectified(1.0, 0.0, label="min(z, 0)")
    kinks = tuple(bound for bound in (low, high) if bound is not None)
    return ops.any_function(partial(torch.clamp, min=low, max=high), kinks, f"clamp {kinks}")


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
    phi = _clamped(number, None) if larger else _clamped(None, number)
    return apply_activation(builder, field, phi)


matches(torch.maximum, torch.fmax, "maximum", "fmax")(partial(_extreme, larger=True))
matches(torch.minimum, torch.fmin, "minimum", "fmin")(partial(_extreme, larger=False))


@matches(
    modules={Elementwise: lambda module, path: {"function": module.function, "kinks": module.kinks}},
    family=f"activation, {_QUADRATURE}",
    note="with an error estimate; any other function through `ntkit.Elementwise`",
)
def elementwise(builder: Builder, x: Field, function: Callable[[Tensor], Tensor], kinks: tuple[float, ...]) -> Field:
    """Any function."""
    return apply_activation(builder, x, function_activation(function, kinks, "function", x))


def function_activation(
    function: Callable[[Tensor], Tensor], kinks: tuple[float, ...], what: str, then: Field
) -> ops.Activation:
    """Return a user's function as an activation; refuse one with trained parameters."""
    if _holds_parameters(function):
        raise Refused(
            f"its {what} holds trained parameters, whose tangent kernel has no rule",
            "freeze them with requires_grad_(False), or write the function with numbers",
            then,
        )
    return ops.any_function(function, kinks, getattr(function, "__name__", "function"))


def _holds_parameters(function: object) -> bool:
    """Return whether a function closes over, is bound to or is called with trained parameters."""
    held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _filled(cell)]
    held += [*(getattr(function, "__defaults__", None) or ()), getattr(function, "__self__", None), function]
    if isinstance(function, partial):
        held += [*function.args, *function.keywords.values()]
        if _holds_parameters(function.func):
            return True
    tensors = [t for value in held for t in (value.parameters() if isinstance(value, nn.Module) else (value,))]
    return any(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in tensors)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # an unbound name
        return False


def _numerical(
    function: Callable[..., Tensor],
    *keys: object,
    module: type[nn.Module] | None = None,
    options: tuple[str, ...] = (),
    kinks: Callable[..., tuple[float, ...]] = lambda: (),
) -> None:
    """Register a function whose expectations are integrated numerically, with its kinks for given options."""

    def make(**given: Any) -> ops.Activation:
        return ops.any_function(partial(function, **given) if given else function, kinks(**given), function.__name__)

    _register(make, function, *keys, function.__name__, module=module, options=options)


def _at_zero(**options: Any) -> tuple[float, ...]:
    return (0.0,)


_numerical(torch.tanh, F.tanh, "tanh_", module=nn.Tanh)
_numerical(torch.sigmoid, F.sigmoid, torch.special.expit, "sigmoid_", module=nn.Sigmoid)


def sigmoid(builder: Builder, x: Field) -> Field:
    """Apply the logistic function."""
    return apply_activation(builder, x, ops.any_function(torch.sigmoid, (), "sigmoid"))


_numerical(F.silu, "silu_", module=nn.SiLU)
_numerical(F.elu, F.elu_, "elu_", module=nn.ELU, options=("alpha",), kinks=_at_zero)
_numerical(F.selu, torch.selu, "selu_", module=nn.SELU, kinks=_at_zero)
_numerical(F.celu, torch.celu, "celu_", module=nn.CELU, options=("alpha",), kinks=_at_zero)
_numerical(
    F.softplus, torch._C._nn.softplus, module=nn.Softplus, options=("beta", "threshold"),
    kinks=lambda beta=1.0, threshold=20.0: (threshold / beta,),
)  # fmt: skip
_numerical(F.mish, module=nn.Mish)
_numerical(F.softsign, module=nn.Softsign, kinks=_at_zero)
_numerical(
    F.hardtanh, F.hardtanh_, "hardtanh_", module=nn.Hardtanh, options=("min_val", "max_val"),
    kinks=lambda min_val=-1.0, max_val=1.0: (min_val, max_val),
)  # fmt: skip
_numerical(F.relu6, module=nn.ReLU6, kinks=lambda **options: (0.0, 6.0))
_numerical(F.hardswish, "hardswish_", module=nn.Hardswish, kinks=lambda **options: (-3.0, 3.0))
_numerical(F.hardsigmoid, "hardsigmoid_", module=nn.Hardsigmoid, kinks=lambda **options: (-3.0, 3.0))
_numerical(F.logsigmoid, torch._C._nn.log_sigmoid, module=nn.LogSigmoid)
_numerical(F.tanhshrink, module=nn.Tanhshrink)
_numerical(
    F.softshrink, torch._C._nn.softshrink, module=nn.Softshrink, options=("lambd",),
    kinks=lambda lambd=0.5: (-lambd, lambd),
)  # fmt: skip


def _hardshrink(lambd: float = 0.5) -> ops.Activation:
    if lambd <= 0:
        return ops.Polynomial((0.0, 1.0), label="identity")
    return ops.Discontinuous(partial(F.hardshrink, lambd=lambd), kinks=(-lambd, lambd), label="hardshrink")


def _threshold(threshold: float = 0.0, value: float = 1.0) -> ops.Activation:
    if threshold == value:  # max(z, threshold)
        return _clamped(threshold, None)
    function = partial(F.threshold, threshold=threshold, value=value)
    return ops.Discontinuous(function, kinks=(threshold,), label="threshold")


_register(_hardshrink, F.hardshrink, torch.hardshrink, "hardshrink", module=nn.Hardshrink, options=("lambd",),
          note="`Hardshrink` and `Threshold` that jump for the NNGP kernel alone")  # fmt: skip
_register(
    _threshold, F.threshold, torch.threshold, "threshold", "threshold_",
    module=nn.Threshold, options=("threshold", "value"),
)  # fmt: skip
_numerical(torch.atan, torch.arctan, "atan_", "arctan")
