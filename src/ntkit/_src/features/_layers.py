"""Which layers of a module to measure, and whether they keep samples separate."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ntkit._src.common import check_integer, check_precision, shown
from ntkit._src.kernels.finite_network import TRANSPOSED, Layer, Network, structured_layers
from ntkit.errors import InputError, InputTypeError

from ._passes import Pass, run


def find_layers(module: nn.Module, layers: Sequence[str] | None = None) -> dict[str, Layer]:
    """Return the linear and convolutional layers by path, all of them or those named; refuse a module or names without any."""
    if not isinstance(module, nn.Module):
        raise InputTypeError(f"module must be a torch.nn.Module. Got {type(module).__name__}.")
    check_precision(module)
    # The weight of a transposed convolution is not a matrix from patches to channels, as feature matrices require.
    every = structured_layers(module)
    found: dict[str, Layer] = {path: layer for path, layer in every.items() if not isinstance(layer, TRANSPOSED)}
    if not found:
        raise InputError(
            f"the module must have an nn.Linear, nn.Conv1d, nn.Conv2d or nn.Conv3d. {type(module).__name__} has none."
        )
    if layers is None:
        return found
    if isinstance(layers, str) or not all(isinstance(path, str) for path in layers):
        raise InputTypeError(f'layers must be a sequence of paths, such as ["0", "2"]. Got {shown(layers)}.')
    unknown = [path for path in layers if path not in found]
    if unknown or not layers:
        raise InputError(
            f"layers must be paths of linear or convolutional layers: {', '.join(map(repr, found))}. "
            f"Got {unknown or list(layers)}."
        )
    return {path: found[path] for path in layers}


def check_batch_size(batch_size: int | None) -> None:
    """Refuse a batch size that is neither a positive integer nor None."""
    if batch_size is not None:
        check_integer("batch_size", batch_size, 1)


def check_measurable(module: nn.Module, x: Tensor, layers: dict[str, Layer]) -> Pass:
    """Refuse inputs and modules whose derivatives cannot be taken per sample; return the pass on the first rows.

    Raises
    ------
    InputError, InputTypeError
        For what :func:`ntkit.empirical` refuses too; for a layer that the forward pass does not use, or that mixes samples.
    """
    Network(module, "full").check(x, None, trained=False)
    look = run(module, x[:3], layers)
    idle = [path for path in layers if path not in look.calls]
    rows, reached = len(look.values), set()
    for row in range(rows if look.calls and look.values.requires_grad else 0):
        slope = torch.zeros_like(look.values)
        slope[row] = torch.linspace(1, 2, slope.shape[1])  # all outputs at once, without cancellation
        for path, gradients in look.gradients(slope, keep=True).items():
            for call, gradient in zip(look.calls[path], gradients, strict=True):
                if gradient is None:
                    continue
                reached.add(path)
                if not _stays_apart(gradient, row, rows):
                    raise InputError(
                        f"layer {path!r} must see each sample in separate rows, the batch first, shape (n * copies, ...). "
                        f"Got an output of shape {tuple(call.output_shape)} for {rows} samples, from which several samples "
                        f"are computed. Leave it out: layers={[other for other in layers if other != path]}."
                    )
    lost = [path for path in look.calls if path not in reached]
    if idle or lost:
        found = [f"never calls {', '.join(map(repr, idle))}"] if idle else []
        found += [f"computes outputs that do not depend on its calls of {', '.join(map(repr, lost))}"] if lost else []
        raise InputError(
            f"every layer must take part in the forward pass, by a call. The module {' and '.join(found)}. Call the layer if "
            "the forward uses its weight in a function, or name the layers to measure: "
            f"layers={[path for path in layers if path not in (*idle, *lost)]}."
        )
    return look


def row_bytes(look: Pass, layers: dict[str, Layer]) -> int:
    """Estimate the memory of one sample: inputs and outputs of the layers, the graph's copies, and a gradient."""
    entries = sum(call.features_entries + call.output_shape.numel() for path in layers for call in look.calls[path])
    return 4 * entries * look.values.element_size() // len(look.values) + 1


def _stays_apart(gradient: Tensor, row: int, rows: int) -> bool:
    if len(gradient) % rows:
        return False
    parts = gradient.reshape(rows, -1)
    return not bool((parts[:row] != 0).any() or (parts[row + 1 :] != 0).any())
