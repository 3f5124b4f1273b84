"""Tiny networks for tests of the planner, and what their tapes do, as short text."""

import torch
from tests.cases import normal
from torch import nn

import ntkit
from ntkit._src.native import _core
from ntkit._src.native._network import PlannedNetwork
from ntkit._src.program import Pointwise


def network(net, *shape, **gains):
    return PlannedNetwork(ntkit.infinite_width(net, **gains).program(shape))


def of_type(network, kind):
    """The nodes whose operation is of one type."""
    return [index for index, node in enumerate(network.program.nodes) if isinstance(node.op, kind)]


def hard(x):
    """Equal, scaled, opposite, nearly equal and zero inputs among the others."""
    x[1], x[2], x[3], x[4], x[5] = x[0], 1.2 * x[0], -x[0], x[0] + 1e-3 * x[6], 0 * x[0]
    return x


def phi_of(layer):
    net = network(nn.Sequential(nn.Linear(3, 4), layer, nn.Linear(4, 1)), 3)
    return net.program.nodes[of_type(net, Pointwise)[0]].op.phi


def compare(limit, x, other=None, tolerance=1e-10):
    native, reference = (limit.both(x, other, engine=engine) for engine in ("native", "reference"))
    for a, b in zip(native, reference, strict=True):
        assert float((a - b).abs().max() / b.abs().max()) < tolerance
    return native


def steps(plan):
    """Each instruction as "kind offset read -> offset written"; offsets of one axis, from the last."""
    found = []
    for step in plan.tape.instructions:
        text = step.kind.name.lower()
        if step.in_slot != _core.NOTHING and step.kind != _core.Kind.SETTLE:
            text += f" {'K' if step.covariance_in else 'H'}{step.in_offset[2]}"
        if step.out_slot != _core.NOTHING and step.kind != _core.Kind.CLEAR:
            text += f" -> {'K' if step.covariance_out else 'H'}{step.out_offset[2]}"
        found.append(text)
    return found


def around(layers, head):
    """Layers between two convolutions with rectifiers, read by flatten or by the average over all positions."""
    pool = [nn.AdaptiveAvgPool2d(1)] if head == "average" else []
    net = [nn.LazyConv2d(4, 3, padding=1), nn.ReLU(), *layers, nn.LazyConv2d(4, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*net, *pool, nn.Flatten(), nn.LazyLinear(1)).double()


def smooth(n, channels, *sizes, seed=0):
    """Inputs as real ones are, with neighbours alike, between 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand((n, channels, *(-(-size // 3) for size in sizes)), generator=generator)
    return nn.functional.interpolate(coarse, size=sizes, mode=("linear", "bilinear", "trilinear")[len(sizes) - 1])


def engines_agree(net, shape, b_std):
    """Compare both engines on equal, opposite and nearly equal inputs, multiples of one another, and zero.

    In float64: NTK and NNGP, of one batch and of two, and the diagonal.
    """
    x, z = normal(8, *shape), normal(3, *shape, seed=1)
    net(x)  # gives lazy layers their sizes
    x[1], x[2], x[3], x[4], x[5] = x[0], 3 * x[0], -x[0], x[0] + 1e-3 * x[6], 0 * x[0]
    limit = ntkit.infinite_width(net, b_std=b_std)
    for other in (z, None):
        native, reference = (limit.both(x, other, engine=engine) for engine in ("native", "reference"))
        for a, b in zip(native, reference, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13 * b.abs().max().item())
    for kernel, gram in ((limit.ntk, native.ntk), (limit.nngp, native.nngp)):
        assert torch.equal(gram, gram.T)
        torch.testing.assert_close(kernel.diag(x), gram.diagonal(), rtol=1e-13, atol=0)
    # Without Theta other planes are read: H of a value with itself is then left out.
    torch.testing.assert_close(limit.nngp(x, engine="native"), native.nngp, rtol=1e-14, atol=0)


def single_precision_errors(net, shape, b_std):
    """Give the relative errors of float32 against float64 on the same numbers, of NTK and NNGP, shape (2, 8, 8)."""
    x = smooth(8, *shape)
    net(x.double())
    x[1], x[2], x[3] = x[0], x[0] * (1 + 1e-4), x[0] + 1e-3 * smooth(1, *shape, seed=1)[0]
    x[4], x[5] = 0.5 * x[0], 1.7 * x[3]
    limit = ntkit.infinite_width(net, b_std=b_std)
    single, double = (limit.both(z, engine="native") for z in (x, x.double()))
    assert single.ntk.dtype == torch.float32
    return torch.stack([(a.double() / b - 1).abs() for a, b in zip(single, double, strict=True)])


def engines_agree_around(layers, head, shape):
    """Compare both engines, and float32 with float64, on new layers between two convolutions with rectifiers."""
    engines_agree(around(layers(), head), shape, {"flatten": 0.3, "average": 0.0}[head])
    errors = single_precision_errors(around(layers(), head), shape, 0.2)
    assert errors.max() < 5e-6
    assert max(errors.diagonal(dim1=1, dim2=2).max(), errors[:, 0, 1].max()) < 1e-6
