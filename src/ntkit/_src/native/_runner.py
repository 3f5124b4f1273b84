"""Runs the tapes of one network on batches of CPU tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit._src.common import Progress, mirror_upper, shifted_progress
from ntkit._src.program import Input, Node
from ntkit._src.rules import Kernels, read_data
from ntkit.errors import EngineError

from . import _core
from ._emitter import TapePlan
from ._network import PlannedNetwork
from ._tapes import tape_alone, tape_between
from .families import MOST_RATIO, known_family

_CHUNK_BYTES = 48 << 20  # each for the packed columns, the packed rows and a tile of the result
# Large, because after each matrix product torch's threads spin for some milliseconds and take the processor from the layers that
# follow. Below 32 MB, because glibc returns larger blocks to the system, and fetching them again takes as long as the layers.
_PRODUCT_BYTES = 31 << 20
_MOST_BYTES = 256 << 20  # of data and the per-input cache, where rows are long
_PART_NUMBERS = 1 << 22  # numbers read at a time, so that copies of inputs take little memory
_PRODUCT_COLUMNS = 5120  # vectors at a time
_PROBE = 8  # inputs of a batch that are read before the others: the lanes of double precision
_TILE = 512  # side of every matrix product: libraries often round the edges of other shapes differently
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}

TapeKind = Literal["between", "cache", "diag"]
"""Which tape: of two inputs, of the per-input cache, or of each input with itself."""


class BeyondRange(EngineError):
    """Raised if some input has variances beyond the range of this version of the activations, or of the normalisations."""


@dataclass(frozen=True)
class _Batch:
    """Inputs in the form that the core reads."""

    data: NDArray[Any]  # (n, numbers); for vectors, rows of zeros follow up to whole tiles of matrix products
    cache: NDArray[Any]  # (n, numbers)
    features: tuple[int, ...]  # how many numbers each of the network's inputs reads, for vectors; empty for images

    def rows(self, start: int, stop: int) -> _Batch:
        """Return some of the inputs; for vectors, the first must begin a tile."""
        end = stop if not self.features else start + _whole(stop - start)
        return _Batch(self.data[start:end], self.cache[start:stop], self.features)

    @property
    def vectors(self) -> tuple[Tensor, ...]:
        """The features of vectors, shape (rows in whole tiles, features), one tensor for each of the network's inputs."""
        return torch.from_numpy(self.data).split(self.features, 1) if self.features else ()


class Runner:
    """Runs the tapes of one network, each planned once."""

    def __init__(self, network: PlannedNetwork) -> None:
        self.network = network
        self._plans: dict[tuple[TapeKind, bool], TapePlan] = {}

    def gram(self, x1: Tensor, x2: Tensor | None, ntk: bool, nngp: bool, progress: Progress | None = None) -> Kernels:
        """Compute Theta and K between two batches, shape (n1, n2), or of one batch with itself where ``x2`` is None."""
        plan = self.plan("between", ntk)
        dtype = self._dtype(x1)
        others = x1 if x2 is None else x2
        # If the core computes in the dtype of the inputs, it writes directly into the result.
        result = _result_dtype(x1)
        out = Kernels(*(_empty(len(x1), len(others), dtype=result) if wanted else None for wanted in (ntk, nngp)))
        total = len(x1) * len(others) if x2 is not None else len(x1) * (len(x1) + 1) // 2
        done = 0
        size = torch.finfo(dtype).bits // 8
        step = _rows_at_a_time(plan, size)
        if plan.batch > 1:
            step = min(max(_TILE, step // _TILE * _TILE), _PRODUCT_COLUMNS)
        scales: dict[int, tuple[float, float]] = {}
        for columns in _ranges(len(others), step):
            second = self._read(others[columns.start : columns.stop], dtype)
            self._check_scales(second, scales)
            row_step = max(1, min(step, _CHUNK_BYTES // (size * len(columns))))
            if plan.batch > 1:
                fitting = _PRODUCT_BYTES // (size * len(plan.inputs) * _whole(len(columns)))
                row_step = max(1, min(row_step, fitting) // _TILE) * _TILE
            products = self._space_for_products(min(row_step, len(x1)), len(columns), dtype)
            for rows in _ranges(columns.stop if x2 is None else len(x1), row_step):
                if x2 is None and rows.start >= columns.start and rows.stop <= columns.stop:
                    first = second.rows(rows.start - columns.start, rows.stop - columns.start)
                else:
                    first = self._read(x1[rows.start : rows.stop], dtype)
                    self._check_scales(first, scales)
                upper = x2 is None and rows.stop > columns.start
                targets = Kernels(
                    *(m if m is None else m[rows.start : rows.stop, columns.start : columns.stop] for m in out)
                )
                tile = Kernels(
                    *(None if m is None else m if m.dtype == dtype else _empty(*m.shape, dtype=dtype) for m in targets)
                )
                report = None if progress is None else shifted_progress(progress, done, total)
                _multiply(first, second, products, rows.start - columns.start if upper else -len(x1))
                _core.cross(
                    plan.tape,
                    data1=first.data,
                    cache1=first.cache,
                    data2=second.data,
                    cache2=second.cache,
                    products=products.numpy(),
                    nngp=None if tile.nngp is None else tile.nngp.numpy(),
                    ntk=None if tile.ntk is None else tile.ntk.numpy(),
                    upper=upper,
                    first_row=rows.start,
                    first_column=columns.start,
                    threads=torch.get_num_threads(),
                    progress=report,
                )
                done += _entries(rows, columns) if upper else len(rows) * len(columns)
                for target, values in zip(targets, tile, strict=True):
                    if target is not None and values is not None and values is not target:
                        target.copy_(values)
        for target in out:
            if x2 is None and target is not None:
                mirror_upper(target)
        return out

    def diag(self, x: Tensor, ntk: bool) -> Tensor:
        """Compute Theta(x_i, x_i), or K(x_i, x_i) where ``ntk`` is False, shape (n,)."""
        plan = self.plan("diag", ntk)
        parts = []
        for rows in _ranges(len(x), _rows_at_a_time(plan, 8)):
            kernels = self._alone(plan, x[rows.start : rows.stop], None, np.zeros((len(rows), plan.cache_size)))
            parts.append(kernels[0 if ntk else 1])
        return torch.from_numpy(np.concatenate(parts)).to(_result_dtype(x))

    def _dtype(self, x: Tensor) -> torch.dtype:
        return torch.float32 if x.dtype == torch.float32 and self.network.single_precision else torch.float64

    def plan(self, kind: TapeKind, ntk: bool) -> TapePlan:
        """Return a tape with the sizes of its inputs, planned on first use."""
        if (kind, ntk) not in self._plans:
            between = kind == "between"
            self._plans[kind, ntk] = (
                tape_between(self.network, ntk) if between else tape_alone(self.network, ntk, kind == "diag")
            )
        return self._plans[kind, ntk]

    def _read(self, x: Tensor, dtype: torch.dtype) -> _Batch:
        """Compute the cached numbers of each input, and scale the input."""
        plan = self.plan("cache", False)
        cache = np.empty((len(x), plan.cache_size), _NUMPY[dtype])
        data = np.empty((_whole(len(x)) if plan.batch > 1 else len(x), plan.data_size), _NUMPY[dtype])
        data[len(x) :] = 0
        # Most batches that are beyond the range of a version show it by their first inputs.
        probed = _PROBE if self.network.tiers > 1 else 0
        for part in (
            *_ranges(min(probed, len(x)), _PROBE),
            *_ranges(len(x), max(64, _PART_NUMBERS // plan.data_size), probed),
        ):
            rows = slice(part.start, part.stop)
            self._alone(plan, x[rows], data[rows], cache[rows])
        return _Batch(data, cache, plan.data_sizes if plan.batch > 1 else ())

    def _check_scales(self, batch: _Batch, scales: dict[int, tuple[float, float]]) -> None:
        """Refuse deviations of very different size: the larger one dominates H, which has then lost K.

        They are looked at before a normalisation, and after attention, which may raise the scale of an input to its third power.
        """
        for (what, index), start in self.network.cache.items():
            node = self.network.program.nodes[index]
            mixed = what == _core.Cached.HALF and known_family(node.op).whole and not self.network.linear_after[index]
            if what == _core.Cached.SCALE or mixed:
                found = batch.cache[:, start : start + prod(node.positions)]
                if mixed:
                    found = np.sqrt(found[found > 0])  # of a variance of zero, K and H are exact
                    if not found.size:
                        continue
                low, high = scales.get(index, (np.inf, 0.0))
                scales[index] = low, high = min(low, float(found.min())), max(high, float(found.max()))
                if high > MOST_RATIO * low:
                    raise _beyond(node, f"a factor of {high / low:,.0f}")

    def _alone(
        self, plan: TapePlan, x: Tensor, data: NDArray[Any] | None, cache: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Compute the cached numbers of each input into ``cache``, and its Theta and K with itself if the tape has an output."""
        # All computations are in double precision, whatever the other dtypes. Scaled inputs go to ``data``, (n, numbers) too.
        numbers = self._numbers(plan, x)
        threads = torch.get_num_threads()
        units, nngp, ntk = np.empty((len(x), self.network.units)), np.zeros(len(x)), np.zeros(len(x))
        squares = np.zeros((len(plan.data_sizes), 1, 1, 1, _whole(len(x))))
        shared: dict[str, Any] = {"units": units, "threads": threads, "progress": None}
        _core.read(
            numbers,
            sizes=plan.data_sizes,
            scalable=self.network.single_precision,
            bias=self.network.bias,
            data=data,
            squares=squares,
            **shared,
        )
        shared |= {"numbers": numbers, "cache": cache}
        _core.self(plan.tape, products=squares, cache_known=False, nngp=nngp, ntk=ntk, **shared)
        if self.network.tiers > 1 and bool(np.isnan(cache).any()):
            self._refuse_deviations(cache)
        if cache.dtype != np.float64 and self.network.windows:
            # Sums inside a window are subtracted from sums between two windows, so both must round in the same way.
            nothing = np.zeros(len(x), np.float32)
            products = np.zeros((0, 0, 0, 0, 0), np.float32)
            _core.self(plan.tape, products=products, cache_known=True, nngp=nothing, ntk=nothing.copy(), **shared)
        return ntk, nngp

    def _refuse_deviations(self, cache: NDArray[Any]) -> None:
        """Name the first activation whose table lacks coefficients for an input: those are NaN, and all that follows."""
        for (kind, index), start in self.network.cache.items():
            if kind == _core.Cached.SERIES:
                node = self.network.program.nodes[index]
                coefficients = cache[:, start : start + self.network.cache_numbers(kind, index)]
                if bool(np.isnan(coefficients).any()):
                    at = self.network.cache_at(_core.Cached.DEVIATION, index)
                    raise _beyond(node, f"up to {cache[:, at : at + prod(node.positions)].max():.3g}")
        raise AssertionError("the cache has NaN, and all series have coefficients")

    def _numbers(self, plan: TapePlan, x: Tensor) -> NDArray[Any]:
        """Return the numbers that the network reads of each input, channels before positions, shape (n, numbers)."""
        with torch.no_grad():
            if all(isinstance(op, Input) and self.network.program.prefixes[op.prefix] is None for op in plan.inputs):
                values = [x.movedim(op.channel, 1) for op in plan.inputs if isinstance(op, Input)]
            else:
                data = read_data(self.network.program, x).data
                values = [
                    data[op.prefix, op.channel].movedim(-1, 1) if isinstance(op, Input) else data[op.prefix, 0]
                    for op in plan.inputs
                ]
            rows = [value.reshape(len(value), -1) for value in values]
            numbers = rows[0] if len(rows) == 1 else torch.cat(rows, 1)
        return numbers.detach().contiguous().numpy()

    def _space_for_products(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """Allocate x . x' of vectors, shape (inputs, tiles of rows, tiles of columns, rows, columns); empty for images."""
        if self.network.batch == 1:
            return torch.zeros((0, 0, 0, 0, 0), dtype=dtype)
        count = len(self.plan("cache", False).inputs)
        return _empty(count, _whole(rows) // _TILE, _whole(columns) // _TILE, _TILE, _TILE, dtype=dtype)


def _beyond(node: Node, got: str) -> BeyondRange:
    """Return the error that says which operation has too small a range, and what of the inputs is beyond it."""
    return BeyondRange(
        f"{node.path} ({node.op.label()}): the native engine covers {known_family(node.op).covered(node.op)}. Got {got}. "
        'Write engine="auto" or engine="reference".'
    )


def _multiply(first: _Batch, second: _Batch, products: Tensor, below: int) -> None:
    """Write x . x' of vectors to ``products``, tile by tile."""
    # All matrix products have the same shape, because in another shape the same entry might have other bits. ``below`` is the
    # index of the first row minus that of the first column; tiles below the diagonal are left untouched.
    for left, right, product in zip(first.vectors, second.vectors, products, strict=True):
        for rows, left_tile in enumerate(left.unflatten(0, (-1, _TILE))):
            skipped = max(below // _TILE + rows, 0)
            others = right.unflatten(0, (-1, _TILE))[skipped:]
            torch.bmm(left_tile.expand(len(others), -1, -1), others.transpose(1, 2), out=product[rows, skipped:])


def _rows_at_a_time(plan: TapePlan, size: int) -> int:
    """Return how many inputs are held at a time, for numbers of ``size`` bytes."""
    row_bytes = size * max(plan.row_numbers, 1)
    return max(16, min(128, _MOST_BYTES // row_bytes), _CHUNK_BYTES // row_bytes)


def _result_dtype(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.float64  # integers are tokens


def _empty(*shape: int, dtype: torch.dtype) -> Tensor:
    # numpy requests large pages; page faults of small ones would take as long as the kernels of vectors.
    return torch.from_numpy(np.empty(shape, _NUMPY[dtype]))


def _whole(count: int) -> int:
    return -(-count // _TILE) * _TILE


def _ranges(stop: int, step: int, start: int = 0) -> Iterator[range]:
    return (range(a, min(a + step, stop)) for a in range(start, stop, step))


def _entries(rows: range, columns: range) -> int:
    return sum(max(0, columns.stop - max(columns.start, row)) for row in rows)
