"""The search over settings of a feature machine, with recursions whose errors are known."""

from __future__ import annotations

import numpy as np
import torch
from tests.cases import normal

from ntkit._src.estimators._rfm_choice import Candidate, choose
from ntkit._src.features.rfm import DistanceKernel, RFMSettings

X = normal(40, 3)
Y = X[:, :1] * X[:, 1:2]
PARTS = [(np.arange(10, 40), np.arange(10)), (np.arange(30), np.arange(30, 40))]


def settings(candidate: Candidate) -> RFMSettings:
    kernel = DistanceKernel("laplace", float(candidate.bandwidth))  # type: ignore[arg-type]
    given = candidate.iterations, candidate.ridge, candidate.power, candidate.diagonal
    return RFMSettings(kernel, *given, False, "max")


def grid(ridges: list[float]) -> dict[str, list[object]]:
    return {"bandwidth": [3.0], "ridge": ridges, "power": [0.5], "diagonal": [False], "iterations": [0, 2]}


def squared(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    return float((predicted - targets).square().mean())


def test_the_smallest_mean_error_wins_and_the_worse_half_is_dropped() -> None:
    ridges = [1e-3, 1e-2, 0.1, 1.0, 10.0, 1e2, 1e3, 1e4, 1e5, 1e6]
    found = choose(X, Y, grid(ridges), settings, PARTS, squared)
    assert len(found.candidates) == len(found.errors) == 20 and found.parts == 2
    assert found.best == found.candidates[int(np.argmin(found.errors))] and found.best.ridge <= 1e-2
    assert np.isinf(found.errors).sum() == 10  # five of ten ridges, each with two numbers of updates


def test_nothing_to_choose() -> None:
    assert choose(X, Y, grid([0.1]), settings, [], squared).best.iterations == 0
    single = grid([0.1]) | {"iterations": [1]}
    found = choose(X, Y, single, settings, PARTS, squared)
    assert found.best.iterations == 1 and found.parts == 0 and not len(found.errors)
