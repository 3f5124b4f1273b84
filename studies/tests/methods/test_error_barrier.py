from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from ntkit.errors import InputError, InputTypeError
from ntkit_studies.methods import error_barrier


def network(seed, outputs=3, norm=False):
    torch.manual_seed(seed)
    middle = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(2, 8), *middle, nn.ReLU(), nn.Linear(8, outputs))


def data(n=40, classes=3):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(n, 2, generator=generator), torch.randint(0, classes, (n,), generator=generator)


@pytest.mark.parametrize("outputs", [1, 3])
def test_it_is_the_dense_walk_along_the_line(outputs):
    a, b = network(0, outputs), network(1, outputs)
    x, y = data(classes=max(outputs, 2))
    found = error_barrier(a, b, x, y, points=5)
    expected = []
    for weight in (0.0, 0.25, 0.5, 0.75, 1.0):
        net = network(2, outputs)
        with torch.no_grad():
            for own, first, second in zip(net.parameters(), a.parameters(), b.parameters(), strict=True):
                own.copy_((1 - weight) * first + weight * second)
            outs = net(x)
        classes = (outs[:, 0] > 0).long() if outputs == 1 else outs.argmax(1)
        expected.append(float((classes != y).double().mean()))
    assert found.errors.tolist() == pytest.approx(expected)
    assert found.barrier == pytest.approx(max(expected) - (expected[0] + expected[-1]) / 2)
    assert found.weights.tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_equal_networks_have_no_barrier_and_nothing_changes():
    a = network(0)
    before = copy.deepcopy(a.state_dict())
    assert error_barrier(a, copy.deepcopy(a), *data()).barrier == 0
    assert all(torch.equal(before[name], value) for name, value in a.state_dict().items()) and a.training


def test_an_error_of_ones_own():
    a, b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    nn.init.ones_(a.weight)
    nn.init.constant_(b.weight, -1.0)
    x = torch.ones(3, 1)
    found = error_barrier(a, b, x, torch.zeros(3), 3, error=lambda outputs, y: 1 - float(outputs.square().mean()))
    assert found.errors.tolist() == [0, 1, 0] and found.barrier == 1


def test_batch_norms_are_computed_anew_along_the_line():
    a, b = network(0, norm=True), network(1, norm=True)
    x, y = data()
    with pytest.raises(InputError, match="Pass x_train"):
        error_barrier(a, b, x, y)
    a(x), b(10 * x)  # statistics that differ, and are of no account
    found = error_barrier(a, b, x, y, points=3, x_train=x)
    middle = network(2, norm=True)
    with torch.no_grad():
        for own, first, second in zip(middle.parameters(), a.parameters(), b.parameters(), strict=True):
            own.copy_((first + second) / 2)
        middle[1].momentum = 1.0
        middle.train()(x)
        expected = float((middle.eval()(x).argmax(1) != y).double().mean())
    assert float(found.errors[1]) == pytest.approx(expected)
    assert a[1].momentum == 0.1


def test_modules_that_do_not_go_together():
    x, y = data()
    with pytest.raises(InputError, match="same parameters, by name and shape"):
        error_barrier(network(0), network(1, outputs=4), x, y)
    with pytest.raises(InputError, match="They have none"):
        error_barrier(nn.Flatten(), nn.Flatten(), x, y)
    with pytest.raises(InputTypeError, match="the same dtype and device"):
        error_barrier(network(0), network(1).double(), x, y)
    a, b = network(0), network(1)
    a.register_buffer("shift", torch.zeros(1))
    b.register_buffer("shift", torch.ones(1))
    with pytest.raises(InputError, match="share their buffers.*'shift'"):
        error_barrier(a, b, x, y)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": torch.full((40,), 3)}, InputError, "classes 0 to 2"),
        ({"y": torch.zeros(40)}, InputTypeError, "whole numbers"),
        ({"y": torch.zeros(3, dtype=torch.int64)}, InputError, "y must have shape"),
        ({"x": torch.full((40, 2), float("nan"))}, InputError, "finite"),
        ({"x": torch.ones(0, 2)}, InputError, "at least one row"),
        ({"points": 1}, InputError, "points must be at least 2"),
        ({"points": 2.0}, InputTypeError, "points must be an integer"),
    ],
)
def test_bad_input(change, error, message):
    x, y = data()
    given = {"x": x, "y": y, "points": 3} | change
    with pytest.raises(error, match=message):
        error_barrier(network(0), network(1), **given)


def test_one_output_needs_two_classes_and_finite_errors():
    x, y = data()
    with pytest.raises(InputError, match="two classes for a module of one output"):
        error_barrier(network(0, 1), network(1, 1), x, y)
    with pytest.raises(InputError, match="finite along the line"):
        error_barrier(network(0), network(1), x, y, error=lambda outputs, y: float("nan"))
