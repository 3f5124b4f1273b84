"""Runs the tapes of one network on batches of CPU tensors."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit._src.common import Progress, mirror_upper, shifted_progress
from ntkit._src.program import Conv, Dense, Input, Node, Program
from ntkit._src.rules import Kernels, read_data
from ntkit.errors import EngineError

from . import _core
from ._emitter import TapePlan
from ._network import PlannedNetwork
from ._products import SIDE, side, tiles_for, whole
from ._tapes import tape_alone, tape_between
from .families import MOST_RATIO, Data, known_family, largest_bias, layer_numbers

_CHUNK_BYTES = 48 << 20  # each for the packed columns, the packed rows and a tile of the result
# Large, because after each matrix product torch's threads spin for some milliseconds and take the processor from the layers that
# follow. Below 32 MB, because glibc returns larger blocks to the system, and fetching them again takes as long as the layers.
_PRODUCT_BYTES = 31 << 20
_MOST_BYTES = 256 << 20  # of data and the per-input cache, where rows are long
_PART_NUMBERS = 1 << 22  # numbers read at a time, so that copies of inputs take little memory
_PRODUCT_COLUMNS = 5120  # vectors at a time
_FEW = 128  # inputs whose kernels for many gains are computed together
_SAME_UNIT = (
    4.0  # of the largest relative biases for which inputs are scaled alike: units differ by a factor of two at most
)
_PROBE = 8  # inputs of a batch that are read before the others: the lanes of double precision
_LANES = 16  # pairs in a block, at most; tiles of vectors hold whole blocks
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
        end = stop if not self.features else start + whole(stop - start, SIDE)
        return _Batch(self.data[start:end], self.cache[start:stop], self.features)

    @property
    def vectors(self) -> list[NDArray[Any]]:
        """The features of vectors, shape (rows in whole tiles, features), one array for each of the network's inputs."""
        return np.split(self.data, np.cumsum(self.features)[:-1], 1) if len(self.features) > 1 else [self.data]


class _Scaled(NamedTuple):
    """Inputs, their units, and the sums of their squares once scaled."""

    numbers: NDArray[Any]
    units: NDArray[Any]
    squares: NDArray[Any]


class Runner:
    """Runs the tapes of one network, each planned once."""

    def __init__(self, network: PlannedNetwork) -> None:
        self.network, self._bias = network, network.bias
        self._scales = [
            ((what, index), start)
            for (what, index), start in network.cache.items()
            if what == _core.Cached.SCALE
            or (
                what == _core.Cached.HALF
                and known_family(network.program.nodes[index].op).whole
                and not network.linear_after[index]
            )
        ]
        self._plans: dict[tuple[TapeKind, bool, int], TapePlan] = {}
        # The runner of the same network with other gains, whose tapes it takes, and its own numbers for them.
        self._planned: Runner | None = None
        self._layers: list[tuple[float, float, float, float]] = []

    def with_gains(self, program: Program) -> Runner:
        """Return the runner of a program that differs in the values of gains: its tapes are these with other numbers."""
        other = copy.copy(self)
        other._plans, other._planned, other._bias = {}, self, largest_bias(program)
        ops = (node.op for node in program.nodes)
        other._layers = [layer_numbers(op) for op in ops if isinstance(op, (Dense, Conv))]
        return other

    def gram(self, x1: Tensor, x2: Tensor | None, ntk: bool, nngp: bool, progress: Progress | None = None) -> Kernels:
        """Compute Theta and K between two batches, shape (n1, n2), or of one batch with itself where ``x2`` is None."""
        dtype = self._dtype(x1)
        others = x1 if x2 is None else x2
        n1, n2 = x1.shape[0], others.shape[0]
        plan = self.plan("between", ntk, n2)
        tiles = tiles_for(n1, n2, plan.data_sizes, dtype) if plan.batch > 1 else None
        # If the core computes in the dtype of the inputs, it writes directly into the result.
        out = [np.empty((n1, n2), _NUMPY[_result_dtype(x1)]) if wanted else None for wanted in (ntk, nngp)]
        total = n1 * n2 if x2 is not None else n1 * (n1 + 1) // 2
        done, threads, size = 0, torch.get_num_threads(), dtype.itemsize
        step = _rows_at_a_time(plan, size)
        if tiles is not None:
            step = min(max(SIDE, step // SIDE * SIDE), _PRODUCT_COLUMNS)
        products = np.empty((0, 0, 0, 0, 0), _NUMPY[dtype])
        padded = (1, 1) if tiles is None else (tiles.rows, tiles.columns)
        scales: dict[int, tuple[float, float]] = {}
        for columns in _ranges(n2, step):
            second = self._read(_part(others, columns), dtype, max(padded) if x2 is None else padded[1])
            self._check_scales(second.cache, scales)
            row_step = max(1, min(step, _CHUNK_BYTES // (size * len(columns))))
            if tiles is not None:
                fitting = _PRODUCT_BYTES // (size * len(plan.inputs) * whole(len(columns), tiles.columns))
                row_step = max(1, min(row_step, fitting) // SIDE) * SIDE
                products = tiles.empty(min(row_step, n1), len(columns), _NUMPY[dtype])
            for rows in _ranges(columns.stop if x2 is None else n1, row_step):
                if x2 is None and rows.start >= columns.start and rows.stop <= columns.stop:
                    first = second.rows(rows.start - columns.start, rows.stop - columns.start)
                else:
                    first = self._read(_part(x1, rows), dtype, padded[0])
                    self._check_scales(first.cache, scales)
                upper = x2 is None and rows.stop > columns.start
                targets = [m if m is None else m[rows.start : rows.stop, columns.start : columns.stop] for m in out]
                tile = [
                    m if m is None or m.dtype == _NUMPY[dtype] else np.empty(m.shape, _NUMPY[dtype]) for m in targets
                ]
                report = None if progress is None else shifted_progress(progress, done, total)
                if tiles is not None:
                    below = rows.start - columns.start if upper else -n1
                    tiles.multiply(first.vectors, second.vectors, products, below)
                _core.cross(
                    plan.tape,
                    data1=first.data,
                    cache1=first.cache,
                    data2=second.data,
                    cache2=second.cache,
                    products=products,
                    ntk=tile[0],
                    nngp=tile[1],
                    upper=upper,
                    first_row=rows.start,
                    first_column=columns.start,
                    threads=threads,
                    progress=report,
                )
                if progress is not None:
                    done += _entries(rows, columns) if upper else len(rows) * len(columns)
                for target, values in zip(targets, tile, strict=True):
                    if target is not None and values is not None and values is not target:
                        target[:] = values
        result = Kernels(*(None if values is None else torch.from_numpy(values) for values in out))
        for matrix in result:
            if x2 is None and matrix is not None:
                mirror_upper(matrix)
        return result

    def over_gains(
        self, x1: Tensor, x2: Tensor | None, ntk: bool, nngp: bool, layers: list[list[list[float]]], biases: list[float]
    ) -> Kernels | None:
        """Compute Theta and K of few inputs for many gains, shape (g, n1, n2); None if the inputs are not few.

        ``layers`` are the numbers of each layer and ``biases`` the largest relative bias, for each choice of gains.
        """
        dtype, sides = self._dtype(x1), [x1] if x2 is None else [x1, x2]
        kind, counts = _NUMPY[dtype], [x.shape[0] for x in sides]
        between, alone = self.plan("between", ntk, counts[-1]), [self.plan("cache", False, count) for count in counts]
        if max(counts) > min(_FEW, _rows_at_a_time(between, 8)):
            return None
        tiles = tiles_for(counts[0], counts[-1], between.data_sizes, dtype) if between.batch > 1 else None
        padded = [1, 1] if tiles is None else [tiles.rows, tiles.columns]
        padded = [max(padded)] if x2 is None else padded
        products = np.empty((0, 0, 0, 0, 0), kind) if tiles is None else tiles.empty(counts[0], counts[-1], kind)
        data = [np.zeros((whole(n, tile), between.data_size), kind) for n, tile in zip(counts, padded, strict=True)]
        caches = [np.empty((count, between.cache_size), kind) for count in counts]
        out = [np.empty((len(layers), counts[0], counts[-1]), kind) if wanted else None for wanted in (ntk, nngp)]
        inputs: list[_Scaled] = []
        bias = -1.0
        for index in sorted(range(len(layers)), key=biases.__getitem__):
            if not inputs or (self.network.single_precision and biases[index] > _SAME_UNIT * bias):
                bias = biases[index]
                inputs = [self._scaled(*part, bias) for part in zip(alone, sides, data, strict=True)]
                if tiles is not None:
                    vectors = [_Batch(values, caches[0], between.data_sizes).vectors for values in data]
                    tiles.multiply(vectors[0], vectors[-1], products, 0)
            scales: dict[int, tuple[float, float]] = {}
            for plan, scaled, cache in zip(alone, inputs, caches, strict=True):
                self._cached(plan.tape.with_gains(layers[index]), scaled, cache)
                self._check_scales(cache, scales)
            _core.cross(
                between.tape.with_gains(layers[index]),
                data1=data[0],
                cache1=caches[0],
                data2=data[-1],
                cache2=caches[-1],
                products=products,
                ntk=None if out[0] is None else out[0][index],
                nngp=None if out[1] is None else out[1][index],
                upper=x2 is None,
                first_row=0,
                first_column=0,
                threads=torch.get_num_threads(),
                progress=None,
            )
        found = (None if values is None else torch.from_numpy(values).to(_result_dtype(x1)) for values in out)
        return Kernels(*(k if k is None or x2 is not None else k.triu() + k.triu(1).mT for k in found))

    def diag(self, x: Tensor, ntk: bool) -> Tensor:
        """Compute Theta(x_i, x_i), or K(x_i, x_i) where ``ntk`` is False, shape (n,)."""
        plan = self.plan("diag", ntk, x.shape[0])
        parts = []
        for rows in _ranges(x.shape[0], _rows_at_a_time(plan, 8)):
            kernels = self._alone(plan, _part(x, rows), None, np.empty((len(rows), plan.cache_size)))
            parts.append(kernels[0 if ntk else 1])
        return torch.from_numpy(np.concatenate(parts)).to(_result_dtype(x))

    def _dtype(self, x: Tensor) -> torch.dtype:
        return torch.float32 if x.dtype == torch.float32 and self.network.single_precision else torch.float64

    def plan(self, kind: TapeKind, ntk: bool, inputs: int = SIDE) -> TapePlan:
        """Return a tape with the sizes of its inputs, planned on first use; of vectors, for a number of columns."""
        blocks = 1 if self.network.batch == 1 else side(inputs) // _LANES
        found = self._plans.get((kind, ntk, blocks))
        if found is not None:
            return found
        if self._planned is not None:
            plan = self._planned.plan(kind, ntk, inputs)
            found = replace(plan, tape=plan.tape.with_gains(self._layers))
        else:
            network = replace(self.network, blocks=blocks) if blocks > 1 else self.network
            found = tape_between(network, ntk) if kind == "between" else tape_alone(network, ntk, kind == "diag")
        self._plans[kind, ntk, blocks] = found
        return found

    def _read(self, x: Tensor, dtype: torch.dtype, padded: int) -> _Batch:
        """Compute the cached numbers of each input, and scale the input; data end with zeros up to whole tiles, ``padded``."""
        count = x.shape[0]
        plan = self.plan("cache", False, count)
        cache = np.empty((count, plan.cache_size), _NUMPY[dtype])
        data = np.empty((whole(count, padded), plan.data_size), _NUMPY[dtype])
        data[count:] = 0
        # Most batches that are beyond the range of a version show it by their first inputs.
        probed = _PROBE if self.network.tiers > 1 else 0
        for part in (
            *_ranges(min(probed, count), _PROBE),
            *_ranges(count, max(64, _PART_NUMBERS // plan.data_size), probed),
        ):
            self._alone(plan, _part(x, part), data[part.start : part.stop], cache[part.start : part.stop])
        return _Batch(data, cache, plan.data_sizes if plan.batch > 1 else ())

    def _check_scales(self, cache: NDArray[Any], scales: dict[int, tuple[float, float]]) -> None:
        """Refuse deviations of very different size: the larger one dominates H, which has then lost K.

        They are looked at before a normalisation, and after attention, which may raise the scale of an input to its third power.
        """
        for (what, index), start in self._scales:
            node = self.network.program.nodes[index]
            found = cache[:, start : start + prod(node.positions)]
            if what != _core.Cached.SCALE:
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
        return self._cached(plan.tape, self._scaled(plan, x, data, self._bias), cache)

    def _scaled(self, plan: TapePlan, x: Tensor, data: NDArray[Any] | None, bias: float) -> _Scaled:
        """Find the unit of each input, given the largest relative bias; scaled inputs go to ``data``, (n, numbers)."""
        numbers, count = self._numbers(plan, x), x.shape[0]
        units = np.empty((count, self.network.units))
        squares = np.zeros((len(plan.data_sizes), 1, 1, 1, whole(count, _LANES * plan.batch)))
        _core.read(
            numbers,
            sizes=plan.data_sizes,
            scalable=self.network.single_precision,
            bias=bias,
            data=data,
            squares=squares,
            units=units,
            threads=torch.get_num_threads(),
            progress=None,
        )
        return _Scaled(numbers, units, squares)

    def _cached(self, tape: _core.Tape, inputs: _Scaled, cache: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        # All computations are in double precision, whatever the dtype of the cache.
        count, threads = cache.shape[0], torch.get_num_threads()
        nngp, ntk = np.zeros(count), np.zeros(count)

        def run(products: NDArray[Any], known: bool, *results: NDArray[Any]) -> None:
            _core.self(
                tape, numbers=inputs.numbers, units=inputs.units, products=products, cache_known=known, cache=cache,
                nngp=results[0], ntk=results[1], threads=threads, progress=None,
            )  # fmt: skip

        run(inputs.squares, False, nngp, ntk)
        if self.network.tiers > 1 and bool(np.isnan(cache).any()):
            self._refuse_deviations(cache)
        if cache.dtype != np.float64 and self.network.windows:
            # Sums inside a window are subtracted from sums between two windows, so both must round in the same way.
            nothing = np.zeros(count, np.float32)
            run(np.zeros((0, 0, 0, 0, 0), np.float32), True, nothing, nothing.copy())
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
            numbers = read_numbers(self.network.program, plan.inputs, x)
        return numbers.detach().contiguous().numpy()


def read_numbers(program: Program, inputs: Sequence[Data], x: Tensor) -> Tensor:
    """Return the numbers that a program's inputs read, channels before positions, shape (n, numbers)."""
    plain = [op for op in inputs if isinstance(op, Input) and program.prefixes[op.prefix] is None]
    if len(plain) == len(inputs):
        values = [x if op.channel == 1 else x.movedim(op.channel, 1) for op in plain]
    else:
        data = read_data(program, x).data
        values = [
            data[op.prefix, op.channel].movedim(-1, 1) if isinstance(op, Input) else data[op.prefix, 0] for op in inputs
        ]
    rows = [value.reshape(len(value), -1) for value in values]
    return rows[0] if len(rows) == 1 else torch.cat(rows, 1)


def _beyond(node: Node, got: str) -> BeyondRange:
    """Return the error that says which operation has too small a range, and what of the inputs is beyond it."""
    return BeyondRange(
        f"{node.path} ({node.op.label()}): the native engine covers {known_family(node.op).covered(node.op)}. Got {got}. "
        'Write engine="auto" or engine="reference".'
    )


def _rows_at_a_time(plan: TapePlan, size: int) -> int:
    """Return how many inputs are held at a time, for numbers of ``size`` bytes."""
    row_bytes = size * max(plan.row_numbers, 1)
    return max(16, min(128, _MOST_BYTES // row_bytes), _CHUNK_BYTES // row_bytes)


def _part(x: Tensor, rows: range) -> Tensor:
    return x if len(rows) == x.shape[0] else x[rows.start : rows.stop]


def _result_dtype(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.float64  # integers are tokens


def _ranges(stop: int, step: int, start: int = 0) -> Iterator[range]:
    return (range(a, min(a + step, stop)) for a in range(start, stop, step))


def _entries(rows: range, columns: range) -> int:
    return sum(max(0, columns.stop - max(columns.start, row)) for row in rows)
