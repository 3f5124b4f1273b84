from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import ntkit
from ntkit.diagnostics import KernelRecorder, kernel_distance
from ntkit.errors import InputError, InputTypeError


def problem(outputs=1, norm=False):
    torch.manual_seed(0)
    layers = [
        nn.Linear(3, 16),
        *([nn.BatchNorm1d(16), nn.Dropout(0.5)] if norm else []),
        nn.Tanh(),
        nn.Linear(16, outputs),
    ]
    x = torch.randn(10, 3, dtype=torch.float64)
    return nn.Sequential(*layers).double(), x, (x[:, 0] > 0).long()


def loop(net, x, y, recorder, steps, rate=0.5):
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    target = (2.0 * y - 1).double()[:, None]
    grams = [ntkit.empirical(copy.deepcopy(net).eval()).ntk(x)]
    for _ in range(steps):
        optimizer.zero_grad()
        (0.5 * (net(x) - target).square().sum(0).mean() / len(x)).backward()
        optimizer.step()
        recorder.step()
        grams.append(ntkit.empirical(copy.deepcopy(net).eval()).ntk(x))
    return grams


def test_any_loop_against_kernels_kept():
    net, x, y = problem()
    recorder = KernelRecorder(net, x, y, every=2, unit=5)
    grams = loop(net, x, y, recorder, 7)
    found, kept = recorder.history, [grams[0], grams[2], grams[4], grams[6]]
    assert found.steps.tolist() == [0, 2, 4, 6] and found.times.tolist() == pytest.approx([0, 0.4, 0.8, 1.2])
    assert found.velocity[0].isnan() and found.distance[0] == 0 and found.movement[0] == 0
    for index, gram in enumerate(kept):
        assert found.distance[index] == pytest.approx(float(kernel_distance(grams[0], gram)))
        assert found.movement[index] == pytest.approx(float((gram - grams[0]).norm() / grams[0].norm()))
        assert found.alignment[index] == pytest.approx(float(ntkit.alignment(gram, y)))
        if index:
            per_unit = float(kernel_distance(kept[index - 1], gram)) / 0.4
            assert found.velocity[index] == pytest.approx(per_unit)


def test_train_gives_the_same_history():
    net, x, y = problem()
    other, rate, n = copy.deepcopy(net), 0.5, len(x)
    recorder = KernelRecorder(net, x, y, unit=1 / 0.05)
    loop(net, x, y, recorder, 3, rate)
    watched = KernelRecorder(other, x, y)
    record = ntkit.Record([1, 2], observe={"kernel": watched.observe})
    target = (2.0 * y - 1).double()[:, None]
    run = ntkit.train(other, x, target, ntkit.Schedule(learning_rate=rate / n, steps=3), record=record)
    watched.adopt(run)
    for name in ("steps", "times", "velocity", "distance", "movement", "alignment"):
        expected, found = getattr(recorder.history, name).double(), getattr(watched.history, name).double()
        assert torch.allclose(found, expected, rtol=1e-8, equal_nan=True), name


def test_several_outputs():
    net, x, y = problem(outputs=3)
    full, mean = KernelRecorder(net, x, y, output="full"), KernelRecorder(net, x, y)
    assert full.measure().shape == (30, 30) and mean.measure().shape == (10, 10)
    assert full.history.alignment[0] == pytest.approx(float(mean.history.alignment[0]))
    with torch.no_grad():
        net[-1].weight += 0.3
    full.step()
    assert full.history.distance[1] > 0


def test_batch_norm_and_dropout_are_measured_in_evaluation_mode_and_stay_in_their_own():
    net, x, _ = problem(norm=True)
    net.train()
    net[2].eval()
    recorder = KernelRecorder(net, x)
    assert torch.equal(recorder.measure(), recorder.measure())
    assert net.training and net[1].training and not net[2].training
    assert recorder.history.alignment.isnan().all()


def test_bad_input():
    net, x, y = problem()
    with pytest.raises(InputError, match="all labels are equal"):
        KernelRecorder(net, x, torch.zeros(10))
    with pytest.raises(InputError, match="y must have shape"):
        KernelRecorder(net, x, y[:3])
    with pytest.raises(InputError, match="every must be at least 1"):
        KernelRecorder(net, x, every=0)
    with pytest.raises(InputTypeError, match="every must be an integer"):
        KernelRecorder(net, x, every=1.5)
    with pytest.raises(InputError, match="unit must be finite and positive"):
        KernelRecorder(net, x, unit=0)
    with pytest.raises(InputError, match="finite"):
        KernelRecorder(net, x * float("inf"))
    recorder = KernelRecorder(net, x)
    with pytest.raises(InputError, match="must observe the module it was created for"):
        recorder.observe(copy.deepcopy(net))
    run = ntkit.train(net, x, torch.ones(10, 1).double(), ntkit.Schedule(learning_rate=0.01, steps=1))
    with pytest.raises(InputError, match="the run must have observed 'kernel'"):
        recorder.adopt(run)
