"""Kernels for a grid of gains in one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ntkit._src.common import Progress, check_choice, check_finite, check_tensor, differentiated
from ntkit._src.native import BeyondRange, unsupported_reason
from ntkit._src.rules import Kernels
from ntkit.errors import InputError, InputTypeError

if TYPE_CHECKING:
    from ._infinite_width import InfiniteWidth
    from ._infinite_width_kernel import Engine


def check_grid(gains: object) -> Tensor:
    """Refuse anything but gains of shape (g, 2), not negative."""
    check_tensor("gains", gains)
    assert isinstance(gains, Tensor)
    if not gains.is_floating_point():
        raise InputTypeError(f"gains must be floating-point numbers. Got {gains.dtype}. Write gains.double().")
    if gains.ndim != 2 or gains.shape[1] != 2 or gains.numel() == 0:
        raise InputError(
            "gains must have the shape (g, 2), with a row (w_std, b_std) for each kernel. "
            f"Got {tuple(gains.shape)}. Write torch.cartesian_prod(w_std, b_std) for all pairs of two lists."
        )
    check_finite("gains", gains)
    if bool((gains < 0).any()):
        raise InputError(f"gains must not be negative. Got {float(gains.detach().min()):g}.")
    return gains


def kernels_over(
    limit: InfiniteWidth,
    gains: Tensor,
    x1: Tensor,
    x2: Tensor | None,
    engine: Engine,
    progress: Progress | None,
    *,
    ntk: bool,
    nngp: bool,
) -> Kernels:
    """Compute both kernels for each row of checked gains, shape (g, n1, n2)."""
    check_choice("engine", engine, ("auto", "reference", "native"))
    traced = differentiated(gains)
    parts: dict[int, Kernels] = {}
    if not traced and engine != "reference":
        for indices in _alike(gains):
            found = _together(limit, gains[indices].cpu(), x1, x2, ntk=ntk, nngp=nngp)
            columns = (
                [] if found is None else zip(*([None] * len(indices) if k is None else k for k in found), strict=True)
            )
            parts.update(zip(indices, map(Kernels._make, columns), strict=False))
    rows = gains if traced else gains.tolist()
    each = len(x1) * len(x2) if x2 is not None else len(x1) * (len(x1) + 1) // 2
    for index, (w_std, b_std) in enumerate(rows):
        if index not in parts:
            parts[index] = limit.with_gains(w_std, b_std)._compute(x1, x2, engine, None, ntk=ntk, nngp=nngp)
        if progress is not None:
            progress((index + 1) * each, len(rows) * each)
    kernels = zip(*(parts[index] for index in range(len(rows))), strict=True)
    return Kernels(*(None if of_all[0] is None else torch.stack(of_all) for of_all in kernels))


def _alike(gains: Tensor) -> Iterator[list[int]]:
    """Yield the rows of a grid in groups in which the same gains are zero, so that programs have the same structure."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for index, zero in enumerate((gains == 0).tolist()):
        groups.setdefault(tuple(zero), []).append(index)
    yield from groups.values()


def _together(
    limit: InfiniteWidth, gains: Tensor, x1: Tensor, x2: Tensor | None, *, ntk: bool, nngp: bool
) -> Kernels | None:
    """Compute kernels of few inputs for gains of one structure with the native engine; None if it cannot."""
    first = limit.with_gains(*gains[0].tolist())
    program = first._program(x1.shape[1:], ntk)
    of_nodes = first._tracer.gains_of(program, first.gains.over(gains.double()))
    if of_nodes is None or unsupported_reason(program, x1, x2) is not None:
        return None
    try:
        return first._native(program).over_gains(x1, x2, ntk, nngp, of_nodes, len(gains))
    except BeyondRange:
        return None  # the first row that is beyond decides for itself
