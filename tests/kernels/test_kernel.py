"""The kernel protocol and the arithmetic of kernels."""

import pytest
import torch
from tests.cases import mlp, normal

import ntkit
from ntkit.errors import InputError
from ntkit.testing import KernelConformance


class Polynomial(ntkit.Kernel):
    def __call__(self, x1, x2=None):
        k = 1 + x1 @ (x1 if x2 is None else x2).T
        return k * k if x2 is not None else (k + k.T) ** 2 / 4

    def diag(self, x):
        return (1 + (x * x).sum(1)) ** 2


def ntk():
    return ntkit.infinite_width(mlp(3, 8, 1), b_std=0.2).ntk


class TestArithmetic(KernelConformance):
    def inputs(self):
        return normal(5, 3)

    def kernels(self):
        a, b = Polynomial(), ntk()
        return [a, b, a + b, 2 * a, b * 0.5, a * b, a.normalized(), (0.5 * a + b.normalized()).normalized()]

    def test_values(self):
        a, b = Polynomial(), ntk()
        x, z = self.inputs(), self.inputs()[:2]
        torch.testing.assert_close((a + b)(x, z), a(x, z) + b(x, z))
        torch.testing.assert_close((3 * a)(x, z), 3 * a(x, z))
        torch.testing.assert_close((a * b)(x), a(x) * b(x))
        torch.testing.assert_close(a.normalized()(x).diagonal(), torch.ones(5, dtype=torch.float64))


def test_normalized_zero_input():
    limit = ntkit.infinite_width(mlp(2, 8, 1))
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    k = limit.nngp.normalized()(x)
    torch.testing.assert_close(k, torch.diag(torch.tensor([0.0, 1.0])))
    torch.testing.assert_close(limit.nngp.normalized().diag(x), torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_bad_scale(scale):
    with pytest.raises(InputError, match="scale must be finite and at least 0"):
        scale * Polynomial()


@pytest.mark.parametrize("other", [1.0, "k", None])
def test_bad_sum(other):
    with pytest.raises(TypeError):
        Polynomial() + other


@pytest.mark.parametrize("other", [1, -1, 0.0, "k", None])
def test_only_the_number_zero_begins_a_sum(other):
    kernel = Polynomial()
    assert 0 + kernel is kernel
    with pytest.raises(TypeError):
        other + kernel


def test_bad_product():
    with pytest.raises(TypeError):
        Polynomial() * "k"
    with pytest.raises(TypeError):
        Polynomial() * True
