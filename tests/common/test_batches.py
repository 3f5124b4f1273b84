"""Inputs that no kernel can be computed of are refused with errors of this library."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import ntkit
from ntkit._src.common import check_batches, check_finite, check_tensor
from ntkit.errors import InputError, InputTypeError

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
    limit = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)))
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
