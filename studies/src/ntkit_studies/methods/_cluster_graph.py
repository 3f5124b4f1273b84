"""How correlation functions and the kernels of the tangent hierarchy shrink with the width: cluster graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from torch import Tensor
from torch.func import grad, jvp

from ntkit.errors import InputError
from ntkit.extending import check_integer

__all__ = ["KernelExponents", "cluster_exponent", "higher_kernel", "kernel_exponents"]

P = TypeVar("P")


def cluster_exponent(ranks: Sequence[int], contractions: Sequence[tuple[int, int]]) -> Fraction | None:
    r"""Return :math:`s_C = n_e + n_o / 2 - m / 2` of a correlation function, which is :math:`O(n^{s_C})` in the width n.

    The expectation of a product of m derivative tensors :math:`\partial^k f(x_i)`, whose indices are contracted in pairs. Tensors
    are joined where they are contracted with each other; :math:`n_e, n_o` count the clusters of even and odd size (Golikov et al.
    2022, eqs 27 to 29 and Conjecture 1, of Dyer and Gur-Ari 2020). For odd m the expectation is zero.

    Parameters
    ----------
    ranks
        Number of derivatives of each tensor, m numbers; 0 is f itself.
    contractions
        Pairs of tensors, counted from 0, one for each contracted pair of indices.

    Returns
    -------
    Fraction or None
        None for odd m.

    Examples
    --------
    The example of the survey, eq. 29, has a cluster of one and one of three tensors; the tangent kernel has one of two.

    >>> cluster_exponent([0, 1, 2, 1], [(1, 2), (2, 3)]), cluster_exponent([1, 1], [(0, 1)])
    (Fraction(-1, 1), Fraction(0, 1))
    """
    m = len(ranks)
    used = [0] * m
    cluster = list(range(m))
    for pair in contractions:
        if len(pair) != 2 or not all(0 <= one < m for one in pair):
            raise InputError(f"a contraction must name two of the {m} tensors, counted from 0. Got {pair}.")
        first, second = (cluster[one] for one in pair)
        cluster = [first if one == second else one for one in cluster]
        for one in pair:
            used[one] += 1
    if used != list(ranks):
        raise InputError(
            f"every index must be contracted once: the ranks are {list(ranks)}, the contractions use {used}."
        )
    if m % 2:
        return None
    sizes = [cluster.count(one) for one in set(cluster)]
    odd = sum(size % 2 for size in sizes)
    return len(sizes) - odd + Fraction(odd - m, 2)


@dataclass(frozen=True)
class KernelExponents:
    """Exponents of the width, eqs 31 to 33 of the survey.

    Attributes
    ----------
    mean
        Of E O_s at the start; None if it is zero.
    size
        Of O_s itself, half the exponent of E O_s^2.
    rate
        Of its derivative in time, at any time.
    """

    mean: Fraction | None
    size: Fraction
    rate: Fraction


def kernel_exponents(s: int) -> KernelExponents:
    r"""Return how the kernel of order s, :math:`O_s(x_1, \dots, x_s)`, shrinks with the width by Conjecture 1.

    :math:`O_1 = f` and :math:`O_{s+1} = \nabla O_s \cdot \nabla f(x_{s+1})`; each is a sum of trees of s tensors with s - 1
    contractions, of which a chain is taken here. The rate is that of :math:`O_{s+1} (y - f)`: with a target the exponent of
    :math:`O_{s+1}`, with f that of both, and the larger counts.

    Parameters
    ----------
    s
        Order, at least 1.

    Examples
    --------
    >>> [kernel_exponents(s).size for s in (2, 3, 4, 5, 6)]
    [Fraction(0, 1), Fraction(-1, 1), Fraction(-1, 1), Fraction(-2, 1), Fraction(-2, 1)]
    """
    check_integer("s", s, 1)

    def size(order: int, outputs: int = 0) -> Fraction:
        """Return half the exponent of the second moment of O_order times ``outputs`` free outputs."""
        ranks, pairs = _chain(order)
        twice = [*ranks, *ranks, *[0] * (2 * outputs)]
        found = cluster_exponent(twice, [*pairs, *((a + order, b + order) for a, b in pairs)])
        assert found is not None
        return found / 2

    return KernelExponents(cluster_exponent(*_chain(s)), size(s), max(size(s + 1), size(s + 1, outputs=1)))


def _chain(s: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Return ranks and contractions of s tensors in a row."""
    return [int(i > 0) + int(i < s - 1) for i in range(s)], [(i, i + 1) for i in range(s - 1)]


def higher_kernel(function: Callable[[P, Tensor], Tensor], parameters: P, inputs: Sequence[Tensor]) -> Tensor:
    r"""Return :math:`O_s(x_1, \dots, x_s)` of one network by nested derivatives, without any tensor of order s.

    :math:`O_2 = \nabla f(x_1) \cdot \nabla f(x_2)` is the tangent kernel, and
    :math:`O_{s+1} = \nabla O_s \cdot \nabla f(x_{s+1})` (Golikov et al. 2022, eq. 26). Works under ``torch.func.vmap``.

    Parameters
    ----------
    function
        From parameters and one input to f, a tensor without dimensions.
    parameters
        A tensor, or tensors in tuples and dictionaries.
    inputs
        s inputs, at least 1.

    Examples
    --------
    >>> import torch
    >>> def cubic(w, x):
    ...     return (w * x) ** 3
    >>> one = torch.tensor(1.0)
    >>> [higher_kernel(cubic, one, [one] * s).item() for s in (1, 2, 3)]  # w^3, 9 w^4, 36 w^3 * 3 w^2
    [1.0, 9.0, 108.0]
    """
    if not inputs:
        raise InputError("inputs must have at least one input. Got none.")

    def order(s: int) -> Callable[[P], Tensor]:
        if s == 1:
            return lambda now: function(now, inputs[0])
        lower, x = order(s - 1), inputs[s - 1]
        return lambda now: jvp(lower, (now,), (grad(function)(now, x),))[1]

    return order(len(inputs))(parameters)
