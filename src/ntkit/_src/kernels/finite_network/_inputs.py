"""The inputs of a module: one tensor, several, or keyword arguments, sliced together by rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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
