"""Every public function that runs a user's module leaves it, and all global generators, as it found them."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.cases import mlp, normal
from torch import Tensor, nn
from torch.nn.utils import prune

import ntkit
from ntkit import NTKClassifier, diagnostics, features
from ntkit._src.applications import search
from ntkit._src.common import OwnParameters, evaluation_mode, unchanged
from ntkit.errors import InputError, NtkitError
from ntkit.extending import copy_module, measuring

X = normal(6, 3)
Y = torch.tensor([0, 1, 0, 1, 1, 0])
TARGETS = torch.stack([1.0 * Y, 1.0 - Y], 1).double()


class Noting(nn.Module):
    """Notes its calls in a buffer in place, in a buffer anew, in a plain tensor and in a number; fails at a chosen call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("latest", torch.zeros((), dtype=torch.float64))
        self.plain, self.number = torch.zeros(2), 0
        self.left: deque[int] = deque()  # calls until it fails; only lists and dicts are restored

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.latest = self.latest + 1
        self.plain = self.plain + 1
        self.number += 1
        self.new = "an attribute that was not there"
        if self.left:
            self.left[0] -= 1
            if not self.left[0]:
                raise ArithmeticError("broken")
        return x


SMOOTH = ("TangentHierarchy", "finite_width_correction")
"""Functions that refuse networks with kinks; others need one, such as `linear_regions`."""


def network(activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Build batch norm, dropout, a frozen parameter, gradients, a hook, and parts in both modes."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(3, 5), nn.BatchNorm1d(5), Noting(), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 4), activation(),
            nn.Linear(4, 2),
        ).double()  # fmt: skip
        net[1].running_mean.normal_()
        net[1].running_var.uniform_(0.5, 2)
        for parameter in net.parameters():
            parameter.grad = torch.randn_like(parameter)
    net[0].bias.requires_grad_(False)
    net[5].register_forward_hook(lambda layer, args, output: None)
    net[1].eval()
    net[4].eval()  # the others stay in training mode, where they compute the same
    return net


def plain_network() -> nn.Sequential:
    """Build a network that has an infinite-width limit, its parts in both modes."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Dropout(0.3), nn.Linear(5, 2)).double()
        for parameter in net.parameters():
            parameter.grad = torch.randn_like(parameter)
    net[0].eval()
    net[2].eval()
    net[0].bias.requires_grad_(False)
    return net


def generators() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), kind, keys.tolist(), *rest, random.getstate()


def held(value: Any) -> Any:
    """Describe a value so that a change shows: the same tensor, and its entries."""
    return (id(value), value.tolist()) if isinstance(value, Tensor) else value


def state(net: nn.Module) -> dict[str, Any]:
    found: dict[str, Any] = {"generators": generators(), "fast path": torch.backends.mha.get_fastpath_enabled()}
    for path, layer in net.named_modules():
        for name, value in vars(layer).items():
            if name in ("_parameters", "_buffers", "_modules"):
                value = {key: held(each) if isinstance(each, Tensor) else id(each) for key, each in value.items()}
            elif "hooks" in name:
                value = dict(value)
            found[f"{path}:{name}"] = value if name == "left" else held(value)
    for name, parameter in net.named_parameters():
        found[f"{name}.grad"], found[f"{name}.requires_grad"] = held(parameter.grad), parameter.requires_grad
    return found


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [key for key in {**before, **after} if before.get(key) != after.get(key)]


class First(nn.Module):
    """The first output of a network."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)[:, :1]


def drawn() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def by_recorder(net: nn.Module) -> None:
    recorder = features.Recorder(net, X, derivatives=True)
    recorder.step()
    recorder.measure()
    recorder.uncentred()


def by_kernel_recorder(net: nn.Module) -> None:
    diagnostics.KernelRecorder(net, X, Y).step()


# Functions that run the user's own module, or a copy of it.
MEASURE: dict[str, Callable[[nn.Module], Any]] = {
    **{
        f"empirical ntk, {method}": lambda net, method=method: ntkit.empirical(net, "full", method).ntk(X)  # type: ignore[misc]
        for method in ("structured", "jacobian", "ntk-vp")
    },
    "empirical nngp": lambda net: ntkit.empirical(net).nngp(X[:2], X),
    "empirical diag": lambda net: ntkit.empirical(net, method="jacobian").ntk.diag(X),
    "empirical ntk_by_layer": lambda net: ntkit.empirical(net).ntk_by_layer(X, X[:2]),
    "empirical method_for": lambda net: ntkit.empirical(net).method_for(X),
    "empirical ntk_operator": lambda net: ntkit.empirical(net).ntk_operator(X) @ torch.ones(6, 2, dtype=torch.float64),
    "empirical ntk_operator diagonal": lambda net: ntkit.empirical(net).ntk_operator(X).diagonal(),
    "gram": lambda net: ntkit.gram(ntkit.empirical(net).ntk, X, tile=4),
    "posterior": lambda net: ntkit.posterior(ntkit.empirical(net), X[:3], TARGETS[:3, :1], X[3:], ridge=0.1),
    "GradientFlow": lambda net: ntkit.GradientFlow(ntkit.empirical(net).ntk).fit(X, TARGETS).predict(X, t=1.0),
    "attribute": lambda net: ntkit.attribute(net, X, Y, X[:2]),
    "attribute, projection": lambda net: ntkit.attribute(net, X, TARGETS, X[:2], method="projection", dim=8),
    "linearize": lambda net: ntkit.linearize(net)(X),
    "taylor": lambda net: ntkit.taylor(net, 2)(X),
    "monte_carlo": lambda net: ntkit.monte_carlo(net, 2, generator=drawn()).ntk(X),
    "widen": lambda net: ntkit.widen(net, 2, X, drawn()),
    "adapt": lambda net: ntkit.adapt(net, (3,)),
    "nfm": features.nfm,
    "nfa": lambda net: features.nfa(net, X, initial={name: value.clone() for name, value in net.state_dict().items()}),
    "agop": lambda net: features.agop(net, X),
    "agop, total": lambda net: features.agop(net, X, total=True),
    "ptk": lambda net: features.ptk(net, X, X[:2]),
    "ptk_covariance": lambda net: features.ptk_covariance(net, X, batch_size=2),
    "layer_ntk": lambda net: features.layer_ntk(net, X),
    "Recorder": by_recorder,
    "KernelRecorder": by_kernel_recorder,
    "hierarchy_kernel": lambda net: ntkit.hierarchy_kernel(net, X, None, [X[:, 0]], X, output=0),
    "hierarchy_terms": lambda net: ntkit.hierarchy_terms(3).evaluate(net, X[:3], 0),
    "TangentHierarchy": lambda net: (
        ntkit.TangentHierarchy(module=First(net), n_samples=0, ridge=0.1).fit(X, X[:, 0]).label_part(X)
    ),
    "finite_width_correction": lambda net: ntkit.finite_width_correction(
        net, X[:3], X[:3, 0], t=0.1, output=0, nodes=2
    ),
    "condition_number": lambda net: search.condition_number(net, X, 1, generator=drawn()),
    "linear_regions": lambda net: search.linear_regions(net, X),
    "rank": lambda net: search.rank([net, net], X, repeats=1, generator=drawn()),
}
# Functions of the infinite-width limit, which refuse a forward that changes its own buffers.
LIMIT: dict[str, Callable[[nn.Module], Any]] = {
    "infinite_width": lambda net: ntkit.infinite_width(net).ntk(X),
    "adapt": lambda net: ntkit.adapt(net, (3,)),
    "expected_ptk": lambda net: features.expected_ptk(net, X),
    "kernel_score": lambda net: search.kernel_score(net, X, Y, generator=drawn()),
    "NTKClassifier": lambda net: NTKClassifier(net).fit(X.numpy(), Y.numpy()).predict(X.numpy()),
    "posterior": lambda net: ntkit.posterior(ntkit.infinite_width(net), X[:3], TARGETS[:3, :1], X[3:]),
    "monte_carlo": lambda net: ntkit.monte_carlo(net, 2, generator=drawn()).nngp(X),
    "TangentHierarchy": lambda net: ntkit.TangentHierarchy(
        module=First(net), n_samples=2, ridge=0.1, generator=drawn()
    ).fit(X, X[:, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURE)
def test_everything_is_as_it_was(name: str) -> None:
    net = network(nn.GELU if name in SMOOTH else nn.ReLU)
    before = state(net)
    MEASURE[name](net)
    assert changes(before, state(net)) == []


@pytest.mark.parametrize("name", MEASURE)
@pytest.mark.parametrize("calls", [1, 4])
def test_everything_is_as_it_was_after_an_error(name: str, calls: int) -> None:
    net = network()
    net[2].left.append(calls)
    before = state(net)
    with contextlib.suppress(ArithmeticError, NtkitError):
        MEASURE[name](net)
    after = state(net)
    del before["2:left"], after["2:left"]
    assert changes(before, after) == []


@pytest.mark.parametrize("name", LIMIT)
@pytest.mark.parametrize("build", [plain_network, network])
def test_everything_is_as_it_was_after_tracing(name: str, build: Callable[[], nn.Module]) -> None:
    net = build()
    before = state(net)
    with contextlib.suppress(NtkitError) if build is network else contextlib.nullcontext():
        LIMIT[name](net)
    assert changes(before, state(net)) == []


@pytest.mark.parametrize("name", ["Recorder", "KernelRecorder"])
def test_everything_is_as_it_was_in_training_mode(name: str) -> None:
    net = network().train()
    before = state(net)
    MEASURE[name](net)
    assert changes(before, state(net)) == []


@pytest.mark.parametrize("schedule", [ntkit.Schedule(learning_rate=0.01, steps=2), ntkit.Schedule("flow", time=0.01)])
def test_training_changes_the_trained_parameters_alone(schedule: ntkit.Schedule) -> None:
    net = network()
    recorder = features.Recorder(net, X)
    before = state(net)
    ntkit.train(net, X, TARGETS, schedule, record=ntkit.Record(observe={"nfa": recorder.observe}, x_test=X[:2]))
    after = state(net)
    assert changes(before, after) == [f"{layer}:_parameters" for layer in (0, 1, 5, 7)]
    assert before["0:_parameters"]["bias"] == after["0:_parameters"]["bias"]  # frozen


def test_recorders_measure_in_evaluation_mode() -> None:
    net = network().train()
    recorder, kernels = features.Recorder(net, X, every=2), diagnostics.KernelRecorder(net, X)
    for _ in range(2):
        recorder.step()
    measured, gram = recorder.history.measures, kernels.measure()
    net.eval()
    expected = features.nfa(net, X)
    for path in recorder.layers:
        assert measured[path]["uncentred"] == pytest.approx([expected[path].uncentred] * 2, rel=1e-12)
    torch.testing.assert_close(gram, ntkit.empirical(net).ntk(X))
    net.train()
    with pytest.raises(InputError, match="evaluation mode"):
        features.nfa(net, X)  # on demand the mode is the module's own, which must define an output for each input


def test_recorders_follow_running_statistics() -> None:
    net = network().train()
    recorder = features.Recorder(net, X)
    net(X + 1)  # moves the statistics of batch norm
    recorder.step()
    values = recorder.history.measures["0"]["uncentred"]
    assert values[0] != pytest.approx(values[1], rel=1e-6)
    assert values[1] == pytest.approx(features.nfa(net.eval(), X)["0"].uncentred, rel=1e-12)


class Drawing(nn.Module):
    """Draws from every global generator in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) + float(torch.rand(())) * np.random.rand() * random.random()


def test_a_refused_random_module_leaves_the_generators() -> None:
    net = Drawing()
    before = generators()
    for name in ("empirical ntk, jacobian", "nfa", "attribute", "Recorder", "hierarchy_kernel"):
        with pytest.raises(InputError, match="random numbers"):
            MEASURE[name](net)
    with pytest.raises(NtkitError):
        ntkit.infinite_width(net).ntk(X)
    assert generators() == before


class Numpy(nn.Module):
    """A layer that numpy and Python draw."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def reset_parameters(self) -> None:
        self.weight.data = torch.tensor([np.random.rand(), np.random.rand(), random.random()])

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


@pytest.mark.parametrize("scheme", ["ntk", "standard", "torch"])
def test_drawing_with_a_generator_leaves_the_global_ones(scheme: str) -> None:
    with torch.random.fork_rng():
        nets = [nn.Sequential(Numpy(), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(2)]
    before = generators()
    for net in nets:
        if scheme == "ntk":
            ntkit.parametrize_ntk(net)
        ntkit.initialize(net, scheme, generator=drawn())
    assert generators() == before
    assert nets[0][0].weight.abs().sum() > 0
    for first, second in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(first, second)


class Logging(nn.Module):
    """Writes to a list, to a dict and to a tensor in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.log, self.seen, self.sums = nn.Linear(3, 1), [0], {"calls": 0}, [torch.zeros(3)]

    def forward(self, x: Tensor) -> Tensor:
        self.log.append(len(x))
        self.seen["calls"] += 1
        self.seen[str(len(self.log))] = 1
        self.sums[0] += x.detach().sum(0)
        out: Tensor = self.layer(x)
        return out


def test_lists_and_dicts_of_the_module_are_as_they_were() -> None:
    net = Logging()
    held = net.log, net.seen, net.sums
    ntkit.empirical(net).ntk(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)))
    assert (net.log, net.seen) == ([0], {"calls": 0}) and not net.sums[0].any()
    assert all(a is b for a, b in zip(held, (net.log, net.seen, net.sums), strict=True))


@pytest.mark.parametrize("bag", [False, True])
def test_tables_with_a_largest_norm_keep_their_values(bag: bool) -> None:
    table = nn.EmbeddingBag(5, 4, max_norm=0.1, mode="sum") if bag else nn.Embedding(5, 4, max_norm=0.1)
    net = nn.Sequential(table, nn.Flatten(), nn.Linear(4 if bag else 8, 1))
    before = table.weight.detach().clone()
    ntkit.empirical(net).ntk(torch.tensor([[0, 1], [2, 3], [4, 0]]))
    assert torch.equal(table.weight, before)


def test_computed_weights_and_modes_come_back_after_an_error() -> None:
    net = network()
    prune.l1_unstructured(net[0], "weight", 0.5)
    net(X)  # so that the layer holds a computed weight
    weight, before = net[0].weight, state(net)
    assert not weight.is_leaf
    for context in (unchanged, measuring, evaluation_mode):
        with pytest.raises(RuntimeError, match="midway"), context(net):  # noqa: PT012
            net.train()(X)  # moves running statistics
            net[1].running_mean += 1
            net.extra = 1
            raise RuntimeError("midway")
        assert net[0].weight is weight
        assert changes(before, state(net)) == (["generators"] if context is unchanged else [])
        before["generators"] = generators()


def test_a_graph_from_before_can_be_differentiated() -> None:
    net = network()
    loss = net(X).square().sum()
    features.Recorder(net, X)
    ntkit.empirical(net).ntk(X)
    loss.backward()  # fails if a buffer was overwritten meanwhile, even with its own values


def test_buffers_without_equality() -> None:
    net = nn.Module()
    net.register_buffer("graph", torch.eye(3).to_sparse())
    with unchanged(net):
        net.graph.mul_(2)
    assert torch.equal(net.graph.to_dense(), torch.eye(3))


def test_buffers_of_inference_mode() -> None:
    with torch.inference_mode():
        net = network()
        before = state(net)
        with measuring(net):
            net(X)
        assert changes(before, state(net)) == []
    with torch.no_grad(), measuring(net.eval()):  # outside it they cannot change
        assert net[1](torch.ones(1, 5, dtype=torch.float64)).shape == (1, 5)


def test_reading_weights_runs_no_power_iteration() -> None:
    net = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))).double()
    before = state(net)
    features.nfm(net)
    assert changes(before, state(net)) == []


def test_a_script_is_left_as_it_was() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
        script = torch.jit.script(net)
        before = {name: value.clone() for name, value in script.state_dict().items()}
        kernel = ntkit.empirical(script.eval()).ntk(X)
        torch.testing.assert_close(kernel, ntkit.empirical(net.eval()).ntk(X))
        with evaluation_mode(script.train()), torch.no_grad():
            torch.testing.assert_close(script(X), net(X))
            script.train()(X)  # moves running statistics
        assert all(layer.training for layer in script.modules())
        with evaluation_mode(script.eval()), torch.no_grad():
            script.train()
        assert not any(layer.training for layer in script.modules())
    for name, value in script.state_dict().items():
        assert torch.equal(value, before[name]), name


def pruned() -> nn.Sequential:
    torch.manual_seed(0)
    net = mlp(3, 4, 2)
    prune.l1_unstructured(net[0], "weight", 0.5)
    net(torch.ones(1, 3))  # so that the layer holds a computed weight
    return net


def test_a_copy_computes_the_same_with_parameters_of_its_own() -> None:
    net, x = pruned(), torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    assert not net[0].weight.is_leaf
    copied = copy_module(net)
    assert torch.equal(copied[0].weight, torch.zeros(4, 3))  # until it is called
    assert torch.equal(copied(x), net(x))
    with torch.no_grad():
        copied[2].bias += 1
    torch.testing.assert_close(copied(x), net(x) + 1)


def test_a_function_that_closes_over_a_layer_is_named() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    layer = net[1]
    net[1].forward = lambda x: nn.functional.linear(x, layer.weight)
    copied = copy_module(net)
    with OwnParameters(net):
        nn.functional.linear(torch.ones(1, 3), copied[0].weight)
        with pytest.raises(InputError, match=r"parameter '1\.weight'"):
            copied(torch.ones(1, 3))
