"""Inputs that no kernel can be computed of are refused with errors of this library."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.cases import mlp

import ntkit
from ntkit._src.common import check_finite, check_labels, check_tensor, class_numbers
from ntkit.errors import InputError, InputTypeError
from ntkit.extending import check_batches

X = torch.ones(4, 3, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: None, "Got None"),
        (lambda: X.numpy(), "torch.as_tensor"),
        (lambda: X.to("meta"), "device meta"),
        (lambda: X.to_sparse(), "to_dense"),
        (lambda: torch.quantize_per_tensor(X.float(), 0.1, 0, torch.qint8), "dequantize"),
        (lambda: X.to(torch.complex128), "view_as_real"),
        (lambda: X.long(), "double"),
        (lambda: X.half(), "half precision"),
    ],
)
def test_what_holds_no_real_values(make: Any, message: str) -> None:
    limit = ntkit.infinite_width(mlp(3, 8, 1))
    for call in (lambda x: check_batches(x, None), limit.ntk, limit.nngp.diag, limit.both):
        with pytest.raises(InputTypeError, match=message):
            call(make())


def test_pairs_and_values() -> None:
    check_batches(X, X)
    check_tensor("x", X)
    for other, error in ((X.float(), InputTypeError), (X[:, :2], InputError), (X[:0], InputError), (X[0], InputError)):
        with pytest.raises(error):
            check_batches(X, other)
    bad = X.clone()
    bad[2, 1] = torch.nan
    with pytest.raises(InputError, match="1 of 4 rows, the first in row 2"):
        check_finite("x", bad)


CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "y", [torch.tensor([3, 1, 3]), torch.tensor([0.5, -1.0, 2.0]), torch.tensor([True, False, True])]
)
def test_labels_are_any_numbers(y: torch.Tensor) -> None:
    check_labels("y", y, 3, CPU)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        ([0, 1, 0], InputTypeError, "y must be"),
        (torch.zeros(3, dtype=torch.complex64), InputTypeError, "real numbers"),
        (torch.zeros(2), InputError, r"shape \(3,\).*Got shape \(2,\)\.$"),
        (torch.zeros(3, 1), InputError, r"Write y\[:, 0\]"),
        (torch.zeros(3, 4), InputError, r"Write y\.argmax\(1\)"),
        (torch.zeros(2, 3), InputError, r"Got shape \(2, 3\)\.$"),
        (torch.tensor([0.0, float("nan"), float("inf")]), InputError, "in 2 rows"),
    ],
)
def test_what_is_refused(y: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_labels("y", y, 3, CPU)  # type: ignore[arg-type]


def test_another_device() -> None:
    with pytest.raises(InputTypeError, match=r"on meta.*Got cpu"):
        check_labels("y", torch.zeros(3), 3, torch.device("meta"))


def test_numbers_are_shared_by_both_vectors() -> None:
    one, two, count = class_numbers(torch.tensor([7, -2, 7]), torch.tensor([0.5, 7.0]))
    assert (one.tolist(), two.tolist(), count) == ([2, 0, 2], [1, 2], 3)
    one, two, count = class_numbers(torch.tensor([7, -2, 7]))
    assert (one.tolist(), two.tolist(), count) == ([1, 0, 1], [1, 0, 1], 2)
