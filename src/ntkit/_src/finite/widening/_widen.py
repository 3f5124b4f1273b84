"""The same architecture with wider hidden layers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ntkit._src.common import check_generator, check_module, check_number, copy_module, ntk_gains, strip_ntk
from ntkit._src.finite._initialize import reset_attention, seeded
from ntkit._src.finite._parametrize import check_readable, gain_tensors, parametrize_ntk
from ntkit._src.layers import SelfAttention
from ntkit.errors import InputError, InputTypeError

from ._equal_widths import Widths
from ._hidden_widths import Conflict, Shapes, find_widths, run, stretch
from ._resize import resize_input, resizing_layers


def widen(
    module: nn.Module,
    factor: float,
    example: Tensor | Sequence[Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return the same architecture with every hidden width multiplied.

    Inputs and outputs keep their sizes. Widths that meet in a residual sum grow together; one that is added to the input
    itself stays. Attention heads and their width grow equally, each by about the root of the factor. Groups, depths and
    kernels stay. Widths are found by running the module on meta tensors, so any code works whose reshapes take
    their sizes from the tensor (``x.flatten(1)``, not ``x.view(-1, 4096)``).

    Parameters
    ----------
    module
        Made of ``Linear``, ``Conv*``, ``ConvTranspose*``, ``Bilinear``, ``Embedding``, norms, ``PReLU``, ``MultiheadAttention``,
        ``SelfAttention`` and your own code around them. Your own parameters (a class token, a scale per channel)
        follow the widths that they meet, by repetition; widths that only such parameters define stay. It is not changed.
    factor
        Positive; every hidden width times the factor must be a whole number.
    example
        A batch of inputs, or one tensor per argument of the forward; only shapes matter. None guesses from the
        first layer.
    generator
        Generator of new weights; None: torch's global one.

    Returns
    -------
    nn.Module
        A new module of the same class, dtype, device and mode. Layers whose shape changes are redrawn as PyTorch does (as
        standard normals if the module is in the NTK parametrisation, which the new one then is too); others keep their
        values.

    Raises
    ------
    InputError
        If sizes are written into the forward, so that wider layers do not fit; the message names the place.

    Examples
    --------
    >>> import ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 10))
    >>> ntkit.widen(net, 4)
    Sequential(
      (0): Conv2d(3, 32, kernel_size=(3, 3), stride=(1, 1))
      (1): ReLU()
      (2): Flatten(start_dim=1, end_dim=-1)
      (3): Linear(in_features=28800, out_features=10, bias=True)
    )
    """
    check_module(module)
    check_generator(generator)
    check_number("factor", factor, positive=True)
    gains = ntk_gains(module)
    wide = strip_ntk(copy_module(module))
    _check_layers(module, wide)
    probe = copy.deepcopy(wide).eval().to("meta")
    widths, shapes = _settle(probe, _examples(probe, example), factor)
    changed = _resize(wide, widths, shapes, factor)
    _tie_again(module, wide)
    with seeded(generator):
        for path in changed:
            _draw(wide.get_submodule(path))
    if gains:
        parametrize_ntk(wide, 1.0, 0.0, gains)
        with torch.no_grad():
            for tensor in gain_tensors(wide):
                if any(tensor.path == path or tensor.path.startswith(f"{path}.") for path in changed):
                    parameter = tensor.parameter
                    parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return wide


def _settle(probe: nn.Module, candidates: Sequence[Sequence[Tensor]], factor: float) -> tuple[Widths, Shapes]:
    """Find the widths with the first example that the module accepts, and the shapes that arrive in the wider network."""
    failure = "it has no layer from which its input could be guessed"
    for examples in candidates:
        try:
            run(probe, examples, Widths(), None)
        except Conflict as conflict:
            failure = str(conflict)
            continue
        try:
            widths = find_widths(probe, examples)
            _, shapes = run(probe, examples, widths, widths.multiplied(factor))
        except Conflict as conflict:
            raise InputError(
                f"the module cannot be widened: {conflict}. A size is written into its forward. Take it from the tensor, such as "
                "x.flatten(1) for x.view(-1, 4096), or build the wider module by its own constructor."
            ) from conflict
        return widths, shapes
    raise InputError(
        f"the module could not be run on an example without values ({failure}). "
        "Give one that it accepts: ntkit.widen(module, factor, example=x)."
    )


def _resize(wide: nn.Module, widths: Widths, shapes: Shapes, factor: float) -> list[str]:
    """Resize every layer and return the paths of those whose tensors changed shape."""
    changed = []
    for path, layer in resizing_layers(wide):
        if path in shapes:
            before = [tensor.shape for tensor in layer.state_dict().values()]
            resize_input(layer, shapes[path][0], widths.multiplied(factor)(path))
            if before != [tensor.shape for tensor in layer.state_dict().values()]:
                changed.append(path)
    for name, dims in widths.free.items():
        stretch(wide, name, [(dim, factor) for dim, owner in dims.items() if widths.is_hidden(owner)])
    return changed


def _draw(layer: nn.Module) -> None:
    if isinstance(layer, nn.MultiheadAttention):
        reset_attention(layer)
    elif isinstance(layer, SelfAttention):
        for part in layer.modules():
            if isinstance(part, (nn.Linear, SelfAttention)):
                part.reset_parameters()
    else:
        reset = layer.reset_parameters
        assert callable(reset)
        reset()


def _tie_again(module: nn.Module, wide: nn.Module) -> None:
    """Tie parameters that are tied in the original."""
    first: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        name = name.replace("parametrizations.", "").removesuffix(".original")
        other = first.setdefault(id(parameter), name)
        if other == name:
            continue
        value = wide.get_parameter(other)
        if value.shape != wide.get_parameter(name).shape:
            raise InputError(
                f"the tied parameters {other!r} and {name!r} would have shapes {tuple(value.shape)} and "
                f"{tuple(wide.get_parameter(name).shape)} in the wider network. Untie them first."
            )
        path, _, own = name.rpartition(".")
        setattr(wide.get_submodule(path), own, value)


def _check_layers(module: nn.Module, plain: nn.Module) -> None:
    """Refuse what cannot be widened in a module, given also with plain weights."""
    check_readable(gain_tensors(plain), "widened")
    for path, layer in plain.named_modules():
        if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
            raise InputError(
                f"layer {path!r} ({type(layer).__name__}) cannot be widened: recurrent layers are not supported. "
                "Build the wider module by its own constructor."
            )
        if parametrize.is_parametrized(layer):
            raise InputError(
                f"layer {path!r} cannot be widened: it has its own parametrisation. Remove it first: "
                "torch.nn.utils.parametrize.remove_parametrizations(layer, name)."
            )
    # If only some layers are in the NTK parametrisation, the others have no gains to keep.
    unscaled = [tensor.path for tensor in gain_tensors(module) if tensor.source.scaling is None]
    if unscaled and ntk_gains(module):
        raise InputError(
            f"layer {unscaled[0]!r} cannot be widened: it is not in the NTK parametrisation, but other layers are. Write "
            "ntkit.remove_ntk(module) first, or parametrise the whole module."
        )


def _examples(module: nn.Module, example: Tensor | Sequence[Tensor] | None) -> list[list[Tensor]]:
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    if example is not None:
        given: list[Any] = list(example) if isinstance(example, (tuple, list)) else [example]
        if not given or not all(isinstance(x, Tensor) and x.ndim > 0 and len(x) > 0 for x in given):
            raise InputTypeError("example must be a batch of inputs, or one tensor for each argument of the forward.")
        return [[x.detach().to("meta", dtype if x.is_floating_point() else None) for x in given]]
    shapes, kind = _guesses(module)
    return [[torch.empty((2, *shape), dtype=kind or dtype, device="meta")] for shape in shapes]


def _guesses(module: nn.Module) -> tuple[list[tuple[int, ...]], torch.dtype | None]:
    """Guess input shapes from the first layer with weights; integers for an embedding."""
    for layer in module.modules():
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
            return [(8,), (16,), (32,), (64,), ()], torch.int64
        if isinstance(layer, nn.Linear):
            width = layer.in_features
            return [(width,), (4, width), (3, 8, 8), (1, 8, 8), (1, 28, 28), (3, 32, 32)], None
        for ndim in (1, 2, 3):
            if isinstance(layer, (getattr(nn, f"Conv{ndim}d"), getattr(nn, f"ConvTranspose{ndim}d"))):
                sides = (32, 28, 64, 16, 8, 4, 224) if ndim < 3 else (16, 8, 4)
                return [(layer.in_channels, *(side,) * ndim) for side in sides], None
    return [], None
