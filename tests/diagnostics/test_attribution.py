"""Attribution against retraining of the linearised network, and projections against the exact scores."""

import copy
import math

import pytest
import torch
from tests.cases import mlp
from torch import nn
from torch.func import functional_call, jacrev

import ntkit
from ntkit._src.diagnostics._sketch import Sketch
from ntkit.errors import InputError, InputTypeError

N, M = 9, 4


def _module(outputs, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv1d(1, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9, 5), nn.SiLU(), nn.Linear(5, outputs))
    return net.double()


def _inputs(seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(N + M, 1, 4, generator=generator, dtype=torch.float64)
    return x[:N], x[N:], generator


def _margin(f, y):
    """log p - log(1 - p), by the probabilities themselves."""
    p = f.softmax(1) if f.shape[1] > 1 else torch.cat([torch.sigmoid(-f), torch.sigmoid(f)], 1)
    own = p.gather(1, y[:, None])[:, 0]
    return torch.log(own / (1 - own))


def _features(module, x, output):
    """The outputs to attribute, (n, s), and their derivatives, (n, s, p), by plain autograd."""
    parameters = dict(module.named_parameters())
    value = output(module(x)).detach()
    derivatives = jacrev(lambda p: output(functional_call(module, p, (x,))))(parameters)
    flat = torch.cat([d.reshape(*value.shape, -1) for d in derivatives.values()], -1).detach()
    return (value[:, None], flat[:, None]) if value.ndim == 1 else (value, flat)


def _retrained(phi_train, phi_test, force, curvature, ridge):
    """Minimise the quadratic model without each point in turn, from its gradients and Hessians.

    The model is sum_i [w_i (phi_i d)^2 / 2 - q_i phi_i d] + shift |d|^2 / 2 + r d, with r the regulariser's gradient, which
    makes d = 0 stationary while all points are there.
    """
    n, s, p = phi_train.shape
    kernel_trace = sum((curvature[i, o] * phi_train[i, o] @ phi_train[i, o]) for i in range(n) for o in range(s))
    shift = ridge * kernel_trace / (n * s)
    regulariser = torch.einsum("ns,nsp->p", force, phi_train)
    scores = torch.empty(len(phi_test), n, s, dtype=torch.float64)
    for left_out in range(n):
        keep = [i for i in range(n) if i != left_out]
        hessian = torch.einsum("ns,nsp,nsq->pq", curvature[keep], phi_train[keep], phi_train[keep])
        gradient = regulariser - torch.einsum("ns,nsp->p", force[keep], phi_train[keep])
        step = -torch.linalg.solve(hessian + shift * torch.eye(p, dtype=torch.float64), gradient)
        scores[:, left_out] = -(phi_test @ step)
    return scores


@pytest.mark.parametrize("ridge", [1e-3, 1.0])
@pytest.mark.parametrize("outputs", [1, 3])
def test_regression_equals_retraining_the_linearised_network(outputs, ridge):
    module = _module(outputs)
    x, x_test, generator = _inputs()
    y = torch.randn(N, outputs, generator=generator, dtype=torch.float64)
    f, phi = _features(module, x, lambda f: f)
    f_test, phi_test = _features(module, x_test, lambda f: f)
    expected = _retrained(phi, phi_test, y - f, torch.ones_like(f), ridge)
    found = ntkit.attribute(module, x, y if outputs > 1 else y[:, 0], x_test, ridge=ridge)
    assert found.method == "exact" and found.labels is None
    shape = (M, N, outputs) if outputs > 1 else (M, N)
    torch.testing.assert_close(found.scores, expected.reshape(shape), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found.outputs, f_test.reshape(found.outputs.shape))


@pytest.mark.parametrize("ridge", [1e-2, 1.0])
@pytest.mark.parametrize("outputs", [1, 3])
def test_classes_equal_a_newton_step_of_retraining(outputs, ridge):
    module = _module(outputs)
    x, x_test, generator = _inputs()
    classes = max(outputs, 2)
    y = torch.randint(classes, (N,), generator=generator)
    y_test = torch.randint(classes, (M,), generator=generator)
    g, phi = _features(module, x, lambda f: _margin(f, y))
    g_test, phi_test = _features(module, x_test, lambda f: _margin(f, y_test))
    p = torch.sigmoid(g)
    expected = _retrained(phi, phi_test, 1 - p, p * (1 - p), ridge)[..., 0]
    found = ntkit.attribute(module, x, y, x_test, y_test, ridge=ridge)
    torch.testing.assert_close(found.scores, expected, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found.outputs, g_test[:, 0])
    assert torch.equal(found.labels, y_test)
    assert bool(((found.leverage > 0) & (found.leverage < 1)).all())


def test_leaving_a_point_out_of_a_linear_model_is_exact():
    """Ridge regression itself: the network is its own linearisation, trained to its optimum without each point."""
    x, x_test, generator = _inputs()
    x, x_test = x.flatten(1), x_test.flatten(1)
    y = torch.randn(N, generator=generator, dtype=torch.float64)
    shift = float(2.0 * x.square().sum() / N)

    def fit(rows):
        return torch.linalg.solve(x[rows].T @ x[rows] + shift * torch.eye(4, dtype=torch.float64), x[rows].T @ y[rows])

    everything = list(range(N))
    net = nn.Linear(4, 1, bias=False).double()
    net.weight.data = fit(everything)[None]
    expected = torch.stack([x_test @ (fit(everything) - fit([j for j in everything if j != i])) for i in range(N)], 1)
    torch.testing.assert_close(ntkit.attribute(net, x, y, x_test, ridge=2.0).scores, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("targets", ["classes", "regression"])
def test_projection_converges_to_exact(targets):
    module = _module(2)
    x, x_test, generator = _inputs()
    y = (
        torch.randint(2, (N,), generator=generator)
        if targets == "classes"
        else torch.randn(N, 2, generator=generator).double()
    )
    exact = ntkit.attribute(module, x, y, x_test).scores
    errors = []
    for dim in (4, 128, 2048, 32768):  # the first by features, the others by their kernel
        found = ntkit.attribute(module, x, y, x_test, method="projection", dim=dim)
        assert found.method == "projection" and found.scores.shape == exact.shape
        errors.append(float((found.scores - exact).norm() / exact.norm()))
    # The error falls as dim^-1/2: a factor of 4 a step, which one draw meets within a factor of 2.
    assert errors[1] < errors[0] and errors[2] < errors[1] / 2 and errors[3] < errors[2] / 2 and errors[3] < 0.03, (
        errors
    )


def test_projection_keeps_inner_products_on_average():
    module = _module(1)
    x, _, generator = _inputs()
    kernel = ntkit.empirical(module).ntk(x)
    derivatives = _features(module, x, lambda f: f)[1][:, 0]
    features = [Sketch.draw(module, 16, generator)(derivatives) for _ in range(400)]
    draws = torch.stack([rows @ rows.T for rows in features])
    error = draws.std(0) / 20
    assert float(((draws.mean(0) - kernel).abs() / error).max()) < 4.5  # 45 entries
    # Kane and Nelson: the variance is at most 2 |a|^2 |b|^2 / dim.
    bound = 2 * kernel.diagonal()[:, None] * kernel.diagonal() / 16
    assert bool((draws.var(0) < 1.5 * bound).all())


def test_checkpoints_are_averaged_and_the_module_is_left_alone():
    module, other = _module(3), _module(3, seed=5)
    before = copy.deepcopy(module.state_dict())
    x, x_test, generator = _inputs()
    y = torch.randint(3, (N,), generator=generator)
    y_test = torch.tensor([0, 1, 2, 0])
    calls = []
    both = ntkit.attribute(
        module,
        x,
        y,
        x_test,
        y_test,
        checkpoints=[before, other.state_dict()],
        progress=lambda done, of: calls.append((done, of)),
    )
    apart = [ntkit.attribute(net, x, y, x_test, y_test) for net in (module, other)]
    for name in ("scores", "outputs", "leverage"):
        torch.testing.assert_close(getattr(both, name), sum(getattr(one, name) for one in apart) / 2)
    assert calls == [(1, 2), (2, 2)]
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    predicted = ntkit.attribute(module, x, y, x_test, checkpoints=[before, other.state_dict()]).labels
    assert torch.equal(predicted, ((module(x_test) + other(x_test)) / 2).argmax(1))


def test_the_point_itself_and_wrong_labels_stand_out():
    """After training, a test point that repeats a training point is made by it, and flipped labels pull the other way."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(60, 2, generator=generator)
    y = (x[:, 0] > 0).long()
    near = int((x - torch.tensor([1.0, 0.0])).norm(dim=1).argmin())
    y[near] = 0  # wrong
    net = mlp(2, 32, 2, activation=nn.Tanh)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=1e-3)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    found = ntkit.attribute(net, x, y, x[near : near + 1], torch.tensor([1]))
    scores, points = found.top(3)
    assert points[0, 0] == near and scores[0, 0] < 0  # the wrong label lowers the margin of the right class most
    with pytest.raises(InputError, match="count must be"):
        found.top(61)


def test_float32_integers_and_automatic_method():
    x, x_test, generator = _inputs()
    y = torch.randint(3, (N,), generator=generator)
    module = _module(3)
    exact = ntkit.attribute(module, x, y, x_test).scores
    single = ntkit.attribute(copy.deepcopy(module).float(), x.float(), y, x_test.float()).scores
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=1e-3, atol=1e-4 * float(exact.abs().max()))
    assert ntkit.attribute(module, x, y, x_test, byte_budget=8 * (3 * N * N + 2 * M * N) - 1).method == "projection"
    assert ntkit.attribute(module, x, y, x_test, byte_budget=8 * (3 * N * N + 2 * M * N)).method == "exact"
    torch.manual_seed(0)
    words = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(12, 2)).double()
    tokens = torch.randint(7, (6, 3), generator=generator)
    assert ntkit.attribute(words, tokens, tokens[:, 0] % 2, tokens[:2]).scores.shape == (2, 6)


BAD = {
    "module": (dict(module="net"), InputTypeError, "module must be"),
    "list": (dict(y_train=[0] * N), InputTypeError, "y_train must be a torch.Tensor"),
    "method": (dict(method="trak"), InputError, "method must be"),
    "ridge": (dict(ridge=0.0), InputError, "ridge must be finite and positive"),
    "infinite ridge": (dict(ridge=math.inf), InputError, "ridge must be finite and positive"),
    "dim": (dict(dim=0), InputError, "dim must be at least 1"),
    "bytes": (dict(byte_budget=True), InputTypeError, "byte_budget must be an integer"),
    "no checkpoints": (dict(checkpoints=[]), InputError, "at least one"),
    "checkpoint": (dict(checkpoints=[{}]), InputError, "does not fit"),
    "class": (dict(y_train=torch.full((N,), 3)), InputError, "classes from 0 to 2"),
    "classes": (dict(y_train=torch.zeros(N - 1, dtype=torch.long)), InputError, f"shape \\({N},\\)"),
    "test class": (dict(y_test=torch.zeros(M)), InputError, "y_test must hold"),
    "targets": (dict(y_train=torch.zeros(N, 2)), InputError, "as the outputs"),
    "nan": (dict(y_train=torch.full((N, 3), math.nan)), InputError, "finite"),
    "test targets": (
        dict(y_train=torch.zeros(N, 3), y_test=torch.zeros(M, dtype=torch.long)),
        InputError,
        "Leave it out",
    ),
    "shapes": (dict(x_test=torch.zeros(M, 1, 5, dtype=torch.float64)), InputError, "same shape"),
    "fitted": (dict(y_train=torch.tensor([0] * N), scale=1e6), InputError, "zero curvature"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments(case):
    x, x_test, _ = _inputs()
    arguments = dict(module=_module(3), x_train=x, y_train=torch.zeros(N, dtype=torch.long), x_test=x_test)
    changed, error, message = BAD[case]
    changed = dict(changed)
    scale = changed.pop("scale", None)
    if scale is not None:
        arguments["module"][-1].bias.data = torch.tensor([scale, 0.0, 0.0], dtype=torch.float64)
    with pytest.raises(error, match=message):
        ntkit.attribute(**{**arguments, **changed})
