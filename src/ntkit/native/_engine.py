"""Gram matrices by the compiled core: the same contract as the reference engine's, in float64, on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit.program import Gains, Program
from ntkit.rules import Kernels, Progress, read_data

from . import _core
from ._tape import TapePlan, plan_cross, plan_self, unsupported

__all__ = ["NativeEngine", "reason_against"]

_CHUNK_BYTES = 48 << 20  # of each of: packed columns, packed rows, a tile of the result


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
        step = max(4, _CHUNK_BYTES // (8 * max(plan.row_numbers, 1)))
        for own2 in _ranges(len(columns), step):
            data2, deviation2 = self._read(columns[own2.start : own2.stop])
            row_step = max(1, min(step, _CHUNK_BYTES // (16 * len(own2))))
            for own1 in _ranges(own2.stop if x2 is None else len(x1), row_step):
                data1, deviation1 = self._read(x1[own1.start : own1.stop])
                upper = x2 is None and own1.stop > own2.start
                tile = [np.zeros((len(own1), len(own2))) for _ in range(2 if ntk else 1)]
                report = None if progress is None else _shifted(progress, done, total)
                _core.cross(
                    plan.tape, data1, deviation1, data2, deviation2, tile[0], tile[1] if ntk else None, upper,
                    own1.start, own2.start, threads, report,
                )  # fmt: skip
                done += _entries(own1, own2) if upper else len(own1) * len(own2)
                for target, values in ((out.ntk, tile[-1]), (out.nngp, tile[0])):
                    if target is not None:
                        _write(target, torch.from_numpy(values), own1, own2, mirrored=x2 is None)
        return out

    def diag(self, x: Tensor, ntk: bool) -> Tensor:
        """Compute Theta(x_i, x_i), or K(x_i, x_i) where ``ntk`` is False, shape (n,)."""
        plan = self._plan("diag", ntk)
        parts = []
        for rows in _ranges(len(x), max(4, _CHUNK_BYTES // (8 * max(plan.row_numbers, 1)))):
            _, values = self._self(plan, x[rows.start : rows.stop])
            parts.append(values[1 if ntk else 0])
        return torch.from_numpy(np.concatenate(parts)).to(x.dtype)

    def _plan(self, kind: str, ntk: bool) -> TapePlan:
        if (kind, ntk) not in self._plans:
            plan = plan_cross(self.program, ntk) if kind == "cross" else plan_self(self.program, ntk, kind == "diag")
            self._plans[kind, ntk] = plan
        return self._plans[kind, ntk]

    def _read(self, x: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Give what the tape reads of each input: data (n, numbers) and deviations (n, 2 positions)."""
        plan = self._plan("self", False)
        data, values = self._self(plan, x)
        return data, values[2]

    def _self(self, plan: TapePlan, x: Tensor) -> tuple[NDArray[np.float64], tuple[NDArray[Any], ...]]:
        data = self._data(plan, x)
        nngp, theta = np.zeros(len(x)), np.zeros(len(x))
        deviation = np.zeros((len(x), plan.deviations))
        _core.self(plan.tape, data, deviation, nngp, theta, torch.get_num_threads(), None)
        return data, (nngp, theta, deviation)

    def _data(self, plan: TapePlan, x: Tensor) -> NDArray[np.float64]:
        with torch.no_grad():
            values = read_data(self.program, x).data
            rows = [values[key].movedim(-1, 1).reshape(len(x), -1) for key in plan.inputs]
            return np.ascontiguousarray(torch.cat(rows, 1).double().numpy())


def _ranges(stop: int, step: int) -> Iterator[range]:
    return (range(a, min(a + step, stop)) for a in range(0, stop, step))


def _entries(rows: range, columns: range) -> int:
    return sum(max(0, columns.stop - max(columns.start, row)) for row in rows)


def _shifted(progress: Progress, before: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(before + done, total)


def _write(target: Tensor, tile: Tensor, rows: range, columns: range, mirrored: bool) -> None:
    place = target[rows.start : rows.stop, columns.start : columns.stop]
    if not mirrored:
        place.copy_(tile)
        return
    mirror = target[columns.start : columns.stop, rows.start : rows.stop]
    if rows.stop <= columns.start:
        place.copy_(tile)
        mirror.copy_(tile.T)
        return
    i, j = torch.triu_indices(len(rows), len(columns), offset=rows.start - columns.start)
    place[i, j] = tile[i, j].to(target.dtype)
    mirror[j, i] = tile[i, j].to(target.dtype)
