"""Empirical kernels equal brute force, by every method, for every kind of module."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.cases import mlp, normal
from tests.kernels.finite_network.cases import CASES, Function, brute_jacobian, brute_ntk, brute_ntk_of_case, make
from torch import nn

import ntkit
from ntkit._src.kernels.finite_network._network import Network
from ntkit._src.kernels.finite_network._survey import survey
from ntkit.testing import KernelConformance

pytestmark = [  # torch's own, of the brute-force derivatives
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
]

METHODS = ("structured", "jacobian", "ntk-vp", "auto")
OUTPUTS = ("trace", "sum", "full", 0)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CASES)
def test_equals_brute_force(name, method):
    module, x = make(name)
    for output in OUTPUTS:
        kernel = ntkit.empirical(module, output, method).ntk
        close(kernel(x, x[:2]), brute_ntk_of_case(name, output, columns=slice(2)))
        own = kernel(x)
        close(own, brute_ntk_of_case(name, output))
        assert torch.equal(own, own.T)
        close(kernel.diag(x), own.diagonal())


@pytest.mark.parametrize("byte_budget", [1, 20_000])
@pytest.mark.parametrize("method", ["structured", "jacobian", "ntk-vp"])
@pytest.mark.parametrize("name", ["mlp", "groups, circular padding", "positions", "tied weights"])
def test_byte_budget_changes_nothing(name, method, byte_budget):
    n = 2 if byte_budget == 1 else 3  # one row at a time is slow
    module, x = make(name, n=n)
    for output in ("trace", "full"):
        small = ntkit.empirical(module, output, method, byte_budget=byte_budget).ntk
        close(small(x), brute_ntk_of_case(name, output, n=n))
        close(small(x[: n - 1], x), brute_ntk_of_case(name, output, rows=slice(n - 1), n=n))
        close(small.diag(x), brute_ntk_of_case(name, output, n=n).diagonal())


@pytest.mark.parametrize("name", CASES)
def test_operator(name):
    module, x = make(name)
    for output in OUTPUTS:
        emp = ntkit.empirical(module, output)
        operator, dense = emp.ntk_operator(x), brute_ntk_of_case(name, output)
        vectors = normal(len(dense), 2)
        assert operator.shape == dense.shape
        assert operator.dtype == torch.float64
        close(operator @ vectors, dense @ vectors)
        close(operator @ vectors[:, 0], dense @ vectors[:, 0])
        close(operator.to_dense(), dense)
        close(operator.diagonal(), dense.diagonal())


REST = {  # what the structured method leaves to derivatives; everything else it must serve itself
    "mlp": set(),
    "strides, padding, dilation": set(),
    "groups, circular padding": set(),
    "conv3d": set(),
    "residual": set(),
    "in place": set(),
    "positions": set(),
    "positions in the batch": set(),
    "ntk parametrisation": set(),
    "keyword input": set(),
    "no bias trained, frozen": set(),
    "batch norm": {"1.weight", "1.bias", "5.weight", "5.bias"},
    "called twice": {"shared.weight", "shared.bias"},
    "tied weights": {"encoder.weight", "shift"},
    "embedding, mean": {"embedding.weight"},
    "embedding, tied": {"embedding.weight"},
    "weight norm": {"0.parametrizations.weight.original0", "0.parametrizations.weight.original1"},
    "output unused": {"fc.weight"},
    "parameter of its own": {"scale", "w"},
}


@pytest.mark.parametrize("name", REST)
def test_structure_is_found(name):
    module, x = make(name)
    assert set(survey(Network(module, "trace"), x, 2**20).rest) == REST[name]


def test_batch_on_another_axis_is_seen():
    module, x = make("attention, batch second, as many positions as rows", n=3)
    found = survey(Network(module, "trace"), x, 2**20)
    assert not any(layer.layer in (module.embed, module.head) for layer in found.layers)


@pytest.mark.parametrize("method", ["structured", "jacobian", "ntk-vp"])
@pytest.mark.parametrize(
    "name", ["residual", "tied weights", "ntk parametrisation", "parameter of its own", "attention"]
)
def test_by_layer(name, method):
    module, x = make(name, n=3)
    parts = ntkit.empirical(module, method=method).ntk_by_layer(x, x[:2])
    j1, j2 = brute_jacobian(module, x), brute_jacobian(module, x[:2])
    expected = {}
    for parameter in j1:
        path = parameter.split(".parametrizations.")[0] if ".param" in parameter else parameter.rpartition(".")[0]
        value = torch.einsum("iap,jap->ij", j1[parameter], j2[parameter]) / j1[parameter].shape[1]
        expected[path or parameter] = expected.get(path or parameter, 0) + value
    assert parts.keys() == expected.keys()
    for path, value in expected.items():
        close(parts[path], value)


@pytest.mark.parametrize("method", METHODS)
def test_a_layer_without_influence_contributes_zero(method):
    module = Function(lambda m, x: m.head(x), head=nn.Linear(3, 2), unused=nn.Linear(3, 2)).double()
    x = torch.eye(3, dtype=torch.float64)
    parts = ntkit.empirical(module, method=method).ntk_by_layer(x)
    assert parts.keys() == {"head", "unused"} and not parts["unused"].any()
    close(parts["head"], brute_ntk(module, x, x))


class TestConformance(KernelConformance):
    def inputs(self):
        return make("mlp")[1]

    def kernels(self):
        emp = ntkit.empirical(make("mlp")[0])
        return [emp.ntk, emp.nngp, emp.ntk.normalized() + 0.5 * emp.nngp]

    def test_dtype(self):
        """The kernel has the module's dtype, and takes no other."""
        x = self.inputs()
        module = make("mlp")[0].float()
        for which in ("ntk", "nngp"):
            single = getattr(ntkit.empirical(module), which)(x.float())
            assert single.dtype == torch.float32
            double = getattr(ntkit.empirical(copy.deepcopy(module).double()), which)(x)
            torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)
            with pytest.raises(TypeError, match="dtype of the module"):
                getattr(ntkit.empirical(module), which)(x)


def test_nngp_is_that_of_the_last_features():
    module, x = make("mlp")
    features = module[:-1](x).detach()
    close(ntkit.empirical(module).nngp(x), features @ features.T / 8)
    close(ntkit.empirical(module, 1).nngp(x, x[:2]), features @ features[:2].T / 8)
    close(ntkit.empirical(module, "sum").nngp(x), 3 * features @ features.T / 8)
    close(ntkit.empirical(module, "full").nngp(x), torch.kron(features @ features.T / 8, torch.eye(3).double()))
    close(ntkit.empirical(module).nngp.diag(x), (features**2).mean(1))
    module.requires_grad_(False)
    close(ntkit.empirical(module).nngp(x), features @ features.T / 8)


def test_nngp_has_the_gains_of_the_parametrisation():
    module, x = make("ntk parametrisation")
    features = module[:-1](x).detach()
    close(ntkit.empirical(module).nngp(x), 2 * features @ features.T / 7 + 0.3**2)


def test_nngp_follows_what_comes_after():
    module = Function(
        lambda m, x: m.head(torch.relu(m.fc(x))).mean(1), fc=nn.Linear(3, 6), head=nn.Linear(6, 2)
    ).double()
    x = normal(4, 5, 3)
    features = torch.relu(module.fc(x)).mean(1).detach()
    close(ntkit.empirical(module).nngp(x), features @ features.T / 6)


def test_kernel_follows_training():
    module, x = make("mlp")
    kernel = ntkit.empirical(module).ntk
    before = kernel(x)
    with torch.no_grad():
        module[0].weight *= 1.5
    after = kernel(x)
    assert not torch.allclose(before, after)
    close(after, brute_ntk(module, x, x))


def test_module_is_left_alone():
    module, x = make("batch norm")
    state = {name: value.clone() for name, value in module.state_dict().items()}
    with torch.no_grad():
        close(ntkit.empirical(module).ntk(x), brute_ntk(module, x, x))
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not any(layer._forward_hooks for layer in module.modules())
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


def test_auto_multiplies_vectors_where_tables_are_large():
    """Of an embedding's table an input reads a few rows: its derivatives are not worth forming for many inputs."""
    module = nn.Sequential(nn.Embedding(100_000, 4), nn.Flatten(), nn.Linear(8, 2))
    emp, rows = ntkit.empirical(module), torch.tensor([[0, 1], [5, 2]])
    assert emp.method_for(rows) != "ntk-vp"
    assert emp.method_for(rows.repeat(500, 1)) == "ntk-vp"


@pytest.mark.parametrize("name", ["mlp", "residual", "ntk parametrisation", "positions"])
def test_auto_is_structured_where_layers_are(name):
    module, x = make(name)
    assert ntkit.empirical(module).method_for(x) == "structured"


PEAK = """
import re, torch, ntkit
from pathlib import Path
from torch import nn
torch.set_num_threads(1)
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
w = {width}
net = nn.Sequential(nn.Linear(64, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, 20))
x = torch.randn(600, 64)
ntkit.empirical(net, method="{method}", byte_budget={budget}).ntk(x[:2])  # loads what is loaded once
before = peak()
ntkit.empirical(net, method="{method}", byte_budget={budget}).ntk(x[: {rows}])
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's own count")
@pytest.mark.parametrize(("method", "width", "rows"), [("structured", 512, 600), ("jacobian", 256, 12)])
def test_memory_is_bounded(method, width, rows):
    """What is backpropagated to all rows (3 x 512 x 20 entries each) takes 150 MB, the derivatives of one (width 256) 12 MB."""
    scripts = [PEAK.format(method=method, budget=budget, width=width, rows=rows) for budget in (2**25, 2**31)]
    runs = [
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True) for script in scripts
    ]
    small, large = (float(run.stdout) for run in runs)
    assert small < 1.5 * 32 + 10
    assert large > 2 * small  # or the budget did not matter


@pytest.mark.slow
@pytest.mark.parametrize("which", ["ntk", "nngp"])
def test_rate_of_convergence(which):
    """The error against the infinite-width kernel falls as 1/sqrt(width)."""
    x = normal(6, 4)
    exact = getattr(ntkit.infinite_width(mlp(4, 8, 1), b_std=0.3), which)(x)
    widths, errors = [64, 256, 1024, 4096], []
    for width in widths:
        net = ntkit.parametrize_ntk(mlp(4, width, 1), b_std=0.3).double()
        deviations = []
        for seed in range(20):
            ntkit.initialize(net, generator=torch.Generator().manual_seed(seed))
            deviations.append((getattr(ntkit.empirical(net), which)(x) - exact).norm())
        errors.append(torch.stack(deviations).square().mean().sqrt())
    slope = torch.tensor(errors).log().diff().mean() / torch.tensor(4.0).log()
    assert -0.6 < slope < -0.4
