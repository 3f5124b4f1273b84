"""Adapted modules have a kernel, or what stands in the way has a name."""

import operator

import pytest
import torch
from tests.cases import mlp
from tests.trace.adaptation import networks
from torch import nn
from torch.nn import functional as F

import ntkit

SHAPE = (3, 16, 16)


@pytest.mark.parametrize("norm", ["none", "layer", "group"])
@pytest.mark.parametrize("make", [networks.resnet18, networks.resnet50, networks.vgg11], ids=lambda f: f.__name__)
def test_networks_with_a_limit(make, norm):
    torch.manual_seed(0)
    module = make()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    adapted = ntkit.adapt(module, SHAPE, norm=norm)
    assert adapted.obstacles == ()
    assert adapted.changes
    x = torch.randn(3, *SHAPE)
    kernel = ntkit.infinite_width(adapted.module).ntk(x.double())
    assert (torch.linalg.eigvalsh(kernel) > 0).all()
    assert adapted.module(x).shape == (3, 10)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])  # the module given is as it was
    kept = {name: value for name, value in adapted.module.state_dict().items() if "weight" in name and value.ndim > 1}
    assert kept.keys() == {name for name, value in before.items() if "weight" in name and value.ndim > 1}
    assert all(torch.equal(value, before[name]) for name, value in kept.items())
    norms = [layer for layer in adapted.module.modules() if isinstance(layer, nn.GroupNorm)]
    assert bool(norms) == (norm != "none")
    assert all(layer.num_groups < layer.num_channels for layer in norms)
    assert all(layer.num_groups == 1 for layer in norms) or norm == "group"


class PreActivation(nn.Module):
    """resnet18 without batch norm, written by hand as He et al. (2016) do, on the parameters of a BasicBlock ResNet."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        net = self.net
        raw = net.conv1(x)
        pool = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
        raw, active = pool(raw), pool(torch.relu(raw))
        for block in net.layers:
            shortcut = raw if block.downsample is None else block.downsample[0](active)
            raw = shortcut + block.conv2(torch.relu(block.conv1(active)))
            active = torch.relu(raw)
        return net.fc(active.mean((2, 3)))


def test_residuals_become_pre_activation():
    torch.manual_seed(1)
    module = networks.resnet18().double()
    adapted = ntkit.adapt(module, SHAPE)
    x = torch.randn(2, *SHAPE, dtype=torch.float64)
    by_hand = PreActivation(module)
    torch.testing.assert_close(adapted.module(x), by_hand(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ntkit.infinite_width(adapted.module).ntk(x), ntkit.infinite_width(by_hand).ntk(x))
    sums = [change for change in adapted.changes if change.after == "pre-activation residual"]
    assert [change.path for change in sums] == ["layers.0", "layers.1", "layers.3"]  # layers.2 adds a convolution


@pytest.mark.parametrize(
    "activation", [torch.relu_, lambda x: F.relu(x, inplace=True), lambda x: x.relu_(), nn.ReLU(True)]
)
@pytest.mark.parametrize("add", [operator.add, operator.iadd, torch.add, lambda a, b: a.add_(b)])
def test_nothing_is_overwritten(activation, add):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 5)
            self.head = nn.Linear(5, 1)
            self.activation = activation

        def forward(self, x):
            x = self.activation(self.first(x))
            x = self.activation(add(self.second(x), x))
            x = self.activation(add(self.third(x), x))
            return self.head(x)

    net = Net().double()
    adapted = ntkit.adapt(net, (3,))
    assert adapted.obstacles == ()
    x = torch.randn(4, 3, dtype=torch.float64)
    raw = net.first(x)
    raw = raw + net.second(torch.relu(raw))
    raw = raw + net.third(torch.relu(raw))
    torch.testing.assert_close(adapted.module(x), net.head(torch.relu(raw)))


def check_limit_but_for_depthwise_convolutions(adapted):
    """Depthwise convolutions on hidden channels are kept, and they alone stand in the way."""
    assert adapted.obstacles
    assert all(p.what == "Conv2d" and "depthwise" in p.reason for p in adapted.obstacles), adapted


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_mobilenet_keeps_depthwise_convolutions(norm):
    adapted = ntkit.adapt(networks.mobilenet_v2(), SHAPE, norm=norm)
    check_limit_but_for_depthwise_convolutions(adapted)
    assert {change.before for change in adapted.changes} == {"BatchNorm2d", "Dropout"}  # its sums are not activated
    assert [
        layer.groups for layer in adapted.module.modules() if isinstance(layer, nn.Conv2d) and layer.groups > 1
    ] == [8, 12, 12]


def test_convnext_keeps_depthwise_convolutions():
    adapted = ntkit.adapt(networks.convnext_tiny(), SHAPE)
    check_limit_but_for_depthwise_convolutions(adapted)
    befores = [change.before for change in adapted.changes]
    assert befores.count("layer scale") == 2 and befores.count("StochasticDepth") == 2 and len(befores) == 4
    assert [layer.groups for layer in adapted.module.modules() if isinstance(layer, nn.Conv2d)] == [1, 4, 1, 8]


@pytest.mark.parametrize(
    "scaled",
    [
        lambda x, scale: x.mul(scale.reshape(1, -1, 1, 1)),
        lambda x, scale: torch.mul(scale.view(-1, 1, 1), x),
        lambda x, scale: x.mul_(scale.unsqueeze(-1).unsqueeze(-1)),
        lambda x, scale: scale[:, None, None] * x,
    ],
)
def test_layer_scale_in_another_shape_is_left_out(scaled):
    """ConvNeXt's blocks in timm keep one number per channel and reshape it in the forward."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.gamma, self.head = nn.Parameter(1e-6 * torch.ones(4)), nn.Linear(4, 1)

        def forward(self, x):
            x = self.first(x)
            branch = scaled(self.second(torch.relu(x)), self.gamma)
            branch += x
            return self.head(branch.mean((2, 3)))

    torch.manual_seed(0)
    net = Net().double()
    adapted = ntkit.adapt(net, SHAPE)
    assert adapted.obstacles == ()
    assert [(c.path, c.before, c.after) for c in adapted.changes] == [("gamma", "layer scale", "nothing")]
    x = torch.randn(2, *SHAPE, dtype=torch.float64)
    first = net.first(x)
    expected = net.head((first + net.second(torch.relu(first))).mean((2, 3)))
    torch.testing.assert_close(adapted.module(x), expected, rtol=1e-12, atol=1e-12)


def test_a_factor_on_raw_data_is_no_layer_scale():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gamma, self.head = nn.Parameter(torch.ones(3)), nn.Linear(3, 1)

        def forward(self, x):
            return self.head(x * self.gamma)

    adapted = ntkit.adapt(Net(), (3,))
    assert adapted.changes == () and len(adapted.obstacles) == 1


class Conv1D(nn.Module):
    """The linear layer of GPT-2, whose weight is transposed."""

    def __init__(self, outputs, inputs):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs)), nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        size = (*x.size()[:-1], self.weight.shape[1])
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(size)


def test_linear_layers_by_matrix_products_are_named():
    adapted = ntkit.adapt(nn.Sequential(Conv1D(8, 4), nn.ReLU(), Conv1D(1, 8)), (5, 4))
    assert adapted.changes == ()
    assert [(problem.path, problem.what) for problem in adapted.obstacles] == [("0", "addmm"), ("2", "addmm")]
    assert all("Conv1D" in problem.reason and "transposed" in problem.instead for problem in adapted.obstacles)


def test_squeeze_and_excitation_has_a_limit():
    """Its gates come from layers of their own, so they are independent of what they multiply."""
    adapted = ntkit.adapt(networks.SqueezeExcite(8), SHAPE)
    assert adapted.changes == () and adapted.obstacles == ()


@pytest.mark.parametrize(
    ("module", "path", "reason"),
    [
        (networks.ViT(), "attention", "softmax attention"),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 1)),
            "1",
            "one channel",
        ),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(3, 1, dilation=2), nn.Flatten(), nn.Linear(400, 1)),
            "1",
            "maximum",
        ),
    ],
)
def test_obstacles_are_named(module, path, reason):
    adapted = ntkit.adapt(module, SHAPE)
    assert any(problem.path == path and reason in problem.reason for problem in adapted.obstacles), adapted
    assert "without a limit left" in str(adapted)


def test_functional_pooling_and_one_layer_in_two_places():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.3)
            self.conv, self.same, self.head = nn.Conv2d(3, 4, 3), self.drop, nn.Linear(36, 1)

        def forward(self, x):
            x = F.max_pool2d(self.drop(torch.relu(self.conv(x))), 2, padding=1)
            x = self.same(F.adaptive_max_pool2d(x, 4))[..., 1:, 1:]
            return self.head(torch.flatten(x, 1))

    adapted = ntkit.adapt(Net(), (3, 16, 16))
    assert adapted.obstacles == ()
    assert {(change.before, change.after) for change in adapted.changes} == {
        ("Dropout", "nothing"), ("max_pool2d", "avg_pool2d"), ("adaptive_max_pool2d", "adaptive_avg_pool2d"),
    }  # fmt: skip
    x = torch.randn(2, 3, 16, 16)
    pooled = F.avg_pool2d(torch.relu(adapted.module.conv(x)), 2, padding=1, count_include_pad=False)
    expected = adapted.module.head(F.adaptive_avg_pool2d(pooled, 4)[..., 1:, 1:].flatten(1))
    torch.testing.assert_close(adapted.module(x), expected)


def test_a_module_with_a_limit_is_left_alone():
    net = mlp(3, 4, 1)
    adapted = ntkit.adapt(net)
    assert adapted.changes == () and type(adapted.module) is nn.Sequential
    assert str(adapted) == "0 changes; it has an infinite-width limit"
    assert isinstance(ntkit.adapt(nn.BatchNorm1d(3), (3,)).module, nn.Identity)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(("net",), ntkit.errors.InputTypeError), ((nn.Linear(2, 1), (3,)), ntkit.errors.InputError)],
)
def test_bad_arguments(arguments, error):
    with pytest.raises(error):
        ntkit.adapt(*arguments)
    with pytest.raises(ntkit.errors.InputError, match="norm must be"):
        ntkit.adapt(nn.Linear(2, 1), norm="batch")
