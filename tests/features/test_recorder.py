"""The recorder against measurements made on the spot."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from tests.features.cases import CASES, build
from torch import nn

import ntkit
from ntkit import features
from ntkit.errors import InputError, InputTypeError


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("name", [name for name in CASES if "frozen" not in name])
def test_records_are_those_of_nfa(name: str, batch_size: int | None) -> None:
    net, x = build(name)
    start = copy.deepcopy(net.state_dict())
    recorder = features.Recorder(net, x, every=2, derivatives=True, batch_size=batch_size)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    expected = [features.nfa(net, x, initial=start)]
    for step in range(1, 5):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        recorder.step(train=loss, test=lambda step=step: 10.0 * step)
        if step % 2 == 0:
            expected.append(features.nfa(net, x, initial=start))
    history = recorder.history
    assert history.steps.tolist() == [0, 2, 4] and history.layers == tuple(expected[0])
    for layer in history.layers:
        for measure, values in history.measures[layer].items():
            wanted = [getattr(found[layer], measure) for found in expected]
            np.testing.assert_allclose(values, wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(history.losses["test"], [np.nan, 20.0, 40.0])
    np.testing.assert_array_equal(history.scaled_losses()["test"], [np.nan, 0.5, 1.0])
    rows = history.rows()
    assert len(rows) == 3 * len(history.layers) and rows[-1]["step"] == 4 and rows[-1]["test loss"] == 40.0


def test_without_derivatives_their_measures_are_missing() -> None:
    net, x = build("mlp")
    recorder = features.Recorder(net, x)
    with torch.no_grad():
        net[0].weight += 0.1
    recorder.step()
    found = recorder.history.measures["0"]
    assert math.isnan(found["ptk_centred"][1]) and not math.isnan(found["centred"][1])


def test_losses_are_only_computed_when_recorded() -> None:
    net, x = build("mlp")
    recorder, calls = features.Recorder(net, x, every=3), []
    for _ in range(7):
        recorder.step(test=lambda: calls.append(1) or 0.0)
    assert len(calls) == 2


@pytest.mark.parametrize("name", ["mlp", "mlp, NTK parametrisation"])
def test_observes_training(name: str) -> None:
    net, x = build(name)
    twin = copy.deepcopy(net)
    y = torch.ones(len(x), 3, dtype=torch.float64)
    recorder = features.Recorder(net, x, derivatives=True)
    run = ntkit.train(
        net, x, y, ntkit.Schedule(learning_rate=0.01, steps=6),
        record=ntkit.Record(at=[2, 4], observe={"nfa": recorder.observe}),
    )  # fmt: skip
    recorder.adopt(run)
    history = recorder.history
    assert history.steps.tolist() == [0, 2, 4, 6]
    np.testing.assert_allclose(history.losses["train"], run.losses)
    found = features.nfa(net, x, initial=twin.state_dict())
    for layer in history.layers:
        for measure, values in history.measures[layer].items():
            np.testing.assert_allclose(values[-1], getattr(found[layer], measure), rtol=1e-9)


def test_uncentred_follows_the_module() -> None:
    net, x = build("mlp")
    recorder = features.Recorder(net, x, every=2)
    assert recorder.uncentred() == {path: found.uncentred for path, found in features.nfa(net, x).items()}
    with torch.no_grad():
        net[0].weight += 0.1  # without a step
    assert recorder.uncentred()["0"] == pytest.approx(features.nfa(net, x)["0"].uncentred, rel=1e-12)


def test_bad_arguments() -> None:
    net, x = build("mlp")
    with pytest.raises(InputError, match="at least 1"):
        features.Recorder(net, x, every=0)
    with pytest.raises(InputTypeError, match="integer"):
        features.Recorder(net, x, every=0.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be finite"):
        features.Recorder(net, x * float("nan"))
    recorder = features.Recorder(net, x)
    with pytest.raises(InputError, match="module it was created for"):
        recorder.observe(nn.Linear(4, 1))
    run = ntkit.train(net, x, torch.zeros(len(x), 3, dtype=torch.float64), ntkit.Schedule(learning_rate=0.01, steps=1))
    with pytest.raises(InputError, match="must have observed 'nfa'"):
        recorder.adopt(run)
