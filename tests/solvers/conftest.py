from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tests.cases import mlp
from torch import Tensor

import ntkit
from ntkit._src.gram import DenseGram, GramOperator, KernelGram


@dataclass(frozen=True)
class Case:
    """A kernel on some points, its dense Gram matrix in float64 and targets of three columns."""

    kernel: ntkit.Kernel
    x: Tensor
    dense: Tensor
    y: Tensor

    def exact(self, ridge: float) -> Tensor:
        """Solve the dense system in float64."""
        n = len(self.dense)
        return torch.linalg.solve(
            self.dense + ridge * self.dense.trace() / n * torch.eye(n, dtype=torch.float64), self.y
        )

    def operator(self, kind: str, folder: Path, tile: int = 37) -> GramOperator:
        """Give the matrix as a tensor's, a stored or a computed operator."""
        if kind == "dense":
            return DenseGram(self.dense)
        if kind == "stored":
            return ntkit.gram(self.kernel, self.x, out=folder / "k.npy", tile=tile)
        return KernelGram(self.kernel, self.x, tile=tile)


def make_case(n: int = 150, features: int = 3, seed: int = 0) -> Case:
    generator = torch.Generator().manual_seed(seed)
    net = mlp(features, 8, 8, 1)
    kernel = ntkit.infinite_width(net, b_std=0.3).ntk
    x = torch.randn(n, features, generator=generator, dtype=torch.float64)
    y = torch.stack(
        [torch.sin(2 * x[:, 0]), x[:, 1] * x[:, 2], torch.randn(n, generator=generator, dtype=torch.float64)], 1
    )
    return Case(kernel, x, kernel(x), y)


@pytest.fixture(scope="session")
def case() -> Case:
    return make_case()


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing matters when the power fails, and is slow on a busy disk."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
