"""Every activation against the conformance suite; most importantly in real finite networks."""

import torch
from tests.cases import Function
from tests.rules.families import Vectors
from torch import nn

import ntkit


class Activations(Vectors):
    activation: nn.Module

    def module(self, width):
        return nn.Sequential(
            nn.Linear(4, width), self.activation, nn.Linear(width, width), self.activation, nn.Linear(width, 2)
        )


class TestLeakyRelu(Activations):
    activation = nn.LeakyReLU(0.3)


class TestFrozenPrelu(Activations):
    activation = nn.PReLU().requires_grad_(False)


class TestAbs(Activations):
    activation = Function(torch.abs)


class TestErf(Activations):
    activation = Function(torch.erf)


class TestGelu(Activations):
    activation = nn.GELU()


class TestNormalCDF(Activations):
    activation = Function(torch.special.ndtr)


class TestSin(Activations):
    activation = Function(torch.sin)


class TestCos(Activations):
    activation = Function(lambda x: x.cos())


class TestSquare(Vectors):
    gains = {"w_std": 0.8}
    n_samples = 600

    def module(self, width):
        return nn.Sequential(nn.Linear(4, width), Function(torch.square), nn.Linear(width, 2))


class TestCube(TestSquare):
    def module(self, width):
        return nn.Sequential(nn.Linear(4, width), Function(lambda x: x**3), nn.Linear(width, 2))


class TestExp(TestSquare):
    gains = {"w_std": 0.5}

    def module(self, width):
        return nn.Sequential(nn.Linear(4, width), Function(torch.exp), nn.Linear(width, 2))


class TestSign(Activations):
    activation = Function(torch.sign)
    tangent = False

    def module(self, width):
        return super().module(width).requires_grad_(False)


class TestStep(TestSign):
    activation = Function(lambda x: torch.heaviside(x, torch.zeros((), dtype=x.dtype)))


class TestHardshrink(TestSign):
    activation = nn.Hardshrink()


class TestThreshold(TestSign):
    activation = nn.Threshold(0.2, -0.5)


class TestTanh(Activations):
    activation = nn.Tanh()


class TestSelu(Activations):
    activation = nn.SELU()


class TestHardtanh(Activations):
    activation = nn.Hardtanh()


class TestOwnFunction(Activations):
    activation = ntkit.Elementwise(lambda z: torch.exp(-z * z) + 0.5 * z.abs(), kinks=(0.0,))
