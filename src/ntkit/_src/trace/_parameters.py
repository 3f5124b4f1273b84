"""A module's parameters before tracing: those declared to be fixed numbers, and what a copy of them would lose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ntkit._src.common import shown
from ntkit.errors import InputError, InputTypeError, Problem


def check_deterministic(module: nn.Module, paths: Sequence[str]) -> frozenset[str]:
    """Check that paths name submodules or parameters, all of them frozen."""
    if isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
        raise InputTypeError(
            f'deterministic must be a sequence of paths. Got {shown(paths)}. Write deterministic=("layer.path",).'
        )
    parameters = dict(module.named_parameters(remove_duplicate=False))
    known = set(dict(module.named_modules())) | set(parameters)
    for path in paths:
        if path not in known:
            raise InputError(f"deterministic names {path!r}, which the module does not have.")
        trained = [name for name, p in parameters.items() if p.requires_grad and fixed(name, frozenset({path}))]
        if trained:
            raise InputError(
                f"deterministic names {path!r}, whose parameters {trained} are trained. Freeze them first: "
                "requires_grad_(False)."
            )
    return frozenset(paths)


def fixed(path: str, deterministic: frozenset[str]) -> bool:
    """Return whether a parameter or submodule is deterministic, or inside a deterministic one."""
    return any(not name or path == name or path.startswith(f"{name}.") for name in deterministic)


def lost_by_copies(module: nn.Module) -> Iterator[Problem]:
    """Find what no copy of a module keeps: hooks on the gradients of parameters, and entries that share memory."""
    parameters = {name: p for name, p in module.named_parameters() if not is_lazy(p) and p.device.type != "meta"}
    for name, parameter in parameters.items():
        if parameter.requires_grad and parameter._backward_hooks:
            yield Problem(
                name,
                "Parameter",
                "it has a hook on its gradient (register_hook), so it is not trained by the derivative of the output",
                "remove the hook; to train only a part of the module, freeze the rest: requires_grad_(False)",
            )
    spans = sorted((_span(parameter), name) for name, parameter in parameters.items() if parameter.numel())
    for index, ((start, stop), name) in enumerate(spans):
        own = parameters[name]
        shared = "with each other" if (stop - start) // own.element_size() < own.numel() else ""
        for (_, before), other in spans[:index]:
            if before > start and bool(torch.isin(_places(own), _places(parameters[other])).any()):
                shared = f"with those of {other!r}"
        if shared:
            yield Problem(
                name,
                "Parameter",
                f"its entries share memory {shared}, so they are not independent",
                "give it memory of its own: nn.Parameter(tensor.clone())",
            )


def _span(parameter: Tensor) -> tuple[int, int]:
    """Return where a parameter's memory begins and ends, in bytes."""
    last = sum((size - 1) * stride for size, stride in zip(parameter.shape, parameter.stride(), strict=True))
    return parameter.data_ptr(), parameter.data_ptr() + (last + 1) * parameter.element_size()


def _places(parameter: Tensor) -> Tensor:
    """Return the address of each entry."""
    steps = [
        torch.arange(size).reshape(-1, *(1,) * (parameter.ndim - 1 - dim)) * (stride * parameter.element_size())
        for dim, (size, stride) in enumerate(zip(parameter.shape, parameter.stride(), strict=True))
    ]
    return parameter.data_ptr() + sum(steps, torch.zeros((), dtype=torch.int64)).flatten()
