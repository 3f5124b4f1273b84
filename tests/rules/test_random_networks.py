"""Random convolutional networks against a dense oracle that shares no code with the rules.

The oracle holds the covariance of all positions of all inputs as one matrix. A convolution is the mean over its window of
M K M^T, where M is found by running PyTorch's own convolution with a one-hot kernel on every basis image; pooling likewise.
"""

import itertools
import math

import hypothesis.strategies as st
import torch
from hypothesis import HealthCheck, given, settings
from tests.cases import normal
from torch import nn

import ntkit
from ntkit._src.rules import gram
from ntkit._src.rules._engine import covariance, moments, read_data

CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
POOLS = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}


@st.composite
def networks(draw):
    """Draw a network and the shape of its input."""
    ndim = draw(st.sampled_from([1, 1, 2, 2, 3]))
    sizes = [draw(st.integers(1, {1: 7, 2: 4, 3: 2}[ndim])) for _ in range(ndim)]
    shape = [draw(st.integers(1, 3)), *sizes]
    layers: list[nn.Module] = []
    channels = shape[0]
    for _ in range(draw(st.integers(1, 3))):
        kernel = [draw(st.integers(1, 4)) for _ in sizes]
        dilation = [draw(st.integers(1, 2)) for _ in sizes]
        circular = draw(st.booleans())
        # Enough padding for the window to fit; a circular one may wrap around once.
        padding = [
            max(math.ceil((d * (k - 1) + 1 - size) / 2), draw(st.integers(0, min(2, size))))
            for k, d, size in zip(kernel, dilation, sizes, strict=True)
        ]
        circular &= all(pad <= size for pad, size in zip(padding, sizes, strict=True))
        stride = [draw(st.integers(1, 3)) for _ in sizes]
        conv = CONVS[ndim](
            channels, 4, kernel, stride, padding, dilation, bias=draw(st.booleans()),
            padding_mode="circular" if circular else "zeros",
        )  # fmt: skip
        conv.weight.requires_grad_(draw(st.booleans()))
        layers += [conv, draw(st.sampled_from([nn.ReLU(), nn.LeakyReLU(0.2), nn.Identity()]))]
        channels, sizes = 4, list(nn.Sequential(*layers)(torch.zeros(1, *shape)).shape[2:])
        if draw(st.booleans()):
            window = [draw(st.integers(1, size)) for size in sizes]
            pads = [draw(st.integers(0, w // 2)) for w in window]
            options = {"count_include_pad": draw(st.booleans()), "ceil_mode": draw(st.booleans())}
            layers.append(POOLS[ndim](window, [draw(st.integers(1, 2)) for _ in sizes], pads, **options))
            sizes = list(nn.Sequential(*layers)(torch.zeros(1, *shape)).shape[2:])
    if draw(st.booleans()):
        layers.append({1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}[ndim](1))
        sizes = [1] * ndim
    layers += [nn.Flatten(), nn.Linear(4 * math.prod(sizes), 1)]
    return nn.Sequential(*layers), shape


def position_matrix(layer, sizes):
    """Give the matrix of a layer that maps one channel's positions linearly."""
    basis = torch.eye(math.prod(sizes), dtype=torch.float64).reshape(-1, 1, *sizes)
    with torch.no_grad():
        out = layer(basis)
    return out.flatten(1).T.contiguous(), list(out.shape[2:])


def oracle(net, x, w_std, b_std):
    """Compute Theta and K of all inputs by dense matrices."""
    n, sizes = len(x), list(x.shape[2:])
    flat = x.flatten(2).transpose(1, 2).flatten(0, 1)
    k = flat @ flat.T / x.shape[1]
    theta = torch.zeros_like(k)
    for layer in net:
        if isinstance(layer, tuple(CONVS.values())):
            kernel = layer.kernel_size
            mean_k, mean_theta = 0.0, 0.0
            for offset in itertools.product(*map(range, kernel)):
                one_hot = type(layer)(
                    1,
                    1,
                    kernel,
                    layer.stride,
                    layer.padding,
                    layer.dilation,
                    bias=False,
                    padding_mode=layer.padding_mode,
                ).double()
                with torch.no_grad():
                    one_hot.weight.zero_()[(0, 0, *offset)] = 1
                matrix, out_sizes = position_matrix(one_hot, sizes)
                whole = torch.block_diag(*[matrix] * n)
                mean_k = mean_k + whole @ k @ whole.T / math.prod(kernel)
                mean_theta = mean_theta + whole @ theta @ whole.T / math.prod(kernel)
            sizes = out_sizes
            b = b_std**2 if layer.bias is not None else 0.0
            k, theta = w_std**2 * mean_k + b, w_std**2 * mean_theta
            theta = theta + (w_std**2 * mean_k if layer.weight.requires_grad else 0) + b
        elif isinstance(layer, (nn.ReLU, nn.LeakyReLU)):
            slope = getattr(layer, "negative_slope", 0.0)
            scale = torch.outer(k.diagonal(), k.diagonal()).sqrt()
            rho = torch.where(scale > 0, k / scale.clamp_min(1e-300), torch.ones(())).clamp(-1, 1)
            rho.fill_diagonal_(1.0)
            angle = rho.acos()
            relu = scale * ((1 - rho**2).clamp_min(0).sqrt() + rho * (math.pi - angle)) / (2 * math.pi)
            theta = theta * (slope + (1 - slope) ** 2 * (math.pi - angle) / (2 * math.pi))
            k = slope * k + (1 - slope) ** 2 * relu
        elif isinstance(layer, nn.Flatten):
            p = math.prod(sizes)
            pick = torch.eye(p, dtype=torch.float64) / p
            k, theta = (torch.einsum("ipjq,pq->ij", m.reshape(n, p, n, p), pick) for m in (k, theta))
        elif isinstance(layer, nn.Linear):
            k, theta = w_std**2 * k + b_std**2, w_std**2 * theta
            theta = theta + k
        elif not isinstance(layer, nn.Identity):
            matrix, sizes = position_matrix(layer, sizes)
            whole = torch.block_diag(*[matrix] * n)
            k, theta = (whole @ m @ whole.T for m in (k, theta))
    return theta, k


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(networks(), st.integers(0, 2**32 - 1))
def test_random_networks(case, seed):
    net, shape = case
    x = normal(3, *shape, seed=seed)
    limit = ntkit.infinite_width(net, w_std=1.2, b_std=0.3)
    ntk, nngp = limit.both(x)
    theta, k = oracle(net, x, 1.2, 0.3)
    torch.testing.assert_close(nngp, k, rtol=1e-10, atol=1e-12)
    # The oracle's correlations round near one, where the angle loses half of the digits.
    torch.testing.assert_close(ntk, theta, rtol=1e-6, atol=1e-8)

    assert torch.equal(ntk, ntk.T)
    torch.testing.assert_close(limit.ntk.diag(x), ntk.diagonal(), rtol=1e-10, atol=1e-12)
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(limit.ntk(x[order], x), ntk[order], rtol=1e-10, atol=1e-12)
    assert torch.linalg.eigvalsh(ntk).min() > -1e-10 * ntk.diagonal().max()

    program = limit.program(shape)
    first = moments(program, read_data(program, x), program.full_keeps)
    full = covariance(program, first, first, True, program.full_keeps)
    torch.testing.assert_close(nngp, full.nngp, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(ntk, full.ntk, rtol=1e-10, atol=1e-12)
    if limit.explain(shape).rows[0].engine == "native":
        for other in (None, x[:2]):
            native, reference = (limit.ntk(x, other, engine=engine) for engine in ("native", "reference"))
            torch.testing.assert_close(native, reference, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(
            limit.nngp(x, engine="native"), limit.nngp(x, engine="reference"), rtol=1e-12, atol=1e-14
        )
    small = gram(program, x, None, ntk=True, nngp=False, byte_budget=1)
    torch.testing.assert_close(small.ntk, ntk, rtol=1e-10, atol=1e-12)
