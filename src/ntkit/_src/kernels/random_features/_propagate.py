"""Random features of a program, operation by operation: phi for the NNGP kernel, psi for the tangent kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from torch.func import jvp
from torch.nn import functional as F

from ntkit._src.program import (
    Activation,
    Arrange,
    Concat,
    Constant,
    Contract,
    Conv,
    Dense,
    Gains,
    Input,
    Node,
    Normalize,
    Pointwise,
    PositionMap,
    Product,
    Program,
    Sum,
)
from ntkit._src.rules import read_data
from ntkit.errors import Problem, UnsupportedLayerError

from ._sketch import CountSketch, Gaussian, TensorSketch

__all__ = ["Propagation", "check_sketchable"]


@dataclass(frozen=True)
class Features:
    """The features of a node.

    Attributes
    ----------
    phi
        Shape (n, *positions, d): phi . phi' estimates K.
    psi
        Shape (n, *positions, d'): psi . psi' estimates Theta; None where Theta is zero.
    """

    phi: Tensor
    psi: Tensor | None


@dataclass
class Propagation:
    r"""Features of a program for one set of random draws (Zandieh et al. 2021, Han et al. 2022).

    A linear layer concatenates vectors. An activation becomes :math:`\phi' = \sigma(W \phi) / \sqrt{m}` with W standard
    normal (arc-cosine features for a ReLU), since :math:`W \phi` is Gaussian with covariance :math:`\phi \cdot \phi'`. The
    tangent kernel's product :math:`\Theta\, E[\sigma' \sigma']` becomes a sketch of :math:`\sigma'(W \phi) \otimes \psi`.

    Attributes
    ----------
    program
        The network.
    width
        Number m of random neurons per activation.
    sketch
        The size of sketches of psi.
    generator
        Generator of the draws; each is made when first needed and then kept.
    """

    program: Program
    width: int
    sketch: int
    generator: torch.Generator
    _drawn: dict[tuple[int, str], Gaussian | CountSketch | TensorSketch] = field(default_factory=dict)

    def run(self, x: Tensor, ntk: bool) -> Tensor:
        """Return the features of a batch, shape (n, d)."""
        check_sketchable(self.program)
        data = read_data(self.program, x).data
        values: list[Features] = []
        for number, node in enumerate(self.program.nodes):
            if isinstance(node.op, Input):
                channels = data[node.op.prefix, node.op.channel].to(x.dtype)
                values.append(Features(channels / math.sqrt(node.op.channels), None))
            else:
                values.append(self._apply(number, node, [values[read] for read in node.inputs], x))
        phi, psi = values[-1].phi, values[-1].psi
        if not ntk:
            return phi
        return phi.new_zeros(len(x), 1) if psi is None else psi

    def _apply(self, number: int, node: Node, inputs: list[Features], x: Tensor) -> Features:
        match node.op:
            case Dense(gains=gains):
                return _affine(inputs[0], gains)
            case Conv() as op:
                return _affine(_both(inputs[0], partial(_windows, op)), op.gains)
            case Pointwise(phi=phi):
                return self._activation(number, inputs[0], phi)
            case Contract(axes=axes):
                return Features(
                    self._compressed(number, "phi", _merged(inputs[0].phi, axes), self.width),
                    None
                    if inputs[0].psi is None
                    else self._compressed(number, "psi", _merged(inputs[0].psi, axes), self.sketch),
                )
            case PositionMap() as op:
                return _both(inputs[0], partial(_mapped, op))
            case Arrange() as op:
                return _both(inputs[0], partial(_arranged, op))
            case Normalize() as op:
                square = inputs[1].phi.square().sum(-1)
                for axis in op.axes:
                    square = square.mean(axis + 1, keepdim=True)
                scale = (square + op.eps).rsqrt()[..., None]
                return _both(inputs[0], lambda v: v * scale)
            case Sum(coefficients=weights):
                return _beside(inputs, weights)
            case Concat(fractions=fractions):
                return _beside(inputs, tuple(math.sqrt(fraction) for fraction in fractions))
            case Product():
                return self._product(number, *inputs)
            case Constant(value=value):
                return Features(x.new_full((len(x), *node.positions, 1), value), None)
        raise NotImplementedError(type(node.op).__name__)

    def _activation(self, number: int, x: Features, phi: Activation) -> Features:
        pre = self._gaussian(number, x.phi)(x.phi)
        root = math.sqrt(self.width)
        if x.psi is None:
            return Features(phi(pre) / root, None)
        derived: tuple[Tensor, Tensor] = jvp(phi, (pre,), (torch.ones_like(pre),))  # type: ignore[assignment]
        value, slope = derived
        sketch = self._tensor_sketch(number, "psi", slope, x.psi)
        return Features(value / root, sketch(slope / root, x.psi))

    def _product(self, number: int, first: Features, second: Features) -> Features:
        parts = []
        for name, u, v in (("first", first.psi, second.phi), ("second", first.phi, second.psi)):
            if u is not None and v is not None:
                parts.append(self._tensor_sketch(number, name, u, v)(u, v))
        phi = self._tensor_sketch(number, "phi", first.phi, second.phi)(first.phi, second.phi)
        return Features(phi, torch.cat(parts, -1) if parts else None)

    def _compressed(self, number: int, name: str, v: Tensor, size: int) -> Tensor:
        if v.shape[-1] <= 2 * size:
            return v
        key = (number, name)
        if key not in self._drawn:
            self._drawn[key] = CountSketch.draw(v.shape[-1], size, v, self.generator)
        sketch = self._drawn[key]
        assert isinstance(sketch, CountSketch)
        return sketch(v)

    def _gaussian(self, number: int, v: Tensor) -> Gaussian:
        key = (number, "weights")
        if key not in self._drawn:
            self._drawn[key] = Gaussian.draw(v.shape[-1], self.width, v, self.generator)
        found = self._drawn[key]
        assert isinstance(found, Gaussian)
        return found

    def _tensor_sketch(self, number: int, name: str, u: Tensor, v: Tensor) -> TensorSketch:
        key = (number, name)
        if key not in self._drawn:
            self._drawn[key] = TensorSketch.draw((u.shape[-1], v.shape[-1]), self.sketch, u, self.generator)
        found = self._drawn[key]
        assert isinstance(found, TensorSketch)
        return found


def check_sketchable(program: Program) -> None:
    """Refuse operations without random features, naming all of them."""
    problems = tuple(
        Problem(
            node.path,
            node.op.label(),
            reason,
            "write method='jacobian', the projected derivatives of the module itself",
        )
        for node in program.nodes
        if (reason := _refusal(program, node)) is not None
    )
    if problems:
        raise UnsupportedLayerError(problems)


def _refusal(program: Program, node: Node) -> str | None:
    op = node.op
    known = (Input, Dense, Conv, Pointwise, Contract, PositionMap, Arrange, Normalize, Sum, Concat, Product, Constant)
    if not isinstance(op, known):
        return "it has no random features"
    if isinstance(op, Normalize) and (
        op.weight_trained or op.bias_trained or not program.nodes[node.inputs[1]].centred
    ):
        return "a normalisation with trained affine parameters, or of channels with a mean, has no random features"
    if isinstance(op, Sum) and sum(not program.nodes[read].centred for read in node.inputs) > 1:
        return "a sum of several fields whose channels are not centred has no random features"
    if isinstance(op, Dense | Conv) and any(isinstance(gain, Tensor) for gain in vars(op.gains).values()):
        return "gains that are tensors have no random features; pass numbers"
    return None


def _both(x: Features, function: Callable[[Tensor], Tensor]) -> Features:
    return Features(function(x.phi), None if x.psi is None else function(x.psi))


def _affine(x: Features, gains: Gains) -> Features:
    """K' = w^2 K + b^2 and Theta' = weight_rate K + bias_rate + w^2 Theta as concatenated vectors."""
    w, b, weight_rate, bias_rate = (float(gain) for gain in vars(gains).values())
    one = x.phi.new_ones(*x.phi.shape[:-1], 1)
    phi = torch.cat([w * x.phi, b * one], -1) if b else w * x.phi
    parts = [math.sqrt(weight_rate) * x.phi] if weight_rate else []
    parts += [math.sqrt(bias_rate) * one] if bias_rate else []
    parts += [w * x.psi] if x.psi is not None else []
    return Features(phi, torch.cat(parts, -1) if parts else None)


def _windows(op: Conv, v: Tensor) -> Tensor:
    """Concatenate the positions of a window and divide by the root of their number; v of shape (n, *positions, d)."""
    parts = [v]
    for index, axis in enumerate(op.axes):
        low, high = op.padding[index]
        size = v.shape[axis + 1]
        moved = []
        for part in parts:
            last = part.movedim(axis + 1, -1)
            wrapped = torch.cat([last[..., size - low :], last, last[..., :high]], -1) if op.circular else None
            padded = F.pad(last, (low, high)) if wrapped is None else wrapped
            for tap in range(op.kernel[index]):
                first = tap * op.dilation[index]
                count = op.output_size(index, size)
                taken = padded[..., first : first + (count - 1) * op.stride[index] + 1 : op.stride[index]]
                moved.append(taken.movedim(-1, axis + 1))
        parts = moved
    return torch.cat(parts, -1) / math.sqrt(math.prod(op.kernel))


def _merged(v: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Concatenate the positions along some axes and divide by the root of their number."""
    count = math.prod(v.shape[axis + 1] for axis in axes)
    moved = v.movedim([axis + 1 for axis in axes], list(range(-1 - len(axes), -1)))
    return moved.flatten(-1 - len(axes)) / math.sqrt(count)


def _mapped(op: PositionMap, v: Tensor) -> Tensor:
    matrix = op.matrix(v.shape[op.axis + 1]).to(v)
    return (v.movedim(op.axis + 1, -1) @ matrix.T).movedim(-1, op.axis + 1)


def _arranged(op: Arrange, v: Tensor) -> Tensor:
    kept = [axis for axis in op.axes if axis is not None]
    dropped = [axis for axis in range(op.rank) if axis not in kept]
    moved = v.permute(0, *(axis + 1 for axis in kept), *(axis + 1 for axis in dropped), v.ndim - 1)
    moved = moved.flatten(1 + len(kept)) if dropped else moved  # of length one each
    for place, axis in enumerate(op.axes):
        if axis is None:
            moved = moved.unsqueeze(place + 1)
    return moved.expand(len(v), *op.sizes, moved.shape[-1])


def _beside(inputs: list[Features], weights: tuple[float, ...]) -> Features:
    phi = torch.cat([weight * x.phi for weight, x in zip(weights, inputs, strict=True)], -1)
    psi = [weight * x.psi for weight, x in zip(weights, inputs, strict=True) if x.psi is not None]
    return Features(phi, torch.cat(psi, -1) if psi else None)
