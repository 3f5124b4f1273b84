"""E K2 and E K4 of two-layer networks: against sampled neurons, against other seeds, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from tests.cases import normal
from torch import Tensor

from ntkit._src.finite import Estimate
from ntkit._src.labels.hierarchy._neuron_terms import Neurons, derivatives
from ntkit._src.labels.hierarchy._two_layer_hierarchy import FIRST, PROBES, Accuracy, draw_until, measure
from ntkit.errors import InputError, InputTypeError
from ntkit.labels import TwoLayerHierarchy


@pytest.mark.parametrize("activation", ["relu", "erf", "gelu"])
def test_second_equals_neurons(activation: str) -> None:
    """E K2 is the mean over neurons of sigma sigma' + x . x' times that of the slopes."""
    x = normal(4, 6)
    w = Neurons(x, 1).draw(2**14)[0]
    source = TwoLayerHierarchy(activation, x, 7)
    value, slope = derivatives(source.function, x @ w, 1)
    expected = (value @ value.T + (x @ x.T) * (slope @ slope.T)) / w.shape[1]
    torch.testing.assert_close(source.second(x), expected, rtol=0, atol=0.005 * float(expected.abs().max()))
    torch.testing.assert_close(source.second_diag(x), source.second(x).diagonal())


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_independent_seeds_agree_within_their_errors(activation: str) -> None:
    """The standard error covers the spread of independent estimates, over many entries of a contraction of rank two."""
    x, x1, x2 = normal(6, 8), normal(5, 8, seed=1), normal(4, 8, seed=2)
    u, v = normal(2, 6, seed=3), normal(2, 6, seed=4)
    estimates = [
        TwoLayerHierarchy(activation, x, 1, 1024, torch.Generator().manual_seed(seed)).estimate_fourth(x1, x2, u, v)
        for seed in range(2)
    ]
    deviation = (estimates[0].mean - estimates[1].mean) / (estimates[0].error ** 2 + estimates[1].error ** 2).sqrt()
    assert 0.5 < deviation.square().mean().sqrt() < 1.8


@pytest.mark.parametrize(
    ("activation", "error", "words"),
    [
        ("swoosh", InputError, "'relu'"),
        (3, InputTypeError, "int"),
        (torch.relu, InputError, 'activation="relu"'),
    ],
)
def test_bad_activations(activation: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        TwoLayerHierarchy(activation, normal(3, 2), 8)  # type: ignore[arg-type]


def test_images_are_refused() -> None:
    with pytest.raises(InputError, match="flatten"):
        TwoLayerHierarchy("relu", normal(3, 2, 2), 8)


def test_function_of_ones_own() -> None:
    """A smooth function given as such has the kernels of its name."""
    x, u = normal(3, 4), normal(1, 3, seed=1)
    own, named = (
        TwoLayerHierarchy(activation, x, 5, 256, torch.Generator().manual_seed(0)) for activation in (torch.erf, "erf")
    )
    torch.testing.assert_close(own.second(x), named.second(x), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(own.fourth(x, None, u, u), named.fourth(x, None, u, u))
    assert math.isclose(float(own.third(x, None, u[0]).abs().max()), 0)


class Source:
    """The largest entry is 2, and its error falls with the square root of the number of neurons."""

    def __init__(self, n: int, constant: float) -> None:
        self.x_train, self.n_samples, self.constant = torch.zeros(n, 1), 1, constant
        self.asked: list[tuple[int, int]] = []

    def estimate_fourth(self, x1: Tensor, x2: Tensor | None, u: Tensor, v: Tensor) -> Estimate:
        assert x2 is None
        self.asked.append((self.n_samples, len(x1)))
        mean = torch.tensor([[-2.0, 1.0], [1.0, 0.5]]) * (u.sum() * v.sum())
        return Estimate(mean, torch.full((2, 2), 0.5).fill_diagonal_(1.0) * self.constant / self.n_samples**0.5)


ONE = torch.ones(1, 1)


def test_error_relative_to_the_largest_entry() -> None:
    source = Source(100, 0.1)
    assert measure(source, ONE, ONE) == Accuracy(pytest.approx(0.05), 1)  # type: ignore[arg-type]
    assert source.asked == [(1, 25)]
    assert measure(source, 0 * ONE, ONE).error == 0
    assert measure(Source(PROBES, 0.1), ONE, ONE, 0.01) == Accuracy(pytest.approx(0.05), 1, 0.01)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rtol", "most", "drawn", "reached"),
    [
        (0.02, 2**18, [FIRST], True),
        (0.01, 2**18, [FIRST, 16384], True),  # 4 and a fifth times as many, and then a power of two
        (0.0135, 2**18, [FIRST, 8192], True),
        (0.0001, 2**18, [FIRST, 2**15, 2**18], False),  # at most 16 times as many at once
        (0.001, 3000, [FIRST, 3000], False),
        (0.001, 100, [100], False),
    ],
)
def test_neurons_drawn(rtol: float, most: int, drawn: list[int], reached: bool) -> None:
    source = Source(4, 0.04 * 2048**0.5)
    found = draw_until(source, ONE, ONE, rtol, most)
    assert [count for count, _ in source.asked] == drawn
    assert found.reached == reached
    assert found == Accuracy(pytest.approx(0.02 * (2048 / drawn[-1]) ** 0.5), drawn[-1], rtol)  # type: ignore[arg-type]


def test_sentence() -> None:
    assert str(Accuracy(0.0312, 64)) == "standard error 3.1e-02 of the largest entry, from 64 neurons"
    assert str(Accuracy(0.5, 64, 0.1)).endswith("from 64 neurons, where 1.0e-01 was asked for")
    assert Accuracy(0.5, 64).reached
    assert not Accuracy(0.5, 64, 0.1).reached
