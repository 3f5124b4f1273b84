"""Linear and convolutional layers: the input and the output gradient of a call, and the layer's kernel from both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F

Layer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a layer."""

    layer: Layer
    # Its unmodified input: (n * copies, ..., d) for a linear, (n * copies, channels, ...) for a convolutional
    # layer.
    features: Tensor
    version: int  # the input's version when it was read: a later version means that it was overwritten
    # The edge of the graph where the gradient of its output arrives; the tensor's own edge moves if it is
    # overwritten.
    edge: GradientEdge
    output_shape: torch.Size


@dataclass(frozen=True)
class Sizes:
    """The sizes of one call, for one input."""

    positions: int  # number P of positions where the weight is applied
    fan_in: int  # fan_in, fan_out: entries q read and d written at each position by one group
    fan_out: int
    groups: int  # groups of channels, 1 for a linear layer

    @classmethod
    def of(cls, call: Call, n: int) -> Sizes:
        """Read the sizes off a call on n inputs."""
        weight = call.layer.weight
        groups = 1 if isinstance(call.layer, nn.Linear) else call.layer.groups
        entries = prod(call.output_shape) // n
        if isinstance(call.layer, TRANSPOSED):  # the weight is (in, out of a group, *kernel)
            outputs = groups * weight.shape[1]
            return cls(entries // outputs, weight[:, 0].numel() // groups, weight.shape[1], groups)
        return cls(entries // weight.shape[0], weight[0].numel(), weight.shape[0] // groups, groups)

    def formed_cost(self, rows: int, pairs: float, outputs: int, full: bool) -> float:
        """Count the multiplications of forming each input's derivative: P q d c per row and q d c per pair."""
        weights = self.groups * self.fan_in * self.fan_out * outputs
        return rows * self.positions * weights + pairs * weights * (outputs if full else 1)

    def paired_cost(self, pairs: float, outputs: int, full: bool) -> float:
        """Count those of pairing positions: P^2 (q + d c) per pair, and P^2 outside any matrix product."""
        blocks = outputs**2 if full else outputs
        products = self.fan_in + self.fan_out * blocks + _ELEMENTWISE * (blocks if full else 1)
        return pairs * self.groups * self.positions**2 * products


_ELEMENTWISE = 8  # multiplying two matrices entrywise costs this many GEMM multiplications per entry


def structured_layers(module: nn.Module) -> dict[str, Layer]:
    """Find the layers whose forward is PyTorch's own, by path."""
    return {
        path: layer
        for path, layer in module.named_modules()
        if isinstance(layer, LAYERS) and any(type(layer).forward is own.forward for own in LAYERS)
    }


@contextmanager
def captured(layers: Sequence[Layer], differentiate: bool = False) -> Iterator[list[Call]]:
    """Record calls of the layers; with ``differentiate`` even the output of a frozen layer gets a gradient."""
    calls: list[Call] = []

    def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor:
        assert isinstance(layer, LAYERS)
        features: Tensor = args[0] if args else kwargs["input"]
        if differentiate and not output.requires_grad:
            output = output.detach().requires_grad_().clone()
        if output.requires_grad:
            if output._is_view():
                output = output.clone()  # overwriting a view would remove this edge from the graph
            calls.append(
                Call(layer, features.detach(), features._version, get_gradient_edge(output), output.shape)
            )  # fmt: skip
        return output

    # Runs before the user's hooks, which see, and may change, the layer's own output.
    handles = [layer.register_forward_hook(hook, with_kwargs=True, prepend=True) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def read_patches(call: Call, n: int) -> Tensor:
    """Return the patches a that the weight is applied to, (n, groups, P, q): its gradient is the sum over P of g a^T."""
    layer, features = call.layer, call.features
    if isinstance(layer, nn.Linear):
        return features.reshape(n, 1, -1, features.shape[-1])
    strides = layer.stride
    if isinstance(layer, TRANSPOSED):
        features, strides = _spread(call, layer), (1,) * len(layer.kernel_size)
    elif any(layer._reversed_padding_repeated_twice):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        features = F.pad(features, list(layer._reversed_padding_repeated_twice), mode=mode)
    for axis, (size, stride, dilation) in enumerate(zip(layer.kernel_size, strides, layer.dilation, strict=True)):
        features = features.unfold(2 + axis, (size - 1) * dilation + 1, stride)[..., ::dilation]
    axes = len(layer.kernel_size)
    copies, channels = len(features) // n, features.shape[1] // layer.groups
    # (n copies, channels, P..., k...) to (n, groups, channels k..., copies P...): copied along positions, which is fast
    features = features.reshape(n, copies, layer.groups, channels, *features.shape[2:])
    positions = range(4, 4 + axes)
    window = range(4 + axes, 4 + 2 * axes)
    features = features.permute(0, 2, 3, *window, 1, *positions)
    return features.flatten(3 + axes).flatten(2, 2 + axes).transpose(2, 3)


def _spread(call: Call, layer: nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d) -> Tensor:
    """Return a transposed convolution's input, zeros inserted between and around, as a stride-one convolution reads it."""
    features = call.features
    for axis, (size, stride, dilation) in enumerate(zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)):
        dim, reach, padding = 2 + axis, dilation * (size - 1), int(layer.padding[axis])
        shape = list(features.shape)
        shape[dim] = (shape[dim] - 1) * stride + 1
        apart = features.new_zeros(shape)
        apart[(slice(None),) * dim + (slice(None, None, stride),)] = features
        before = reach - padding
        after = call.output_shape[dim] + reach - before - shape[dim]
        features = F.pad(apart, (0, 0) * (features.ndim - 1 - dim) + (before, after))  # negative numbers crop
    return features


def read_gradients(call: Call, gradients: Tensor, n: int) -> Tensor:
    """Rearrange gradients of s outputs from (n * copies, s, ...) to (n, s, groups, d, P)."""
    s, layer = gradients.shape[1], call.layer
    gradients = gradients.unflatten(0, (n, -1)).transpose(1, 2)  # (n, s, copies, ...)
    if isinstance(layer, nn.Linear):
        return gradients.reshape(n, s, 1, -1, gradients.shape[-1]).transpose(3, 4)
    split = gradients.reshape(n, s, -1, layer.groups, gradients.shape[3] // layer.groups, prod(gradients.shape[4:]))
    return split.permute(0, 1, 3, 4, 2, 5).flatten(4)


def layer_gram(
    patches: tuple[Tensor, Tensor], gradients: tuple[Tensor, Tensor], full: bool, jacobian_first: bool, byte_budget: int
) -> Tensor:
    """Return a weight's kernel from a = (n, groups, P, q) and g = (n, s, groups, d, P) of both sides.

    The derivative of output o with respect to the weight is sum_P g_o(P) a(P)^T, so the kernel is
    sum_{P, P'} <a(P), a'(P')> <g_o(P), g'_o'(P')> (Beaglehole et al. 2024, Proposition 3, where P = 1): summed over outputs,
    shape (n1, n2), or for every pair of outputs, shape (n1, s1, n2, s2).
    """
    gram = _formed_gram if jacobian_first else _paired_gram
    a1, a2 = patches
    g1, g2 = gradients
    parts = [
        gram((a1[:, group], a2[:, group]), (g1[:, :, group], g2[:, :, group]), full, byte_budget)
        for group in range(a1.shape[1])
    ]
    return sum(parts[1:], start=parts[0])


def contract(first: Tensor, second: Tensor, full: bool) -> Tensor:
    """Contract derivatives (n, s, ...): the sum over outputs, (n1, n2), or every pair of outputs, (n1, s1, n2, s2)."""
    if not full:
        return first.flatten(1) @ second.flatten(1).T
    product = (
        first.reshape(first.shape[0] * first.shape[1], -1) @ second.reshape(second.shape[0] * second.shape[1], -1).T
    )
    return product.view(*first.shape[:2], *second.shape[:2])


def _formed_gram(a: tuple[Tensor, Tensor], g: tuple[Tensor, Tensor], full: bool, byte_budget: int) -> Tensor:
    """Form the derivatives of a block of the weight's rows at a time."""
    per_channel = sum(len(ai) * gi.shape[1] * ai.shape[2] * ai.element_size() for ai, gi in zip(a, g, strict=True))
    block = max(1, byte_budget // per_channel)
    total: Tensor | None = None
    for start in range(0, g[0].shape[2], block):
        sides = [_form(ai, gi[:, :, start : start + block]) for ai, gi in zip(a, g, strict=True)]
        value = contract(sides[0], sides[1], full)
        total = value if total is None else total.add_(value)
    assert total is not None
    return total


def _form(a: Tensor, g: Tensor) -> Tensor:
    """Return the derivatives (n, s, d, q) from a = (n, P, q) and g = (n, s, d, P)."""
    return (g.flatten(1, 2) @ a).view(*g.shape[:3], a.shape[2])


def _paired_gram(a: tuple[Tensor, Tensor], g: tuple[Tensor, Tensor], full: bool, byte_budget: int) -> Tensor:
    """Multiply the Gram matrix of the layer's inputs with that of its output gradients, position by position."""
    (a1, a2), (g1, g2) = a, g
    n1, n2, p1, p2 = len(a1), len(a2), a1.shape[1], a2.shape[1]
    s1, s2 = (g1.shape[1], g2.shape[1]) if full else (1, 1)
    rows = max(1, byte_budget // (3 * p1 * p2 * s1 * s2 * n2 * a1.element_size()))
    columns = n2 if rows > 1 else max(1, byte_budget // (3 * p1 * p2 * s1 * s2 * a1.element_size()))
    # (n, s, d, P) becomes (n, s, P, d) if outputs are kept separate, (n, 1, P, s d) if they are summed.
    e1, e2 = (
        gi.transpose(2, 3) if full else gi.permute(0, 3, 1, 2).flatten(2)[:, None] for gi in (g1, g2)
    )  # fmt: skip
    result = a1.new_empty(n1, s1, n2, s2)
    for i in range(0, n1, rows):
        for j in range(0, n2, columns):
            activation = a1[i : i + rows].flatten(0, 1) @ a2[j : j + columns].flatten(0, 1).T
            u, v = e1[i : i + rows], e2[j : j + columns]
            backward = u.flatten(0, 2) @ v.flatten(0, 2).T
            product = backward.view(len(u), s1, p1, len(v), s2, p2) * activation.view(len(u), 1, p1, len(v), 1, p2)
            result[i : i + rows, :, j : j + columns] = product.sum((2, 5))
    return result if full else result[:, 0, :, 0]


def layer_diag(patches: Tensor, gradients: Tensor, byte_budget: int) -> Tensor:
    """Return the squared norm of each output's derivative with respect to the weight, shape (n, s)."""
    result = patches.new_zeros(gradients.shape[:2])
    for group in range(patches.shape[1]):
        a, g = patches[:, group], gradients[:, :, group]
        if a.shape[1] == 1:
            result += (a[:, 0] ** 2).sum(1)[:, None] * (g[..., 0] ** 2).sum(2)
            continue
        block = max(1, byte_budget // (g.shape[0] * g.shape[1] * a.shape[2] * a.element_size()))
        for start in range(0, g.shape[2], block):
            result += (_form(a, g[:, :, start : start + block]) ** 2).flatten(2).sum(2)
    return result
