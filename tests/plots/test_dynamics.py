from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.cases import mlp

import ntkit
from ntkit.errors import InputError
from ntkit.plots import CurveStyle, new_figure, plot_learning_curves, plot_losses, plot_posterior, plot_predictions


@pytest.fixture
def ax():
    return new_figure().subplots()


def test_predictions_have_a_band_of_two_deviations(ax):
    x, mean, std = np.arange(3.0), np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.5, 0.1])
    networks = np.stack([mean - 1, mean + 1])
    assert plot_predictions(ax, x, mean, std, ([0.5], [1.0]), networks, title="t = 2") is ax
    edges = ax.collections[0].get_paths()[0].vertices
    assert {(0.0, -2.0), (0.0, 2.0), (1.0, 0.0), (1.0, 2.0)} <= set(map(tuple, edges.tolist()))
    kernel, own, low, high, train = ax.lines
    np.testing.assert_allclose(kernel.get_ydata(), mean)
    np.testing.assert_allclose(own.get_ydata(), mean)
    np.testing.assert_allclose(high.get_ydata() - low.get_ydata(), 4 * 2**0.5)
    assert train.get_xdata().tolist() == [0.5]
    assert ax.get_title() == "t = 2"


def test_learning_curves(ax):
    left, own = np.array([[0.9, 0.99], [0.1, 0.5]]), np.array([[0.3, 0.6]])
    assert plot_learning_curves(ax, [1, 10], [5.0, 0.5], left, ([4.0], own)) is ax
    np.testing.assert_allclose(ax.lines[1].get_ydata(), left[:, 1])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["λ = 5", "λ = 0.5"]
    assert ax.lines[2].get_color() == ax.lines[0].get_color()
    assert ax.get_xscale() == "log"


def test_losses(ax):
    many = np.array([[1.0, 3.0], [0.1, 0.3]])
    assert (
        plot_losses(ax, [1, 2], {"kernel": [2.0, 0.2], "networks": many}, {"kernel": CurveStyle("#000000", "--")}) is ax
    )
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [2.0, 0.2])
    assert ax.lines[0].get_linestyle() == "--"
    assert len(ax.collections) == 1


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda ax: plot_predictions(ax, [0, 1], [0.0], [1.0, 1.0]), "mean must have shape"),
        (lambda ax: plot_predictions(ax, [0, 1], [0.0, 1.0], [1.0, 1.0], networks=[0.0, 1.0]), "networks must have"),
        (lambda ax: plot_learning_curves(ax, [1], [1.0], [[0.5], [0.4]]), "left must have shape"),
        (lambda ax: plot_losses(ax, [1, 2], {"a": [1.0]}), "'a' must have shape"),
    ],
)
def test_wrong_shapes_are_explained(ax, draw, message):
    with pytest.raises(InputError, match=message):
        draw(ax)


def _posterior(t, outputs=1):
    limit = ntkit.infinite_width(mlp(1, 8, 1), b_std=0.5)
    x = torch.tensor([[-1.0], [0.5], [1.0]], dtype=torch.float64)
    y = torch.stack([x[:, 0] ** (number + 1) for number in range(outputs)], 1)
    line = torch.tensor([[0.3], [-2.0], [2.0], [1.1]], dtype=torch.float64)
    return x, y, line, ntkit.posterior(limit, x, y[:, 0] if outputs == 1 else y, line, t=t, ridge=0.1)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_posterior_of_one_time(noisy, outputs):
    x, y, line, found = _posterior(1.0, outputs)
    ax = new_figure().subplots()
    networks = np.random.default_rng(0).standard_normal((5, 4))
    assert plot_posterior(ax, line, found, (x, y[:, -1]), networks, outputs - 1, noisy) is ax
    order = line[:, 0].argsort()
    mean = found.mean if outputs == 1 else found.mean[:, 1]
    np.testing.assert_allclose(ax.lines[0].get_xdata(), line[order, 0])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), mean[order])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), networks.mean(0)[order])
    low, high = (edge if outputs == 1 else edge[:, 1] for edge in found.band(noisy=noisy))
    corners = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert corners.min() == pytest.approx(low.min().item()) and corners.max() == pytest.approx(high.max().item())


def test_posterior_of_many_times_has_an_axes_each():
    x, y, line, found = _posterior([0.0, 2.0, math.inf])
    axes = new_figure().subplots(1, 3)
    plot_posterior(axes, line, found, (x, y[:, 0]))
    assert [ax.get_title() for ax in axes] == ["t = 0", "t = 2", "t = inf"]
    order = line[:, 0].argsort()
    for index, ax in enumerate(axes):
        np.testing.assert_allclose(ax.lines[0].get_ydata(), found.mean[index][order])
    with pytest.raises(InputError, match="each of the 3 times"):
        plot_posterior(axes[:2], line, found)
