"""What has no empirical kernel is refused with the reason and what to write instead."""

import random

import numpy as np
import pytest
import torch
from tests.cases import mlp
from tests.kernels.finite_network.cases import Function
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import InputError, InputTypeError


def of(function):
    return Function(function, fc=nn.Linear(3, 2))


def warming(module, x):
    module.steps += 1
    return module.fc(x) * module.steps


def under_autocast(module, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return module.fc(x).float()


X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
NAN = torch.full((4, 3), float("nan"))

MODULES = {
    "dropout": (nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)), InputError, r"1 \(Dropout, random\)"),
    "batch statistics": (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), InputError, r"module\.eval\(\)"),
    "batch norm without statistics": (
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval(), InputError, "track_running_stats"),
    "functional dropout": (of(lambda m, x: F.dropout(m.fc(x), 0.5, m.training)), InputError, "random numbers"),
    "functional batch statistics": (of(lambda m, x: m.fc(x) - m.fc(x).mean(0)), InputError, "other inputs of its batch"),
    "numbers from numpy": (of(lambda m, x: m.fc(x) * np.random.rand()), InputError, "random numbers"),
    "numbers from Python": (of(lambda m, x: m.fc(x) * random.random()), InputError, "random numbers"),
    "another function in every call": (
        Function(warming, fc=nn.Linear(3, 2), steps=torch.zeros(())), InputError, "call to call"),
    "float16": (mlp(3, 4, 2).half(), InputTypeError, r"float32 or float64: half.*float16 in '0.weight'. Write module.float\(\)"),
    "bfloat16": (mlp(3, 4, 2).bfloat16(), InputTypeError, "torch.bfloat16 in '0.weight'"),
    "one layer of half precision": (
        Function(lambda m, x: m.last(m.fc(x).half()), fc=nn.Linear(3, 2), last=nn.Linear(2, 2).half()), InputTypeError,
        "torch.float16 in 'last.weight'"),
    "half precision inside": (of(lambda m, x: m.fc(x).half().float()), InputTypeError, "computes in torch.float16"),
    "autocast inside": (of(under_autocast), InputTypeError, r"computes in torch.bfloat16 \(aten"),
    "two outputs": (of(lambda m, x: (m.fc(x), x)), InputError, "one tensor. Got tuple"),
    "integer output": (of(lambda m, x: m.fc(x).argmax(1)), InputError, "differentiable"),
    "detached output": (of(lambda m, x: m.fc(x).detach()), InputError, "differentiable"),
    "rounded output": (of(lambda m, x: x), InputError, "differentiable"),
    "scalar output": (of(lambda m, x: m.fc(x).sum()), InputError, "one row for each input"),
    "rows lost": (of(lambda m, x: m.fc(x)[:-1]), InputError, "one row for each input"),
    "frozen": (mlp(3, 4, 2).requires_grad_(False), InputError, "requires gradients"),
    "no parameters": (nn.ReLU(), InputError, "requires gradients"),
    "lazy": (nn.LazyLinear(2), InputError, "lazy"),
    "wrong size": (nn.Linear(5, 2), InputError, r"shape \(3, 3\)"),
    "infinite": (of(lambda m, x: m.fc(x) / 0), InputError, "NaN or beyond"),
    "double": (mlp(3, 4, 2).double(), InputTypeError, "torch.float64. Got torch.float32"),
}  # fmt: skip


@pytest.mark.parametrize("method", ["auto", "jacobian"])
@pytest.mark.parametrize("name", MODULES)
def test_modules(name, method):
    module, error, message = MODULES[name]
    emp = ntkit.empirical(module, method=method)
    for call in (emp.ntk, emp.ntk.diag, emp.ntk_by_layer, emp.ntk_operator, lambda x: emp.ntk(x, x[:2])):
        with pytest.raises(error, match=message):
            call(X)


INPUTS = {
    "not a tensor": ([[1.0, 2.0, 3.0]], InputTypeError, "torch.Tensor"),
    "nan": (NAN, InputError, "finite"),
    "empty": (X[:0], InputError, "at least one row"),
    "one row without batch": (X[0], InputError, "batch dimension"),
    "double": (X.double(), InputTypeError, "torch.float32. Got torch.float64"),
    "half": (X.half(), InputTypeError, "float32 or float64"),
    "integers": (X.long(), InputTypeError, "integers"),
    "no integers": (X.long()[:0], InputError, "at least one row"),
    "complex": (X.to(torch.complex64), InputTypeError, "real"),
    "gradients": (X.clone().requires_grad_(), InputTypeError, "detach"),
    "meta": (X.to("meta"), InputTypeError, "device"),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name):
    x, error, message = INPUTS[name]
    for which in ("ntk", "nngp"):
        kernel = getattr(ntkit.empirical(mlp(3, 4, 2)), which)
        with pytest.raises(error, match=message):
            kernel(x)
        with pytest.raises(error, match=message):
            kernel.diag(x)


def test_pairs():
    kernel = ntkit.empirical(mlp(3, 4, 2)).ntk
    for x2, error, message in (
        (X.double(), InputTypeError, "same dtype"),
        (X[:, :2], InputError, "same shape"),
        (NAN, InputError, "x2 must be finite"),
        (X.long(), InputTypeError, "floating"),
    ):
        with pytest.raises(error, match=message):
            kernel(X, x2)


@pytest.mark.parametrize("method", ["structured", "jacobian", "ntk-vp"])
def test_autocast_around_a_kernel_changes_nothing(method):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        emp = ntkit.empirical(mlp(3, 4, 2), "full", method)
    expected = emp.ntk(X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(emp.ntk(X), expected, rtol=1e-6, atol=1e-6)
        product = emp.ntk_operator(X) @ torch.eye(8)
        assert torch.is_autocast_enabled("cpu")
    torch.testing.assert_close(product, expected, rtol=1e-5, atol=1e-5)


def test_a_table_of_half_precision_may_be_read_in_full():
    net = of(lambda m, x: m.fc(x) * m.table.float())
    net.register_buffer("table", torch.tensor([0.5, 2.0], dtype=torch.float16))
    full = of(lambda m, x: m.fc(x) * m.table)
    full.load_state_dict(net.state_dict(), strict=False)
    full.table = torch.tensor([0.5, 2.0])
    torch.testing.assert_close(ntkit.empirical(net).ntk(X), ntkit.empirical(full).ntk(X))


def test_token_out_of_range():
    net = nn.Sequential(nn.Embedding(3, 2), nn.Flatten())
    with pytest.raises(InputTypeError, match="index out of range"):
        ntkit.empirical(net).ntk(torch.tensor([[0, 7]]))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"module": torch.relu}, InputTypeError, "torch.nn.Module"),
        ({"output": "mean"}, InputError, "output must be"),
        ({"output": True}, InputError, "output must be"),
        ({"output": 1.0}, InputError, "output must be"),
        ({"method": "fast"}, InputError, "method must be"),
        ({"byte_budget": 0}, InputError, "byte_budget must be"),
    ],
)
def test_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        ntkit.empirical(**{"module": mlp(3, 4, 2), **arguments})


@pytest.mark.parametrize("output", [2, -3])
def test_output_index(output):
    with pytest.raises(InputError, match="below the module's 2 outputs"):
        ntkit.empirical(mlp(3, 4, 2), output).ntk(X)


def test_nngp_needs_a_last_layer():
    with pytest.raises(InputError, match="last nn.Linear"):
        ntkit.empirical(nn.Sequential(nn.LayerNorm(3))).nngp(X)


def test_overflow():
    net = mlp(3, 4, 2)
    with torch.no_grad():
        net[2].weight.mul_(1e25)
    with pytest.raises(InputError, match="beyond the range"):
        ntkit.empirical(net).ntk(1e15 * X)


def test_pairs_of_integers():
    kernel = ntkit.empirical(nn.Sequential(nn.Embedding(5, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))[:3]).ntk
    with pytest.raises(InputError, match="same shape"):
        kernel(torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(InputTypeError, match="same dtype"):
        kernel(torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, 4, dtype=torch.int32))
