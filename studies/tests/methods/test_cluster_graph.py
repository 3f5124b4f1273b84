"""Cluster graphs: the survey's exponents, and the kernels of finite networks against them."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from ntkit.errors import InputError
from ntkit_studies.methods import cluster_exponent, higher_kernel, kernel_exponents


@pytest.mark.parametrize("s", range(2, 9))
def test_exponents_are_those_of_equations_31_to_33(s: int) -> None:
    found = kernel_exponents(s)
    even = s % 2 == 0
    assert found.size == (1 - Fraction(s, 2) if even else Fraction(1 - s, 2))
    assert found.rate == (-Fraction(s, 2) if even else Fraction(1 - s, 2))
    assert found.mean == (1 - Fraction(s, 2) if even else None)


def test_exponents_of_single_graphs() -> None:
    assert cluster_exponent([0, 0], []) == 0  # E f f
    assert cluster_exponent([1, 1, 1, 1], [(0, 1), (2, 3)]) == 0  # E of the squared kernel
    assert cluster_exponent([2, 2], [(0, 1), (1, 0)]) == 0  # joined twice is joined
    assert cluster_exponent([3, 1, 1, 1], [(0, 1), (0, 2), (0, 3)]) == -1
    assert cluster_exponent([1, 2, 1], [(0, 1), (1, 2)]) is None


def test_bad_graphs() -> None:
    with pytest.raises(InputError, match="contracted once"):
        cluster_exponent([1, 2], [(0, 1)])
    with pytest.raises(InputError, match="counted from 0"):
        cluster_exponent([1, 1], [(0, 2)])
    with pytest.raises(InputError):
        kernel_exponents(0)
    with pytest.raises(InputError, match="at least one"):
        higher_kernel(lambda w, x: w, torch.ones(()), [])


def network(parameters: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    """Compute f = a . tanh(W x) / sqrt(width) in the NTK parametrisation."""
    W, a = parameters
    return a @ torch.tanh(W @ x) / len(a) ** 0.5


def draw(nets: int, width: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(width)
    shapes = (nets, width, 2), (nets, width)
    W, a = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return W, a


POINTS = [torch.tensor(point, dtype=torch.float64) for point in ((1.0, 0.2), (0.3, 1.0), (0.7, -0.5), (-0.4, 0.8))]


def test_kernels_by_explicit_derivatives() -> None:
    W, a = (one[0] for one in draw(1, 3))

    def flat(theta: Tensor, x: Tensor) -> Tensor:
        return network((theta[:6].reshape(3, 2), theta[6:]), x)

    theta = torch.cat([W.flatten(), a])
    gradients = [torch.func.grad(flat)(theta, x) for x in POINTS]
    hessians = [torch.func.hessian(flat)(theta, x) for x in POINTS]
    first, second, third = range(3)
    kernel = gradients[first] @ gradients[second]
    cubic = (
        gradients[first] @ hessians[second] @ gradients[third] + gradients[second] @ hessians[first] @ gradients[third]
    )
    torch.testing.assert_close(higher_kernel(network, (W, a), POINTS[:2]), kernel)
    torch.testing.assert_close(higher_kernel(network, (W, a), POINTS[:3]), cubic)


@pytest.mark.parametrize("s", [3, 4])
def test_kernels_shrink_with_the_width_as_conjectured(s: int) -> None:
    widths, sizes = (16, 128), []
    for width in widths:
        found = vmap(lambda W, a: higher_kernel(network, (W, a), POINTS[:s]))(*draw(400, width))
        sizes.append(float(found.square().mean().sqrt()))
    slope = torch.tensor(sizes).log().diff() / torch.tensor(widths).log().diff()
    assert float(slope) == pytest.approx(float(kernel_exponents(s).size), abs=0.15)
