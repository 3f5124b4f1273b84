"""E K2 and E K4 of two-layer networks: against sampled neurons, against other seeds, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ntkit._src.labels import TwoLayerHierarchy
from ntkit._src.labels.hierarchy._neurons import Neurons
from ntkit._src.labels.hierarchy._two_layer_terms import derivatives
from ntkit.errors import InputError, InputTypeError


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("activation", ["relu", "erf", "gelu"])
def test_second_equals_neurons(activation: str) -> None:
    """E K2 is the mean over neurons of sigma sigma' + x . x' times that of the slopes."""
    x = draw(4, 6)
    w = Neurons(x, 1).draw(2**14)[0]
    source = TwoLayerHierarchy(activation, x, 7)
    value, slope = derivatives(source.function, x @ w, 1)
    expected = (value @ value.T + (x @ x.T) * (slope @ slope.T)) / w.shape[1]
    torch.testing.assert_close(source.second(x), expected, rtol=0, atol=0.005 * float(expected.abs().max()))
    torch.testing.assert_close(source.second_diag(x), source.second(x).diagonal())


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_independent_seeds_agree_within_their_errors(activation: str) -> None:
    """The standard error covers the spread of independent estimates, over many entries of a contraction of rank two."""
    x, x1, x2 = draw(6, 8), draw(5, 8, seed=1), draw(4, 8, seed=2)
    u, v = draw(2, 6, seed=3), draw(2, 6, seed=4)
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
        TwoLayerHierarchy(activation, draw(3, 2), 8)  # type: ignore[arg-type]


def test_images_are_refused() -> None:
    with pytest.raises(InputError, match="flatten"):
        TwoLayerHierarchy("relu", draw(3, 2, 2), 8)


def test_function_of_ones_own() -> None:
    """A smooth function given as such has the kernels of its name."""
    x, u = draw(3, 4), draw(1, 3, seed=1)
    own, named = (
        TwoLayerHierarchy(activation, x, 5, 256, torch.Generator().manual_seed(0)) for activation in (torch.erf, "erf")
    )
    torch.testing.assert_close(own.second(x), named.second(x), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(own.fourth(x, None, u, u), named.fourth(x, None, u, u))
    assert math.isclose(float(own.third(x, None, u[0]).abs().max()), 0)
