"""Which planes each plane is computed from, operation by operation, on networks small enough to list them all."""

import pytest
import torch
from tests.cases import Function, mlp
from tests.native.networks import network, of_type
from torch import nn

from ntkit._src.native._demand import Demand
from ntkit._src.native._plane import Plane
from ntkit._src.native.families._combine import ContractFamily
from ntkit._src.program import AvgPool, Contract, Conv, Dense, Input, Normalize, Pointwise, Reindex, Sum


def head(features):
    return nn.Flatten(), nn.Linear(features, 1)


def reads(demand, node, *offset, covariance=False):
    """The offsets that a plane is computed from, with the ordinary offset that each is read at."""
    return [
        (part.offset, [(read.plane and read.plane.offset, read.offset) for read in part.reads])
        for part in demand.parts(Plane(node, offset, covariance))
    ]


def single(demand, node, *offset, covariance=False):
    """The offset of the only plane that a plane is computed from."""
    ((at, [(plane, _)]),) = reads(demand, node, *offset, covariance=covariance)
    assert at == offset
    return plane


def test_strides_multiply_offsets_and_dilation_does_not():
    net = network(nn.Sequential(nn.Conv1d(1, 4, 3, stride=3, dilation=2), nn.ReLU(), *head(20)), 1, 17)
    demand = Demand(net, ntk=True, alone=False)
    (relu,) = of_type(net, Pointwise)
    assert [single(demand, relu, d) for d in (-4, -1, 0, 2)] == [(-12,), (-3,), (0,), (6,)]


def test_each_axis_has_its_own_stride():
    net = network(nn.Sequential(nn.Conv2d(1, 4, 1, stride=(2, 3)), nn.ReLU(), *head(96)), 1, 8, 16)
    (relu,) = of_type(net, Pointwise)
    assert single(Demand(net, True, False), relu, 1, -2) == (2, -6)


def test_planes_beyond_the_input_are_not_read():
    """Padding makes the output longer than the input: windows that far apart share no position."""
    net = network(nn.Sequential(nn.Conv1d(1, 4, 3, padding=2), nn.ReLU(), *head(16)), 1, 2)
    demand = Demand(net, True, False)
    (relu,) = of_type(net, Pointwise)
    assert [single(demand, relu, d) for d in (-3, -2, -1, 0, 1, 2, 3)] == [None, None, (-1,), (0,), (1,), None, None]


def test_pools_read_every_offset_between_two_windows():
    net = network(nn.Sequential(nn.Conv1d(1, 4, 1), nn.AvgPool1d(3, 2), nn.ReLU(), *head(12)), 1, 8)
    demand = Demand(net, True, False)
    (pool,) = of_type(net, AvgPool)
    assert reads(demand, pool, 0) == [((0,), [((e,), (e,)) for e in (-2, -1, 0, 1, 2)])]
    assert reads(demand, pool, 1) == [((1,), [((e,), (e,)) for e in (0, 1, 2, 3, 4)])]
    assert reads(demand, pool, -2) == [((-2,), [((e,), (e,)) for e in (-6, -5, -4, -3, -2)])]
    assert all(not read.plane.covariance for read in demand.parts(Plane(pool, (1,), False))[0].reads)


def test_a_pool_moves_along_its_own_axis_only():
    net = network(nn.Sequential(nn.Conv2d(1, 4, 1), nn.AvgPool2d((1, 2)), nn.ReLU(), *head(36)), 1, 3, 6)
    demand = Demand(net, True, False)
    pool = of_type(net, AvgPool)[-1]
    assert [at for _, at in reads(demand, pool, 1, 1)[0][1]] == [(1, 1), (1, 2), (1, 3)]


def test_flatten_reads_equal_positions():
    net = network(nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), *head(36)), 1, 3, 3)
    (flatten,) = of_type(net, Contract)
    assert single(Demand(net, True, False), flatten, covariance=True) == (0, 0)
    # Where axes remain, the offsets along them do.
    assert list(ContractFamily().sources(Contract((0, 2)), (2,), (3, 5, 4))) == [(0, 2, 0)]
    assert list(ContractFamily().sources(Contract((1,)), (2, -1), (3, 5, 4))) == [(2, 0, -1)]


def test_slices_multiply_offsets_by_their_step():
    net = network(
        nn.Sequential(nn.Conv1d(1, 4, 1), Function(lambda x: x[:, :, 1::3]), nn.Conv1d(4, 4, 1), nn.ReLU(), *head(12)), 1, 8
    )  # fmt: skip
    demand = Demand(net, True, False)
    (slices,) = of_type(net, Reindex)
    assert [single(demand, slices, d) for d in (-2, -1, 0, 1)] == [(-6,), (-3,), (0,), (3,)]


def test_sums_read_the_same_plane_of_every_input():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(4, 4, 3, padding=1)

        def forward(self, x):
            return x + self.conv(torch.relu(x))

    net = network(nn.Sequential(nn.Conv1d(1, 4, 1), Residual(), nn.ReLU(), *head(24)), 1, 6)
    demand = Demand(net, True, False)
    (total,) = of_type(net, Sum)
    (part,) = demand.parts(Plane(total, (2,), False))
    assert [(read.plane.node, read.plane.offset, read.which) for read in part.reads] == [
        (net.program.nodes[total].inputs[0], (2,), 0),
        (net.program.nodes[total].inputs[1], (2,), 1),
    ]


def test_circular_windows_read_offsets_modulo_the_length():
    circular = {"padding": 1, "padding_mode": "circular"}
    net = network(
        nn.Sequential(nn.Conv1d(1, 4, 3, **circular), nn.ReLU(), nn.Conv1d(4, 4, 3, stride=2, **circular), nn.ReLU(), *head(12)),
        1, 5,
    )  # fmt: skip
    demand = Demand(net, True, False)
    first, second = of_type(net, Pointwise)
    # A convolution that wraps around reads `first`: its planes stand for two ordinary offsets each.
    assert net.cyclic[first] == (True,) and net.cyclic[second] == (False,)
    assert reads(demand, second, 2) == [((2,), [((4,), (4,))])]
    assert reads(demand, second, -1) == [((-1,), [((3,), (3,))])]
    assert reads(demand, first, 2) == [((2,), [((2,), (2,))]), ((-3,), [((2,), (2,))])]
    assert reads(demand, first, 0) == [((0,), [((0,), (0,))])]


def test_of_one_input_alone():
    """The plane zero holds variances; H there is zero, and is read only for its Theta."""
    net = network(nn.Sequential(nn.Conv1d(1, 4, 1), nn.AvgPool1d(2), nn.ReLU(), *head(12)), 1, 6)
    (pool,), (conv,) = of_type(net, AvgPool), of_type(net, Conv)
    for ntk in (False, True):
        demand = Demand(net, ntk, alone=True)
        own = demand.variance_plane(pool)
        assert own == Plane(pool, (0,), True) and demand.holds_variances(own) and not demand.vanishes(own)
        # A pooled variance needs the variances, and H between the positions of a window.
        (part,) = demand.parts(own)
        assert part.reads[0].plane == Plane(conv, (-1,), False) and part.reads[2].plane == Plane(conv, (1,), False)
        assert part.reads[1].plane == Plane(conv, (0,), True)
        # Between windows that overlap by one position, H of a position with itself is zero.
        zero = Plane(conv, (0,), False)
        assert demand.vanishes(zero) and not demand.holds_variances(zero)
        assert demand.parts(zero) == [((0,), [(Plane(conv, (0,), True), (0,), 0)])]
    pairs = Demand(net, True, alone=False)
    assert not pairs.holds_variances(own) and not pairs.vanishes(zero)


def test_h_of_a_value_with_itself_is_read_for_theta_only():
    net = network(nn.Sequential(nn.Conv1d(1, 4, 1), nn.AvgPool1d(3, 1), nn.ReLU(), *head(16)), 1, 6)
    (pool,) = of_type(net, AvgPool)
    for ntk in (False, True):
        (part,) = Demand(net, ntk, alone=True).parts(Plane(pool, (1,), False))
        at = {read.offset: read.plane for read in part.reads}
        assert (at[(0,)] is not None) == ntk
        assert all(at[(e,)] is not None for e in (-1, 1, 2, 3))


def test_k_is_made_of_h_where_only_linear_operations_follow():
    net = network(mlp(3, 4, 1), 3)
    demand = Demand(net, True, False)
    (relu,) = of_type(net, Pointwise)
    first, last = of_type(net, Dense)
    assert net.linear_after[relu] and net.linear_after[last] and not net.linear_after[first]
    assert not demand.converts(Plane(relu, (), True))  # the activation writes K itself
    h = Plane(first, (), True)
    assert demand.converts(h) and demand.parts(h) == [((), [(Plane(first, (), False), (), 0)])]


def test_normalisations_read_one_plane_though_they_have_two_inputs():
    net = network(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 1)), 3)
    (norm,) = of_type(net, Normalize)
    assert len(net.program.nodes[norm].inputs) == 2
    (part,) = Demand(net, True, False).parts(Plane(norm, (), False))
    assert len(part.reads) == 1


def test_planes_read_by_a_pool_that_computes_them_again_are_told_apart():
    net = network(nn.Sequential(nn.Conv1d(1, 4, 1), nn.AvgPool1d(2), nn.ReLU(), *head(12)), 1, 6)
    (pool,) = of_type(net, AvgPool)
    demand = Demand(net, True, False, {pool: 0})
    copies = [{read.copy for read in demand.parts(Plane(pool, (d,), False))[0].planes} for d in (0, 1)]
    assert copies == [{(0,)}, {(1,)}]
    kept = Demand(net, True, False)
    assert {read.copy for read in kept.parts(Plane(pool, (1,), False))[0].planes} == {()}


@pytest.mark.parametrize("ntk", [False, True])
def test_every_plane_is_counted_as_often_as_it_is_read(ntk):
    net = network(nn.Sequential(nn.Conv1d(1, 4, 1), nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(1), *head(4)), 1, 4)
    demand = Demand(net, ntk, False)
    output = Plane(net.program.output, (), True)
    uses = demand.uses([output])
    again = {output: 1}
    for plane in list(uses):
        for part in demand.parts(plane):
            for read in part.planes:
                again[read] = again.get(read, 0) + 1
    assert uses == again
    (data,) = of_type(net, Input)
    # The mean of two windows of two reads the offsets -1, 0, 1, and these the offsets -3 to 3 of the convolution.
    conv = of_type(net, Conv)[0]
    assert {plane.offset: count for plane, count in uses.items() if plane.node == conv} == {
        (-3,): 1, (-2,): 1, (-1,): 2, (0,): 1, (1,): 2, (2,): 1, (3,): 1,
    }  # fmt: skip
    assert {plane.offset[0] for plane in uses if plane.node == data} == set(range(-3, 4))
