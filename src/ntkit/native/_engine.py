"""Gram matrices by the compiled core: the same contract as the reference engine's, in float64, on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit.program import Gains, Program
from ntkit.rules import Ends, Kernels, Moments, Progress, input_covariance, read_data

from . import _core
from ._tape import TapePlan, plan_cross, plan_self, unsupported

__all__ = ["NativeEngine", "reason_against"]

_CHUNK_BYTES = 48 << 20  # of each of: packed columns, packed rows, a tile of the result
_MIRROR_ROWS = 256


def reason_against(program: Program, *batches: Tensor | None) -> str | None:
    """Say why the native engine cannot compute this; None where it can."""
    for batch in batches:
        if batch is not None and batch.device.type != "cpu":
            return f"the input is on {batch.device}, and the native engine runs on the CPU"
        if batch is not None and batch.requires_grad and torch.is_grad_enabled():
            return "the input needs gradients, which the native engine does not have"
    if torch.is_grad_enabled() and any(_needs_gradient(node.op) for node in program.nodes):
        return "a gain needs gradients, which the native engine does not have"
    missing = unsupported(program)
    return None if missing is None else f"the native engine has no instruction for {missing}"


def _needs_gradient(op: object) -> bool:
    gains = getattr(op, "gains", None)
    return isinstance(gains, Gains) and any(
        isinstance(gain, Tensor) and gain.requires_grad for gain in (gains.w_std, gains.b_std)
    )


@dataclass(frozen=True)
class _Own:
    """What is computed of each input on its own: arrays with one row, or number, for each."""

    moments: Moments
    data: NDArray[np.float64]
    deviation: NDArray[np.float64]
    nngp: NDArray[np.float64]
    ntk: NDArray[np.float64]


class NativeEngine:
    """Computes kernels of one program; tapes are planned once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._plans: dict[tuple[str, bool], TapePlan] = {}

    def gram(self, x1: Tensor, x2: Tensor | None, ntk: bool, nngp: bool, progress: Progress | None = None) -> Kernels:
        """Compute Theta and K between two batches, shape (n1, n2), or of one batch with itself where ``x2`` is None."""
        plan = self._plan("cross", ntk)
        columns = x1 if x2 is None else x2
        out = Kernels(*(x1.new_zeros(len(x1), len(columns)) if wanted else None for wanted in (ntk, nngp)))
        threads = torch.get_num_threads()
        total = len(x1) * len(columns) if x2 is not None else len(x1) * (len(x1) + 1) // 2
        done = 0
        step = max(plan.width, _CHUNK_BYTES // (8 * max(plan.row_numbers, 1)))
        for own2 in _ranges(len(columns), step):
            second = self._read(columns[own2.start : own2.stop])
            row_step = max(1, min(step, _CHUNK_BYTES // (8 * len(own2))))
            for own1 in _ranges(own2.stop if x2 is None else len(x1), row_step):
                first = self._read(x1[own1.start : own1.stop])
                inner = self._inner(plan, Ends(first.moments, second.moments, pair_dims=2))
                upper = x2 is None and own1.stop > own2.start
                tile = [np.zeros((len(own1), len(own2))) for _ in range(2 if ntk else 1)]
                report = None if progress is None else _shifted(progress, done, total)
                _core.cross(
                    plan.tape, first.data, first.deviation, second.data, second.deviation, inner,
                    tile[0], tile[1] if ntk else None, upper, own1.start, own2.start, threads, report,
                )  # fmt: skip
                done += _entries(own1, own2) if upper else len(own1) * len(own2)
                for target, values in ((out.ntk, tile[-1]), (out.nngp, tile[0])):
                    if target is not None:
                        target[own1.start : own1.stop, own2.start : own2.stop] = torch.from_numpy(values)
        for target in out:
            if x2 is None and target is not None:
                _mirror(target)
        return out

    def diag(self, x: Tensor, ntk: bool) -> Tensor:
        """Compute Theta(x_i, x_i), or K(x_i, x_i) where ``ntk`` is False, shape (n,)."""
        plan = self._plan("diag", ntk)
        parts = []
        for rows in _ranges(len(x), max(plan.width, _CHUNK_BYTES // (8 * max(plan.row_numbers, 1)))):
            own = self._self(plan, x[rows.start : rows.stop])
            parts.append(own.ntk if ntk else own.nngp)
        return torch.from_numpy(np.concatenate(parts)).to(x.dtype)

    def _plan(self, kind: str, ntk: bool) -> TapePlan:
        if (kind, ntk) not in self._plans:
            plan = plan_cross(self.program, ntk) if kind == "cross" else plan_self(self.program, ntk, kind == "diag")
            self._plans[kind, ntk] = plan
        return self._plans[kind, ntk]

    def _read(self, x: Tensor) -> _Own:
        """Give what tapes read of each input."""
        return self._self(self._plan("self", False), x)

    def _self(self, plan: TapePlan, x: Tensor) -> _Own:
        with torch.no_grad():
            moments = read_data(self.program, x)
            own = _Own(
                moments,
                self._data(plan, moments),
                *(np.zeros(shape) for shape in ((len(x), plan.deviations), len(x), len(x))),
            )
            inner = self._inner(plan, Ends(moments, moments, pair_dims=1))
        _core.self(plan.tape, own.data, inner, own.deviation, own.nngp, own.ntk, torch.get_num_threads(), None)
        return own

    def _data(self, plan: TapePlan, moments: Moments) -> NDArray[np.float64]:
        """Give the inputs' numbers, channels before positions, shape (n, numbers); none of vectors."""
        values = [moments.data[op.prefix, op.channel] for op in plan.inputs]
        if plan.batch > 1:
            return np.zeros((len(values[0]), 0))
        rows = [value.movedim(-1, 1).reshape(len(value), -1) for value in values]
        return np.ascontiguousarray(torch.cat(rows, 1).double().numpy())

    def _inner(self, plan: TapePlan, ends: Ends) -> NDArray[np.float64]:
        """Give x . x' / C of vectors by a matrix product, columns padded to whole blocks; nothing of images."""
        if plan.batch == 1:
            return np.zeros((0, 0, 0))
        with torch.no_grad():
            products = [torch.atleast_2d(input_covariance(op, (), ends).nngp) for op in plan.inputs]
            rows, columns = products[0].shape
            padded = torch.zeros(len(products), rows, -(-columns // plan.width) * plan.width, dtype=torch.float64)
            for index, product in enumerate(products):
                padded[index, :, :columns] = product
        return padded.numpy()


def _ranges(stop: int, step: int) -> Iterator[range]:
    return (range(a, min(a + step, stop)) for a in range(0, stop, step))


def _entries(rows: range, columns: range) -> int:
    return sum(max(0, columns.stop - max(columns.start, row)) for row in rows)


def _shifted(progress: Progress, before: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(before + done, total)


def _mirror(matrix: Tensor) -> None:
    """Copy what is above the diagonal below it, so that the matrix is symmetric to the bit."""
    for own in _ranges(len(matrix), _MIRROR_ROWS):
        square = matrix[own.start : own.stop, own.start : own.stop]
        square.copy_(square.triu() + square.triu(1).T)
        matrix[own.stop :, own.start : own.stop] = matrix[own.start : own.stop, own.stop :].T
