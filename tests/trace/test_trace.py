"""The same network written in different ways has the same kernel."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import InputError


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Lambda(nn.Module):
    def __init__(self, function, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def same_kernels(first, second, x, **gains):
    a, b = (ntkit.infinite_width(net, **gains).both(x) for net in (first, second))
    torch.testing.assert_close(a.ntk, b.ntk, rtol=1e-13, atol=0)
    torch.testing.assert_close(a.nngp, b.nngp, rtol=1e-13, atol=0)


MLP = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


@pytest.mark.parametrize(
    "relu",
    [F.relu, torch.relu, lambda h: h.relu(), lambda h: h.relu_(), lambda h: F.relu(h, inplace=True),
     lambda h: F.leaky_relu(h, 0.0),
     lambda h: 0.5 * (h + 0.0) * 2, None],
    ids=["F", "torch", "method", "inplace method", "inplace", "leaky", "scaled", "prelu"],
)  # fmt: skip
def test_forms_of_relu(relu):
    layers = dict(a=nn.Linear(4, 8), b=nn.Linear(8, 8), c=nn.Linear(8, 1))
    if relu is None:
        slope = nn.Parameter(torch.zeros(1), requires_grad=False)
        relu = lambda h: F.prelu(h, slope.to(h.dtype))  # noqa: E731
    linear = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1))
    plain = MLP if relu(torch.tensor(-1.0)) == 0 else linear
    net = Lambda(lambda m, x: m.c(relu(m.b(relu(m.a(x))))), **layers)
    same_kernels(net, plain, normal(3, 4), b_std=0.3)


def test_functional_layers_with_parameters_of_their_own():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1, self.b1 = nn.Parameter(torch.zeros(8, 4)), nn.Parameter(torch.zeros(8))
            self.w2 = nn.Parameter(torch.zeros(1, 8))

        def forward(self, x):
            return F.linear(F.relu(F.linear(x, self.w1, self.b1)), self.w2)

    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1, bias=False))
    same_kernels(Own(), plain, normal(3, 4), b_std=0.4)
    override = ntkit.infinite_width(Own(), overrides={"w1": {"w_std": 0.5}}).nngp(normal(3, 4))
    expected = ntkit.infinite_width(plain, overrides={"0": {"w_std": 0.5}}).nngp(normal(3, 4))
    torch.testing.assert_close(override, expected)


IMAGES = nn.Sequential(
    nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1),
)  # fmt: skip


@pytest.mark.parametrize(
    "head",
    [
        lambda m, h: m.fc(h.mean((2, 3))),
        lambda m, h: m.fc(h.mean(dim=[-2, -1], keepdim=True).flatten(1)),
        lambda m, h: m.fc(F.adaptive_avg_pool2d(h, 1).view(h.size(0), -1)),
        lambda m, h: m.fc(F.adaptive_avg_pool2d(h, (1, 1)).squeeze(-1).squeeze(-1)),
        lambda m, h: m.fc(F.avg_pool2d(h, 2).reshape(h.shape[0], h.shape[1])),
        lambda m, h: m.fc(h.flatten(2).mean(-1)),
        lambda m, h: m.fc(h.permute(0, 2, 3, 1).reshape(len(h) if False else h.size(0), -1, 8).mean(1)),
        lambda m, h: m.fc(h.sum((2, 3)) / 4),
        lambda m, h: m.fc(h.movedim(1, -1)).mean((1, 2)),
        lambda m, h: m.fc(torch.transpose(h.flatten(2), 1, 2)).mean(1),
    ],
)
def test_forms_of_global_average_pooling(head):
    net = Lambda(
        lambda m, x: head(m, F.relu(m.b(F.avg_pool2d(F.relu(m.a(x)), (2, 2))))),
        a=nn.Conv2d(2, 8, 3, padding=1), b=nn.Conv2d(8, 8, 3, padding=1), fc=nn.Linear(8, 1),
    )  # fmt: skip
    same_kernels(net, IMAGES, normal(3, 2, 4, 4))


def test_activation_after_flatten_acts_at_each_position():
    before = nn.Sequential(nn.Conv1d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1))
    after = nn.Sequential(nn.Conv1d(2, 8, 3), nn.Flatten(), nn.ReLU(), nn.Linear(32, 1))
    back = nn.Sequential(
        nn.Conv1d(2, 8, 3), nn.Flatten(), nn.Unflatten(1, (8, 4)), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1)
    )
    same_kernels(before, after, normal(3, 2, 6))
    same_kernels(before, back, normal(3, 2, 6))


def test_pointwise_convolution_is_a_linear_layer_at_every_position():
    conv = nn.Sequential(nn.Conv1d(3, 8, 1), nn.ReLU(), nn.Conv1d(8, 8, 1), nn.Flatten(), nn.Linear(40, 1))
    linear = Lambda(
        lambda m, x: m.c(m.b(F.relu(m.a(x.transpose(1, 2)))).transpose(1, 2).flatten(1)),
        a=nn.Linear(3, 8), b=nn.Linear(8, 8), c=nn.Linear(40, 1),
    )  # fmt: skip
    same_kernels(conv, linear, normal(3, 3, 5), b_std=0.2)


def test_padding_by_hand():
    inside = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=(1, 2)), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.Flatten(), nn.Linear(192, 1)
    )
    outside = nn.Sequential(
        nn.ZeroPad2d((2, 2, 1, 1)), nn.Conv2d(2, 8, 3), nn.ReLU(), Lambda(lambda m, x: F.pad(x, (1, 1, 1, 1))),
        nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(192, 1),
    )  # fmt: skip
    same_kernels(inside, outside, normal(3, 2, 4, 4))


def test_same_value_twice_is_a_multiple():
    twice = Lambda(lambda m, x: m.b((h := m.a(x)) + h - 0.5 * h), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    multiple = Lambda(lambda m, x: m.b(m.a(x) * 1.5), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    same_kernels(twice, multiple, normal(3, 4))
    recomputed = Lambda(lambda m, x: m.b(torch.relu(h := m.a(x)) + F.relu(h)), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    doubled = Lambda(lambda m, x: m.b(2 * F.relu(m.a(x))), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    same_kernels(recomputed, doubled, normal(3, 4))


def test_frozen_numbers_scale():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = nn.Linear(4, 8), nn.Linear(8, 1)
            self.alpha = nn.Parameter(torch.tensor(0.25), requires_grad=False)
            self.register_buffer("beta", torch.tensor([2.0]))

        def forward(self, x):
            return self.head(torch.relu(self.alpha * self.fc(x)) / self.beta)

    plain = Lambda(lambda m, x: m.b(torch.relu(m.a(x)) * 0.125), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    same_kernels(Scaled(), plain, normal(3, 4))


def test_square_of_a_value_by_product():
    product = Lambda(lambda m, x: m.b((h := m.a(x)) * h), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    square = Lambda(lambda m, x: m.b(m.a(x) ** 2), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    same_kernels(product, square, normal(3, 4))


class Branching(nn.Module):
    """Needs export: loops and branches over shapes."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 8, 3, padding=1, padding_mode="circular"), nn.Conv2d(8, 8, 3, padding="same")
        self.norm, self.drop, self.fc = nn.LayerNorm(8), nn.Dropout(0.5).eval(), nn.Linear(8, 1)

    def forward(self, x):
        if x.shape[-1] % 2:
            x = F.pad(x, (0, 1))
        h = F.gelu(self.a(x))
        while h.shape[-1] > 2:
            h = F.avg_pool2d(h, 2)
        h = F.relu(self.b(h)).permute(0, 2, 3, 1)
        h = self.drop(self.norm(h))
        return self.fc(h.mean((1, 2)))


def test_shape_dependent_branches_by_export():
    plain = Lambda(
        lambda m, x: m.fc(m.norm(F.relu(m.b(F.avg_pool2d(F.gelu(m.a(x)), 2))).permute(0, 2, 3, 1)).mean((1, 2))),
        a=nn.Conv2d(2, 8, 3, padding=1, padding_mode="circular"), b=nn.Conv2d(8, 8, 3, padding=1), norm=nn.LayerNorm(8),
        fc=nn.Linear(8, 1),
    )  # fmt: skip
    same_kernels(Branching(), plain, normal(3, 2, 4, 4), b_std=0.1)
    odd = normal(3, 2, 4, 3)
    torch.testing.assert_close(
        ntkit.infinite_width(Branching()).ntk(odd), ntkit.infinite_width(plain).ntk(F.pad(odd, (0, 1)))
    )


def test_prefix_runs_on_the_data_as_it_is():
    frequencies = normal(2, 16, seed=1)

    class Fourier(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("frequencies", frequencies.float())
            self.bn = nn.BatchNorm1d(32, affine=False)
            self.bn.running_mean.fill_(0.1)
            self.net = nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 1))

        def forward(self, x):
            angles = x @ self.frequencies
            return self.net(self.bn(torch.cat([angles.sin(), angles.cos()], -1)))

    x = normal(4, 2)
    before = x.clone()
    angles = x @ frequencies.float().double()
    features = (torch.cat([angles.sin(), angles.cos()], -1) - float(torch.tensor(0.1))) / (1 + 1e-5) ** 0.5
    limit = ntkit.infinite_width(Fourier())
    expected = ntkit.infinite_width(nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 1))).ntk(features)
    torch.testing.assert_close(limit.ntk(x), expected)
    assert torch.equal(x, before)


def test_prefix_that_writes_in_place_leaves_the_data_alone():
    net = Lambda(lambda m, x: m.fc(x.mul_(2)), fc=nn.Linear(4, 1))
    x = normal(3, 4)
    before = x.clone()
    torch.testing.assert_close(ntkit.infinite_width(net).nngp(x), 8 * x @ x.T / 4)
    assert torch.equal(x, before)


def test_the_module_is_left_alone_and_read_once():
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5).eval(), nn.ReLU(), nn.Linear(8, 1))
    state = {name: value.clone() for name, value in net.state_dict().items()}
    x = normal(3, 4)
    limit = ntkit.infinite_width(net)
    k = limit.ntk(x)
    assert net.training
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    net[0].weight.requires_grad_(False)
    assert torch.equal(limit.ntk(x), k)
    # Dropout is off, as in evaluation.
    torch.testing.assert_close(
        k, ntkit.infinite_width(nn.Sequential(net[0].requires_grad_(True), net[2], net[3])).ntk(x)
    )


def test_global_random_state_is_not_touched():
    torch.manual_seed(3)
    expected = torch.randn(2)
    torch.manual_seed(3)
    ntkit.infinite_width(MLP).ntk(normal(3, 4))
    assert torch.equal(torch.randn(2), expected)


def test_pickling():
    limit = pickle.loads(pickle.dumps(ntkit.infinite_width(MLP, b_std=0.2)))
    x = normal(3, 4)
    assert torch.equal(limit.ntk(x), ntkit.infinite_width(MLP, b_std=0.2).ntk(x))


def test_wrong_shapes_are_named():
    limit = ntkit.infinite_width(IMAGES)
    with pytest.raises(InputError, match=r"cannot take inputs of shape \(n, 3, 4, 4\)"):
        limit.ntk(normal(2, 3, 4, 4))
    with pytest.raises(InputError, match="cannot take"):
        limit.ntk(normal(2, 2))


def test_adaptive_pooling_to_any_size():
    net = nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(32, 1))
    windows = [(0, 2), (1, 4), (3, 6), (5, 7)]  # of 7 positions, as PyTorch has them
    x = normal(3, 1, 9)
    limit = ntkit.infinite_width(net)

    # A linear head on the windows' means is the mean of the kernels of networks that read one window each.
    def read(m, x, a, b):
        return m.fc(F.relu(m.conv(x))[:, :, a:b].mean(-1))

    layers = {"conv": nn.Conv1d(1, 8, 3), "fc": nn.Linear(8, 1)}
    single = [ntkit.infinite_width(Lambda(partial(read, a=a, b=b), **layers)).nngp(x) for a, b in windows]
    torch.testing.assert_close(limit.nngp(x), sum(single) / 4)
    assert limit.ntk(normal(2, 1, 10)).shape == (2, 2)


def test_lazy_and_foreign_modules():
    with pytest.raises(InputError, match="no shape yet"):
        ntkit.infinite_width(nn.LazyLinear(3))
    with pytest.raises(TypeError, match="nn.Module"):
        ntkit.infinite_width(lambda x: x)


@pytest.mark.parametrize("shape", [(5,), (3, 7)])
def test_user_subclass_of_a_layer(shape):
    class MyLinear(nn.Linear):
        pass

    class Twice(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    x = normal(3, *shape)
    plain = nn.Sequential(nn.Linear(shape[-1], 8), nn.ReLU(), nn.Linear(8, 1))
    same_kernels(nn.Sequential(MyLinear(shape[-1], 8), nn.ReLU(), nn.Linear(8, 1)), plain, x)
    scaled = nn.Sequential(nn.Linear(shape[-1], 8), Lambda(lambda m, h: 2 * h), nn.ReLU(), nn.Linear(8, 1))
    same_kernels(nn.Sequential(Twice(shape[-1], 8), nn.ReLU(), nn.Linear(8, 1)), scaled, x)


def test_a_parametrised_module_has_the_limit_of_the_plain_one():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    net[2].weight.requires_grad_(False)
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
    gains = {"w_std": 1.3, "b_std": 0.2}
    plain = ntkit.infinite_width(net, **gains).ntk(x)
    assert torch.equal(ntkit.infinite_width(ntkit.parametrize_ntk(net, **gains), **gains).ntk(x), plain)


def test_modules_are_traced_on_several_threads():
    def trace(width):
        return ntkit.infinite_width(nn.Sequential(*[nn.Linear(width, width), nn.ReLU()] * 1, nn.Linear(width, 1)))

    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(trace, range(1, 40)))) == 39


@pytest.mark.parametrize(
    "relu",
    [lambda h: h.clamp(min=0), lambda h: h.clamp_min(0.0), lambda h: torch.maximum(h, torch.zeros(())),
     lambda h: torch.maximum(torch.zeros_like(h), h), lambda h: -torch.minimum(-h, torch.tensor(0.0)),
     lambda h: torch.clip(h, 0, None)],
)  # fmt: skip
def test_more_forms_of_relu(relu):
    net = Lambda(lambda m, x: m.c(relu(m.b(relu(m.a(x))))), a=nn.Linear(4, 8), b=nn.Linear(8, 8), c=nn.Linear(8, 1))
    same_kernels(net, MLP, normal(3, 4), b_std=0.3)


def test_clamp_is_hardtanh():
    clamped = Lambda(lambda m, x: m.b(m.a(x).clamp(-1, 2)), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    hard = nn.Sequential(nn.Linear(4, 8), nn.Hardtanh(-1, 2), nn.Linear(8, 1))
    same_kernels(clamped, hard, normal(3, 4))


def test_einsum_of_one_operand_sums_over_positions():
    summed = Lambda(
        lambda m, x: m.fc(torch.einsum("bchw->bc", F.relu(m.a(x)))), a=nn.Conv2d(2, 8, 3), fc=nn.Linear(8, 1)
    )
    by_sum = Lambda(lambda m, x: m.fc(F.relu(m.a(x)).sum((2, 3))), a=nn.Conv2d(2, 8, 3), fc=nn.Linear(8, 1))
    same_kernels(summed, by_sum, normal(3, 2, 4, 4))
    moved = Lambda(
        lambda m, x: m.fc(torch.einsum("bchw->bhwc", F.relu(m.a(x)))).mean((1, 2)),
        a=nn.Conv2d(2, 8, 3), fc=nn.Linear(8, 1),
    )  # fmt: skip
    mean = Lambda(lambda m, x: m.fc(F.relu(m.a(x)).mean((2, 3))), a=nn.Conv2d(2, 8, 3), fc=nn.Linear(8, 1))
    same_kernels(moved, mean, normal(3, 2, 4, 4))


def test_tokens_of_pixels_become_an_image_again():
    def image_of_tokens(m, x):
        h = m.a(x.flatten(2).transpose(1, 2))
        return m.fc(F.relu(m.b(F.relu(h.transpose(1, 2).reshape(len(x), 8, 4, 3)))).mean((2, 3)))

    tokens = Lambda(image_of_tokens, a=nn.Linear(2, 8), b=nn.Conv2d(8, 8, (3, 2)), fc=nn.Linear(8, 1))
    image = nn.Sequential(
        nn.Conv2d(2, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, (3, 2)), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1)
    )  # fmt: skip
    same_kernels(tokens, image, normal(3, 2, 4, 3), b_std=0.2)


def test_features_flattened_in_other_orders():
    """The order in which positions and channels are flattened does not matter to the limit, but the replay must know it."""
    first = Lambda(
        lambda m, x: m.fc(torch.cat([F.relu(m.a(x)).permute(0, 2, 3, 1).flatten(1), F.relu(m.b(x)).flatten(1)], 1)),
        a=nn.Conv2d(2, 8, 3), b=nn.Conv2d(2, 6, 2), fc=nn.Linear(8 * 4 + 6 * 9, 1),
    )  # fmt: skip
    second = Lambda(
        lambda m, x: m.fc(torch.cat([F.relu(m.a(x)).flatten(1), F.relu(m.b(x)).flatten(1)], 1)),
        a=nn.Conv2d(2, 8, 3), b=nn.Conv2d(2, 6, 2), fc=nn.Linear(8 * 4 + 6 * 9, 1),
    )  # fmt: skip
    same_kernels(first, second, normal(3, 2, 4, 4))
    both = Lambda(
        lambda m, x: m.fc(torch.cat([torch.cat([m.a(x), m.b(x)], 1).movedim(1, -1).flatten(1), m.c(x).flatten(1)], 1)),
        a=nn.Conv2d(2, 8, 3), b=nn.Conv2d(2, 4, 3), c=nn.Conv2d(2, 6, 3), fc=nn.Linear(18 * 4, 1),
    )  # fmt: skip
    side = Lambda(
        lambda m, x: m.fc(torch.cat([m.a(x), m.b(x), m.c(x)], 1).flatten(1)),
        a=nn.Conv2d(2, 8, 3), b=nn.Conv2d(2, 4, 3), c=nn.Conv2d(2, 6, 3), fc=nn.Linear(18 * 4, 1),
    )  # fmt: skip
    same_kernels(both, side, normal(3, 2, 4, 4))
    added = Lambda(
        lambda m, x: m.fc(torch.relu(torch.cat([m.a(x), m.b(x)], 1) + m.c(x))),
        a=nn.Linear(4, 5), b=nn.Linear(4, 3), c=nn.Linear(4, 8), fc=nn.Linear(8, 1),
    )  # fmt: skip
    whole = Lambda(
        lambda m, x: m.fc(torch.relu(m.a(x) + m.c(x))), a=nn.Linear(4, 8), c=nn.Linear(4, 8), fc=nn.Linear(8, 1)
    )
    same_kernels(added, whole, normal(3, 4))
