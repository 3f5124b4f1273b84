from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import ntkit
from ntkit.diagnostics import mercer
from ntkit.errors import InputError, InputTypeError
from ntkit_studies.methods import frequency_course


def kernel(dim, kind="basic", **options):
    embed = ntkit.layers.FourierFeatures(dim, kind, **options)
    return ntkit.infinite_width(
        nn.Sequential(embed, nn.Linear(embed.out_features, 8), nn.ReLU(), nn.Linear(8, 1)), b_std=0.5
    ).ntk


def waves(n, frequencies):
    x = 2 * math.pi * torch.arange(n, dtype=torch.float64) / n
    return sum(torch.sin(f * x + f) for f in frequencies)


def test_waves_are_learnt_at_the_rates_of_mercer():
    n, times = 64, [0.0, 0.05, 0.4]
    ntk = kernel(1)
    course = frequency_course(ntk, waves(n, [1, 3, 6]), times)
    circle = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    degrees = mercer(ntkit.infinite_width(circle, b_std=0.5).ntk, 2, 400).eigenvalues
    for f in (1, 3, 6):
        # On a grid of n points the frequencies f, n - f, n + f, ... are one.
        rate = n * sum(float(degrees[k]) for k in range(401) if k % n in (f, n - f))
        expected = [math.exp(-rate * t) for t in times]
        assert course.left[:, f].tolist() == pytest.approx(expected, rel=1e-3)
    assert course.energy[[1, 3, 6]].tolist() == pytest.approx([1 / 3] * 3)
    assert course.left[:, [0, 2, 10]].isnan().all()


def test_higher_frequencies_in_the_embedding_are_learnt_sooner():
    y = waves(64, [1, 8])
    slow, fast = (frequency_course(kernel(1, "positional", size=4, scale=s), y, [0.2]).left[0, 8] for s in (1.0, 16.0))
    assert fast < slow / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_images_by_the_length_of_the_wave_vector(dtype):
    x = 2 * math.pi * torch.arange(8, dtype=dtype) / 8
    y = torch.cos(x)[:, None] + torch.cos(x[:, None] + 2 * x[None, :])  # wave vectors (1, 0) and (1, 2)
    course = frequency_course(kernel(2), y, [0.0, 0.1, 1e6])
    assert course.energy[[1, 2]].tolist() == pytest.approx([0.5, 0.5], abs=1e-5)
    assert course.left.dtype == dtype and course.left[0, [1, 2]].tolist() == pytest.approx([1, 1])
    assert (course.left[1, 1] < course.left[1, 2]) and (course.left[2, [1, 2]] < 1e-3).all()
    assert course.left[:, 3:].isnan().all()


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (torch.zeros(8), InputError, "y is zero"),
        (torch.ones(1), InputError, "at least two points"),
        (torch.tensor(1.0), InputError, "at least two points"),
        (torch.arange(8), InputTypeError, "float32 or float64"),
        (torch.tensor([1.0, math.nan]), InputError, "finite"),
    ],
)
def test_bad_signals(y, error, message):
    with pytest.raises(error, match=message):
        frequency_course(kernel(1), y, [1.0])


def test_bad_kernels_and_times():
    with pytest.raises(InputTypeError, match="kernel must be"):
        frequency_course(torch.eye(4), torch.ones(4), [1.0])
    with pytest.raises(InputError, match="negative"):
        frequency_course(kernel(1), torch.ones(4), [-1.0])
