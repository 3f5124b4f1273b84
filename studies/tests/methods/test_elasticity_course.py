from __future__ import annotations

import pytest
import torch
from torch import nn

import ntkit
from ntkit.errors import InputError, InputTypeError
from ntkit_studies.methods import elasticity_course


def network(outputs=1, seed=0, width=48):
    net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, outputs)).double()
    return ntkit.initialize(ntkit.parametrize_ntk(net), generator=torch.Generator().manual_seed(seed))


def points(n=24, seed=0):
    """Two label systems on independent coordinates, as cat against dog and bench against chair."""
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x + 1, {"first": (x[:, 0] > 0).long(), "second": 3 - 2 * (x[:, 1] > 0).long()}


def test_every_number_is_that_of_the_network_at_that_time():
    (x, labels), (x_test, labels_test) = points(), points(10, 1)
    net = network()
    before = [p.detach().clone() for p in net.parameters()]
    course = elasticity_course(net, x, labels, x_test=x_test, labels_test=labels_test, record=[3, 7], lr=0.02, steps=10)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert course.systems == ("first", "second") and course.steps.tolist() == [0, 3, 7, 10]
    assert course.train.shape == course.test.shape == (2, 2, 4) and course.losses.shape == (2, 4)
    for trained, name in enumerate(course.systems):
        for record, steps in enumerate(course.steps.tolist()):
            own = network()
            target = torch.where(labels[name] == labels[name].max(), 1.0, -1.0).double()[:, None]
            run = ntkit.train(own, x, target, ntkit.Schedule(learning_rate=0.02, steps=steps))
            torch.testing.assert_close(course.losses[trained, record], run.losses[-1])
            ntk = ntkit.empirical(own).ntk
            for by, other in enumerate(course.systems):
                expected = ntkit.local_elasticity(ntk(x), labels[other])
                torch.testing.assert_close(course.train[trained, by, record], expected.detach())
                expected = ntkit.local_elasticity(
                    ntk(x_test, x), labels_test[other], labels[other], ntk.diag(x_test), ntk.diag(x)
                )
                torch.testing.assert_close(course.test[trained, by, record], expected.detach())
    torch.testing.assert_close(course.modules["second"][0].weight, own[0].weight)


def test_networks_become_elastic_for_the_labels_they_learn():
    x, labels = points(60)
    largest = float(torch.linalg.eigvalsh(ntkit.empirical(network()).ntk(x).detach())[-1])
    settings = {"kappa": 0.1, "centre": True, "lr": 0.3 / largest / 0.1**2, "steps": 600}
    course = elasticity_course(network(), x, labels, record=[50, 150], **settings)
    rise = course.train[:, :, -1] - course.train[:, :, 0]
    assert float(rise.diagonal().min()) > 0.03
    assert rise[0, 0] > rise[0, 1] and rise[1, 1] > rise[1, 0]  # for the others too, but less
    assert bool((course.train.diagonal(dim1=0, dim2=1).diff(dim=0) > 0).all())  # at every record more than before
    assert course.test is None


@pytest.mark.parametrize(("loss", "outputs"), [("mse", 3), ("cross_entropy", 3), ("binary_cross_entropy", 1)])
def test_losses_and_outputs(loss, outputs):
    x, _ = points()
    labels = {"a": torch.arange(len(x)) % max(outputs, 2)}
    reports = []
    course = elasticity_course(
        network(outputs), x, labels, loss=loss, method="adam", lr=0.01, steps=5, progress=lambda *r: reports.append(r)
    )
    assert course.losses[0, -1] < course.losses[0, 0] and reports[-1] == (5, 5)


X, LABELS = points(6)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labels": {}}, InputError, "at least one label system"),
        ({"labels": {"a": LABELS["first"][:3]}}, InputError, r"labels\['a'\] must have shape \(6,\)"),
        ({"labels": {"a": torch.arange(6)}}, InputError, "two classes. Got 6"),
        ({"module": network(3)}, InputError, "3 classes"),
        ({"module": 3}, InputTypeError, "torch.nn.Module"),
        ({"x": X.tolist()}, InputTypeError, "tensors of points"),
        ({"x_test": X}, InputError, "go together"),
        ({"x_test": X, "labels_test": {"other": LABELS["first"]}}, InputError, "must have the systems"),
        ({"observe": {}}, InputError, "observe must be left out"),
        ({"stop_below": 100.0}, InputError, "different records"),
    ],
)
def test_bad_input(change, error, message):
    arguments = {"module": network(), "x": X, "labels": LABELS, "lr": 0.01, "steps": 3} | change
    if "stop_below" in change:  # one network is there at once, the other is not
        targets = {name: 2 * (y == y.max()).double()[:, None] - 1 for name, y in LABELS.items()}
        losses = sorted(float(0.5 * (network()(X) - y).detach().square().sum()) for y in targets.values())
        arguments["stop_below"] = sum(losses) / 2
    with pytest.raises(error, match=message):
        elasticity_course(**arguments)
