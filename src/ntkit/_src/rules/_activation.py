"""Activations: K' = E[phi(u) phi(v)], Theta' = Theta E[phi'(u) phi'(v)]."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.func import jvp

from ntkit._src.program import Keeps, Pointwise

from ._covariance import Covariance, Ends, Moments
from ._rule import Inputs, Parts, Rule, Step
from ._sketch import Draws, Features
from .expectations import dual, dual_with_difference, gain_dual, mean


class PointwiseRule(Rule[Pointwise], ops=(Pointwise,)):
    """An activation; the trained gain of a normalisation before it adds A E[u phi'(u) v phi'(v)]."""

    local = True
    reads_h = True
    sizes = True
    temporaries = 12

    def covariance(self, step: Step[Pointwise], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        (x,), phi, read = inputs, step.op.phi, step.node.inputs[0]
        q1, q2 = ends.spread(ends.first.variance[read], ends.second.variance[read], x.keeps)
        h: Tensor | None = None
        if step.carries_h and x.h is not None:
            nngp, derivative, h = dual_with_difference(phi, x.nngp, q1, q2, x.ntk is not None, x.h, x.multiple)
        else:
            nngp, derivative = dual(phi, x.nngp, q1, q2, tangent=x.ntk is not None, h=x.h, ratio=x.multiple)
        ntk = None if x.ntk is None or derivative is None else x.ntk * derivative
        if x.affine is not None:
            own = x.affine * gain_dual(phi, x.nngp, q1, q2)
            ntk = own if ntk is None else ntk + own
        return Covariance(nngp, ntk, x.keeps, h=h, ratio=x.ratio)

    def mean(self, step: Step[Pointwise], known: Moments) -> Tensor:
        return mean(step.op.phi, known.variance[step.node.inputs[0]])

    def reads_variance(self, op: Pointwise) -> bool:
        return True

    def gives_h(self, op: Pointwise) -> bool:
        return op.phi.homogeneous

    def scales(self, op: Pointwise, inputs: bool) -> bool:
        return inputs and op.phi.homogeneous

    def random_features(self, step: Step[Pointwise], inputs: Parts, data: Moments, draws: Draws) -> Features:
        r"""Return :math:`\sigma(W \phi) / \sqrt{m}`, W normal, and a sketch of :math:`\sigma'(W \phi) \otimes \psi`."""
        (x,) = inputs
        pre = draws.neurons(step.index, x.phi)
        root = math.sqrt(draws.width)
        if x.psi is None:
            return Features(step.op.phi(pre) / root, None)
        derived: tuple[Tensor, Tensor] = jvp(step.op.phi, (pre,), (torch.ones_like(pre),))  # type: ignore[assignment]
        value, slope = derived
        return Features(value / root, draws.product(step.index, "psi", slope / root, x.psi))
