"""What changes more than the list says is refused, not returned."""

import pytest
import torch
from torch import nn

import ntkit
from ntkit.errors import InputError


class Typed(nn.Module):
    """Activates only what a batch norm returns."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x):
        x = self.norm(self.first(x))
        return self.head(torch.relu(x) if isinstance(self.norm, nn.BatchNorm1d) else x)


class Reads(Typed):
    def forward(self, x):
        return self.head(self.norm(self.first(x)) * self.norm.eps)


class DropPath(nn.Module):
    """The name of stochastic depth, with something to do in evaluation mode."""

    def forward(self, x):
        return 2 * x


class Ignored(nn.Module):
    """Relies on an activation in place, whose result it does not use."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(4, 1)

    def forward(self, x):
        x = self.relu(self.first(x))
        x = x + self.second(x)
        self.relu(x)
        return self.head(self.relu(x + self.third(x)))


def hooked():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    net[2].register_forward_hook(lambda own, args, output: 2 * output)
    return net


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.head(torch.relu(x + self.second(x)))


def hooked_whole():
    net = Residual()
    net.register_forward_hook(lambda own, args, output: 2 * output)
    return net


class Detached(nn.BatchNorm1d):
    """The values of batch norm, with derivatives that stop at it: only derivatives tell."""

    def forward(self, x):
        return super().forward(x.detach() if type(self) is Detached else x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Typed, "with an error of"),
        (Reads, "raises AttributeError"),
        (lambda: nn.Sequential(nn.Linear(3, 4), DropPath(), nn.ReLU(), nn.Linear(4, 1)), "with an error of"),
        (Ignored, "with an error of"),
        (hooked_whole, "with an error of"),
    ],
)
def test_more_than_the_listed_changes_is_refused(make, message):
    torch.manual_seed(0)
    with pytest.raises(InputError, match="more than the listed changes") as caught:
        ntkit.adapt(make(), (3,))
    assert message in str(caught.value)


def test_hooks_on_other_layers_are_part_of_both():
    assert len(ntkit.adapt(hooked(), (3,)).changes) == 1


def test_derivatives_are_compared_too():
    net = nn.Sequential(nn.Linear(3, 4), Detached(4), nn.ReLU(), nn.Linear(4, 1))
    adapted = ntkit.adapt(net, (3,))
    adapted.module(torch.randn(2, 3)).sum().backward()
    assert adapted.module[0].weight.grad is None  # as in the module


def test_zero_parameters_hide_nothing():
    net = Typed()
    nn.init.zeros_(net.head.weight)
    with pytest.raises(InputError, match="more than the listed changes"):
        ntkit.adapt(net, (3,))


def test_the_module_and_the_random_state_are_left_alone():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.ReLU(), nn.Linear(4, 1))
    state = {name: value.clone() for name, value in net.state_dict().items()}
    random = torch.get_rng_state()
    ntkit.adapt(net)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert net.training and all(parameter.grad is None for parameter in net.parameters())


def test_tokens_and_single_precision():
    class SinglePrecision(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.head = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)

        def forward(self, x):
            return self.head(torch.relu(self.norm(self.first(x)) * torch.ones(4, dtype=torch.float32)).float())

    words = nn.Sequential(
        nn.Embedding(9, 4), nn.Flatten(), nn.Linear(32, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)
    )
    for net, shape in ((SinglePrecision(), (3,)), (words, (8,))):
        assert [change.before for change in ntkit.adapt(net, shape).changes] == ["BatchNorm1d"]


@pytest.mark.parametrize(
    ("module", "shape", "message"),
    [
        (nn.BatchNorm1d(3), None, "input_shape must be the shape of one input"),
        (nn.ReLU(), None, "input_shape must be the shape of one input"),
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), (5,), "cannot take inputs of shape"),
    ],
)
def test_without_inputs_nothing_is_claimed(module, shape, message):
    with pytest.raises(InputError, match=message):
        ntkit.adapt(module, shape)
