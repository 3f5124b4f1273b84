from __future__ import annotations

import math

import pytest
import torch
from tests.cases import mlp

import ntkit
from ntkit.datasets import load_digits
from ntkit.diagnostics import bounds, two_layer_gram
from ntkit.errors import InputError, InputTypeError, MemoryLimitError


def orthonormal(m, scale=1.0):
    y = torch.ones(m, dtype=torch.float64)
    y[::2] = -1
    return scale * torch.eye(m, dtype=torch.float64), y


@pytest.mark.parametrize("delta", [0.01, 0.3])
@pytest.mark.parametrize(("m", "n"), [(2, 10), (50, 10**4), (400, 10**9)])
def test_orthonormal_inputs_have_closed_forms(m, n, delta):
    # H = I / 2: lambda_0 = 1/2 and y^T H^-1 y = 2 m.
    x, y = orthonormal(m)
    found = bounds(two_layer_gram(x), y, n, delta, x=x)
    assert found.lambda_0 == pytest.approx(0.5) and found.quadratic_form == pytest.approx(2 * m)
    assert found.rate.value == pytest.approx(1.0) and found.guaranteed_rate.value == pytest.approx(0.5)
    assert found.movement.value == pytest.approx(4 * m / math.sqrt(n))
    factor = math.sqrt(0.5 + math.sqrt(math.log(1 / delta) / (2 * n)))
    assert found.rademacher.value == pytest.approx(math.sqrt(2) * factor)
    slack = math.sqrt(math.log(1 / delta) / (2 * m))
    assert found.risk.value == pytest.approx((1 + math.sqrt(2 * m)) / math.sqrt(m) * factor + slack)
    assert found.lipschitz_risk.value == pytest.approx(2 + math.sqrt(math.log(2 * m / delta) / m))
    first = 4 * m**2 * math.log(2 * m / delta)
    assert found.width_du.value == pytest.approx(max(16 * m**6 / delta**3, first))
    assert found.width_song.value == pytest.approx(max(16 * m**4 * math.log(m / delta) ** 3, first))
    assert found.width_arora.value == pytest.approx(max(16 * m**7, first))
    assert found.risk.vacuous and found.lipschitz_risk.vacuous and found.rademacher.vacuous
    for bound in found.all:
        assert all(one.holds for one in bound.assumptions if "width" not in one.text)
    assert found.guaranteed_rate.holds is (n > found.width_du.value)
    assert found.width_du.vacuous is (n <= found.width_du.value)


def test_a_kernel_gives_what_its_gram_matrix_gives():
    x, y = orthonormal(6)
    net = mlp(6, 4, 1, bias=False)
    net[2].requires_grad_(False)
    kernel = ntkit.infinite_width(net, w_std=1.0, overrides={"0": {"w_std": 6**0.5}}).ntk
    assert str(bounds(kernel, y, 100, x=x)) == str(bounds(two_layer_gram(x), y, 100, x=x))


def test_a_risk_below_one_is_not_vacuous():
    # Labels along the top eigenvector of H cost little: two points far apart, each repeated nearly.
    generator = torch.Generator().manual_seed(0)
    centre = torch.zeros(400, 3, dtype=torch.float64)
    centre[:200, 0], centre[200:, 0] = 1, -1
    x = torch.nn.functional.normalize(centre + 0.3 * torch.randn(400, 3, generator=generator, dtype=torch.float64))
    y = centre[:, 0]
    found = bounds(two_layer_gram(x), y, 10**12, 0.05, x=x)
    dense = float(y @ torch.linalg.solve(two_layer_gram(x), y))
    assert found.quadratic_form == pytest.approx(dense, rel=1e-6)
    assert found.risk.value < 1 and not found.risk.vacuous and "risk " in str(found)
    assert f"{found.risk.value:12.4g}   zero-one" in str(found)


def test_the_start_is_subtracted():
    x, y = orthonormal(4)
    found = bounds(two_layer_gram(x), y, 100, f0=0.5 * y)
    assert found.quadratic_form == pytest.approx(2 * 4 * 0.25)
    assert found.movement.value == pytest.approx(2 * math.sqrt(4 / 100) / 0.5 * 1.0)


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        (lambda x, y: (2 * x, y, two_layer_gram(2 * x)), "the inputs have norm 1"),
        (lambda x, y: (x, 2 * y, two_layer_gram(x)), "|y| is at most 1"),
        (lambda x, y: (x, 0.5 * y, two_layer_gram(x)), "y is -1 or +1"),
        (lambda x, y: (x, y, 3 * two_layer_gram(x)), "H is the two-layer kernel (eq. 124)"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_assumptions_are_checked(change, failing, known):
    x, y, gram = change(*orthonormal(5))
    found = bounds(gram, y, 100, x=x if known else None)
    assert f"{failing}: NO" in str(found)
    assert found.risk.holds is False and found.rate.holds is True


def test_without_inputs_their_assumptions_are_not_checked():
    x, y = orthonormal(5)
    found = bounds(two_layer_gram(x), y, 10**9)
    assert "the inputs have norm 1: not checked" in str(found)
    assert found.rademacher.holds is None and found.rate.holds is True


def test_equal_inputs_leave_no_bound():
    x = torch.nn.functional.normalize(torch.tensor([[1.0, 2.0], [1.0, 2.0], [2.0, -1.0]], dtype=torch.float64))
    found = bounds(two_layer_gram(x), torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64), 100, x=x)
    assert abs(found.lambda_0) <= found.rounding and "which is rounding: no bound holds" in str(found)
    assert found.rate.value == 0 and found.quadratic_form == math.inf
    assert all(bound.vacuous for bound in found.all)


def test_at_200_real_points_every_width_is_vacuous_for_practice():
    digits = load_digits()
    chosen = (digits.labels < 2).nonzero()[:200, 0]
    x = torch.nn.functional.normalize(digits.images[chosen].double().flatten(1))
    y = 2.0 * digits.labels[chosen].double() - 1
    found = bounds(two_layer_gram(x), y, 10**6, 0.05, x=x)
    assert len(x) == 200 and found.lambda_0 > found.rounding
    lines = [line for line in str(found).splitlines() if line.startswith("width_")]
    assert len(lines) == 3 and all("vacuous for practice" in line for line in lines)


def test_the_measured_loss_stays_below_the_rate():
    m, n = 8, 2048
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(m, 12, generator=generator, dtype=torch.float64))
    y = torch.sign(torch.randn(m, generator=generator, dtype=torch.float64))
    net = mlp(12, n, 1, bias=False).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.randn(n, 12, generator=generator, dtype=torch.float64))
        net[2].weight.copy_(torch.randint(0, 2, (1, n), generator=generator) * 2.0 - 1).div_(math.sqrt(n))
    net[2].requires_grad_(False)
    start, f0 = net[0].weight.detach().clone(), net(x).detach()[:, 0]
    found = bounds(two_layer_gram(x), y, n, x=x, f0=f0)
    # Small steps of gradient descent: 1 - eta lambda < e^(-eta lambda), so the rates of the flow bound theirs too.
    schedule = ntkit.Schedule(learning_rate=0.05, steps=320)
    observe = {"least": lambda one: torch.linalg.eigvalsh(ntkit.empirical(one).ntk(x))[0]}
    record = ntkit.Record([10, 20, 40, 80, 160], observe=observe)
    run = ntkit.train(net, x, y[:, None], schedule, record=record)
    # What theorem 3 guarantees, and its proof needs, is this; so wide a network has it although no constant promises it.
    assert (run.observations["least"] >= found.lambda_0 / 2).all()
    squares = 2 * run.losses
    for t, value in zip(run.times.tolist(), squares.tolist(), strict=True):
        assert value <= found.loss_at(t, float(squares[0])) * (1 + 1e-9)
    moved = (net[0].weight.detach() - start).norm(dim=1).max()
    assert float(moved) <= found.movement.value


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.eye(2), torch.ones(2), 10, 0.0), InputError, "delta must lie between 0 and 1"),
        ((torch.eye(2), torch.ones(2), 10, 1.0), InputError, "delta must lie between 0 and 1"),
        ((torch.eye(2), torch.ones(2), 10, math.nan), InputError, "delta must be finite"),
        ((torch.eye(2), torch.ones(2), 10, "0.1"), InputTypeError, "delta must be a number"),
        ((torch.eye(2), torch.ones(2), 0), InputError, "width must be at least 1"),
        ((torch.eye(2), torch.ones(2), 1.5), InputTypeError, "width must be an integer"),
        ((torch.eye(2), torch.ones(2, 1), 10), InputError, "y must have shape"),
        ((torch.eye(2), torch.ones(3), 10), InputError, "y must have shape"),
        ((torch.eye(2), torch.tensor([1.0, math.inf]), 10), InputError, "NaN or infinite"),
        ((torch.full((2, 2), math.nan), torch.ones(2), 10), InputError, "NaN or infinite"),
        (("H", torch.ones(2), 10), InputTypeError, "must be an ntkit.Kernel or a Gram matrix"),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        bounds(*arguments)


def test_inputs_must_go_with_the_kernel():
    kernel = ntkit.infinite_width(mlp(2, 2, 1)).ntk
    with pytest.raises(InputTypeError, match="x must be the inputs"):
        bounds(kernel, torch.ones(2), 10)
    with pytest.raises(InputError, match="x must have 2 rows"):
        bounds(torch.eye(2), torch.ones(2), 10, x=torch.eye(3))


def test_too_many_points_are_refused_before_the_work(free_memory):
    x, y = orthonormal(5)
    kernel = ntkit.infinite_width(mlp(5, 2, 1)).ntk
    free_memory(3 * 8 * 5**2 - 1)
    for given in (kernel, torch.eye(5, dtype=torch.float64)):
        with pytest.raises(MemoryLimitError, match="n = 5 needs"):
            bounds(given, y, 10, x=x)
