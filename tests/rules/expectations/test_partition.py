"""The partition of the line: every interval holds a polynomial, kinks are edges, and a coarser range has the same edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ntkit._src.program import Activation, AnyFunction
from ntkit._src.rules.expectations._partition import (
    Partition,
    _inner_scale,
    _widths,
    has_strong_kinks,
    jumps,
    partition,
)


def activation(label, function, *kinks):
    return AnyFunction(function, kinks=kinks, label=label)


BENT = activation("bent", lambda z: torch.where(z > 1, torch.tanh(z - 1), (z - 1) ** 2 * torch.exp(-z * z)), 1.0)
SHARP = activation("sharp", lambda z: torch.tanh(200 * z - 300))
LINE = activation("line", lambda z: 3 * z)


@pytest.mark.parametrize("phi", [BENT, SHARP, LINE], ids=str)
def test_a_polynomial_of_degree_twenty_is_the_function_on_each_interval(phi):
    found = partition(phi, 3)
    assert phi is SHARP or found.rough == ()  # the slope of a tanh far away is rounding alone
    assert found.edges[0] == -8 and found.edges[-1] == 8
    for low, high in zip(found.edges.tolist(), found.edges[1:].tolist(), strict=False):
        inside = np.linspace(low, high, 60)[1:-1]
        values = phi.function(torch.from_numpy(inside)).numpy()
        nodes = low + (high - low) * (1 - np.cos(np.pi * (np.arange(21) + 0.5) / 21)) / 2
        exact = phi.function(torch.from_numpy(nodes)).numpy()
        fit = np.polynomial.Chebyshev.fit(nodes, exact, 20, domain=[low, high])
        assert np.abs(fit(inside) - values).max() < 1e-11 * max(1, np.abs(values).max())


def test_ranges_are_nested_and_kinks_are_edges():
    small, large = partition(BENT, 3), partition(BENT, 7)
    assert torch.equal(large.edges[large.edges.abs() <= 8], small.edges)
    assert large.edges[large.kink].tolist() == [1.0]
    assert not partition(BENT, -1).kink.any()  # it lies outside


def test_smooth_intervals_are_dyadic():
    found = partition(LINE, 2)
    assert found.edges.tolist() == [-4, -2, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 2, 4]
    assert found.size.tolist() == [2, 1, 0.5, 0.25, 0.25, 0.25, 0.25, 0.5, 1, 2]
    assert found.width.tolist() == [2, 1, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.5, 1, 2]
    cut = partition(activation("kinked line", lambda z: 3 * z + (z - 1.25).relu(), 1.25), 2)
    assert cut.edges.tolist()[-4:] == [1, 1.25, 2, 4]
    assert cut.size.tolist()[-3:] == [1, 1, 2]  # that of the dyadic interval which the kink has cut


def test_the_smallest_size_in_a_range():
    generator = torch.Generator().manual_seed(0)
    edges = torch.rand(14, dtype=torch.float64, generator=generator).cumsum(0)
    size = torch.rand(13, dtype=torch.float64, generator=generator)
    found = Partition(edges, torch.zeros(14, dtype=torch.bool), _widths(edges), size, ())
    ends = torch.rand(2, 60, dtype=torch.float64, generator=generator) * 1.2 * edges[-1]
    low, high = ends.sort(0).values
    for a, b, least in zip(low.tolist(), high.tolist(), found.smallest(low, high).tolist(), strict=True):
        meets = (edges[1:] > a) & (edges[:-1] < b)
        # Outside the range of the edges the nearest interval counts.
        expected = size[meets].min() if meets.any() else size[0 if b <= edges[0] else -1]
        assert least == expected, (a, b)


def test_halved():
    found = partition(BENT, 2)
    halved = found.halved()
    assert torch.equal(halved.edges[::2], found.edges)
    assert torch.equal(halved.edges[1::2], (found.edges[1:] + found.edges[:-1]) / 2)
    assert torch.equal(halved.edges[halved.kink], found.edges[found.kink])
    assert torch.equal(halved.size[::2], found.size / 2) and torch.equal(halved.size[1::2], found.size / 2)
    gaps = halved.edges.diff().tolist()
    beside = [min(pair) for pair in zip([gaps[0], *gaps], [*gaps, gaps[-1]], strict=True)]
    assert halved.width.tolist() == beside


def test_scale_of_what_is_nearer_to_zero():
    """The root mean square of z over [-near, near] is near / sqrt(3); of its slope 3 it is 3."""
    low, high = (torch.tensor(e, dtype=torch.float64) for e in ([-2.0, -1.0, 0.0, 1.0], [-1.0, 0.0, 1.0, 2.0]))
    value, slope = _inner_scale(activation("z", lambda z: 3 * z), low, high)
    expected = torch.tensor([3**0.5, 0, 0, 3**0.5], dtype=torch.float64)
    torch.testing.assert_close(slope, torch.tensor([3.0, 0, 0, 3], dtype=torch.float64))
    torch.testing.assert_close(value, expected, rtol=0.07, atol=0)  # from Chebyshev nodes, denser at the ends


def test_what_cannot_be_resolved_is_rough():
    found = partition(activation("corner", lambda z: (z - 0.3).abs()), 1)
    assert all(abs(point - 0.3) < 1e-3 for point in found.rough)
    assert len(found.rough) > 0


@pytest.mark.parametrize(
    ("phi", "jumping", "strong"),
    [
        (LINE, False, False),
        (BENT, False, True),
        (activation("relu", torch.relu, 0.0), False, False),  # a kink at zero is not one of these
        (activation("step", lambda z: torch.where(z > 0, z + 1, z), 0.0), True, False),
        (activation("jump", lambda z: torch.where(z > 0.5, torch.exp(-z * z), torch.tanh(z)), 0.5), True, True),
        (activation("bend", lambda z: torch.tanh(z) + 0.01 * (z - 1).relu() ** 2, 1.0), False, True),
        (activation("third", lambda z: torch.tanh(z) + 0.01 * (z - 1).relu() ** 3, 1.0), False, False),
        (activation("softplus", torch.nn.functional.softplus, 20.0), False, False),
        (activation("second of two", lambda z: torch.sin(z) + (z + 2).relu(), -2.0, 1.0), False, True),
    ],
    ids=lambda v: str(v) if isinstance(v, Activation) else "",
)
def test_kinds_of_kinks(phi, jumping, strong):
    assert jumps(phi) is jumping
    assert has_strong_kinks(phi) is strong
