from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

import ntkit


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing matters when the power fails, and is slow on a busy disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Linear(ntkit.Kernel):
    """x . x', counting its calls."""

    def __init__(self, name: str = "linear") -> None:
        self.name, self.calls = name, 0

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        self.calls += 1
        return x1 @ (x1 if x2 is None else x2).T

    def diag(self, x: Tensor) -> Tensor:
        return (x * x).sum(1)

    def fingerprint(self) -> str:
        return self.name


@pytest.fixture
def linear() -> Linear:
    return Linear()


@pytest.fixture
def x() -> Tensor:
    """Whole numbers, whose products are exact: tiles of a product have the bits of the product."""
    return torch.randint(-9, 10, (23, 3), generator=torch.Generator().manual_seed(0)).double()
