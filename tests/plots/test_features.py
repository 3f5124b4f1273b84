"""Figures of feature learning: what is drawn, gaps, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.cases import mlp

from ntkit.errors import InputError
from ntkit.features import Recorder
from ntkit.plots import figure_history, figure_matrices, new_figure, plot_against_steps, plot_metric_diagonal


def _history(losses: bool = True):
    torch.manual_seed(0)
    net, x = mlp(3, 4, 1), torch.randn(6, 3)
    recorder = Recorder(net, x, every=2)
    for _ in range(4):
        with torch.no_grad():
            net[0].weight += 0.1
        recorder.step(**({"train": 2.0} if losses else {}))
    return recorder.history


def test_history_in_one_call() -> None:
    figure = figure_history(_history())
    assert [ax.get_title() for ax in figure.axes] == [
        "uncentred NFA (cosine)", "centred NFA (cosine)", "centred / uncentred (cosine)", "loss / its maximum",
    ]  # fmt: skip
    centred = figure.axes[1].lines[0].get_ydata()
    assert np.isnan(centred[0]) and np.isfinite(centred[1:]).all()  # nothing has moved at the start: a gap
    assert figure.axes[0].lines[0].get_xdata().tolist() == [0, 2, 4]
    assert len(figure_history(_history(losses=False)).axes) == 3
    assert len(figure_history(_history(), ["movement"], losses=False).axes) == 1
    with pytest.raises(InputError, match="measures must be some of"):
        figure_history(_history(), ["loss"])


def test_seeds_are_shaded() -> None:
    ax = plot_against_steps(new_figure().subplots(), [0, 1, 2], {"a": [[0, 1, 2], [2, 3, 4]]}, "title")
    assert ax.lines[0].get_ydata().tolist() == [1, 2, 3] and len(ax.collections) == 1
    with pytest.raises(InputError, match="must have 3 values"):
        plot_against_steps(ax, [0, 1, 2], {"a": [1, 2]}, "title")


def test_matrices_and_diagonals() -> None:
    matrix = torch.diag(torch.arange(12.0))
    figure = figure_matrices({"F": matrix, "G": matrix.numpy()}, columns=1)
    assert [ax.get_title() for ax in figure.axes] == ["F", "G"]
    assert figure.axes[0].images[0].get_array().shape == (12, 12)
    image = figure_matrices({"F": matrix}, image_shape=(3, 2, 2)).axes[0].images[0].get_array()
    np.testing.assert_allclose(image[0, 1], np.array([1, 5, 9]) / 11)  # channels last
    assert figure_matrices({"F": matrix}, image_shape=(1, 3, 4)).axes[0].images[0].get_array().shape == (3, 4)
    for bad, shape, message in (
        ({}, None, "at least one"),
        ({"F": np.ones((2, 3))}, None, "shape"),
        ({"F": matrix}, (3, 3, 3), "image_shape"),
    ):
        with pytest.raises(InputError, match=message):
            figure_matrices(bad, image_shape=shape)


def test_diagonal_of_a_metric() -> None:
    ax = plot_metric_diagonal(new_figure().subplots(), [[1.0, 0.5, 0.1], [1.0, 0.7, 0.3]], relevant=[0, 1], title="M")
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [1.0, 0.6, 0.2])
    colors = [bar.get_facecolor() for bar in ax.patches]
    assert colors[0] == colors[1] != colors[2] and len(ax.collections) == 1 and ax.get_title() == "M"
    assert not plot_metric_diagonal(new_figure().subplots(), [1.0, 0.5]).collections
    for bad, relevant, message in (
        ([], (), "finite, of shape"),
        ([1.0, np.nan], (), "finite"),
        ([1.0, 0.5], (2,), "from 0 to 1"),
    ):
        with pytest.raises(InputError, match=message):
            plot_metric_diagonal(new_figure().subplots(), bad, relevant)
