"""Layers are replaced only if it is known what they do; the rest of a subclass stays."""

import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ntkit

SHAPE = (3, 8, 8)


class CopiedForward(nn.BatchNorm2d):
    """As timm writes its BatchNormAct2d: the base class's forward, copied, then dropout and the activation, in place."""

    def __init__(self, channels):
        super().__init__(channels)
        self.drop, self.act = nn.Dropout(0.1), nn.ReLU(inplace=True)

    def forward(self, x):
        torch._assert(x.ndim == 4, f"expected 4D input (got {x.ndim}D input)")
        training = self.training or (self.running_mean is None and self.running_var is None)
        x = F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, training, self.momentum, self.eps
        )
        return self.act(self.drop(x))


class CalledForward(nn.BatchNorm2d):
    def __init__(self, channels):
        super().__init__(channels)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(super().forward(x))


class FunctionAfter(nn.BatchNorm2d):
    def forward(self, input):
        return F.relu(super().forward(input), inplace=True)


class Named(nn.BatchNorm2d):
    """Another name for the same layer."""


class Unread(nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x).relu() if float(x.detach().sum()) > -1e9 else x


class Dense(nn.Module):
    """A small DenseNet: every layer activates all values so far, which only its norms do."""

    def __init__(self, norm, growth=4, depth=3):
        super().__init__()
        self.stem = nn.Conv2d(3, growth, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(norm(growth * (k + 1)) for k in range(depth))
        self.convs = nn.ModuleList(nn.Conv2d(growth * (k + 1), growth, 3, padding=1, bias=False) for k in range(depth))
        self.last, self.head = norm(growth * (depth + 1)), nn.Linear(growth * (depth + 1), 1)

    def forward(self, x):
        found = [self.stem(x)]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            found.append(conv(norm(torch.cat(found, 1))))
        return self.head(self.last(torch.cat(found, 1)).mean((2, 3)))


def norm_then_relu(norm, channels):
    kinds = {"none": nn.Identity(), "layer": nn.GroupNorm(1, channels, affine=False)}
    return nn.Sequential(kinds[norm], nn.ReLU())


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("kind", [CopiedForward, CalledForward, FunctionAfter])
def test_activations_inside_norms_stay(kind, norm):
    torch.manual_seed(0)
    net = Dense(kind).double()
    adapted = ntkit.adapt(net, SHAPE, norm=norm)
    assert adapted.obstacles == ()
    after = {"none": "without its norm", "layer": "with GroupNorm"}[norm]
    drops = [("Dropout", "nothing")] if kind is CopiedForward else []
    names = [(change.before, change.after) for change in adapted.changes]
    assert sorted(names) == sorted(4 * [(kind.__name__, f"{kind.__name__} {after}"), *drops])
    assert all("weight and bias go with it" in c.reason for c in adapted.changes if c.before == kind.__name__)
    by_hand = Dense(lambda channels: norm_then_relu(norm, channels)).double()
    by_hand.load_state_dict(
        {name: v for name, v in net.state_dict().items() if "norms" not in name and "last" not in name}
    )
    x = torch.randn(3, *SHAPE, dtype=torch.float64)
    torch.testing.assert_close(adapted.module(x), by_hand(x), rtol=1e-12, atol=1e-12)
    limit, expected = ntkit.infinite_width(adapted.module), ntkit.infinite_width(by_hand)
    torch.testing.assert_close(limit.ntk(x), expected.ntk(x), rtol=1e-10, atol=1e-12)
    own, mirrored = limit.ntk(x).diagonal(), limit.ntk(x, -x).diagonal()
    assert (mirrored > -0.5 * own).all()  # -own in a linear network


def test_subclasses_without_forward_are_the_layer():
    class OtherPool(nn.MaxPool2d):
        """Another name for the same layer."""

    net = nn.Sequential(nn.Conv2d(3, 4, 3), Named(4), nn.ReLU(), OtherPool(2), nn.Flatten(), nn.Linear(36, 1))
    adapted = ntkit.adapt(net, SHAPE)
    assert [(c.before, c.after) for c in adapted.changes] == [("Named", "nothing"), ("OtherPool", "AvgPool2d")]
    assert adapted.obstacles == ()


class ActivatedPool(nn.MaxPool2d):
    def forward(self, x):
        return torch.relu(super().forward(x))


def hooked(layer):
    layer.register_forward_hook(lambda own, args, output: torch.relu(output))
    return layer


def patched(layer):
    layer.forward = types.MethodType(lambda self, x: torch.relu(type(self).forward(self, x)), layer)
    return layer


def parametrised(layer):
    return nn.utils.parametrize.register_parametrization(layer, "weight", nn.Softplus())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Unread(4), "could not be read"),
        (lambda: ActivatedPool(1), "its forward is not that of"),
        (lambda: hooked(nn.BatchNorm2d(4)), "hooks"),
        (lambda: hooked(nn.MaxPool2d(1)), "hooks"),
        (lambda: patched(nn.MaxPool2d(1)), "set on the layer"),
        (lambda: parametrised(nn.BatchNorm2d(4)), "parametrised"),
    ],
)
def test_what_would_be_lost_stays_and_is_an_obstacle(make, reason):
    adapted = ntkit.adapt(nn.Sequential(nn.Conv2d(3, 4, 3), make(), nn.Flatten(), nn.Linear(144, 1)), SHAPE)
    assert adapted.changes == ()
    (problem,) = (problem for problem in adapted.obstacles if problem.path == "1")
    assert reason in problem.reason and "torch.nn" in problem.instead


def test_a_left_out_norm_protects_its_input_from_the_next_activation():
    class PreActivation(nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1), norm
            self.second, self.head = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(256, 1)

        def forward(self, x):
            x = self.first(x)
            return self.head(torch.flatten(x + self.second(self.norm(x)), 1))

    torch.manual_seed(1)
    for norm in (nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(inplace=True)), CopiedForward(4)):
        net = PreActivation(norm).double()
        adapted = ntkit.adapt(net, SHAPE)
        assert adapted.obstacles == ()
        x = torch.randn(2, *SHAPE, dtype=torch.float64)
        first = net.first(x)
        expected = net.head((first + net.second(torch.relu(first))).flatten(1))
        torch.testing.assert_close(adapted.module(x), expected, rtol=1e-12, atol=1e-12)


def test_a_layer_under_two_names_is_replaced_under_both():
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.ReLU(), nn.Linear(4, 1))
    net.add_module("again", net[1])
    adapted = ntkit.adapt(net)
    assert not any(isinstance(layer, nn.Dropout) for layer in adapted.module.modules())
    assert [change.path for change in adapted.changes] == ["1"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["densenet121", "regnetx_002", "resnetv2_50", "dpn68", "cspresnet50", "vovnet39a"])
def test_networks_of_timm_keep_their_activations(name):
    timm = pytest.importorskip("timm")
    net = timm.create_model(name, pretrained=False, num_classes=1)
    adapted = ntkit.adapt(net, (3, 32, 32))
    kinds = [type(layer).__name__ for layer in net.modules()]
    left = [type(layer).__name__ for layer in adapted.module.modules()]
    assert "BatchNormAct2d" in kinds and not any(
        isinstance(layer, nn.BatchNorm2d) for layer in adapted.module.modules()
    )
    for activation in ("ReLU", "LeakyReLU"):
        assert left.count(activation) == kinds.count(activation)
