from __future__ import annotations

import os
import signal

import pytest
import torch
from torch import nn

import ntkit
from ntkit.errors import InputError, InputTypeError, WorkerError
from ntkit_studies.methods import FederatedNTK, Worker, integrate, recover_inputs


def network(outputs: int = 3, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, outputs)).double()


def data(n: int = 18) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(n, 5, dtype=torch.float64, generator=generator)
    return x, (x[:, :3].argmax(1)).sort().values  # sorted: workers hold different classes


def split(x: torch.Tensor, y: torch.Tensor, sizes: tuple[int, ...]) -> list[Worker]:
    return [Worker(a, b) for a, b in zip(x.split(sizes), y.split(sizes), strict=True)]


def weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("outputs", ["separate", "coupled"])
def test_one_worker_equals_many_and_shares_agree(loss, outputs):
    x, classes = data()
    y = nn.functional.one_hot(classes).double() if loss == "mse" else classes
    options = {"loss": loss, "outputs": outputs, "steps": (1, 10, 100)}
    alone = FederatedNTK(network(), split(x, y, (18,)), **options)
    many = FederatedNTK(network(), split(x, y, (4, 1, 13)), **options)
    pairs = FederatedNTK(network(), split(x, y, (7, 11)), share="gram", allow_pairs=True, **options)
    for federated in (alone, many, pairs):
        federated.fit(2)
    for other in (many, pairs):
        torch.testing.assert_close(weights(other.module), weights(alone.module), rtol=1e-9, atol=1e-10)
        assert [one.steps for one in other.rounds] == [one.steps for one in alone.rounds]


def test_a_round_is_an_integration_and_takes_the_best_candidate():
    x, y = data()[0], data()[0][:, :3]
    federated = FederatedNTK(network(), split(x, y, (9, 9)), outputs="coupled", steps=(1, 30))
    found = federated.round()
    gram = ntkit.empirical(network(), output="full").ntk(x)
    assert found.learning_rate == pytest.approx(ntkit.max_learning_rate(gram) / 2, rel=1e-6)
    for steps in (1, 30):
        reached = integrate(network(), x, y, steps, descent=ntkit.Descent(found.learning_rate)).module
        loss = float((reached(x) - y).square().sum().detach() / 2)
        assert found.losses[steps] == pytest.approx(loss, rel=1e-6)
    assert found.steps == min(found.losses, key=found.losses.__getitem__)
    assert found.losses[0] == pytest.approx(float((network()(x) - y).square().sum().detach() / 2))


def test_a_sketch_estimates_the_kernel_and_its_error():
    x, y = data(12)[0], data(12)[0][:, :3]
    exact = ntkit.empirical(network()).ntk(x)
    errors = []
    for size in (64, 4096):
        federated = FederatedNTK(network(), split(x, y, (5, 7)), share="sketch", sketch_size=size)
        gram, estimate, sent = federated._gram(torch.cat([network()(x).detach()]), "")
        error = float((gram - exact).norm() / exact.norm())
        assert estimate / 3 < error < 3 * estimate
        assert sent == [5 * 3 * size, 7 * 3 * size]
        errors.append(error)
    assert errors[1] < 0.3 * errors[0]


def test_no_candidate_lowers_the_loss():
    x, y = data()[0], data()[0][:, :3]
    net = network()
    federated = FederatedNTK(net, [Worker(x, net(x).detach())], steps=(10,))
    found = federated.round()
    assert found.steps == 0 and torch.equal(weights(federated.module), weights(net))
    assert len(y) == 18


def test_learning_rates():
    x, y = data()[0], data()[0][:, :3]
    workers = split(x, y, (9, 9))
    bound = ntkit.max_learning_rate(ntkit.empirical(network()).ntk(x))
    assert FederatedNTK(network(), workers, learning_rate=0.9 * bound).round().learning_rate == 0.9 * bound
    with pytest.raises(InputError, match=f"must be below {bound:.4g}"):
        FederatedNTK(network(), workers, learning_rate=1.01 * bound).round()
    with pytest.raises(InputError, match="curvature of the loss"):
        FederatedNTK(network(), workers, loss=lambda f, target: (f - target).pow(4).sum()).round()


class Flaky(Worker):
    def transposed_product(self, module, weights):
        raise ConnectionError("gone")


def test_a_lost_worker_leaves_the_weights_of_the_round_before():
    x, y = data()[0], data()[0][:, :3]
    net = network()
    federated = FederatedNTK(net, [Worker(x[:9], y[:9]), Flaky(x[9:], y[9:])])
    with pytest.raises(WorkerError, match="worker 1 was lost in round 1"):
        federated.round()
    assert torch.equal(weights(federated.module), weights(net)) and not federated.rounds


def test_dask_equals_in_process():
    distributed = pytest.importorskip("distributed")
    x, y = data()[0], data()[0][:, :3]
    here = FederatedNTK(network(), split(x, y, (6, 12)), steps=(3, 30))
    here.fit(2)
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        for options in ({}, {"share": "gram", "allow_pairs": True}):
            there = FederatedNTK(network(), split(x, y, (6, 12)), steps=(3, 30), client=client, **options)
            there.fit(2)
            torch.testing.assert_close(weights(there.module), weights(here.module), rtol=1e-9, atol=1e-10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:Creating scratch directories")
@pytest.mark.parametrize("moment", ["jacobian", "transposed_product", "loss"])
def test_a_dask_process_killed_in_a_round_costs_that_round_at_most(moment, monkeypatch):
    distributed = pytest.importorskip("distributed")
    x, y = data()[0], data()[0][:, :3]
    here = FederatedNTK(network(), split(x, y, (6, 12)), steps=(3, 30))
    here.fit(1)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        there = FederatedNTK(network(), split(x, y, (6, 12)), steps=(3, 30), client=client)
        there.fit(1)
        torch.testing.assert_close(weights(there.module), weights(here.module), rtol=1e-9, atol=1e-10)
        held = there.places._held[1]
        address = client.who_has([held])[held.key][0]
        pid, each = client.run(os.getpid)[address], there.places.each

        killed = []

        def kill(method, *given, **options):
            if method == moment and not killed:
                killed.append(method)
                os.kill(pid, signal.SIGKILL)
            return each(method, *given, **options)

        monkeypatch.setattr(there.places, "each", kill)
        lost = ""
        try:
            there.round()
        except WorkerError as error:
            lost = str(error)
        if lost:
            assert "was lost in round 2" in lost and len(there.rounds) == 1
            with pytest.raises(WorkerError, match="was lost in round 2"):
                there.round()  # its data are gone: the process that came in its place has none
        else:
            here.round()  # Dask had a copy of its data in the other process
        assert killed
        torch.testing.assert_close(weights(there.module), weights(here.module), rtol=1e-9, atol=1e-10)


def test_inputs_can_be_read_off_jacobians_but_not_off_what_units_are_off():
    x, y = data()[0], data()[0][:, :3]
    net = network()
    with torch.no_grad():
        net[0].bias[:] = -100.0
        net[0].weight[:, 0] = 0.0
        net[0].weight[0, 0], net[0].bias[0] = 100.0, 0.0  # one unit, on where the first feature is positive
    worker = Worker(x, y)
    found = recover_inputs(worker.jacobian(net, "0.weight"), worker.jacobian(net, "0.bias"))
    on = x[:, 0] * 100 + (x[:, 1:] * net[0].weight[0, 1:]).sum(1) > 0
    torch.testing.assert_close(found[on], x[on], rtol=1e-10, atol=1e-12)
    assert bool(found[~on].isnan().all()) and 0 < int(on.sum()) < 18
    with pytest.raises(InputError, match="derivatives of shape"):
        recover_inputs(torch.ones(2, 3, 4), torch.ones(2, 3, 3))


X, Y = data()[0], data()[0][:, :3]
BAD = [
    (lambda: Worker(X[:0], Y[:0]), InputError, "at least one input"),
    (lambda: Worker(X, Y[:3]), InputError, "one target for each input. Got 3 for 18"),
    (lambda: Worker(X.numpy(), Y), InputTypeError, "two tensors"),
    (lambda: Worker(X * float("nan"), Y), InputError, "finite"),
    (lambda: FederatedNTK(network(), []), InputError, "at least one Worker"),
    (lambda: FederatedNTK(network(), Worker(X, Y)), InputTypeError, "sequence of Worker"),
    (lambda: FederatedNTK(network(), [(X, Y)]), InputTypeError, "Got a tuple in it"),
    (lambda: FederatedNTK(network(), [Worker(X, Y)], share="all"), InputError, "share must be"),
    (lambda: FederatedNTK(network(), [Worker(X, Y)], share="gram"), InputError, "allow_pairs=True"),
    (lambda: FederatedNTK(network(), [Worker(X, Y)], sketch_size=3), InputError, "must be even"),
    (lambda: FederatedNTK(network(), [Worker(X, Y)], steps=(0,)), InputError, "positive number"),
    (lambda: FederatedNTK(network(), [Worker(X, Y)], learning_rate=-1.0), InputError, "learning_rate"),
    (lambda: FederatedNTK(network(), [Worker(X, Y)], outputs="no"), InputError, "outputs must be"),
    (lambda: FederatedNTK(network(), [Worker(X, Y)], client="local"), InputTypeError, "client must be"),
    (lambda: FederatedNTK(network().requires_grad_(False), [Worker(X, Y)]), InputError, "requires gradients"),
    (lambda: FederatedNTK(network(), [Worker(X, Y)]).fit(0), InputError, "rounds must be"),
    (lambda: FederatedNTK(network(), [Worker(X, Y[:, :2])]).round(), InputError, "shape of the module's output"),
    (
        lambda: FederatedNTK(network(), [Worker(X, Y), Worker(X[:, :4], Y)]),
        InputError,
        "worker 1: the module cannot run",
    ),
    (lambda: FederatedNTK(network(), [Worker(X.float(), Y)]), InputTypeError, "worker 0: x must have the dtype"),
]


@pytest.mark.parametrize(("act", "error", "message"), BAD)
def test_bad_input(act, error, message):
    with pytest.raises(error, match=message):
        act()
