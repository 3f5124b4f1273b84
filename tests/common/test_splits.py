"""Splits of data: every row once, every class its share, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest

from ntkit._src.common import data_splits
from ntkit.errors import InputError

CODES = np.array([0] * 30 + [1] * 12 + [2])


@pytest.mark.parametrize("codes", [None, CODES])
@pytest.mark.parametrize("held_out", [2, 5, 43, 60, 0.2, 0.5])
def test_each_row_is_fitted_or_held_out(held_out: float, codes: np.ndarray | None) -> None:
    parts = data_splits(43, held_out, 0, codes)
    assert len(parts) == (min(held_out, 43) if isinstance(held_out, int) else 1)
    for rows, rest in parts:
        assert sorted([*rows, *rest]) == list(range(43))
    if isinstance(held_out, int):
        assert sorted(np.concatenate([rest for _, rest in parts])) == list(range(43))
    else:
        assert len(parts[0][1]) == np.ceil(held_out * 43)


@pytest.mark.parametrize("held_out", [2, 5, 7, 0.2, 0.5])
def test_every_class_is_held_out_alike(held_out: float) -> None:
    share = 1 / held_out if isinstance(held_out, int) else held_out
    for _, rest in data_splits(43, held_out, 0, CODES):
        for code, size in ((0, 30), (1, 12)):
            assert abs(np.sum(CODES[rest] == code) - share * size) <= 1


def test_classes_too_small_to_share_out() -> None:
    assert len(data_splits(6, 4, 0, np.arange(6))) == 4  # only lone points
    assert len(data_splits(6, 4, 0, np.array([0, 0, 1, 1, 2, 2]))) == 4  # fewer of each class than folds
    ((rows, rest),) = data_splits(6, 0.2, 0, np.array([0, 0, 1, 1, 2, 2]))  # fewer held out than classes
    assert len(rows) == 4 and len(rest) == 2


def test_seeds_and_repeats() -> None:
    first, second = data_splits(100, 0.2, 3, repeats=2)
    assert not np.array_equal(first[1], second[1])
    np.testing.assert_array_equal(data_splits(100, 0.2, np.random.RandomState(3))[0][1], first[1])


@pytest.mark.parametrize(("n", "held_out"), [(1, 2), (1, 0.5), (10, 0.99)])
def test_nothing_left(n: int, held_out: float) -> None:
    with pytest.raises(InputError, match="at least two samples|no point on one side"):
        data_splits(n, held_out, 0)
