"""Fingerprints: the same for the same thing in another process, another for whatever changes a value, or a refusal."""

from __future__ import annotations

import enum
import functools
import math
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tests.cases import mlp
from torch import Tensor, nn

import ntkit
from ntkit._src.gram import fingerprint
from ntkit.errors import InputError, InputTypeError
from ntkit.extending import kernel_fingerprint

FACTOR = 2.0


def scaled(z: Tensor) -> Tensor:
    return FACTOR * torch.tanh(z)


def inner(z: Tensor) -> Tensor:
    return scaled(z) + 1


def make(factor: Any, shift: float = 0.0) -> Any:
    def closed(z: Tensor, power: int = 2) -> Tensor:
        return factor * z**power + shift

    return closed


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    a: float
    b: tuple[int, ...] = ()


class Shift(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, z: Tensor) -> Tensor:
        return z + self.by


DIFFERENT: list[tuple[Any, Any]] = [
    (1, 1.0), (1, True), ("a", b"a"), (0.0, -0.0), (0.1, math.nextafter(0.1, 1)), (None, "None"), ((1, 2), [1, 2]),
    ((1, (2, 3)), (1, 2, 3)), ({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), ({1, 2}, {1, 3}), (Colour.RED, Colour.BLUE),
    (torch.zeros(2), torch.zeros(2).double()), (torch.zeros(2), torch.tensor([0.0, 1e-45])), (torch.zeros(2), torch.zeros(1, 2)),
    (np.zeros(2), np.zeros(2, np.float32)), (Point(1.0), Point(2.0)), (Point(1.0, (1,)), Point(1.0, (2,))),
    (torch.tanh, torch.sin), (math.sin, math.cos), (make(1.0), make(2.0)), (make(1.0), make(1.0, 1e-9)),
    (make(torch.ones(2)), make(torch.zeros(2))),
    (lambda z: z + 1, lambda z: z + 2), (lambda z: z.sin(), lambda z: z.cos()), (lambda z, a=1: z, lambda z, a=2: z),
    (functools.partial(scaled), scaled), (functools.partial(make, 1), functools.partial(make, 2)), (Shift(1.0), Shift(2.0)),
    (nn.ReLU(), nn.GELU()), (nn.LeakyReLU(0.1), nn.LeakyReLU(0.2)), (nn.Linear(2, 2), nn.Linear(2, 2)), (int, float),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(DIFFERENT)))
def test_different_things_differ(number: int) -> None:
    one, other = DIFFERENT[number]
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)


def test_equal_things_made_apart_agree() -> None:
    assert fingerprint(make(1.5)) == fingerprint(make(1.5))
    assert fingerprint(Point(1.0, (1, 2))) == fingerprint(Point(1.0, (1, 2)))
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    shared = (1, 2)
    assert fingerprint([shared, shared]) == fingerprint([(1, 2), tuple([1, 2])])
    assert fingerprint(Shift(1.0)) == fingerprint(Shift(1.0))


def test_what_a_function_refers_to_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(scaled), fingerprint(inner)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
    assert fingerprint(scaled) != before[0] and fingerprint(inner) != before[1], "a global of a function that it calls"


def test_changes_of_a_module_count() -> None:
    module = Shift(1.0)
    before = fingerprint(module)
    module.table += 1
    assert fingerprint(module) != before
    after = fingerprint(module)
    module.register_forward_hook(lambda module, args, output: 2 * output)
    assert fingerprint(module) != after


def test_cycles_end() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    other: list[Any] = [2]
    other.append(other)
    assert fingerprint(loop) != fingerprint(other)


@pytest.mark.parametrize("value", [object(), iter([1]), np.array([object()]), make(object())])
def test_what_cannot_be_told_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"fingerprint\(self\)"):
        fingerprint(value)


def _kernels() -> dict[str, ntkit.Kernel]:
    net = nn.Sequential(nn.Linear(3, 8), ntkit.Elementwise(scaled), nn.Linear(8, 1))
    conv = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)
    )
    relu = mlp(3, 8, 1)
    limit = ntkit.infinite_width(relu, w_std=1.3)
    return {
        "own": ntkit.infinite_width(net).ntk,
        "conv": ntkit.infinite_width(conv).ntk,
        "sum": limit.ntk + 0.5 * limit.nngp,
        "scaled": limit.ntk + 0.6 * limit.nngp,
        "normalized": limit.ntk.normalized(),
        "product": limit.ntk * limit.nngp,
        "ntk": limit.ntk,
        "nngp": limit.nngp,
    }


def test_kernels_of_a_library() -> None:
    shapes = {"conv": (1, 4, 4)}
    marks = {name: kernel_fingerprint(kernel, shapes.get(name, (3,))) for name, kernel in _kernels().items()}
    assert marks == {name: kernel_fingerprint(kernel, shapes.get(name, (3,))) for name, kernel in _kernels().items()}
    assert len({str(mark) for mark in marks.values()}) == len(marks)


def test_the_data_that_a_network_reads_through_a_prefix_counts() -> None:
    class Standardised(nn.Module):
        def __init__(self, mean: float) -> None:
            super().__init__()
            self.register_buffer("mean", torch.full((3,), mean))
            self.net = mlp(3, 8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.net((x - self.mean) * 2)

    marks = [str(kernel_fingerprint(ntkit.infinite_width(Standardised(mean)).ntk, (3,))) for mean in (0.0, 1.0, 0.0)]
    assert marks[0] != marks[1] and marks[0] == marks[2]


def test_an_empirical_kernel_follows_its_parameters() -> None:
    net = mlp(3, 8, 1, activation=nn.Tanh)
    before = kernel_fingerprint(ntkit.empirical(net).ntk, (3,))
    assert before == kernel_fingerprint(ntkit.empirical(net).ntk, (3,))
    assert before != kernel_fingerprint(ntkit.empirical(net).nngp, (3,))
    with torch.no_grad():
        net[0].weight[0, 0] += 1
    assert before != kernel_fingerprint(ntkit.empirical(net).ntk, (3,))


def test_a_kernel_of_ones_own_says_it_itself(linear: Any) -> None:
    assert kernel_fingerprint(linear, (3,)) == kernel_fingerprint(type(linear)(), (3,))
    assert kernel_fingerprint(linear, (3,)) != kernel_fingerprint(type(linear)("other"), (3,))
    with pytest.raises(InputTypeError, match="string"):
        kernel_fingerprint(type(linear)(""), (3,))


@pytest.mark.slow
def test_another_process_gives_the_same() -> None:
    program = (
        "import torch, ntkit; from torch import nn; from ntkit._src.gram import kernel_fingerprint as f\n"
        "a = 2.0\n"
        "net = nn.Sequential(nn.Linear(3, 8), ntkit.Elementwise(lambda z: a * torch.tanh(z)), nn.Linear(8, 1))\n"
        "print(sorted(f(ntkit.infinite_width(net, w_std=1.1).ntk, (3,)).items()))\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout and len(runs[0].stdout) > 50
