"""The losses against torch's own, their gradients, bounds on their curvature, and their targets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.cases import normal
from torch import Tensor
from torch.nn import functional as F

from ntkit._src.common import read_targets
from ntkit.errors import InputError, InputTypeError
from ntkit.extending import find_loss, read_output_targets

OUTPUTS, CLASSES = normal(6, 3), torch.arange(6) % 3
CASES: dict[str, tuple[Tensor, Any]] = {
    "mse": (normal(6, 3, seed=1), lambda f, y: F.mse_loss(f, y, reduction="sum") / 2),
    "cross_entropy": (
        F.one_hot(CLASSES).double(),
        lambda f, y: F.cross_entropy(f, CLASSES, reduction="sum"),
    ),
    "binary_cross_entropy": (
        torch.rand(6, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64),
        lambda f, y: F.binary_cross_entropy_with_logits(f, y, reduction="sum"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_slopes_and_curvatures(name: str) -> None:
    y, expected = CASES[name]
    loss = find_loss(name)
    f = OUTPUTS.clone().requires_grad_()
    torch.testing.assert_close(loss.value(f, y), expected(f, y))
    (slope,) = torch.autograd.grad(expected(f, y), f)
    torch.testing.assert_close(loss.slope(f.detach(), y), slope)
    hessian = torch.func.hessian(lambda flat: expected(flat.view(6, 3), y))(OUTPUTS.flatten())
    assert loss.curvature is not None
    assert torch.linalg.eigvalsh(hessian)[-1] <= loss.curvature * (1 + 1e-12)


def test_own_loss_is_differentiated_by_torch() -> None:
    loss = find_loss(lambda f, y: ((f - y) ** 4).sum())
    y = CASES["mse"][0]
    torch.testing.assert_close(loss.slope(OUTPUTS, y), 4 * (OUTPUTS - y) ** 3)
    assert loss.curvature is None and not loss.closed_form
    with pytest.raises(InputTypeError, match="one element"):
        find_loss(lambda f, y: f - y).slope(OUTPUTS, y)


def test_classes_become_one_hot_rows_either_way() -> None:
    loss, gram = find_loss("cross_entropy"), torch.eye(6, dtype=torch.float64)
    assert torch.equal(read_targets(loss, CLASSES, gram), CASES["cross_entropy"][0])
    assert torch.equal(read_output_targets(loss, CLASSES, OUTPUTS), CASES["cross_entropy"][0])
    wide = read_output_targets(loss, CLASSES, normal(6, 5))
    assert wide.shape == (6, 5) and torch.equal(wide[:, :3], CASES["cross_entropy"][0])
    own = find_loss(lambda f, y: f.sum())
    assert read_output_targets(own, CLASSES, OUTPUTS) is CLASSES


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: find_loss("hinge"), InputError, "'cross_entropy'"),
        (lambda: find_loss(3), InputTypeError, "type int"),  # type: ignore[arg-type]
        (
            lambda: read_output_targets(find_loss("mse"), OUTPUTS[:3], OUTPUTS),
            InputError,
            "one target for each of the 6",
        ),
        (lambda: read_output_targets(find_loss("mse"), OUTPUTS[:, 0], OUTPUTS[:, :1]), InputError, r"y\[:, None\]"),
        (lambda: read_output_targets(find_loss("mse"), None, OUTPUTS), InputTypeError, "Got None"),  # type: ignore[arg-type]
        (lambda: read_output_targets(find_loss("cross_entropy"), OUTPUTS, OUTPUTS), InputError, "between 0 and 1"),
        (
            lambda: read_output_targets(find_loss("cross_entropy"), 0 * OUTPUTS + 0.5, OUTPUTS),
            InputError,
            "add up to one",
        ),
        (lambda: read_targets(find_loss("mse"), OUTPUTS * torch.inf, torch.eye(6).double()), InputError, "finite"),
        (
            lambda: read_targets(find_loss("cross_entropy"), -CLASSES, torch.eye(6).double()),
            InputTypeError,
            "from 0 on",
        ),
    ],
)
def test_bad_targets_are_explained(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
