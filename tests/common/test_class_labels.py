from __future__ import annotations

import pytest
import torch

from ntkit._src.common import check_labels, class_numbers
from ntkit.errors import InputError, InputTypeError

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
