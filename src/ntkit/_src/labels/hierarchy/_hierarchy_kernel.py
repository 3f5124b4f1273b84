"""The kernels of the tangent hierarchy: contracted with vectors, and written out in terms (Chen et al. 2020, section B.1)."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ntkit._src.common import check_integer, measuring
from ntkit._src.kernels import BYTE_BUDGET, Network
from ntkit.errors import InputError

from ._module_hierarchy import check_weights, scalar_network
from ._tangents import Tangents


def hierarchy_kernel(
    module: nn.Module,
    x1: Tensor,
    x2: Tensor | None = None,
    vectors: Sequence[Tensor] = (),
    x: Tensor | None = None,
    *,
    output: int | None = None,
    byte_budget: int = BYTE_BUDGET,
) -> Tensor:
    r"""Contract the kernel of order r of a network's tangent hierarchy with r - 2 vectors.

    .. math:: K^{(2)}(x, x') = \nabla f(x) \cdot \nabla f(x'), \qquad
              K^{(r+1)}(\ldots, x_i) = \nabla K^{(r)}(\ldots) \cdot \nabla f(x_i)

    are the kernels by which gradient flow moves the tangent kernel (Chen et al. 2020, eq. 3 and section B.1; Huang and Yau
    2019). Given vectors u, v, ..., this is :math:`\sum_{ij\ldots} u_i v_j \cdots K^{(r)}(x, x', x_i, x_j, \ldots)`: the
    derivative of the tangent kernel along :math:`g_u = \sum_i u_i \nabla f(x_i)`, of that along :math:`g_v`, where
    :math:`g_u` moves too, and so on. From r = 4 on the order of the vectors matters. Unit vectors give entries.

    Derivatives are nested in forward mode along parameter vectors, with one reverse-mode pass; no tensor of order 3 is formed.
    By the Leibniz rule the kernel is a sum of :math:`2^{r-2}` products of derivatives of Jacobians, computed in tiles.

    Parameters
    ----------
    module
        The module with its present parameters, in evaluation mode; any module that :func:`ntkit.empirical` accepts and whose
        operations have forward-mode derivatives. Derivatives are those at the present parameters: at kinks, as of ReLU (or for
        K4 of ELU), the delta function is missing. These are the exact rates until a neuron crosses its kink, but neither their
        mean over networks nor their integral over time is that of the kernels: :class:`ntkit.TangentHierarchy` and
        :func:`ntkit.finite_width_correction`, which need those, refuse such modules.
    x1, x2
        Inputs, shape (n1, ...) and (n2, ...); ``x2=None``, the default, means ``x2 = x1``.
    vectors
        r - 2 vectors of shape (n,); none, the default, gives the tangent kernel.
    x
        The inputs that the vectors weight, shape (n, ...): the training points. Default None, if there are no vectors.
    output
        Index of the output, for a module with several. Default None: there is only one.
    byte_budget
        About how many bytes may be held at a time, not counting the result and one row's derivatives, default
        512 MiB.

    Returns
    -------
    Tensor
        Shape (n1, n2).

    See Also
    --------
    ntkit.hierarchy_terms : The terms of these kernels, written out.
    ntkit.TangentHierarchy : The label-aware kernel that follows from them.
    ntkit.finite_width_correction : The predictions that follow from them.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> product = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)).double()  # f(x) = b a x
    >>> for layer, value in zip(product, (3.0, 5.0)):
    ...     _ = nn.init.constant_(layer.weight, value)
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> ntkit.hierarchy_kernel(product, one).item()  # a^2 + b^2
    34.0
    >>> ntkit.hierarchy_kernel(product, one, vectors=[one[0]], x=one).item()  # along (b, a): 2 a b + 2 b a
    60.0
    >>> ntkit.hierarchy_kernel(product, one, vectors=[one[0], one[0]], x=one).item()  # 4 (a a + b b)
    136.0
    """
    network = scalar_network(module, output, x1, x2)
    vectors = list(vectors)
    if vectors and x is None:
        raise InputError("x must be the inputs that the vectors weigh, shape (n, ...). Got None with vectors.")
    if x is not None:
        network.check(x1, x, trained=True)
    points = x1 if x is None else x
    for number, vector in enumerate(vectors):
        check_weights(f"vectors[{number}]", vector, (len(points),), next(iter(network.trained.values())))
    check_integer("byte_budget", byte_budget, 1)
    with measuring(module):
        return Tangents(network, points, byte_budget).gram(x1, x2, [vectors])


_SHOWN = 120
_POINTS = "αβγξ"  # the paper's names
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True)
class HierarchyTerm:
    r"""A product of r factors :math:`\nabla^k f_p`, one for each point, summed over r - 1 weights that two factors share.

    Points are vertices and shared weights are edges of a tree: each weight enters with a new point, whose factor shares it with
    the factor whose derivative order was raised: ``raised[j] <= j``, from 0, for point j + 1.
    """

    raised: tuple[int, ...]

    @property
    def factors(self) -> tuple[tuple[int, ...], ...]:
        """The weights of each point's factor, numbered from 0 in the order in which they were added."""
        weights: list[list[int]] = [[] for _ in range(len(self.raised) + 1)]
        for edge, owner in enumerate(self.raised):
            weights[owner].append(edge)
            weights[edge + 1].append(edge)
        return tuple(tuple(found) for found in weights)

    @property
    def highest(self) -> int:
        """The highest order of derivative among the factors."""
        return max(len(weights) for weights in self.factors)

    def __str__(self) -> str:
        count = len(self.raised)
        letters = [chr(ord("a") + number) if count <= 26 else f"a{number + 1}" for number in range(count)]
        parts = []
        for point, weights in enumerate(self.factors):
            power = "" if len(weights) == 1 else str(len(weights)).translate(_SUPERSCRIPTS)
            parts.append(f"(∇{power}f{_point_name(point)})[{','.join(letters[weight] for weight in weights)}]")
        return " ".join(parts)


@dataclass(frozen=True)
class HierarchyTerms:
    r"""The (r - 1)! terms of :math:`K^{(r)}`, generated on demand; see :func:`hierarchy_terms`.

    Attributes
    ----------
    order
        r.
    """

    order: int

    def __len__(self) -> int:
        return math.factorial(self.order - 1)

    def __iter__(self) -> Iterator[HierarchyTerm]:
        # Raising each factor of each term in turn means choosing, for every new point, one of the points before it.
        for raised in itertools.product(*(range(point) for point in range(1, self.order))):
            yield HierarchyTerm(raised)

    def counts(self) -> dict[int, int]:
        """Return the number of terms by highest order of derivative."""
        return dict(sorted(Counter(term.highest for term in self).items()))

    def evaluate(self, module: nn.Module, points: Tensor, output: int | None = None) -> Tensor:
        r"""Return the value of each term on a network, shape (len(self),); their sum is :math:`K^{(r)}` at the points.

        Each term is contracted from its leaves to its root by nested derivatives along parameter vectors.

        Parameters
        ----------
        module
            As in :func:`ntkit.hierarchy_kernel`.
        points
            The r inputs, shape (r, ...).
        output
            Index of the output, for a module with several. Default None: there is only one.
        """
        network: Network = scalar_network(module, output, points)
        if len(points) != self.order:
            raise InputError(f"points must be the {self.order} inputs of the kernel. Got {len(points)} rows.")
        tangents = Tangents(network, points)
        with measuring(module):
            return torch.stack([_contract(tangents, points, term) for term in self])

    def __str__(self) -> str:
        names = ", ".join(_point_name(point) for point in range(self.order))
        shown = [f"{'  ' if not number else '+ '}{term}" for number, term in enumerate(itertools.islice(self, _SHOWN))]
        if len(self) > _SHOWN:
            shown.append(f"+ ... ({len(self) - _SHOWN} more)")
        terms = "term" if len(self) == 1 else "terms"
        return "\n".join(
            [f"K{_subscript(self.order)}({names}): {len(self)} {terms}, summed over repeated weights", *shown]
        )


def hierarchy_terms(r: int) -> HierarchyTerms:
    r"""Write the kernel of order r of the tangent hierarchy in derivatives of the network, for any network.

    The program of Chen et al. 2020, section B.1: :math:`K^{(2)} = (\nabla f_\alpha)_a (\nabla f_\beta)_a`, and
    :math:`K^{(r+1)}` follows from :math:`K^{(r)}` by a new point and a new weight: each term is repeated r times, in each copy
    a different one of its r factors is differentiated with respect to the new weight, and the new point's gradient in that
    weight is appended. So there are (r - 1)! terms. A weight is one index into all parameters, the paper's :math:`\ell jk`.

    Parameters
    ----------
    r
        At least 2.

    See Also
    --------
    ntkit.hierarchy_kernel : The kernel contracted with vectors, without its terms.

    Returns
    -------
    HierarchyTerms
        Prints its terms, iterates over them, counts them, and evaluates each on a network.

    Examples
    --------
    >>> import ntkit
    >>> print(ntkit.hierarchy_terms(3))
    K₃(α, β, γ): 2 terms, summed over repeated weights
      (∇²fα)[a,b] (∇fβ)[a] (∇fγ)[b]
    + (∇fα)[a] (∇²fβ)[a,b] (∇fγ)[b]
    >>> print(ntkit.hierarchy_terms(4))  # eq. (11)
    K₄(α, β, γ, ξ): 6 terms, summed over repeated weights
      (∇³fα)[a,b,c] (∇fβ)[a] (∇fγ)[b] (∇fξ)[c]
    + (∇²fα)[a,b] (∇²fβ)[a,c] (∇fγ)[b] (∇fξ)[c]
    + (∇²fα)[a,b] (∇fβ)[a] (∇²fγ)[b,c] (∇fξ)[c]
    + (∇²fα)[a,c] (∇²fβ)[a,b] (∇fγ)[b] (∇fξ)[c]
    + (∇fα)[a] (∇³fβ)[a,b,c] (∇fγ)[b] (∇fξ)[c]
    + (∇fα)[a] (∇²fβ)[a,b] (∇²fγ)[b,c] (∇fξ)[c]
    >>> len(ntkit.hierarchy_terms(6)), ntkit.hierarchy_terms(4).counts()
    (120, {2: 4, 3: 2})
    """
    return HierarchyTerms(check_integer("r", r, 2))


def _contract(tangents: Tangents, points: Tensor, term: HierarchyTerm) -> Tensor:
    """Contract the tree from its last point to its first: each factor takes the vectors of the points appended to it."""
    vectors: list[list[Tensor]] = [[] for _ in points]
    one = points.new_ones(1, dtype=tangents.theta.dtype)
    for point in range(len(points) - 1, 0, -1):
        gradient = tangents.pull(one, points[point : point + 1], _straight(tangents.theta, vectors[point]))
        vectors[term.raised[point - 1]].append(gradient)
    last = vectors[0].pop()
    return tangents.pull(one, points[:1], _straight(tangents.theta, vectors[0])) @ last


def _straight(theta: Tensor, directions: list[Tensor]) -> list[Tensor]:
    """Return the frame of directions that do not move."""
    frame = [theta, *(torch.zeros_like(theta) for _ in range(2 ** len(directions) - 1))]
    for number, direction in enumerate(directions):
        frame[2**number] = direction
    return frame


def _point_name(point: int) -> str:
    return _POINTS[point] if point < len(_POINTS) else f"x{_subscript(point + 1)}"


def _subscript(number: int) -> str:
    return str(number).translate(_SUBSCRIPTS)
