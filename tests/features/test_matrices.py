"""Feature matrices against derivatives taken one sample at a time."""

from __future__ import annotations

import pytest
import torch
from tests.features.cases import CASES, brute, build, weight_of
from torch import Tensor, nn

from ntkit import features
from ntkit.errors import InputError, InputTypeError

PRECISION = {"rtol": 1e-10, "atol": 1e-12}


@pytest.mark.parametrize("batch_size", [None, 1, 2, 7])
@pytest.mark.parametrize("name", CASES)
def test_matrices_are_those_of_brute_force(name: str, batch_size: int | None) -> None:
    module, x = build(name)
    nfm = features.nfm(module)
    agop = features.agop(module, x, batch_size=batch_size)
    covariance = features.ptk_covariance(module, x, batch_size=batch_size)
    assert set(nfm) == set(agop) == set(covariance)
    for path in nfm:
        J, _ = brute(module, x, path)
        W = weight_of(module.get_submodule(path))
        K = torch.einsum("acpi,acpj->ij", J, J) / len(x)
        g = J @ W
        G = torch.einsum("acpi,acpj->ij", g, g) / len(x)
        torch.testing.assert_close(nfm[path], W.T @ W, **PRECISION)
        torch.testing.assert_close(covariance[path], K, **PRECISION)
        torch.testing.assert_close(agop[path], G, **PRECISION)
        torch.testing.assert_close(agop[path], W.T @ covariance[path] @ W, **PRECISION)  # Proposition 2


def test_total_derivative_counts_the_branch_around_a_block() -> None:
    class PreActivation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(x + self.block(x)))

    torch.manual_seed(0)
    module, x = PreActivation().double(), torch.randn(6, 4, dtype=torch.float64)
    J = torch.stack([torch.autograd.functional.jacobian(lambda s: module(s[None])[0], sample) for sample in x])
    total = features.agop(module, x, total=True)
    torch.testing.assert_close(total["block"], torch.einsum("aci,acj->ij", J, J) / 6, **PRECISION)
    assert not torch.allclose(total["block"], features.agop(module, x)["block"])
    torch.testing.assert_close(total["head"], features.agop(module, x)["head"], **PRECISION)  # no branch around it


def test_total_derivative_of_a_convolution_is_the_unfolded_gradient_of_its_input() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 1)).double()
    x = torch.randn(4, 2, 3, 3, dtype=torch.float64)
    gradient = torch.autograd.functional.jacobian(lambda z: module(z).sum(), x)
    patches = nn.functional.unfold(gradient, 2)
    expected = torch.einsum("aip,ajp->ij", patches, patches) / 4
    torch.testing.assert_close(features.agop(module, x, total=True)["0"], expected, **PRECISION)


def test_module_is_left_as_it_was() -> None:
    module, x = build("mlp")
    seen = []
    handle = module[0].register_forward_hook(lambda *_: seen.append(1))
    module.train()
    module(x).sum().backward()
    before = {name: parameter.grad.clone() for name, parameter in module.named_parameters()}
    state = {name: value.clone() for name, value in module.state_dict().items()}
    features.nfa(module, x, initial=state)
    features.ptk(module, x)
    assert module.training and len(module[0]._forward_hooks) == 1 and not module[2]._forward_hooks
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter.grad, before[name]) and torch.equal(parameter, state[name])
    handle.remove()


def test_hooks_of_the_user_are_part_of_the_network() -> None:
    module, x = build("mlp")
    module[2].register_forward_hook(lambda _, args, output: 2 * output)
    J, _ = brute(module, x, "2")  # its hook comes after the user's, so the derivative lacks the 2
    K = 4 * torch.einsum("acpi,acpj->ij", J, J) / len(x)
    torch.testing.assert_close(features.ptk_covariance(module, x)["2"], K, **PRECISION)


def test_selected_layers_and_no_grad() -> None:
    module, x = build("cnn")
    whole = features.ptk_covariance(module, x)
    with torch.no_grad():
        some = features.ptk_covariance(module, x, layers=["6", "0"])
    assert list(some) == ["6", "0"]
    torch.testing.assert_close(some["0"], whole["0"], **PRECISION)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle, self.ignored = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.ignored(x)
        return self.used(x)


class Detach(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach()


class Mixing(nn.Module):
    """Its first layer reads something that all samples share."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.embed, self.head = nn.Parameter(torch.ones(3, 4)), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x + self.embed(self.query).sum(0)))


@pytest.mark.parametrize(
    ("module", "x", "error", "message"),
    [
        (nn.ReLU(), torch.ones(2, 4), InputError, "must have an nn.Linear"),
        ("net", torch.ones(2, 4), InputTypeError, "must be a torch.nn.Module"),
        (nn.Linear(4, 1), torch.ones(2, 3), InputError, "cannot run on inputs of shape"),
        (nn.Linear(4, 1), torch.ones(0, 4), InputError, "at least one row"),
        (nn.Linear(4, 1), torch.ones(2, 4).double(), InputTypeError, "dtype of the module"),
        (nn.Linear(4, 1), torch.full((2, 4), float("nan")), InputError, "must be finite"),
        (nn.Linear(4, 1), [[1.0] * 4], InputTypeError, "at least one torch.Tensor"),
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.ones(2, 4), InputError, "evaluation mode"),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout()), torch.ones(2, 4), InputError, "evaluation mode"),
        (nn.Sequential(nn.Linear(4, 2), Detach()), torch.ones(2, 4), InputError, "do not depend on its calls of '0'"),
        (Unused(), torch.ones(2, 4), InputError, "never calls 'idle' and .* calls of 'ignored'.*layers=\\['used'\\]"),
        (Mixing(), torch.ones(3, 4), InputError, "'embed' must see each sample in separate rows"),
    ],
)
def test_bad_modules_and_samples(module: object, x: object, error: type[Exception], message: str) -> None:
    for measure in (features.agop, features.ptk_covariance, features.ptk, features.nfa, features.layer_ntk):
        with pytest.raises(error, match=message):
            measure(module, x)


def test_bad_options() -> None:
    module, x = build("mlp")
    with pytest.raises(InputError, match="paths of linear or convolutional layers: '0', '2', '4'. Got \\['1'\\]"):
        features.nfm(module, layers=["1"])
    with pytest.raises(InputTypeError, match="sequence of paths"):
        features.nfm(module, layers="0")
    with pytest.raises(InputError, match="at least 1"):
        features.agop(module, x, batch_size=0)
    with pytest.raises(InputTypeError, match="integer"):
        features.agop(module, x, batch_size=2.0)
    with pytest.raises(InputError, match="Linear"):
        features.nfm(nn.Tanh())


def test_unused_layers_can_be_left_out() -> None:
    module = Unused()
    found = features.ptk_covariance(module, torch.ones(2, 4), layers=["used"])
    torch.testing.assert_close(found["used"], torch.eye(2))
