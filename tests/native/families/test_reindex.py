import pytest

from ntkit.native.families._reindex import start_and_step
from ntkit.program import Reindex


@pytest.mark.parametrize(
    ("index", "size", "expected"),
    [
        ((0, 1, 2), 3, (0, 1)),
        ((1, 2), 3, (1, 1)),
        ((1, 3, 5), 6, (1, 2)),
        ((2,), 5, (2, 1)),
        ((-1, -1, 0, 1, 2), 3, (-2, 1)),  # zeros before
        ((0, 1, 2, -1), 3, (0, 1)),  # zeros behind
        ((-1, 0, 1, -1), 2, (-1, 1)),
        ((-1, 0, 2, -1), 3, (-2, 2)),
        ((-1, 0, 2, -1), 4, (-2, 2)),
        ((0, 1, -1), 3, None),  # a zero where the input has a value
        ((-1, 1, 2), 3, None),
        ((-1, 2, 4), 5, None),
        ((2, 1, 0), 3, None),  # a flip
        ((0, 0, 1), 3, None),  # a position twice
        ((0, 2, 3), 4, None),  # two steps
        ((0, -1, 1), 2, None),  # a gap
        ((-1, -1), 3, None),  # nothing at all
    ],
)
def test_positions_in_order_have_a_start_and_a_step(index, size, expected):
    assert start_and_step(Reindex(0, index), size) == expected
    if expected is not None:
        start, step = expected
        places = [start + step * q for q in range(len(index))]
        assert [p if 0 <= p < size else -1 for p in places] == list(index)
