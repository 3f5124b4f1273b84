"""Native kernels as functions that torch differentiates in reverse mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch._C import _functorch
from torch.autograd import forward_ad

from ntkit._src.common import transformed
from ntkit._src.program import Program
from ntkit._src.rules import Kernels, gram

from ._pull_back import PullBack, Wanted, tensor_gains, with_gains

_DERIVATIVES: WeakKeyDictionary[Program, PullBack] = WeakKeyDictionary()


def in_reverse(*tensors: Tensor) -> bool:
    """Return whether derivatives by some tensors, if any, are taken in reverse mode, outside torch.func's transforms."""
    return not any(transformed(tensor) or forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def derivatives_of(program: Program) -> PullBack:
    """Return the derivatives of a program's kernels, planned once for the present values of its gains."""
    found = _DERIVATIVES.get(program)
    if found is None or not found.is_current():
        found = _DERIVATIVES[program] = PullBack(program)
    return found


def differentiable_gram(
    program: Program, x1: Tensor, x2: Tensor | None, compute: Callable[[Tensor, Tensor | None], Kernels]
) -> Kernels:
    """Compute Theta and K by ``compute``, with derivatives by x1, x2 and gains that are tensors.

    First derivatives come from the native engine. If torch asks for a backward pass that it can differentiate in turn
    (``create_graph=True``), the reference engine computes it.
    """
    asked: list[bool] = []

    def kernels(first: Tensor, second: Tensor | None) -> tuple[Tensor, ...]:
        found = compute(first, second)
        asked[:] = [kernel is not None for kernel in found]
        return tuple(kernel for kernel in found if kernel is not None)

    values = iter(_Gram.apply(program, kernels, asked, x1, x2, *tensor_gains(program)))  # type: ignore[no-untyped-call]
    return Kernels(*(next(values) if wanted else None for wanted in asked))


class _Gram(torch.autograd.Function):
    """Both kernels, those that were asked for; a gradient by the reference engine if it must have derivatives itself."""

    @staticmethod
    def forward(
        ctx: Any,
        program: Program,
        kernels: Callable[[Tensor, Tensor | None], tuple[Tensor, ...]],
        asked: list[bool],
        x1: Tensor,
        x2: Tensor | None,
        *gains: Tensor,
    ) -> tuple[Tensor, ...]:
        values = kernels(x1.detach(), None if x2 is None else x2.detach())
        ctx.program, ctx.asked, ctx.derivatives = program, tuple(asked), derivatives_of(program)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x1, x2, *gains)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x1, x2, *gains = ctx.saved_tensors
        remaining = iter(grads)
        wanted = Wanted(*(next(remaining) if asked else None for asked in ctx.asked))
        given = [g for g in wanted if g is not None]
        needed = ctx.needs_input_grad[3:]
        nothing: tuple[Tensor | None, ...] = (None, None, None)
        if not given:
            return nothing + (None,) * len(needed)
        if torch.is_grad_enabled() or not in_reverse(*given) or any(map(_functorch.is_legacy_batchedtensor, given)):
            return nothing + _by_reference(ctx.program, x1, x2, gains, wanted, needed)
        found = ctx.derivatives(x1, x2, wanted, needed[:2], any(needed[2:]))
        return nothing + tuple(value if need else None for value, need in zip(found, needed, strict=True))


def _by_reference(
    program: Program, x1: Tensor, x2: Tensor | None, gains: list[Tensor], wanted: Wanted, needed: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Return the derivatives that are needed, each of which torch can differentiate again."""
    graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # Copies, because x1 and x2 may be one tensor, and a gain is a function of another.
        sides = [None if x is None else x.view_as(x) for x in (x1, x2)]
        copies = [gain.view_as(gain) for gain in gains]
        assert sides[0] is not None
        program = with_gains(program, dict(zip(map(id, tensor_gains(program)), copies, strict=True)))
        found = gram(program, sides[0], sides[1], wanted.ntk is not None, wanted.nngp is not None)
        outputs = [(k, g) for k, g in zip(found, wanted, strict=True) if k is not None and g is not None]
        sources = [x for x, need in zip((*sides, *copies), needed, strict=True) if need and x is not None]
        values = iter(
            torch.autograd.grad(
                [k for k, _ in outputs], sources, [g for _, g in outputs], create_graph=graph, allow_unused=True
            )
        )
    return tuple(
        next(values) if need and x is not None else None for x, need in zip((*sides, *copies), needed, strict=True)
    )
