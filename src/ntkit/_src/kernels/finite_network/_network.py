"""A finite module as a function of its inputs and trained parameters, and the modules that have no tangent kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ntkit._src.common import (
    call_with,
    check_batches,
    check_integers,
    check_module,
    check_precision,
    measuring,
    random_layers,
    random_state,
)
from ntkit.errors import InputError, InputTypeError

Batch = Tensor | Sequence[Any] | Mapping[str, Any]
"""What a user passes: a tensor, a tuple of positional arguments, or a mapping of keyword arguments."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """A batch in the form of the module's call, ``module(*args, **kwargs)``."""

    # args, kwargs: Tensors of shape (n, ...), all with the same n; anything else is passed on unchanged.
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by the names that messages use for them."""
        alone = len(self.args) == 1 and not self.kwargs
        named = {"x" if alone else f"x[{index}]": value for index, value in enumerate(self.args)}
        named |= {f"x[{name!r}]": value for name, value in self.kwargs.items()}
        return {name: value for name, value in named.items() if isinstance(value, Tensor)}

    def like(self, tensors: Sequence[Tensor]) -> Inputs:
        """Return the same call with other tensors in place of :attr:`tensors`."""
        rest = iter(tensors)

        def replaced(value: Any) -> Any:
            return next(rest) if isinstance(value, Tensor) else value

        return Inputs(
            tuple(replaced(value) for value in self.args),
            {name: replaced(value) for name, value in self.kwargs.items()},
        )

    def __getitem__(self, rows: slice) -> Inputs:
        return self.like([tensor[rows] for tensor in self.tensors.values()])

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    @property
    def device(self) -> torch.device:
        """The device of the first tensor."""
        return next(iter(self.tensors.values())).device


def as_inputs(x: Batch | Inputs) -> Inputs:
    """Read what a user passed as inputs: a tensor, or a tuple or mapping with tensors of equally many rows."""
    if isinstance(x, Inputs):
        return x
    if isinstance(x, Tensor):
        return Inputs((x,), {})
    if isinstance(x, Mapping):
        inputs = Inputs((), dict(x))
    elif isinstance(x, (tuple, list)):
        inputs = Inputs(tuple(x), {})
    else:
        raise InputTypeError(
            "inputs must be a torch.Tensor of shape (n, ...), a tuple of positional arguments or a mapping of keyword arguments. "
            f"Got {type(x).__name__}. Write torch.as_tensor(x) for one array."
        )
    tensors = inputs.tensors
    if not tensors:
        raise InputTypeError(
            "inputs must hold at least one torch.Tensor of shape (n, ...). Got none. Write torch.as_tensor(x)."
        )
    scalars = [name for name, tensor in tensors.items() if tensor.ndim == 0]
    if scalars:
        raise InputError(f"{scalars[0]} must have one row for each input, shape (n, ...). Got a tensor without axes.")
    rows = {name: len(tensor) for name, tensor in tensors.items()}
    if len(set(rows.values())) > 1:
        raise InputError(
            f"all tensors of one batch must have the same number of rows. Got {rows}. "
            "Write tensor.expand(n, ...) for what all rows share."
        )
    return inputs


Output = Literal["trace", "sum", "full"] | int


@dataclass(frozen=True)
class Network:
    """A module and the requested outputs."""

    module: nn.Module  # read at every call, so a kernel follows the training of its module
    output: Output  # which outputs: see :func:`ntkit.empirical`
    # Extracts the output tensor, shape (n, ...), from what the module returns; None: the module returns that
    # tensor.
    read: Callable[[Any], Tensor] | None = None

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that require gradients, by name; a parameter with several names goes by the first."""
        return {name: parameter for name, parameter in self.module.named_parameters() if parameter.requires_grad}

    @property
    def full(self) -> bool:
        """Whether the kernel keeps the outputs separate."""
        return self.output == "full"

    def values(self, x: Batch | Inputs, parameters: Mapping[str, Tensor] | None = None) -> Any:
        """Run the module with its own or the given parameters; return its output, extracted by ``read``."""
        inputs = as_inputs(x)
        if parameters is None:
            returned = self.module(*inputs.args, **inputs.kwargs)
        else:
            returned = call_with(self.module, parameters, inputs.args, inputs.kwargs)
        return returned if self.read is None else self.read(returned)

    def __call__(self, x: Batch | Inputs, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return the requested outputs, shape (n, c), with the module's own or the given parameters."""
        values: Tensor = self.values(x, parameters)
        values = values.flatten(1) if values.ndim > 1 else values[:, None]
        if self.output == "sum":
            return values.sum(1, keepdim=True)
        return values[:, [self.output]] if isinstance(self.output, int) else values

    def check(self, x1: Batch | Inputs, x2: Batch | Inputs | None, trained: bool) -> None:
        """Refuse inputs that are empty, not finite, or not of the module's dtype and device, and modules without a kernel."""
        # These are modules that draw random numbers, change their own output, mix rows, compute in half precision, have no
        # trained parameters (where ``trained``), or whose output is not one differentiable tensor with a row for each input.
        check_module(self.module)
        check_precision(self.module)
        parameter = next(self.module.parameters(), None)
        if parameter is None or (trained and not self.trained):
            raise InputError(
                "the module must have a parameter that requires gradients: without one its tangent kernel is zero. "
                f"Got {sum(1 for _ in self.module.parameters())} parameters, all frozen. Write module.requires_grad_()."
            )
        first, second = as_inputs(x1), None if x2 is None else as_inputs(x2)
        names = list(first.tensors)
        if second is not None and list(second.tensors) != names:
            raise InputError(f"x1 and x2 must hold the same arguments. Got {names} and {list(second.tensors)}.")
        for name in names:
            pair = (first.tensors[name], None if second is None else second.tensors[name])
            _check_tensors(name, pair, parameter)
        check_modes(self.module)
        with measuring(self.module):
            self._check_output(larger(first, second)[:3])

    def _check_output(self, x: Inputs) -> None:
        before = random_state()
        try:
            with torch.no_grad(), _HalfPrecision() as rounded:
                values, alone, again = self.values(x), self.values(x[:1]), self.values(x)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            tensors = x.tensors.values()
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
            integers = [tensor.dtype for tensor in tensors if not tensor.is_floating_point()]
            kind = f" ({integers[0]}: write x.to(dtype) if the module takes no integers)" if integers else ""
            wrong = InputTypeError if integers else InputError
            raise wrong(f"the module cannot run on inputs of shape {shapes}{kind}: {error}") from error
        if not isinstance(values, Tensor):
            raise InputError(
                f"the module's output must be one tensor. Got {type(values).__name__}. "
                "Say which part of it is meant, such as output=lambda out: out.logits or output=lambda out: out[0]."
            )
        if values.ndim == 0 or len(values) != len(x) or len(alone) != 1 or values[:1].numel() == 0:
            raise InputError(
                "the module's output must have one row for each input, shape (n, ...). "
                f"Got {tuple(values.shape)} for {len(x)} inputs."
            )
        if not values.is_floating_point():
            raise InputError(
                f"the module's output must be differentiable. Got {values.dtype}. Return the values before argmax or rounding."
            )
        if rounded.dtype is not None:
            raise InputTypeError(
                f"the module must compute in float32 or float64: half precision cannot hold a kernel. Its forward computes in "
                f"{rounded.dtype} ({rounded.operation}). Remove the cast or autocast from it."
            )
        check_finite_output(values)
        if before != random_state():
            raise InputError("the module draws random numbers, so its kernel is not unique. Write module.eval().")
        scale = float(values.abs().max())
        if not torch.allclose(values, again, rtol=0, atol=100 * torch.finfo(values.dtype).eps * scale):
            raise InputError(
                "the module's output changes from call to call, so its kernel is not unique: its forward writes to a buffer that "
                "it reads, as the power iteration of a spectral norm does. Write module.eval()."
            )
        if not torch.allclose(values[:1], alone, rtol=0, atol=torch.finfo(values.dtype).eps ** 0.5 * scale):
            raise InputError(
                "the module's output for an input must not depend on the other inputs of its batch, as batch statistics do. "
                "Write module.eval()."
            )
        k = values[0].numel()
        if isinstance(self.output, int) and not -k <= self.output < k:
            raise InputError(f"output must be an index below the module's {k} outputs. Got {self.output}.")


def larger(x1: Inputs, x2: Inputs | None) -> Inputs:
    """Return the batch with more rows: one row does not show where a module keeps its batch, or whether it mixes rows."""
    return x1 if x2 is None or len(x1) >= len(x2) else x2


def _check_tensors(name: str, pair: tuple[Tensor, Tensor | None], parameter: nn.Parameter) -> None:
    """Refuse one unsuitable argument of the module, in both batches."""
    x1, x2 = pair
    names = (f"{name}1", f"{name}2") if name == "x" else (f"{name} of x1", f"{name} of x2")
    batches = {name: x1} if x2 is None else dict(zip(names, (x1, x2), strict=True))
    for label, x in batches.items():
        if x.device != parameter.device:
            raise InputTypeError(
                f"{label} must be on the device of the module's parameters, {parameter.device}. Got {x.device}. "
                f'Write {label}.to("{parameter.device}").'
            )
    if x1.is_floating_point():
        check_batches(x1, x2)
        if x1.dtype != parameter.dtype:
            raise InputTypeError(
                f"{name} must have the dtype of the module's parameters, {parameter.dtype}. Got {x1.dtype}. "
                f"Write {name}.to({parameter.dtype}), or module.to({x1.dtype})."
            )
    else:
        if x1.is_complex():
            raise InputTypeError(f"{name} must be real. Got {x1.dtype}.")
        check_integers(x1, x2)
    for label, x in batches.items():
        if x.requires_grad and torch.is_grad_enabled():
            raise InputTypeError(
                f"{label} must not require gradients: empirical kernels are not differentiable in their inputs. "
                f"Write {label}.detach()."
            )


def check_finite_output(values: Tensor) -> None:
    """Refuse a module whose output or kernel is not finite."""
    if not bool(torch.isfinite(values).all()):
        raise InputError(
            f"the module's outputs or their derivatives are NaN or beyond the range of {values.dtype}. "
            "Check its parameters, or scale the inputs."
        )


def check_modes(module: nn.Module) -> None:
    """Refuse a module whose outputs are random or depend on the whole batch."""
    found, random = [], random_layers(module)
    for path, layer in module.named_modules():
        batch = isinstance(layer, nn.modules.batchnorm._BatchNorm) and (layer.training or not layer.track_running_stats)
        if batch or path in random:
            why = "batch statistics" if batch else "random"
            found.append(f"{path or 'the module'} ({type(layer).__name__}, {why})")
    if found:
        raise InputError(
            "the module must be in evaluation mode: in training mode its outputs are random or depend on the whole batch. "
            f"Found {', '.join(found)}. Write module.eval() (and track_running_stats=True for batch norms)."
        )


class _HalfPrecision(TorchDispatchMode):
    """Notes the first operation whose result is of half precision, and its dtype: casts and autocast inside a forward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype: torch.dtype | None = None
        self.operation = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result) if self.dtype is None else ():
            if (
                isinstance(leaf, Tensor)
                and leaf.is_floating_point()
                and leaf.dtype not in (torch.float32, torch.float64)
            ):
                self.dtype, self.operation = leaf.dtype, str(func)
        return result
