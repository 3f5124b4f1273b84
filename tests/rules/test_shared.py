"""Layers called more than once: against a recursion over pairs of steps written here, finite networks, and separate layers."""

import math
from functools import partial

import pytest
import torch
from tests.cases import normal
from torch import nn

import ntkit
from ntkit._src.program import Shared
from ntkit.errors import InputError, UnsupportedLayerError

W, B = 1.3, 0.4
limit = partial(ntkit.infinite_width, w_std=W, b_std=B)


class Loop(nn.Module):
    """h_t = phi(cell(x_t) + rec(h_{t-1})) in ``layers`` layers; the mean over time of the last layer is read out."""

    def __init__(self, phi, layers=1, width=16, last=False, leak=0.0):
        super().__init__()
        sizes = [3] + [width] * (layers - 1)
        self.cells = nn.ModuleList(nn.Linear(size, width) for size in sizes)
        self.recs = nn.ModuleList(nn.Linear(width, width) for _ in sizes)
        self.head = nn.Linear(width, 1)
        self.phi, self.last, self.leak = phi, last, leak

    def forward(self, x):
        states = [torch.zeros(len(x), self.head.in_features, dtype=x.dtype) for _ in self.cells]
        found = []
        for t in range(x.shape[1]):
            h = x[:, t]
            for i, (cell, rec) in enumerate(zip(self.cells, self.recs, strict=True)):
                h = self.phi(cell(h) + rec(states[i]))
                h = h if self.leak == 0 else (1 - self.leak) * h + self.leak * states[i]
                states[i] = h
            found.append(h)
        return self.head(h if self.last else torch.stack(found, 1).mean(1))


class Stacked(Loop):
    """The same layer by layer: each reads the stack of all states of the one before it in one call."""

    def forward(self, x):
        for cell, rec in zip(self.cells, self.recs, strict=True):
            given, found = cell(x), []
            state = torch.zeros(len(x), self.head.in_features, dtype=x.dtype)
            for t in range(x.shape[1]):
                state = self.phi(given[:, t] + rec(state))
                found.append(state)
            x = torch.stack(found, 1)
        return self.head(x[:, -1] if self.last else x.mean(1))


def relu_dual(k, q1, q2):
    """Arc-cosine kernels of degree one and zero (Cho and Saul 2009)."""
    size = (q1 * q2).sqrt()
    angle = torch.acos((k / size).clamp(-1, 1))
    return size * (torch.sin(angle) + (math.pi - angle) * torch.cos(angle)) / (2 * math.pi), (math.pi - angle) / (
        2 * math.pi
    )


def erf_dual(k, q1, q2):
    """Arc-sine kernel (Williams 1997) and its derivative."""
    size = (1 + 2 * q1) * (1 + 2 * q2)
    return 2 / math.pi * torch.asin(2 * k / size.sqrt()), 4 / math.pi / (size - 4 * k**2).sqrt()


def recursion(x, dual, layers=1, last=False, leak=0.0):
    """K and Theta of :class:`Loop` for all pairs of inputs, block by block of two steps, each (n, n)."""
    n, steps = x.shape[:2]
    zero = torch.zeros(n, n).to(x)
    k = {(t, s): x[:, t] @ x[:, s].T / 3 for t in range(steps) for s in range(steps)}
    theta = dict.fromkeys(k, zero)
    for _ in range(layers):
        weights = [[(1 - leak) * leak ** (t - r) if r <= t else 0.0 for r in range(steps)] for t in range(steps)]
        acted, slopes, state = {}, {}, {}
        for t in range(steps):
            pre = {}
            for s in range(t + 1):
                before = state.get((t - 1, s - 1), (zero, zero))
                both = [(W**2 * a + B**2, W**2 * a + B**2 + W**2 * b) for a, b in ((k[t, s], theta[t, s]), before)]
                pre[s] = tuple(sum(part) for part in zip(*both, strict=True))
            slopes[t] = pre[t][0].diagonal()
            for s in range(t + 1):
                value, slope = dual(pre[s][0], slopes[t][:, None], slopes[s][None])
                acted[t, s] = value, pre[s][1] * slope
                acted[s, t] = acted[t, s][0].T, acted[t, s][1].T
            for s in range(t + 1):
                found = [
                    sum(weights[t][r] * weights[s][u] * acted[r, u][i] for r in range(t + 1) for u in range(s + 1))
                    for i in (0, 1)
                ]
                state[t, s], state[s, t] = tuple(found), (found[0].T, found[1].T)
        k, theta = ({pair: value[i] for pair, value in state.items()} for i in (0, 1))
    if last:
        k, theta = k[steps - 1, steps - 1], theta[steps - 1, steps - 1]
    else:
        k, theta = (sum(blocks.values()) / steps**2 for blocks in (k, theta))
    return W**2 * k + B**2, W**2 * (k + theta) + B**2


CASES = {
    "relu, mean": (torch.relu, relu_dual, {}),
    "erf, last": (torch.erf, erf_dual, {"last": True}),
    "relu, two layers": (torch.relu, relu_dual, {"layers": 2}),
    "erf, two layers": (torch.erf, erf_dual, {"layers": 2}),
    "relu, two layers, last": (torch.relu, relu_dual, {"layers": 2, "last": True}),
    "erf, leaky": (torch.erf, erf_dual, {"leak": 0.3}),
}


@pytest.mark.parametrize(
    ("case", "build"), [(case, Loop) for case in CASES] + [(case, Stacked) for case in list(CASES)[:5]]
)
def test_against_a_recursion(case, build):
    phi, dual, form = CASES[case]
    x = normal(4, 3, 3)
    nngp, ntk = recursion(x, dual, **form)
    found = limit(build(phi, **form)).both(x[:2], x)
    torch.testing.assert_close(found.nngp, nngp[:2], rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found.ntk[:, 2:], ntk[:2, 2:], rtol=1e-12, atol=1e-13)
    # At equal inputs the angle of the test's own recursion has lost half of its digits.
    torch.testing.assert_close(found.ntk, ntk[:2], rtol=1e-7 if dual is relu_dual else 1e-12, atol=1e-13)


class Twice(nn.Module):
    """A layer applied again and again in depth, with or without skip connections."""

    def __init__(self, skips, width=16):
        super().__init__()
        self.first, self.again, self.head = nn.Linear(3, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.skips = skips

    def forward(self, x):
        h = self.first(x)
        for _ in range(3):
            f = self.again(torch.relu(h))
            h = h + f if self.skips else f
        return self.head(torch.relu(h))


class Convolutions(nn.Module):
    """A convolution applied twice, both results added and pooled."""

    def __init__(self, width=16):
        super().__init__()
        self.first, self.again, self.head = (
            nn.Conv1d(2, width, 1),
            nn.Conv1d(width, width, 3, padding=1),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        one = torch.relu(self.again(torch.relu(self.first(x))))
        two = torch.relu(self.again(one))
        return self.head((one + two).mean(2))


class Branches(nn.Module):
    """Two inputs through one layer, flattened, and their difference."""

    def __init__(self, width=16):
        super().__init__()
        self.shared, self.head = nn.Linear(6, width), nn.Linear(width, 1)

    def forward(self, x):
        one, two = (torch.tanh(self.shared(part.flatten(1))) for part in (x[:, :2], x[:, 1:]))
        return self.head(one - two)


NETS = {
    "loop": (partial(Loop, torch.tanh, 2), (3, 3)),
    "leaky relu": (partial(Loop, torch.relu, leak=0.5), (3, 3)),
    "depth": (partial(Twice, False), (3,)),
    "depth with skips": (partial(Twice, True), (3,)),
    "convolutions": (Convolutions, (2, 4)),
    "branches": (Branches, (3, 3)),
}


def _sampled(net, x, count, generator):
    """Mean and standard error of the tangent kernels of ``count`` random networks, whose output is one number."""
    net, found = ntkit.parametrize_ntk(net.double(), w_std=W, b_std=B), []
    for _ in range(count):
        ntkit.initialize(net, generator=generator)
        outputs, parameters = net(x)[:, 0], tuple(net.parameters())
        slopes = [torch.autograd.grad(y, parameters, retain_graph=True) for y in outputs]
        rows = [torch.cat([slope.flatten() for slope in own]) for own in slopes]
        found.append(torch.stack(rows) @ torch.stack(rows).T)
    kernels = torch.stack(found)
    return kernels.mean(0), kernels.std(0) / count**0.5


@pytest.mark.parametrize("case", NETS)
def test_against_finite_networks(case):
    """The limit is 2 K(2 w) - K(w) of networks of widths w and 2 w within their error."""
    build, shape = NETS[case]
    x, generator = normal(2, *shape), torch.Generator().manual_seed(0)
    (narrow, a), (wide, b) = (_sampled(build(width=width), x, 40, generator) for width in (48, 96))
    deviation = (limit(build()).ntk(x) - (2 * wide - narrow)) / (4 * b**2 + a**2).sqrt()
    assert deviation.abs().max() < 4, deviation


def test_shared_calls_matter():
    """The kernel differs from that of the same network with a layer of its own for each call, except along a chain."""
    x = normal(3, 3)

    class Apart(nn.Module):
        def __init__(self, skips):
            super().__init__()
            self.net = Twice(skips)
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

        def forward(self, x):
            h = self.net.first(x)
            for layer in self.layers:
                f = layer(torch.relu(h))
                h = h + f if self.net.skips else f
            return self.net.head(torch.relu(h))

    chain, apart = (limit(build(False)).ntk(x) for build in (Twice, Apart))
    torch.testing.assert_close(chain, apart, rtol=1e-13, atol=0)
    skips, apart = (limit(build(True)).ntk(x) for build in (Twice, Apart))
    assert (skips - apart).abs().min() > 0.01 * apart.abs().max()


def test_equal_inputs_tiles_and_derivatives():
    kernel, x = limit(Loop(torch.relu).double()).ntk, normal(3, 2, 3)
    assert any(isinstance(node.op, Shared) for node in kernel.limit.program((2, 3)).nodes)
    whole = kernel(x)
    torch.testing.assert_close(kernel(x, x.clone()), whole, rtol=1e-13, atol=0)
    torch.testing.assert_close(kernel.diag(x), whole.diagonal(), rtol=1e-13, atol=0)
    torch.testing.assert_close(kernel(x, x * (1 + 1e-9)).diagonal(), whole.diagonal(), rtol=1e-7, atol=0)
    torch.testing.assert_close(torch.as_tensor(ntkit.gram(kernel, x, tile=2)), whole, rtol=1e-13, atol=0)
    smooth, one = limit(Loop(torch.erf).double()).ntk, x[:1].clone().requires_grad_()
    (slope,) = torch.autograd.grad(smooth(one, x[1:2]).sum(), one)
    step = 1e-5 * normal(1, 2, 3)
    values = [smooth(x[:1] + sign * step, x[1:2]).sum() for sign in (1, -1)]
    torch.testing.assert_close((slope * step).sum(), (values[0] - values[1]) / 2, rtol=1e-6, atol=0)


def test_a_layer_of_input_beside_state():
    """One layer reads torch.cat((x_t, h), 1), at first a state of zeros: w^2 times the mean over both widths."""

    class Beside(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.cell, self.head, self.width = nn.Linear(3 + width, width), nn.Linear(width, 1), width

        def forward(self, x):
            h, found = torch.zeros(len(x), self.width, dtype=x.dtype), []
            for t in range(2):
                h = torch.erf(self.cell(torch.cat((x[:, t], h), 1)))
                found.append(h)
            return self.head(torch.stack(found, 1).mean(1))

    x = normal(3, 2, 3)
    state = {(t, s): torch.zeros(3, 3).to(x) for t in (-1, 0, 1) for s in (-1, 0, 1)}
    pre = {}
    for t, s in ((0, 0), (0, 1), (1, 0), (1, 1)):
        pre[t, s] = W**2 * (x[:, t] @ x[:, s].T + 13 * state[t - 1, s - 1]) / 16 + B**2
        if t == s:
            q = {r: pre[r, r].diagonal() for r in range(t + 1)}
            for a, b in ((a, b) for a, b in pre if max(a, b) <= t):
                state[a, b] = erf_dual(pre[a, b], q[a][:, None], q[b][None])[0]
    nngp = W**2 * sum(state[t, s] for t in (0, 1) for s in (0, 1)) / 4 + B**2
    torch.testing.assert_close(limit(Beside(13)).nngp(x), nngp, rtol=1e-12, atol=0)


def test_gains_and_sign():
    w = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    x = normal(2, 2, 3)
    value = ntkit.infinite_width(Loop(torch.erf), w_std=w, b_std=B).ntk(x)
    torch.testing.assert_close(value.detach(), limit(Loop(torch.erf)).ntk(x), rtol=1e-13, atol=0)
    (slope,) = torch.autograd.grad(value.sum(), w)
    steps = [ntkit.infinite_width(Loop(torch.erf), w_std=W + e, b_std=B).ntk(x).sum() for e in (1e-5, -1e-5)]
    torch.testing.assert_close(slope, (steps[0] - steps[1]) / 2e-5, rtol=1e-7, atol=0)
    jumps = limit(Loop(torch.sign))
    assert torch.isfinite(jumps.nngp(x)).all()
    with pytest.raises((InputError, UnsupportedLayerError), match="sign"):
        jumps.ntk(x)
