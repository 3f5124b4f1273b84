from __future__ import annotations

import pytest
import torch

from ntkit._src.common import check_input_shape, fold_rows
from ntkit.errors import InputError, InputTypeError


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, None), ((3, 4), (3, 4)), ([2], (2,)), ((2.0, 5), (2, 5)), (torch.Size([1, 6]), (1, 6))],
)
def test_shapes(given: object, expected: tuple[int, ...] | None) -> None:
    assert check_input_shape(given) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [(2.5,), (True, 2), ("a",), 3, (None,), (2, float("nan"))])
def test_not_whole_numbers(given: object) -> None:
    with pytest.raises(InputTypeError, match="tuple of integers"):
        check_input_shape(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [(), (0,), (3, -1), (1, 0, 2)])
def test_not_positive(given: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="all positive"):
        check_input_shape(given)


def test_rows_fold_in_the_order_of_reshape() -> None:
    rows = torch.arange(24.0).reshape(2, 12)
    assert fold_rows(rows, None) is rows
    assert torch.equal(fold_rows(rows, (3, 2, 2))[1, 2], torch.tensor([[20.0, 21.0], [22.0, 23.0]]))
    with pytest.raises(InputError, match="rows of 10 features. Got 12"):
        fold_rows(rows, (5, 2))
