from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ntkit.errors import InputError, InputTypeError
from ntkit_studies.methods import error_barrier, spawn_study


def problem(outputs=2, norm=False):
    torch.manual_seed(0)
    x = torch.randn(60, 2)
    y = (x[:, 0] * x[:, 1] > 0).long()
    middle = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(2, 16), *middle, nn.ReLU(), nn.Linear(16, outputs)), (x[:40], y[:40], x[40:], y[40:])


OPTIONS = {"spawn": [0, 2, 3], "epochs": 3, "learning_rate": 0.5, "batch_size": 8, "momentum": 0.5, "probe": 10}


@pytest.mark.parametrize(("outputs", "norm"), [(1, False), (2, False), (2, True)])
def test_children_share_the_path_and_then_part(outputs, norm):
    net, sets = problem(outputs, norm)
    before, calls = copy.deepcopy(net.state_dict()), []
    study = spawn_study(net, *sets, **OPTIONS, progress=lambda done, total: calls.append((done, total)))
    assert study.spawn.tolist() == [0, 2, 3] and study.errors.shape == (3, 2)
    for name in ("barrier", "kernel_distance", "hamming", "disagreement"):
        values = getattr(study, name)
        assert values.shape == (3,) and values[2] == 0, name  # at the last epoch they are one network
    assert (study.kernel_distance[:2] > 0).all() and study.hamming[0] > 0
    assert study.parent.steps.tolist() == [0, 1, 2, 3] and (study.parent.velocity[1:] > 0).all()
    assert calls[-1] == (11, 11) and len(calls) == 11
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_seeds_decide_everything():
    net, sets = problem()
    first, again, other = (spawn_study(net, *sets, **OPTIONS, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.kernel_distance, again.kernel_distance) and torch.equal(first.errors, again.errors)
    assert not torch.equal(first.kernel_distance, other.kernel_distance)


def test_a_study_by_hand():
    net, (x, y, x_test, y_test) = problem()
    study = spawn_study(net, x, y, x_test, y_test, spawn=[1], epochs=2, learning_rate=0.5, batch_size=8, seed=3)

    def epoch(net, generator):
        for rows in torch.randperm(40, generator=generator).split(8):
            loss = F.cross_entropy(net(x[rows]), y[rows])
            net.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= 0.5 * parameter.grad

    parent = copy.deepcopy(net)
    epoch(parent, torch.Generator().manual_seed(3 * 1_000_003))
    pair = [copy.deepcopy(parent), copy.deepcopy(parent)]
    for child, one in enumerate(pair, 1):
        epoch(one, torch.Generator().manual_seed(3 * 1_000_003 + 7919 + child))
    expected = error_barrier(*pair, x_test, y_test)
    assert study.barrier[0] == pytest.approx(expected.barrier)
    assert study.errors[0].tolist() == pytest.approx([float(expected.errors[0]), float(expected.errors[-1])])
    own = [one[0](x_test) > 0 for one in pair]
    assert float(study.hamming[0]) == pytest.approx(float((own[0] != own[1]).double().mean()))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"spawn": [4]}, InputError, "spawn must be epochs from 0 to 3"),
        ({"spawn": []}, InputError, "at least one"),
        ({"spawn": [0.5]}, InputTypeError, "sequence of epochs"),
        ({"epochs": 0}, InputError, "epochs must be at least 1"),
        ({"batch_size": 2.0}, InputTypeError, "batch_size must be an integer"),
        ({"learning_rate": 0.0}, InputError, "learning_rate must be finite and positive"),
        ({"momentum": 1.0}, InputError, "momentum must be below 1"),
        ({"learning_rate": 1e30}, InputError, "training diverged"),
    ],
)
def test_bad_settings(change, error, message):
    net, sets = problem()
    with pytest.raises(error, match=message):
        spawn_study(net, *sets, **(OPTIONS | change))


def test_labels_that_the_outputs_cannot_give():
    net, (x, y, x_test, y_test) = problem()
    with pytest.raises(InputError, match="y must be classes 0 to 1"):
        spawn_study(net, x, y + 1, x_test, y_test, **OPTIONS)
