"""Linear and convolutional layers: K' = w^2 M(K) + b^2, Theta' = K-terms of the trained parameters + w^2 M(Theta).

M is the identity for a linear layer and the mean over the window for a convolution, which moves over p and p' together:
M(K)[p, p'] = mean over e of K[s p + d e, s p' + d e]. It always divides by the full window; zero padding counts as zeros.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from ntkit._src.program import Conv, Dense, Gains, Keep, Keeps, pad

from ._covariance import Covariance, Ends, Moments
from ._rule import Cut, Inputs, Parts, Prefixes, Rule, Step, Window
from ._sketch import Draws, Features

LayerT = TypeVar("LayerT", Dense, Conv)


class _LayerRule(Rule[LayerT]):
    """What linear and convolutional layers have in common; their channels are centred."""

    keeps_h = True
    sizes = True

    def scales(self, op: LayerT, inputs: bool) -> bool:
        return inputs and not isinstance(op.gains.b_std, Tensor) and op.gains.b_std == 0

    def without_random_features(self, step: Step[LayerT]) -> str | None:
        if any(isinstance(gain, Tensor) for gain in vars(step.op.gains).values()):
            return "gains that are tensors have no random features; pass numbers"
        return None


class DenseRule(_LayerRule[Dense], ops=(Dense,)):
    """A fully connected layer at every position."""

    local = True

    def covariance(self, step: Step[Dense], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        return fresh_weights(step.op.gains, inputs[0].settled())

    def random_features(self, step: Step[Dense], inputs: Parts, data: Moments, draws: Draws) -> Features:
        return _fresh_features(step.op.gains, inputs[0])


class ConvRule(_LayerRule[Conv], ops=(Conv,)):
    """A convolution."""

    def covariance(self, step: Step[Conv], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        op, x = step.op, inputs[0].settled()
        mean = x.map(lambda k: _window_mean(op, x, k), moves=not (_pads_zeros(op) and Keep.ALL in x.keeps))
        if x.h is not None and mean.h is None:
            mean = replace(mean, h=_uneven_mean(op, x, x.h, ends.variances(step.node.inputs[0], x.keeps)))
        return fresh_weights(op.gains, mean)

    def reads_variance(self, op: Conv) -> bool:
        return _pads_zeros(op)

    def crop(self, step: Step[Conv], window: Window, prefixes: Prefixes) -> Cut | None:
        op, positions = step.op, step.sources[0].node.positions
        read, padding = list(window), list(op.padding)
        for index, axis in enumerate(op.axes):
            start = window[axis].start * op.stride[index] - padding[index][0]
            last = (window[axis].stop - 1) * op.stride[index] - padding[index][0]
            stop = last + op.dilation[index] * (op.kernel[index] - 1) + 1
            padding[index] = (max(0, -start), max(0, stop - positions[axis]))
            read[axis] = range(max(0, start), min(positions[axis], stop))
        if op.circular or not all(read):  # it reads the other end, or every window lies in the padding
            return None
        return Cut(replace(op, padding=tuple(padding)), (tuple(read),))

    def random_features(self, step: Step[Conv], inputs: Parts, data: Moments, draws: Draws) -> Features:
        root = math.sqrt(math.prod(step.op.kernel))
        return _fresh_features(step.op.gains, inputs[0].map(lambda v: torch.cat([*step.op.taps(v)], -1) / root))


def _pads_zeros(op: Conv) -> bool:
    """Return whether the field has zero padding: then p may lie in it while p' does not."""
    return not op.circular and any(any(sides) for sides in op.padding)


def fresh_weights(gains: Gains, mean: Covariance) -> Covariance:
    """Return K and Theta of a layer from those of what its weights multiply, averaged over the window."""
    weight = gains.w_std**2
    nngp = _scaled(mean.nngp, weight, gains.b_std**2)
    if gains.trained:
        ntk: Tensor | None = _scaled(mean.nngp, gains.weight_rate, gains.bias_rate)
        if ntk is not None and mean.ntk is not None:
            ntk = ntk + weight * mean.ntk if isinstance(weight, Tensor) else torch.add(ntk, mean.ntk, alpha=weight)
    else:
        ntk = None if mean.ntk is None else weight * mean.ntk
    h = None if mean.h is None else weight * mean.h  # a bias cancels in x - x', and r x - x' has none
    return Covariance(nngp, ntk, mean.keeps, h=h, ratio=mean.ratio)


def _scaled(k: Tensor, factor: float | Tensor, shift: float | Tensor) -> Tensor:
    """Return factor k + shift, in one pass where both are numbers."""
    if isinstance(factor, Tensor) or isinstance(shift, Tensor):
        return factor * k + shift
    return torch.add(k.new_full((), shift), k, alpha=factor) if shift else factor * k


def _uneven_mean(op: Conv, x: Covariance, h: Tensor, variances: tuple[Tensor, Tensor] | None) -> Tensor | None:
    """Return the window mean of H: where only p lies in the padding, K is zero and H half the variance at p'."""
    if variances is None:
        return None
    if x.multiple is not None:
        variances = x.multiple**2 * variances[0], variances[1]

    def padded(k: Tensor, sides: tuple[int, ...]) -> Tensor:
        for index, axis in enumerate(op.axes):
            dims = x.dims(axis)
            for dim in dict.fromkeys(dims[min(side, len(dims) - 1)] for side in sides):
                k = pad(k, dim, *op.padding[index], op.circular)
        return k

    h = padded(h, (0, 1))
    inside = [padded(torch.ones_like(q[(slice(1),) * x.pair_dims]), (side,)) for side, q in enumerate(variances)]
    for side, q in enumerate(variances):
        h = h + padded(q, (side,)) * ((1 - inside[1 - side]) / 2)
    return _window_mean(op, x, h, padded=True)


def _window_mean(op: Conv, x: Covariance, k: Tensor, padded: bool = False) -> Tensor:
    # The window is a product of intervals, so the mean is taken one axis at a time.
    for index, axis in enumerate(op.axes):
        dims = x.dims(axis)
        outs = [op.output_size(index, x.nngp.shape[dim]) for dim in dims]
        kernel, stride, dilation = op.kernel[index], op.stride[index], op.dilation[index]
        if not padded:
            for dim in dims:
                k = pad(k, dim, *op.padding[index], op.circular)
        total: Tensor | None = None
        for e in range(kernel):
            part = k
            for dim, out in zip(dims, outs, strict=True):
                start = e * dilation
                part = part[(slice(None),) * dim + (slice(start, start + (out - 1) * stride + 1, stride),)]
            total = part if total is None else total + part
        assert total is not None
        k = total / kernel if kernel > 1 else total
    return k


def _fresh_features(gains: Gains, x: Features) -> Features:
    """K' = w^2 K + b^2 and Theta' = weight_rate K + bias_rate + w^2 Theta as concatenated vectors."""
    w, b, weight_rate, bias_rate = (float(gain) for gain in vars(gains).values())
    one = x.phi.new_ones(*x.phi.shape[:-1], 1)
    phi = torch.cat([w * x.phi, b * one], -1) if b else w * x.phi
    parts = [math.sqrt(weight_rate) * x.phi] if weight_rate else []
    parts += [math.sqrt(bias_rate) * one] if bias_rate else []
    parts += [w * x.psi] if x.psi is not None else []
    return Features(phi, torch.cat(parts, -1) if parts else None)
