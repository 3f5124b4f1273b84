from __future__ import annotations

import pytest
import torch
from tests.finite.training.problems import X_TEST, X, Y, full_kernel, network
from torch import nn

import ntkit
from ntkit import Checkpoint, Record, Schedule
from ntkit.errors import DivergenceWarning, InputError, InputTypeError


@pytest.mark.parametrize(("kappa", "centre"), [(1.0, False), (0.5, False), (0.5, True)])
def test_flow_of_the_linearised_network_is_the_closed_form(kappa, centre):
    """u_t = y + exp(-kappa^2 Theta t) (u_0 - y), and its consequence at test points; L is a sum with a half."""
    net = network()
    times = [0.3, 1.0, 2.5]
    f0, f0_test = ((net(x) * kappa * (not centre)).reshape(-1).detach() for x in (X, X_TEST))
    theta = kappa**2 * full_kernel(net, X, X)
    cross = kappa**2 * full_kernel(net, X_TEST, X)
    run = ntkit.train(
        ntkit.linearize(net),
        X,
        Y,
        Schedule("flow", time=2.5, rtol=1e-8, atol=1e-11),
        record=Record(times, x_test=X_TEST),
        kappa=kappa,
        centre=centre,
    )
    assert run.times.tolist() == [0.0, *times]
    values, vectors = torch.linalg.eigh(theta)
    for index, t in enumerate(run.times.tolist()):
        error = f0 - Y.reshape(-1)
        decay = vectors @ (torch.exp(-values * t) * (vectors.T @ error))
        torch.testing.assert_close(run.predictions[index].reshape(-1), Y.reshape(-1) + decay, rtol=0, atol=2e-8)
        gained = vectors @ (torch.expm1(-values * t) / values * (vectors.T @ error))
        torch.testing.assert_close(run.test_predictions[index].reshape(-1), f0_test + cross @ gained, rtol=0, atol=2e-8)
        torch.testing.assert_close(run.losses[index], 0.5 * decay.square().sum(), rtol=1e-5, atol=1e-9)


def test_flow_agrees_with_the_kernel_gradient_flow():
    """The same convention of time as ntkit.GradientFlow: one output, the kernel by ntkit.empirical."""
    net = network(outputs=1)
    gram, f0 = ntkit.empirical(net).ntk(X), net(X)[:, 0].detach()
    schedule = Schedule("flow", time=1.5, rtol=1e-8, atol=1e-11)
    for loss, y in (("mse", Y[:, 0]), ("binary_cross_entropy", (Y[:, 0] > 0).double())):
        flow = ntkit.GradientFlow("precomputed", loss=loss, rtol=1e-9, atol=1e-11).fit(gram, y, f0=f0)
        run = ntkit.train(ntkit.linearize(net), X, y[:, None], schedule, loss=loss)
        torch.testing.assert_close(run.predictions[-1][:, 0], flow.predict(t=1.5), rtol=0, atol=1e-7)


def test_small_steps_of_descent_are_the_flow():
    errors = []
    exact = ntkit.train(network(), X, Y, Schedule("flow", time=1.0, rtol=1e-8, atol=1e-11)).predictions[-1]
    for steps in (100, 200):
        run = ntkit.train(network(), X, Y, Schedule(learning_rate=1.0 / steps, steps=steps))
        assert run.times[-1] == 1.0
        errors.append((run.predictions[-1] - exact).abs().max().item())
    assert errors[1] < 2e-2 and 1.8 < errors[0] / errors[1] < 2.2  # Euler's method is of first order


METHODS = {
    "gd": {"learning_rate": 0.05},
    "momentum": {"learning_rate": 0.02, "momentum": 0.9},
    "adam": {"learning_rate": 0.01},
    "sgd": {"learning_rate": 0.02, "batch_size": 4},
    "flow": {},
}


def same(first, second):
    assert torch.equal(first.steps, second.steps) and torch.equal(first.times, second.times)
    assert torch.equal(first.losses, second.losses) and torch.equal(first.predictions, second.predictions)
    assert torch.equal(first.test_predictions, second.test_predictions)
    assert torch.equal(first.movement, second.movement)
    assert torch.equal(first.observations["ntk"], second.observations["ntk"]) and first.observed == second.observed
    assert torch.equal(first.state.theta, second.state.theta)


@pytest.mark.parametrize("method", METHODS)
def test_resumed_runs_have_the_same_bits(method, tmp_path):
    unit = 1.0 if method != "flow" else 0.25
    observe = {"ntk": lambda net: full_kernel(net, X[:2], X[:2])}

    def go(end, resume=None, net=None, **more):
        length = {"time": end * unit} if method == "flow" else {"steps": end}
        if method == "sgd":
            length["generator"] = torch.Generator().manual_seed(9)
        moments = [r * unit for r in (3, 7) if r <= end]
        return ntkit.train(
            net or network(),
            X,
            Y,
            Schedule(method, **METHODS[method], **length),
            record=Record(moments, X_TEST, observe, moments),
            centre=True,
            kappa=0.9,
            resume=resume,
            **more,
        )

    whole = go(11)
    for stop in (3, 5, 7) if method != "flow" else (3, 7):
        state = go(stop).state
        state.save(tmp_path / "state.pt")
        # The module may be a new one: the state holds the parameters.
        same(whole, go(11, ntkit.TrainState.load(tmp_path / "state.pt"), network(seed=4)))
    saved = []
    go(11, checkpoint=Checkpoint(saved.append, every=2))
    assert [state.step for state in saved[:3]] == [2, 4, 6]
    same(whole, go(11, saved[1]))


def test_records_movement_progress_and_the_end():
    net, calls = network(), []
    start = {name: p.detach().clone() for name, p in net.named_parameters()}
    run = ntkit.train(
        net, X, Y, Schedule(learning_rate=0.05, steps=20), record=[5, 10], progress=lambda *c: calls.append(c)
    )
    assert run.steps.tolist() == [0, 5, 10, 20] and run.times.tolist() == [0.0, 0.25, 0.5, 1.0]
    assert calls == [(step, 20) for step in range(1, 21)]
    assert run.test_predictions is None and run.observations == {} and "20 steps" in run.status
    for name, parameter in net.named_parameters():
        expected = (parameter - start[name]).norm() / start[name].norm()
        torch.testing.assert_close(run.layer_movement[name][-1], expected.detach(), rtol=1e-12, atol=0)
    assert run.movement[0] == 0 and (run.movement[1:] > run.movement[:-1]).all()
    torch.testing.assert_close(run.predictions[-1], net(X).detach())
    assert "4 records" in repr(run)


def test_progress_of_the_flow_is_counted_in_whole_numbers():
    calls = []
    ntkit.train(network(), X, Y, Schedule("flow", time=0.7), progress=lambda *c: calls.append(c))
    assert calls[-1] == (1000, 1000) and calls == sorted(calls)
    assert {type(number) for call in calls for number in call} == {int}


@pytest.mark.parametrize("method", ["gd", "flow"])
def test_stops_below_a_loss(method):
    options = {"time": 500.0} if method == "flow" else {"learning_rate": 0.05, "steps": 5000}
    run = ntkit.train(network(), X, Y, Schedule(method, **options), stop_below=0.05)
    assert run.losses[-1] < 0.05 and "fell below" in run.status
    assert run.times[-1] < 200 and run.state.step < 4000


def test_frozen_parameters_and_other_dtypes():
    net = network().float()
    net[0].parametrizations.weight.original.requires_grad_(False)
    before = net[0].weight.clone()
    run = ntkit.train(net, X.float(), Y.float(), Schedule(learning_rate=0.05, steps=5))
    assert torch.equal(net[0].weight, before) and run.predictions.dtype == torch.float32
    assert "0.parametrizations.weight.original" not in run.layer_movement


def test_zero_steps_is_the_start():
    net = network()
    run = ntkit.train(net, X, Y, Schedule(learning_rate=0.1, steps=0))
    assert run.steps.tolist() == [0]
    torch.testing.assert_close(run.predictions[0], net(X).detach(), rtol=1e-13, atol=1e-14)


def test_states_of_other_runs_are_refused(tmp_path):
    state = ntkit.train(network(), X, Y, Schedule(learning_rate=0.1, steps=3)).state
    with pytest.raises(InputError, match="Got other learning_rate"):
        ntkit.train(network(), X, Y, Schedule(learning_rate=0.2, steps=5), resume=state)
    with pytest.raises(InputError, match="before the end"):
        ntkit.train(network(), X, Y, Schedule(learning_rate=0.1, steps=2), resume=state)
    with pytest.raises(InputError, match="a state of this module"):
        ntkit.train(nn.Linear(3, 2).double(), X, Y, Schedule(learning_rate=0.1, steps=5), resume=state)
    torch.save({"a": 1}, tmp_path / "other.pt")
    with pytest.raises(InputError, match="TrainState.save"):
        ntkit.TrainState.load(tmp_path / "other.pt")


OK = {"schedule": Schedule(learning_rate=0.1, steps=3)}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"schedule": None}, InputTypeError, "ntkit.Schedule"),
        ({"record": [9]}, InputError, "between 0 and the end"),
        ({"kappa": 0.0}, InputError, "positive"),
        ({"stop_below": "low"}, InputTypeError, "number"),
        ({"loss": "hinge"}, InputError, "'cross_entropy'"),
        ({"loss": lambda f, y: f}, InputError, "one number"),
        ({"y": Y[:, 0]}, InputError, "shape of the module's output"),
        ({"y": Y.float()}, InputTypeError, "dtype of the module's output"),
        ({"y": Y[:3]}, InputError, "one target for each"),
        ({"y": Y * float("nan")}, InputError, "finite"),
        ({"y": Y, "loss": "binary_cross_entropy"}, InputError, "between 0 and 1"),
        ({"y": torch.arange(6), "loss": "cross_entropy"}, InputError, "0 to 1"),
        ({"y": torch.arange(6).int(), "loss": "cross_entropy"}, InputError, "int64"),
        ({"x": X.float()}, InputTypeError, "dtype"),
        ({"x": None}, InputTypeError, "None"),
        ({"x": X[:0], "y": Y[:0]}, InputError, "at least one row"),
        ({"module": nn.Linear(3, 2).double().requires_grad_(False)}, InputError, "requires gradients"),
        ({"module": nn.Sequential(nn.Linear(3, 2), nn.Dropout()).double()}, InputError, "eval()"),
        ({"checkpoint": 3}, InputTypeError, "function"),
        ({"rate": 0.1}, TypeError, "unexpected keyword argument 'rate'"),
    ],
)
def test_errors(changes, error, message):
    arguments = {"module": network(), "x": X, "y": Y, **OK, **changes}
    with pytest.raises(error) as caught:
        ntkit.train(arguments.pop("module"), arguments.pop("x"), arguments.pop("y"), **arguments)
    assert message in str(caught.value)


def test_divergence_is_told_from_the_first_loss():
    net = network()
    first = 0.5 * float((net(X).detach() - Y).square().sum())
    with pytest.warns(DivergenceWarning) as caught:
        run = ntkit.train(net, X, Y, Schedule(learning_rate=100.0, steps=50), record=[1])
    assert float(run.losses[0]) == pytest.approx(first) and float(run.losses[1]) > 10 * first
    message = f"L went from {first:.3g} to {float(run.losses[-1]):.3g}"
    assert message in str(caught[0].message) and message in run.status


def test_a_parameter_of_zeros_that_stays_zero_has_not_moved():
    net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Tanh(), nn.Linear(3, 1)).double()
    nn.init.zeros_(net[2].weight)
    nn.init.zeros_(net[2].bias)  # so that no gradient reaches the first layer, and targets of zero leave the last one
    nn.init.zeros_(net[0].weight)
    x = torch.eye(2, dtype=torch.float64)
    run = ntkit.train(net, x, torch.zeros(2, 1, dtype=torch.float64), Schedule(learning_rate=0.1, steps=2))
    assert not run.movement.any()  # zero over zero is no movement, not NaN
