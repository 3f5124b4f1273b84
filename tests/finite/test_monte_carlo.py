"""Kernels averaged over random networks."""

import pytest
import torch
from tests.cases import mlp
from torch import nn

import ntkit
from ntkit.errors import InputError, InputTypeError
from ntkit.testing import KernelConformance


def seed(value=0):
    return torch.Generator().manual_seed(value)


def network(width=16):
    return mlp(3, width, width, 2)


def inputs(n=5, *shape):
    return torch.randn(n, *(shape or (3,)), generator=seed(1), dtype=torch.float64)


class TestConformance(KernelConformance):
    def inputs(self):
        return inputs()

    def kernels(self):
        mc = ntkit.monte_carlo(network(), 3, generator=seed(), b_std=0.2)
        return [mc.ntk, mc.nngp, mc.ntk.normalized() + 0.5 * mc.nngp]


def test_mean_and_error_of_the_networks():
    x = inputs()
    mc = ntkit.monte_carlo(network(), 7, generator=seed())
    for which in ("ntk", "nngp"):
        kernel = getattr(mc, which)
        samples = torch.stack([getattr(emp, which)(x, x[:2]) for emp in mc.networks(x)])
        mean, error = kernel.estimate(x, x[:2])
        torch.testing.assert_close(mean, samples.mean(0), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(error, samples.std(0) / 7**0.5, rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(kernel.standard_error(x, x[:2]), error, rtol=0, atol=0)


def test_seeded_and_independent_of_the_batch():
    x = inputs()
    mc = ntkit.monte_carlo(network(), 4, generator=seed(3))
    torch.testing.assert_close(mc.ntk(x)[1:3, 1:3], mc.ntk(x[1:3]), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(mc.ntk(x[:2], x[3:]), mc.ntk(x)[:2, 3:], rtol=1e-12, atol=1e-13)
    again, other = (ntkit.monte_carlo(network(), 4, generator=seed(s)).ntk(x) for s in (3, 4))
    torch.testing.assert_close(mc.ntk(x), again, rtol=0, atol=0)
    assert not torch.allclose(again, other)


def test_module_is_left_alone():
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5).eval(), nn.ReLU(), nn.Linear(8, 1))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    ntkit.monte_carlo(net, 2, generator=seed()).ntk(inputs().float())
    assert net.training
    assert net[0].weight.dtype == torch.float32
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])


def check_limit(mc, exact, x):
    for which in ("ntk", "nngp"):
        mean, error = getattr(mc, which).estimate(x)
        deviation = (mean - getattr(exact, which)(x)).abs()
        assert (deviation < 4.5 * error + 0.02 * mean.abs().max()).all()


@pytest.mark.parametrize(
    "gains", [{}, {"b_std": 0.5, "w_std": 1.2}, {"overrides": {"4": {"w_std": 0.7, "b_std": 1.0}}}]
)
def test_near_the_exact_kernel(gains):
    x = inputs(3)
    mc = ntkit.monte_carlo(network(8), 20, width_scale=16, generator=seed(), **gains)
    check_limit(mc, ntkit.infinite_width(network(), **gains), x)


def decoder(width):
    return nn.Sequential(
        nn.Conv1d(3, width, 1), nn.ReLU(), nn.Upsample(scale_factor=2, mode="linear"), nn.Conv1d(width, 2 * width, 3, padding=1),
        nn.GLU(1), nn.ConvTranspose1d(width, width, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(7 * width, 1),
    )  # fmt: skip


@pytest.mark.parametrize("init", ["ntk", "standard", "torch"])
def test_decoder(init):
    x = inputs(3, 3, 2)
    net = decoder(8 if init == "ntk" else 96)
    options = {"width_scale": 12} if init == "ntk" else {}
    mc = ntkit.monte_carlo(net, 24, generator=seed(), init=init, **options)
    check_limit(mc, ntkit.infinite_width(net, init=init), x)


@pytest.mark.parametrize("init", ["standard", "torch"])
def test_other_initialisations(init):
    x = inputs(3)
    net = network(128)
    check_limit(ntkit.monte_carlo(net, 20, generator=seed(), init=init), ntkit.infinite_width(net, init=init), x)


def test_parametrised_module_keeps_its_gains():
    x = inputs(3)
    net = ntkit.parametrize_ntk(network(128), w_std=1.1, b_std=0.3)
    check_limit(ntkit.monte_carlo(net, 20, generator=seed()), ntkit.infinite_width(network(), 1.1, 0.3), x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attention, self.head = (
            nn.Linear(3, 8),
            nn.MultiheadAttention(8, 2, batch_first=True),
            nn.Linear(8, 1),
        )

    def forward(self, x):
        h = self.embed(x)
        return self.head(self.attention(h, h, h, need_weights=False)[0].mean(1))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 1)), (1, 6, 6)),
        (nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)), (3,)),
        (Attention(), (4, 3)),
    ],
    ids=["max pool", "batch norm", "attention"],
)
@pytest.mark.parametrize("width_scale", [1, 2])
def test_without_closed_form(module, shape, width_scale):
    x = inputs(4, *shape)
    mc = ntkit.monte_carlo(module, 5, width_scale, generator=seed())
    for kernel in (mc.ntk, mc.nngp):
        mean, error = kernel.estimate(x)
        assert torch.isfinite(mean).all() and (error.diagonal() > 0).all()
        assert torch.linalg.eigvalsh(mean).min() > -1e-10 * mean.diagonal().max()
    with pytest.raises(ntkit.errors.UnsupportedLayerError, match="ntkit.monte_carlo"):
        ntkit.infinite_width(module).ntk(x)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_samples": 0}, InputError, "n_samples must be"),
        ({"n_samples": 2.5}, InputTypeError, "n_samples must be"),
        ({"n_samples": True}, InputTypeError, "n_samples must be"),
        ({"generator": 3}, InputTypeError, "generator must be"),
        ({"module": "net"}, InputTypeError, "module must be"),
        ({"init": "torch", "w_std": 1.0}, InputError, "left out"),
        ({"init": "he"}, InputError, "must be"),
        ({"width_scale": -1}, InputError, "factor"),
        ({"module": ntkit.parametrize_ntk(network()), "w_std": 1.0}, InputError, "remove_ntk"),
    ],
)
def test_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        ntkit.monte_carlo(**{"module": network(), "n_samples": 2, **arguments}).ntk(inputs())


def test_one_network_has_no_error():
    mc = ntkit.monte_carlo(network(), 1, generator=seed())
    assert mc.ntk(inputs()).shape == (5, 5)
    with pytest.raises(InputError, match="at least two"):
        mc.ntk.estimate(inputs())


def test_frozen_parameters_are_random_but_not_trained():
    x = inputs(3)
    net = network(128)
    net[0].requires_grad_(False)
    check_limit(ntkit.monte_carlo(net, 20, generator=seed()), ntkit.infinite_width(net), x)


class TiedEmbedding(nn.Module):
    """A language model in small: the table of tokens is the output layer too."""

    def __init__(self):
        super().__init__()
        self.tokens, self.fc, self.head = nn.Embedding(7, 5), nn.Linear(5, 5), nn.Linear(5, 7, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, scale=1.0):
        return {"logits": scale * self.head(torch.relu(self.fc(self.tokens(ids).mean(1))))}


@pytest.mark.parametrize("width_scale", [1, 3])
def test_tied_embeddings_are_one_normal_that_each_layer_scales(width_scale):
    ids = torch.tensor([[1, 2], [3, 6], [0, 0]])

    class Logits(TiedEmbedding):
        def forward(self, ids):
            return super().forward(ids)["logits"]

    mc = ntkit.monte_carlo(Logits(), 6, width_scale, torch.Generator().manual_seed(0), w_std=1.5, b_std=0.5)
    draws = []
    for emp in mc.networks(ids):
        net, raw = emp.module, emp.module.tokens.weight
        assert torch.equal(net.head.weight, 1.5 / (5 * width_scale) ** 0.5 * raw)
        parameters = [p for p in net.parameters() if p.requires_grad]
        assert sum(p is raw for p in parameters) == 1
        rows = []
        for row in ids:
            for value in net(row[None]).flatten():
                found = torch.autograd.grad(value, parameters, retain_graph=True)
                rows.append(torch.cat([gradient.flatten() for gradient in found]))
        jacobian = torch.stack(rows).view(3, 7, -1)
        draws.append(torch.einsum("iop,jop->ij", jacobian, jacobian) / 7)
        assert abs(float(raw.detach().std()) - 1) < 0.5
    torch.testing.assert_close(mc.ntk(ids), torch.stack(draws).mean(0), rtol=1e-10, atol=0)


def test_keyword_arguments_and_outputs_in_a_dict():
    ids = torch.tensor([[1, 2], [3, 6]])
    mc = ntkit.monte_carlo(
        TiedEmbedding(), 3, generator=torch.Generator().manual_seed(0), read=lambda out: out["logits"]
    )
    single, double = mc.ntk({"ids": ids}), mc.ntk({"ids": ids, "scale": 2.0})
    torch.testing.assert_close(double, 4 * single, rtol=1e-12, atol=0)
    wider = ntkit.monte_carlo(TiedEmbedding(), 3, 2, torch.Generator(), read=lambda out: out["logits"])
    with pytest.raises(InputError, match="several arguments"):
        wider.ntk({"ids": ids})
