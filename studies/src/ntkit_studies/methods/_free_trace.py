"""Expected traces of words in two free families of matrices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce

from torch import Tensor

from ntkit.errors import InputError

__all__ = ["free_trace"]

_LONGEST = 8


def free_trace(c: Sequence[Tensor], r: Sequence[Tensor]) -> float:
    r"""Return :math:`\operatorname{tr}[C_1 R_1 C_2 R_2 \cdots C_m R_m]` of two freely independent families.

    Traces are divided by the dimension. The joint moments within each family are those of the matrices given; between the
    families they are as if the eigenvectors of one were rotated at random, in the limit of large dimensions. With free cumulants
    :math:`\kappa` and Kreweras' complement K(p) of a noncrossing partition p,

    .. math:: \operatorname{tr}[C_1 R_1 \cdots C_m R_m] = \sum_{p \in NC(m)} \kappa_p[C_1, \dots, C_m]\,
              \operatorname{tr}_{K(p)}[R_1, \dots, R_m].

    Lemmas 11 to 14 of Beaglehole et al. 2024 (appendix E.1) are m = 1 to 4 with traceless C, and equations 19, 21 and 27, from
    which :func:`predict_alignment` is made, are the words (A, A, B), (A, A) and (A, B, A, B) between copies of R.

    Parameters
    ----------
    c, r
        m matrices each, 1 to 8, all of shape (d, d). They need not be centred, nor differ.

    Examples
    --------
    >>> import torch
    >>> half = torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))  # a projection on half of the space
    >>> free_trace([half], [half]), free_trace([half, half], [half, half])
    (0.25, 0.1875)
    """
    m = len(c)
    if not 1 <= m <= _LONGEST or len(r) != m:
        raise InputError(f"c and r must have the same number of matrices, 1 to {_LONGEST}. Got {m} and {len(r)}.")
    if any(one.ndim != 2 or one.shape != (len(c[0]), len(c[0])) for one in (*c, *r)):
        raise InputError(f"all matrices must have shape (d, d). Got {[tuple(one.shape) for one in (*c, *r)]}.")
    cumulants: dict[tuple[int, ...], float] = {}

    def cumulant(block: tuple[int, ...]) -> float:
        """Return the free cumulant of these C: their moment less the products over all finer noncrossing partitions."""
        if block not in cumulants:
            finer = (
                math.prod(cumulant(tuple(block[i] for i in part)) for part in partition)
                for partition in _noncrossing(len(block))
                if len(partition) > 1
            )
            cumulants[block] = _moment(c, block) - sum(finer)
        return cumulants[block]

    return sum(
        math.prod(cumulant(block) for block in partition)
        * math.prod(_moment(r, block) for block in _kreweras(partition, m))
        for partition in _noncrossing(m)
    )


def _moment(family: Sequence[Tensor], block: Sequence[int]) -> float:
    product = reduce(lambda left, right: left @ right, (family[i] for i in block))
    return float(product.trace()) / len(product)


def _noncrossing(m: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield the noncrossing partitions of 0 to m - 1, blocks in increasing order."""

    def within(points: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
        if not points:
            yield ()
            return
        for chosen in range(
            1 << (len(points) - 1)
        ):  # the rest of the first point's block; what lies between stays apart
            block = (points[0], *(p for i, p in enumerate(points[1:]) if chosen >> i & 1))
            gaps = [
                tuple(p for p in points if low < p < high) for low, high in zip(block, (*block[1:], m), strict=True)
            ]
            yield from ((block, *rest) for rest in _products(gaps))

    def _products(gaps: list[tuple[int, ...]]) -> Iterator[tuple[tuple[int, ...], ...]]:
        if not gaps:
            yield ()
            return
        for first in within(gaps[0]):
            yield from ((*first, *rest) for rest in _products(gaps[1:]))

    yield from within(tuple(range(m)))


def _kreweras(partition: tuple[tuple[int, ...], ...], m: int) -> list[tuple[int, ...]]:
    """Return the largest partition of the places after 0 to m - 1 that crosses no block: the cycles of p^-1 (0 1 ... m-1)."""
    before = {point: block[i - 1] for block in partition for i, point in enumerate(block)}
    left, cycles = set(range(m)), []
    while left:
        point = start = min(left)
        cycle = []
        while True:
            cycle.append(point)
            left.discard(point)
            point = before[(point + 1) % m]
            if point == start:
                break
        cycles.append(tuple(sorted(cycle)))
    return cycles
