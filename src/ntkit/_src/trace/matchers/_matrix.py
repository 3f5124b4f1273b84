"""Matrices that mix positions: constant, computed from each input (a graph's adjacency), or torch's own of interpolation."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src.program import DataMap

from .._builder import EMPIRICAL, Builder, Refused, WrongShape
from .._values import BATCH, CHANNEL, Computed, Data, Field, Weight, concrete
from ._positions import map_axis, reduced
from ._registry import matches

_FAMILY = "position maps"
_OWN_WEIGHTS = f"use nn.Linear layers with weights of their own; or {EMPIRICAL}"


def _mapped(builder: Builder, x: Field, dim: int, matrix: Any, transposed: bool) -> Field:
    """Return x'[..., q, ...] = sum_p A[q, p] x[..., p, ...] along a dimension; ``transposed``: ``matrix`` holds A^T."""
    if BATCH in x.dims[dim]:
        raise Refused("it mixes the inputs of a batch", "map positions only", x)
    if CHANNEL in x.dims[dim]:
        raise Refused(
            "a matrix product with a parameter or with fixed numbers mixes the channels, and no rule knows its distribution",
            f"use an nn.Linear layer for the channels; or {EMPIRICAL}",
            x,
        )
    if isinstance(matrix, Computed) or (isinstance(matrix, Weight) and matrix.trained):
        raise Refused(
            "its matrix is made of trained parameters, which all channels share, so their gradient stays random",
            f"freeze the matrix (requires_grad_(False)) or register it as a buffer; or {EMPIRICAL}",
            x,
        )
    x, axis = builder.axis_of(x, dim)
    if isinstance(matrix, Data):
        size = matrix.value.shape[2 if transposed else 1]
        return builder.map_axes(x, DataMap(axis, builder.prefix(matrix), size, transposed), x.with_length(axis, size))
    numbers = torch.as_tensor(concrete(matrix)).detach()
    if numbers.is_complex():
        raise Refused("its matrix is complex", "use real numbers", x)
    return map_axis(builder, x, axis, numbers.mT if transposed else numbers, "matrix")


def _plain(builder: Builder, matrix: Any, x: Field) -> Any:
    """Check the dimensions of a matrix: (Q, P), or with the batch in front if each input has its own."""
    tensor = concrete(matrix)
    if isinstance(matrix, Data):
        if tensor.ndim != 3 or tensor.shape[0] != x.batch:
            # This does not refuse the module: inputs of another shape may yield matrices of the right shape.
            raise WrongShape(
                f"{builder.path}: matrices computed from inputs must have the shape (n, positions after, positions before). Got "
                f"{tuple(tensor.shape)} for {x.batch} inputs. Give each input one matrix."
            )
        return matrix
    while isinstance(tensor, Tensor) and tensor.ndim > 2 and tensor.shape[0] == 1:
        tensor = tensor[0]
    if not isinstance(tensor, Tensor) or tensor.ndim != 2:
        raise Refused(
            "a product with something that is not one matrix for all inputs",
            "multiply by a matrix of two dimensions",
            x,
        )
    return matrix if isinstance(matrix, (Weight, Computed)) else tensor


@matches(
    operator.matmul, torch.matmul, torch.bmm, torch.mm, "matmul", "bmm", "mm", "__matmul__", "__rmatmul__",
    family=_FAMILY,
    note="products with a constant or frozen matrix, or with one computed from the input (graphs), along positions",
)  # fmt: skip
def matmul(builder: Builder, x: Any, y: Any) -> Field:
    """Multiply by a matrix from the left (A h) or the right (h A)."""
    if isinstance(x, Field) and isinstance(y, Field):
        raise Refused("a product of random tensors by a matrix product", _OWN_WEIGHTS)
    if isinstance(y, Field):
        return _mapped(builder, y, len(y.dims) - 2, _plain(builder, x, y), transposed=False)
    return _mapped(builder, x, len(x.dims) - 1, _plain(builder, y, x), transposed=True)


@matches(
    torch.einsum,
    "einsum",
    family=_FAMILY,
    note="einsum of one random operand: sums over positions, or a matrix along one of them",
)
def einsum(builder: Builder, equation: Any, *operands: Any, path: Any = None) -> Field:
    """Sum over positions (``"bchw->bc"``) or map one of them (``"ij,bjc->bic"``, ``"bij,bjc->bic"``), and reorder dimensions."""
    operands = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    fields = [index for index, operand in enumerate(operands) if isinstance(operand, Field)]
    letters, write = _explicit(
        str(equation), [len(op.dims) if isinstance(op, Field) else concrete(op).ndim for op in operands]
    )
    if len(fields) > 1:
        raise Refused("a product of random tensors by einsum", _OWN_WEIGHTS)
    if len(operands) > 2 or any(len(set(read)) < len(read) for read in letters):
        raise Refused(
            f"einsum {equation!r} has more than two operands, or a letter twice in one of them",
            f"write one einsum for each matrix, such as torch.einsum('ij,bjc->bic', A, h); or {EMPIRICAL}",
        )
    x, read = operands[fields[0]], letters[fields[0]]
    if len(operands) == 2:
        x, read = _einsum_map(builder, x, read, operands[1 - fields[0]], letters[1 - fields[0]], write)
    gone = [dim for dim, letter in enumerate(read) if letter not in write]
    if gone:
        x = reduced(builder, x, gone, keepdim=False, divide=False)
    kept = [letter for letter in read if letter in write]
    result: Field = x.with_dims([x.dims[kept.index(letter)] for letter in write])
    return result


def _explicit(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of the operands and of the result, with letters for ``...`` and for a result left out."""
    reads, arrow, write = equation.replace(" ", "").partition("->")
    terms = reads.split(",")
    if not arrow:  # torch's rule: the dimensions of ..., then letters that occur once, in alphabetical order
        write = ("..." if "..." in reads else "") + "".join(
            sorted(one for one in set(reads) - set(".,") if reads.count(one) == 1)
        )
    hidden = [rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=False) if "..." in term]
    spare = "".join(map(chr, range(0x3B1, 0x3B1 + max(hidden, default=0))))  # Greek: no letters of an equation

    def spelled(term: str, count: int) -> str:
        return term.replace("...", spare[len(spare) - count :])

    letters = [spelled(term, rank - len(term) + 3) for term, rank in zip(terms, ranks, strict=False)]
    return letters + terms[len(letters) :], spelled(write, len(spare))


def _written(letters: str) -> str:
    """Return letters of :func:`_explicit` as an equation has them."""
    return repr(re.sub("[α-ω]+", "...", letters))


def _einsum_map(builder: Builder, x: Field, read: str, matrix: Any, own: str, write: str) -> tuple[Field, str]:
    """Apply a matrix operand along the letter that it shares with the field; return the field and its new letters."""
    batch = read[0] if isinstance(matrix, Data) and own[:1] == read[:1] else ""
    shared = [letter for letter in own[len(batch) :] if letter in read]
    new = [letter for letter in own[len(batch) :] if letter not in read]
    if len(shared) != 1 or len(new) > 1 or shared[0] in write or any(letter not in write for letter in new):
        raise Refused(
            f"einsum with a factor {_written(own)} of fixed numbers that is not one matrix along one position axis "
            f"of {_written(read)}",
            "write it as sum_j A[i, j] h[j]: torch.einsum('ij,bjc->bic', A, h)",
            x,
        )
    order = batch + (new[0] if new else "") + shared[0]
    value = concrete(matrix)
    if isinstance(matrix, Data):
        if not batch or not new or own != order:
            raise Refused(
                f"einsum with a factor {_written(own)} computed from the input, expected {_written(order)}",
                "give it the batch first, then positions after and before: torch.einsum('bij,bjc->bic', A, h)",
                x,
            )
        matrix = _plain(builder, matrix, x)
    elif not (isinstance(matrix, Computed) or (isinstance(matrix, Weight) and matrix.trained)):
        matrix = value.reshape(1, -1) if not new else value if own == order else value.mT
    field = _mapped(builder, x, read.index(shared[0]), matrix, transposed=False)
    return field, read.replace(shared[0], new[0] if new else shared[0])


_OTHER = 2  # length of the other axes


def _axis_matrix(function: Callable[[Tensor, int], Tensor], index: int, ndim: int, size: int) -> Tensor:
    """Read the matrix of one axis from a separable map of unit vectors that are constant along the other axes."""
    units = torch.eye(size, dtype=torch.float64).reshape(size, 1, *(size if i == index else 1 for i in range(ndim)))
    # Length one would not do: torch 2.13 then takes the tensor for channels-last and smooths the wrong axis.
    units = units.expand(-1, 1, *(size if i == index else _OTHER for i in range(ndim))).contiguous()
    mapped = function(units, index).movedim(2 + index, 1)
    return mapped.flatten(2)[:, :, 0].T


def _one(values: Any, index: int, ndim: int, other: float) -> tuple[Any, ...] | None:
    """Return an option for one axis, ``other`` for the rest; ``values`` holds one per axis, or one for all."""
    if values is None:
        return None
    value = values[index] if isinstance(values, (tuple, list, torch.Size)) else values
    return tuple(value if i == index else other for i in range(ndim))


@matches(
    F.interpolate,
    modules={nn.Upsample: ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor")},
    family="up-sampling",
    note="every mode, `align_corners` either way, up or down to any size",
)
def interpolate(
    builder: Builder, x: Field, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Field:  # fmt: skip
    """x' = A x along each axis with the A of torch itself; nearest neighbours only select."""
    ndim = len(x.dims) - 2
    if x.core(1) != (CHANNEL,):
        raise Refused(
            "dimension 1 of its input is not the channels alone", "keep the channels in dimension 1, positions after it"
        )

    def along(units: Tensor, index: int) -> Tensor:
        sizes, factors = _one(size, index, ndim, _OTHER), _one(scale_factor, index, ndim, 1.0)
        return F.interpolate(units, sizes, factors, mode, align_corners, recompute_scale_factor, antialias)

    for index in range(ndim):
        x, axis = builder.axis_of(x, 2 + index)
        matrix = _axis_matrix(along, index, ndim, x.positions[axis])
        x = map_axis(builder, x, axis, matrix, f"{mode} to {len(matrix)}")
    return x


matches(F.upsample, F.upsample_nearest)(interpolate)


@matches(F.upsample_bilinear)
def upsample_bilinear(builder: Builder, x: Field, size: Any = None, scale_factor: Any = None) -> Field:
    """Interpolate between corners that stay where they are."""
    return interpolate(builder, x, size, scale_factor, "bilinear", True)


def _exported(mode: str, name: str, aligned: bool, antialias: bool = False) -> None:
    """Match an operator of the exporter: (x, size, [align_corners], scale factors, one or one per axis)."""

    def build(builder: Builder, x: Field, output_size: Any = None, *rest: Any) -> Field:
        align = bool(rest[0]) if aligned and rest else None
        factors: Sequence[Any] = [factor for factor in rest[1 if aligned else 0 :] if factor is not None]
        if len(factors) == 1 and isinstance(factors[0], (tuple, list)):
            factors = factors[0]
        # If sizes and factors are both given, the sizes count and the factors determine where the samples lie.
        scale = [float(factor) for factor in factors] if factors else None
        if scale is not None and output_size is not None:
            sizes = [int(length * factor) for length, factor in zip(x.shape[2:], scale, strict=True)]
            if sizes != [int(length) for length in output_size]:
                raise Refused("it is given sizes and scale factors that differ", "give one of them")
        size = None if scale is not None else [int(length) for length in output_size]
        return interpolate(builder, x, size, scale, mode, align, antialias=antialias)

    matches(name)(build)


for _ndim, _mode in ((1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear")):
    _exported(_mode, f"upsample_{_mode}{_ndim}d", aligned=True)
    if _ndim == 2:
        _exported(_mode, f"_upsample_{_mode}{_ndim}d_aa", aligned=True, antialias=True)
for _ndim in (1, 2, 3):
    _exported("nearest", f"upsample_nearest{_ndim}d", aligned=False)
    _exported("nearest-exact", f"_upsample_nearest_exact{_ndim}d", aligned=False)
