from tests.native.networks import network, of_type
from torch import nn

from ntkit._src.native.families import kept_positions, shared_pools
from ntkit._src.native.families._pool import window_weights
from ntkit._src.program import AvgPool


def test_weights_of_windows():
    plain = AvgPool(0, kernel=2, stride=2, padding=0, size=3)
    assert window_weights(plain, 6) == ([0.5] * 3, [1.0] * 3)
    padded = AvgPool(0, kernel=4, stride=2, padding=1, size=3)
    assert window_weights(padded, 6) == ([0.25] * 3, [0.75, 1.0, 0.75])
    counted = AvgPool(0, kernel=4, stride=2, padding=1, size=3, count_include_pad=False)
    assert window_weights(counted, 6)[1] == [1.0] * 3


def net(*pools):
    return nn.Sequential(
        nn.Conv2d(1, 4, 1),
        *pools,
        nn.Conv2d(4, 4, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 1),
    )


def test_which_pools_share_planes_between_offsets():
    """Windows side by side do; overlapping ones share each plane among many, and one window has one offset."""
    side_by_side = network(net(nn.AvgPool2d(2)), 1, 6, 8)
    first, second, *rest = of_type(side_by_side, AvgPool)
    assert shared_pools(side_by_side) == {first: 0, second: 1} and len(rest) == 2
    assert shared_pools(network(net(nn.AvgPool2d(3, 2)), 1, 6, 8)) == {}
    apart = network(net(nn.AvgPool2d(2, 3)), 1, 8, 8)
    assert len(shared_pools(apart)) == 2


def test_what_a_pool_keeps():
    found = network(net(nn.AvgPool2d(2)), 1, 6, 8)
    first, second = shared_pools(found)
    # Of kernel 2 and stride 2, one plane of 6 x 8 stays; behind the first pool, one of 3 x 8 for each of 5 offsets.
    assert kept_positions(found, first) == 1 * 6 * 8
    assert kept_positions(found, second) == 1 * 5 * 3 * 8
    wide = network(net(nn.AvgPool2d(3)), 1, 6, 9)
    assert kept_positions(wide, next(iter(shared_pools(wide)))) == 2 * 6 * 9
    apart = network(net(nn.AvgPool2d(1, 2)), 1, 6, 8)
    assert all(kept_positions(apart, pool) == 0 for pool in shared_pools(apart))
