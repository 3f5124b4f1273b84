"""The kernels of the tangent hierarchy as symbols: the recursive program of Chen et al. 2020, section B.1."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ntkit._src.common import measuring
from ntkit._src.kernels import Network
from ntkit.errors import InputError, InputTypeError

from ._tangents import Tangents, scalar_network

__all__ = ["HierarchyTerm", "HierarchyTerms", "hierarchy_terms"]

_SHOWN = 120
_POINTS = "αβγξ"  # the paper's names
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True)
class HierarchyTerm:
    r"""A product of r factors :math:`\nabla^k f_p`, one for each point, summed over r - 1 weights that two factors share.

    Points are vertices and shared weights are edges of a tree: each weight enters with a new point, whose factor shares
    it with the factor whose derivative order was raised.

    Attributes
    ----------
    raised
        The factor raised when each point after the first was added, shape (r - 1,): ``raised[j] <= j``, from 0.
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
        letters = _weight_names(len(self.raised))
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
            As in :func:`ntkit.tangent_hierarchy`.
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
    ntkit.tangent_hierarchy : The kernel contracted with vectors, without its terms.

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
    if isinstance(r, bool) or not isinstance(r, int):
        raise InputTypeError(f"r must be an integer, the order of the kernel. Got {r!r}.")
    if r < 2:
        raise InputError(f"r must be at least 2, the tangent kernel. Got {r}.")
    return HierarchyTerms(r)


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


def _weight_names(count: int) -> list[str]:
    return [chr(ord("a") + number) if count <= 26 else f"a{number + 1}" for number in range(count)]


def _point_name(point: int) -> str:
    return _POINTS[point] if point < len(_POINTS) else f"x{_subscript(point + 1)}"


def _subscript(number: int) -> str:
    return str(number).translate(_SUBSCRIPTS)
