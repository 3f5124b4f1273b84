"""The instructions of tiny networks, one by one."""

import pytest
import torch
from tests.cases import NETWORKS, mlp
from tests.native.networks import network, steps
from torch import nn

from ntkit._src.native._core import Fill, Kind, Layer, Pool, Reduce
from ntkit._src.native._emitter import POSITION_BYTES
from ntkit._src.native._tapes import tape_alone, tape_between


def operation(plan, step):
    return plan.tape.operations[step.operation]


def find(plan, kind):
    return [step for step in plan.tape.instructions if step.kind == kind]


CONV = NETWORKS["conv1d, flatten"].build()


def test_a_convolution_and_flatten():
    plan = tape_between(network(CONV, 2, 5), ntk=True)
    assert steps(plan) == [
        "clear",
        "input -> H0",
        "layer H0 -> K0",
        "reduce K0 -> K0",
        "settle -> K0",
        "layer K0 -> K0",
        "output K0",
    ]
    _, read, conv, reduce, _, dense, output = plan.tape.instructions
    assert read.chained and conv.chained and not reduce.chained and not dense.chained  # the sum goes to an accumulator
    assert (conv.theta_in, conv.theta_out) == (False, True) and (dense.theta_in, dense.theta_out) == (True, True)
    assert output.theta_in
    assert operation(plan, conv).activation is not None and operation(plan, dense).activation is None
    assert plan.planes == 4 and plan.kept_bytes == sum(plan.tape.slots) * POSITION_BYTES
    assert (
        plan.batch == 1
        and plan.data_size == 10
        and plan.row_numbers == 10 + plan.cache_size == 10 + plan.tape.cache_size
    )


def test_without_theta_no_instruction_has_one():
    plan = tape_between(network(CONV, 2, 5), ntk=False)
    assert not any(step.theta_in or step.theta_out for step in plan.tape.instructions)


def test_the_cache_of_a_convolution():
    plan = tape_alone(network(CONV, 2, 5), ntk=True, output=False)
    assert steps(plan) == ["input -> K0", "store K0", "layer K0 -> K0", "store K0"]
    half, deviation = (operation(plan, step) for step in find(plan, Kind.STORE))
    assert (half.what.name, half.target_at, half.factor) == ("HALF", 1, 1.0)
    # The deviations of a fused layer are divided by the root of its weight, 2 / 3.
    assert (deviation.what.name, deviation.target_at) == ("DEVIATION", 6) and deviation.factor == pytest.approx(1.5)
    assert all(step.cache_only for step in plan.tape.instructions)
    assert not any(step.theta_in or step.theta_out for step in plan.tape.instructions)  # without output, no Theta


def test_the_kernels_of_an_input_with_itself():
    plan = tape_alone(network(CONV, 2, 5), ntk=True, output=True)
    assert steps(plan)[4:] == [
        "clear",
        "rectified K0 -> K0",
        "reduce K0 -> K0",
        "settle -> K0",
        "layer K0 -> K0",
        "output K0",
    ]
    assert find(plan, Kind.RECTIFIED)[0].theta_in


def test_a_pool_before_an_activation():
    net = nn.Sequential(nn.Conv1d(1, 4, 1), nn.AvgPool1d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
    plan = tape_between(network(net, 1, 4), ntk=True)
    assert steps(plan) == [
        "clear",
        "fill -> H0",
        "input -> H-1",
        "layer H-1 -> H-1",
        "pool H-1 -> H0",
        "input -> H0",
        "layer H0 -> H0",
        "pool H0 -> H0",
        "input -> H1",
        "layer H1 -> H1",
        "pool H1 -> H0",
        "pool_end -> H0",
        "rectified H0 -> K0",
        "reduce K0 -> K0",
        "settle -> K0",
        "layer K0 -> K0",
        "output K0",
    ]
    pool = operation(plan, find(plan, Kind.POOL)[0])
    assert isinstance(pool, Pool) and (pool.axis, pool.kernel, pool.stride, pool.wide) == (2, 2, 2, False)
    assert pool.weights == [0.5, 0.5] and pool.totals == [1.0, 1.0] and pool.inside_at > 0 and pool.mean_at == -1
    assert operation(plan, find(plan, Kind.LAYER)[0]).half_out_at > 0  # Theta gets K, the plane holds H


def test_the_variance_of_a_pool():
    """N B - A: the sums between positions, A, then the mean of the variances, B."""
    net = nn.Sequential(nn.Conv1d(1, 4, 1), nn.AvgPool1d(3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
    plan = tape_alone(network(net, 1, 4), ntk=False, output=False)
    listed = steps(plan)
    begin = listed.index("fill -> H0")
    assert listed[begin:] == [
        "fill -> H0",
        "input -> H-2",
        "layer H-2 -> H-2",
        "pool H-2 -> H0",
        "input -> H-1",
        "layer H-1 -> H-1",
        "pool H-1 -> H0",
        "input -> H1",
        "layer H1 -> H1",
        "pool H1 -> H0",
        "input -> H2",
        "layer H2 -> H2",
        "pool H2 -> H0",
        "store H0",
        "variance_pool K0 -> K0",
        "store K0",
        "variance_pool_end K0 -> K0",
        "store K0",
    ]
    inside, mean, deviation = find(plan, Kind.STORE)[-3:]
    assert [operation(plan, s).what.name for s in (inside, mean, deviation)] == ["INSIDE", "MEAN", "DEVIATION"]
    assert [s.cache_only for s in (inside, mean, deviation)] == [False, True, True]
    sums = [step for step in plan.tape.instructions if step.kind in (Kind.POOL, Kind.FILL)]
    assert not any(step.cache_only for step in sums)  # those run again in single precision
    end = find(plan, Kind.VARIANCE_POOL_END)[0]
    assert end.cache_only and end.out_slot == sums[0].out_slot == inside.in_slot and end.in_slot == mean.in_slot


def test_long_sums_are_taken_in_double_precision():
    net = nn.Sequential(nn.Conv1d(1, 4, 1), nn.AvgPool1d(5), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1))
    for kernel, wide in ((4, False), (5, True)):
        net[1] = nn.AvgPool1d(kernel)
        plan = tape_between(network(net, 1, 5), ntk=True)
        pools = find(plan, Kind.POOL)
        assert operation(plan, pools[0]).wide == wide and len(pools) == 2 * kernel - 1
        # Flatten has one accumulator, a wide pool another.
        assert plan.tape.accumulators == (2 if wide else 1)
        assert steps(plan)[:2] == ["clear", "clear" if wide else "fill -> H0"]
        assert len(find(plan, Kind.SETTLE)) == (2 if wide else 1)


def test_a_sum_adds_squares_of_its_coefficients():
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 4), nn.Linear(3, 4)

        def forward(self, x):
            return 2 * self.one(x) - 3 * self.two(x)

    plan = tape_between(network(nn.Sequential(Weighted(), nn.ReLU(), nn.Linear(4, 1)), 3), ntk=True)
    assert sorted(step.factor for step in find(plan, Kind.COMBINE) if step.factor != 1.0) == [4.0, 9.0]


def test_a_concatenation_adds_shares_of_the_width():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 1), nn.Linear(3, 3)

        def forward(self, x):
            return torch.cat([self.one(x), self.two(x)], 1)

    plan = tape_between(network(nn.Sequential(Both(), nn.ReLU(), nn.Linear(4, 1)), 3), ntk=True)
    assert [step.factor for step in find(plan, Kind.COMBINE)] == [0.25, 0.75]
    assert plan.batch == 32 and plan.tape.slots == [32] * len(plan.tape.slots)


def test_a_constant_is_squared():
    class Shifted(nn.Module):
        def forward(self, x):
            return x - 1.5

    net = nn.Sequential(nn.Linear(3, 4), Shifted(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    plan = tape_between(network(net, 3), ntk=True)
    assert sorted(op.square for op in plan.tape.operations if isinstance(op, Fill)) == [0.0, 2.25]


def test_layers_carry_gains_windows_and_strides():
    net = nn.Sequential(nn.Conv2d(2, 4, (3, 1), (2, 1), (1, 0), (1, 1)), nn.ReLU(), nn.Flatten(), nn.Linear(40, 1))
    plan = tape_between(network(net, 2, 4, 5, w_std=3.0, b_std=0.5), ntk=True)
    conv, dense = (operation(plan, step) for step in find(plan, Kind.LAYER))
    assert isinstance(conv, Layer)
    assert (conv.kernel, conv.stride, conv.padding) == ([1, 3, 1], [1, 2, 1], [0, 1, 0])
    assert (conv.in_size, conv.out_size) == ([1, 4, 5], [1, 2, 5])
    assert (conv.weight, conv.bias, conv.weight_rate, conv.bias_rate) == (3.0, 0.25, 1.0, 0.25)
    assert (dense.weight, dense.bias, dense.weight_rate, dense.bias_rate) == (9.0, 0.25, 1.0, 0.25)
    reduce = operation(plan, find(plan, Kind.REDUCE)[0])
    assert isinstance(reduce, Reduce) and reduce.factor == 0.1 and reduce.out_stride == [0, 0, 0]


def test_frozen_weights_add_nothing():
    net = mlp(3, 4, 1)
    net[0].weight.requires_grad_(False)
    plan = tape_between(network(net, 3, b_std=0.5), ntk=True)
    first, last = (operation(plan, step) for step in find(plan, Kind.LAYER))
    assert (first.weight_rate, first.bias_rate) == (0.0, 0.25) and last.weight_rate == 1.0


def test_a_plane_beyond_the_input_reads_nothing():
    net = nn.Sequential(
        nn.Conv1d(1, 4, 3, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 1)
    )
    plan = tape_between(network(net, 1, 2), ntk=True)
    empty = [step.out_offset[2] for step in find(plan, Kind.LAYER) if step.in_slot == -1]
    assert empty == [-3, -2, 2, 3]


def test_slots_are_used_again():
    deep = [layer for _ in range(8) for layer in (nn.Conv1d(4, 4, 3, padding=1), nn.ReLU())]
    plan = tape_between(network(nn.Sequential(*deep, nn.Flatten(), nn.Linear(40, 1)), 4, 10), ntk=True)
    assert plan.tape.slots == [10, 10, 1, 1]
    written = [step.out_slot for step in find(plan, Kind.LAYER)[:-1]]
    assert written == [1, 0, 1, 0, 1, 0, 1, 0]


def test_affine_parameters_of_a_normalisation_count_at_equal_positions_only():
    net = nn.Sequential(
        nn.Conv1d(1, 4, 1), nn.LayerNorm((4, 3)), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 1)
    )
    plan = tape_between(network(net, 1, 3), ntk=True)
    factors = {step.out_offset[2]: step.factor for step in find(plan, Kind.NORMALIZE)}
    assert factors == {-2: 0.0, -1: 0.0, 0: 1.0, 1: 0.0, 2: 0.0}
    assert {step.out_offset[2]: step.factor for step in find(plan, Kind.RECTIFIED)} == factors
    # The activation adds the term of the gain, the normalisation that of the shift.
    norm = operation(plan, find(plan, Kind.NORMALIZE)[0])
    assert (norm.weight_rate, norm.bias_rate) == (0.0, 1.0)
    assert operation(plan, find(plan, Kind.RECTIFIED)[0]).activation.trained_gain == 1.0
