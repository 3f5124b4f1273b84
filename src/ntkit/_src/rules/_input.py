"""The data, K = x . x' / C and H = |x - x'|^2 / (2 C), or a covariance in their place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce

import torch
from torch import Tensor

from ntkit._src.program import GivenPrior, Input, Keep, Keeps, Node, Program, StationaryPrior
from ntkit.errors import InputError

from ._axes import diagonal_mask
from ._covariance import Covariance, Ends, Moments
from ._rule import Cut, Inputs, OpT, Parts, Prefixes, Rule, Step, Window
from ._sketch import Draws, Features

_FEW_CHANNELS = 8  # a sum this short has the same rounding in K(x, x') as in K(x, x)
_NEAR = 1e-6  # threshold of 1 - rho and |x - x'|^2 / (|x|^2 + |x'|^2) below which x . x' is computed from a difference
_PARALLEL = 1e-4  # threshold of 1 - rho below which inputs of different size are scaled
_DIFFERENT = 1e-6  # ... of |r - 1| above which they are
_BLOCK = 1 << 22  # entries gathered at once


class InputRule(Rule[Input], ops=(Input,)):
    """The data, after the deterministic part of the network before the first random layer."""

    keeps_h = True
    sizes = True

    def covariance(self, step: Step[Input], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        return data_covariance(step.ops(ends), keeps, ends, step.carries_h, step.scales)

    def mean(self, step: Step[Input], known: Moments) -> Tensor:
        return known.data[step.op.prefix, step.op.channel].mean(-1)

    def read(self, program: Program, node: Node, x: Tensor, dtype: torch.dtype) -> dict[tuple[int, int], Tensor]:
        op = node.op
        assert isinstance(op, Input)
        value = run_prefix(program, op.prefix, node.path, x)
        return {(op.prefix, op.channel): value.to(dtype).movedim(op.channel, -1)}

    def scales(self, op: Input, inputs: bool) -> bool:
        return True

    def crop(self, step: Step[Input], window: Window, prefixes: Prefixes) -> Cut:
        prefixes.append(partial(_sliced, prefixes[step.op.prefix], step.op.channel, window))
        return Cut(replace(step.op, prefix=len(prefixes) - 1), ())

    def random_features(self, step: Step[Input], inputs: Parts, data: Moments, draws: Draws) -> Features:
        return Features(data.data[step.op.prefix, step.op.channel] / math.sqrt(step.op.channels), None)


def run_prefix(program: Program, index: int, path: str, x: Tensor) -> Tensor:
    """Run a deterministic part of the network on a batch, and check that its output is finite."""
    prefix = program.prefixes[index]
    if prefix is None:
        return x
    value = prefix(x.clone())  # it may write in place
    if not bool(torch.isfinite(value).all()):
        raise InputError(
            f"{path}: what comes before this layer turned finite input into NaN or infinite values. "
            "Expected finite values; check the module's operations on the raw input."
        )
    return value


def _sliced(prefix: Callable[[Tensor], Tensor] | None, channel: int, window: Window, x: Tensor) -> Tensor:
    """Run what comes before the first layer, and take a window of the positions of its output."""
    value = x if prefix is None else prefix(x)
    dims = [dim for dim in range(1, value.ndim) if dim != channel]
    for dim, part in zip(dims, window, strict=True):
        value = torch.narrow(value, dim, part.start, len(part))
    return value


class _PriorRule(Rule[OpT]):
    """One random input that all networks share. Only layers with weights read it, which do not ask for its mean."""

    def mean(self, step: Step[OpT], known: Moments) -> None:
        return None


class StationaryPriorRule(_PriorRule[StationaryPrior], ops=(StationaryPrior,)):
    """K[p, p'] with one value where p = p' and another elsewhere."""

    def covariance(self, step: Step[StationaryPrior], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        op = step.op
        sizes = [size for size, keep in zip(op.positions, keeps, strict=True) for _ in range(keep)]
        ones = ends.first.like.new_ones((1,) * ends.pair_dims + tuple(sizes))
        same = diagonal_mask(Covariance(ones, None, keeps), tuple(range(len(keeps)))) * ones
        return Covariance(op.other + (op.same - op.other) * same, None, keeps)

    def crop(self, step: Step[StationaryPrior], window: Window, prefixes: Prefixes) -> Cut:
        return Cut(replace(step.op, positions=tuple(map(len, window))), ())


class GivenPriorRule(_PriorRule[GivenPrior], ops=(GivenPrior,)):
    """K[p, p'] as given."""

    def covariance(self, step: Step[GivenPrior], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        rank = len(keeps)
        k = step.op.covariance.to(ends.first.like).permute([d for axis in range(rank) for d in (axis, rank + axis)])
        return Covariance(k[(None,) * ends.pair_dims], None, (Keep.ALL,) * rank).restrict(keeps)

    def crop(self, step: Step[GivenPrior], window: Window, prefixes: Prefixes) -> Cut:
        slices = tuple(slice(part.start, part.stop) for part in window)
        return Cut(replace(step.op, covariance=step.op.covariance[slices + slices]), ())


def data_covariance(
    ops: tuple[Input, Input], keeps: Keeps, ends: Ends, carry: bool = True, scaled: bool = False
) -> Covariance:
    """Return the mean over channels of x[p] x'[p'], exact where x and x' nearly agree; H if ``carry``, of r x if ``scaled``."""
    x1, x2 = (side.data[op.prefix, op.channel] for op, side in zip(ops, (ends.first, ends.second), strict=True))
    letters = iter("abcdefghijklmnopqrstuvw")
    pair = [next(letters)] * 2 if ends.pair_dims == 1 else [next(letters), next(letters)]
    axes = [[next(letters)] * 2 if keep is Keep.SAME else [next(letters), next(letters)] for keep in keeps]
    sides = ["".join([pair[side], *(axis[side] for axis in axes)]) + "z" for side in (0, 1)]
    output = "".join(dict.fromkeys("".join(pair) + "".join("".join(axis) for axis in axes)))
    channels = x1.shape[-1]
    k = torch.einsum(f"{sides[0]},{sides[1]}->{output}", x1, x2) / channels
    if ends.pair_dims == 1 and Keep.ALL not in keeps:
        return Covariance(k, None, keeps)  # each value with itself: H is zero, which k = q expresses exactly
    ratio = _ratio(x1, x2) if scaled and carry and ends.pair_dims == 2 else None
    result = Covariance(k, None, keeps, ratio=ratio)
    r = None if ratio is None else ratio[(...,) + (None,) * sum(keeps)]
    if channels <= _FEW_CHANNELS:
        if not carry:
            return result
        spread = (ends.spread(x1[..., c], x2[..., c], keeps) for c in range(channels))
        squares = ((first if r is None else r * first).sub(second).square() for first, second in spread)
        h = reduce(Tensor.add, squares) / (2 * channels)
        return replace(result, h=h)
    own1, own2 = (torch.einsum("...z,...z->...", x, x) / channels for x in (x1, x2))
    q1, q2 = ends.spread(own1, own2, keeps)
    rows1, rows2 = (torch.arange(x.shape[:-1].numel(), device=x.device).reshape(x.shape[:-1]) for x in (x1, x2))
    k, refined = _refine(
        k, q1, q2, *ends.spread(rows1, rows2, keeps), x1.reshape(-1, channels), x2.reshape(-1, channels), carry, r
    )
    return replace(result, nngp=k, h=refined)


def _ratio(x1: Tensor, x2: Tensor) -> Tensor | None:
    """Return |x'| / |x| for inputs that are nearly parallel as a whole, one for others, shape (n1, n2); None if all are one."""
    if x1.shape[1:] != x2.shape[1:]:
        return None
    x1, x2 = x1.detach().flatten(1), x2.detach().flatten(1)
    s1, s2 = x1.norm(dim=1)[:, None], x2.norm(dim=1)
    r = s2 / torch.where(s1 > 0, s1, 1.0)
    used = (x1 @ x2.T > (1 - _PARALLEL) * s1 * s2) & ((r - 1).abs() > _DIFFERENT) & (r > 0)
    return torch.where(used, r, 1.0) if bool(used.any()) else None


def _refine(
    k: Tensor,
    q1: Tensor,
    q2: Tensor,
    rows1: Tensor,
    rows2: Tensor,
    x1: Tensor,
    x2: Tensor,
    carry: bool,
    ratio: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Compute x . x' from a difference where the points are nearly parallel, and return H if ``carry``.

    The correlation of two parallel points must be one: a matrix product that rounds differently from |x|^2 makes it 1 - eps,
    an angle of sqrt(2 eps), and the tangent kernel of a ReLU network is wrong in the eighth digit. Where x and x' nearly
    coincide, H = |x - x'|^2 / 2 and K = (q + q') / 2 - H. Where only their directions do, 1 - rho^2 = |r|^2 / |x'|^2 with r
    the component of x' orthogonal to x. A ``ratio`` multiplies x, and divides K at the end.
    """
    where = (k > ((1 - _NEAR) * q1.sqrt()) * q2.sqrt()).nonzero(as_tuple=True)
    h = None
    if carry:
        h = (q1 / 2 - k) + q2 / 2 if ratio is None else (ratio**2 * q1 / 2 - ratio * k) + q2 / 2
    if where[0].numel() == 0:
        return k, h
    first, second = (rows.expand_as(k)[where] for rows in (rows1, rows2))
    square1, square2 = (q.expand_as(k)[where] for q in (q1, q2))
    scale = torch.ones_like(square1) if ratio is None else ratio.expand_as(k)[where]
    square1 = scale**2 * square1
    # |r|^2 is minimal at this factor, so its derivative with respect to the factor is zero.
    along = (scale * k[where] / square1).detach()
    step = max(1, _BLOCK // x1.shape[1])
    apart, across = [], []
    for a, b, c, factor in zip(*(t.split(step) for t in (first, second, scale, along)), strict=True):
        left, right = c[:, None] * x1[a], x2[b]
        apart.append((left - right).square().mean(1))
        across.append((right - factor[:, None] * left).square().mean(1))
    share = torch.cat(across) / square2
    deviations = square1.sqrt() * square2.sqrt()
    turned = deviations * share / (1 + (1 - share).sqrt())  # s s' (1 - rho)
    coincide = torch.cat(apart) < _NEAR * (square1 + square2)
    own = torch.where(coincide, torch.cat(apart) / 2, turned + (square1.sqrt() - square2.sqrt()) ** 2 / 2)
    value = torch.where(coincide, (square1 + square2) / 2 - own, deviations - turned) / scale
    return k.index_put(where, value), None if h is None else h.index_put(where, own)
