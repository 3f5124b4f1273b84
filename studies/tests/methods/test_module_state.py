"""Every method that runs a user's module leaves it, and torch's generator, as it found them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.common.test_module_state import TARGETS, Drawing, X, Y, changes, generators, network, state
from tests.common.test_parameters import IDS, bag
from torch import nn

from ntkit.errors import InputError, InputTypeError, NtkitError
from ntkit_studies.methods import (
    FederatedAveraging,
    FederatedNTK,
    Worker,
    early_alignment,
    elasticity_course,
    error_barrier,
    integrate,
    spawn_study,
)

RUN: dict[str, Callable[[nn.Module], Any]] = {
    "early_alignment": lambda net: early_alignment(net, X, TARGETS),
    "error_barrier": lambda net: error_barrier(net, copy.deepcopy(net), X, Y, points=3, x_train=X),
    "spawn_study": lambda net: spawn_study(
        net, X, Y, X, Y, spawn=[0], epochs=1, learning_rate=0.1, batch_size=3, points=3
    ),
    "elasticity_course": lambda net: elasticity_course(net, X, {"one": Y}, learning_rate=0.01, steps=2),
    "integrate": lambda net: integrate(net, X, TARGETS, t=0.1),
    "FederatedNTK": lambda net: FederatedNTK(net, [Worker(X, TARGETS)], steps=[1, 3]).fit(1),
    "FederatedAveraging": lambda net: FederatedAveraging(net, [Worker(X, Y)], batch_size=3).fit(1),
}


@pytest.mark.parametrize("name", RUN)
def test_everything_is_as_it_was(name: str) -> None:
    net = network()
    before = state(net)
    RUN[name](net)
    assert changes(before, state(net)) == []


@pytest.mark.parametrize("name", RUN)
@pytest.mark.parametrize("calls", [1, 4])
def test_everything_is_as_it_was_after_an_error(name: str, calls: int) -> None:
    net = network()
    net[2].left.append(calls)
    before = state(net)
    with contextlib.suppress(ArithmeticError, NtkitError):
        RUN[name](net)
    after = state(net)
    del before["2:left"], after["2:left"]
    assert changes(before, after) == []


@pytest.mark.parametrize("name", ["error_barrier", "spawn_study", "FederatedAveraging"])
def test_everything_is_as_it_was_in_training_mode(name: str) -> None:
    net = network().train()
    before = state(net)
    RUN[name](net)
    assert changes(before, state(net)) == []


def test_a_refused_random_module_leaves_the_generators() -> None:
    net = Drawing()
    before = generators()
    with pytest.raises(InputError, match="random numbers"):
        integrate(net, X, TARGETS, t=0.1)
    assert generators() == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", [integrate, early_alignment])
def test_parameters_of_half_precision_are_refused(method: Callable[..., Any], dtype: torch.dtype) -> None:
    net = bag(dtype)
    with pytest.raises(InputTypeError, match=f"half precision cannot hold a kernel. Got {dtype} in '0.weight'"):
        method(net, IDS, torch.ones(4, 1, dtype=dtype))


def test_studies_with_dropout_depend_on_their_seed_alone() -> None:
    with torch.random.fork_rng():
        first = RUN["spawn_study"](network())
        torch.manual_seed(7)
        second = RUN["spawn_study"](network())
    assert torch.equal(first.kernel_distance, second.kernel_distance)
