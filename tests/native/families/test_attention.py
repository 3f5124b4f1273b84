"""Attention on the native engine: every mechanism that it has, masks, tokens, and what it leaves to the reference engine."""

import pytest
import torch
from tests.cases import normal
from tests.native.networks import hard, network, of_type
from torch import nn

import ntkit
from ntkit._src.native import _core
from ntkit._src.native._network import unsupported
from ntkit._src.program import Attention
from ntkit.layers import SelfAttention

TOKENS, WIDTH = 5, 8
CAUSAL = torch.ones(TOKENS, TOKENS).triu(1).bool()


class Residual(nn.Module):
    """x + layers(x)."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


class Read(nn.Module):
    """One token, or the mean of all."""

    def __init__(self, token=None):
        super().__init__()
        self.token = token

    def forward(self, x):
        return x.mean(1) if self.token is None else x[:, self.token]


class Transposed(nn.Module):
    """Channels last."""

    def forward(self, x):
        return x.transpose(1, 2)


class Patches(nn.Module):
    """An image cut into tokens, a class token and positions before them if asked for."""

    def __init__(self, learned):
        super().__init__()
        self.embed = nn.Conv2d(3, WIDTH, 2, stride=2)
        self.first = nn.Parameter(normal(1, 1, WIDTH, seed=3)) if learned else None
        self.positions = nn.Parameter(normal(1, 7, WIDTH, seed=4)) if learned else None

    def forward(self, x):
        h = self.embed(x).flatten(2).transpose(1, 2)
        if self.first is None:
            return h
        return torch.cat([self.first.expand(len(x), -1, -1), h], 1) + self.positions


def block(mechanism="softmax", scaling="linear", phi=nn.ReLU, affine=True, **options):
    attention = SelfAttention(WIDTH, 2, mechanism, scaling, **{"tied": scaling == "linear", **options})
    norms = [nn.LayerNorm(WIDTH, elementwise_affine=affine) for _ in range(2)]
    return [Residual(norms[0], attention), Residual(norms[1], nn.Linear(WIDTH, WIDTH), phi(), nn.Linear(WIDTH, WIDTH))]


def tokens(*layers, read=None):
    return nn.Sequential(nn.Linear(5, WIDTH), *layers, Read(read), nn.Linear(WIDTH, 1))


def image(*layers, learned, read=None):
    return nn.Sequential(Patches(learned), *layers, nn.LayerNorm(WIDTH), Read(read), nn.Linear(WIDTH, 1))


CASES = {
    "softmax": ((TOKENS, 5), lambda: tokens(*block())),
    "softmax, two blocks, one token": ((TOKENS, 5), lambda: tokens(*block(), *block(), read=2)),
    "softmax, masked": ((TOKENS, 5), lambda: tokens(*block(mask=CAUSAL))),
    "softmax of logits that vanish": ((TOKENS, 5), lambda: tokens(*block(tied=False))),
    "relu": ((TOKENS, 5), lambda: tokens(*block("relu", affine=False))),
    "relu, masked": ((TOKENS, 5), lambda: tokens(*block("relu", mask=CAUSAL))),
    "abs": ((TOKENS, 5), lambda: tokens(*block("abs", phi=nn.GELU))),
    "identity": ((TOKENS, 5), lambda: tokens(*block("identity"))),
    "identity at 1/sqrt(d)": ((TOKENS, 5), lambda: tokens(*block("identity", "sqrt", phi=nn.GELU))),
    "identity at 1/sqrt(d), masked": ((TOKENS, 5), lambda: tokens(*block("identity", "sqrt", mask=CAUSAL))),
    "on the data": (
        (TOKENS, WIDTH),
        lambda: nn.Sequential(SelfAttention(WIDTH, 2, "softmax", "linear", tied=True), nn.ReLU(), Read(), nn.Linear(WIDTH, 1)),
    ),
    "patches": ((3, 4, 6), lambda: image(*block(phi=nn.GELU), learned=False)),
    "patches, class token, positions": ((3, 4, 6), lambda: image(*block(), *block(phi=nn.GELU), learned=True)),
    "convolutions, then tokens": (
        (3, 4, 4),
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.Conv2d(4, WIDTH, 3, 2, 1), nn.ReLU()),
            *(nn.Flatten(2), Transposed(), SelfAttention(WIDTH, 2, "softmax", "linear", tied=True)),
            *(nn.ReLU(), Read(), nn.Linear(WIDTH, 1)),
        ),
    ),
    "read at the class token": ((3, 4, 6), lambda: image(*block(), learned=True, read=0)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_the_reference_engine(name):
    """Equal inputs, multiples, opposite and nearly equal ones; the last only as well as K knows their angle."""
    shape, make = CASES[name]
    limit = ntkit.infinite_width(make().double(), w_std=1.2, b_std=0.3)
    x, z = hard(normal(7, *shape)), normal(3, *shape, seed=1)
    near = torch.zeros(7, 7, dtype=torch.bool)
    near[0, 4] = near[4, 0] = near[1, 4] = near[4, 1] = True
    for other in (z, None):
        native, reference = (limit.both(x, other, engine=engine) for engine in ("native", "reference"))
        for a, b in zip(native, reference, strict=True):
            error = (a - b).abs() / b.abs().max()
            # 1 - rho of nearly equal inputs is a difference of K after attention: 1e-16 of 1e-6, and its root counts.
            assert float(error[near].max() if other is None else 0.0) < 1e-10
            assert float(error.masked_fill(near, 0).max() if other is None else error.max()) < 1e-12
    for kernel, gram in ((limit.ntk, native.ntk), (limit.nngp, native.nngp)):
        torch.testing.assert_close(kernel.diag(x), gram.diagonal(), rtol=1e-12, atol=1e-13)
        assert torch.equal(gram, gram.T)


def test_equal_inputs_have_equal_rows():
    x = normal(4, TOKENS, 5)
    x[2] = x[0]
    gram = ntkit.infinite_width(tokens(*block(), *block("relu")).double(), w_std=1.1, b_std=0.1).ntk(x, engine="native")
    torch.testing.assert_close(gram[0], gram[2], rtol=1e-14, atol=0)
    torch.testing.assert_close(gram[0, 0], gram[0, 2], rtol=1e-14, atol=0)


@pytest.mark.parametrize("token", [None, 1])
def test_more_tokens_than_stay_in_the_cache(token):
    """Then entries go from layer to layer plane by plane, and only attention sees all of them."""
    limit = ntkit.infinite_width(tokens(*block(), read=token).double(), b_std=0.1)
    x = normal(3, 70, 5)
    torch.testing.assert_close(limit.ntk(x, engine="native"), limit.ntk(x, engine="reference"), rtol=1e-12, atol=0)


def test_weights_are_cached_and_products_are_few():
    planned = network(tokens(*block()).double(), TOKENS, 5)
    (index,) = of_type(planned, Attention)
    assert planned.cache_numbers(_core.Cached.WEIGHTS, index) == TOKENS**2
    tape = ntkit._src.native.tape_of(planned.traced)
    kinds = [step.kind for step in tape.instructions]
    assert kinds.count(_core.Kind.LEFT) == kinds.count(_core.Kind.RIGHT) == 2  # attention and the mean over the tokens
    assert _core.Kind.GATHER not in kinds
    assert "weights" in str(ntkit._src.native.tape_of(planned.traced, kind="cache"))


@pytest.mark.parametrize(
    ("mechanism", "samples", "words"),
    [("softmax", 16, "attention softmax, 16 samples"), ("relu", None, "attention relu")],
)
def test_what_the_reference_engine_computes(mechanism, samples, words):
    limit = ntkit.infinite_width(tokens(*block(mechanism, "sqrt")).double(), attention_samples=samples)
    assert words in unsupported(limit.program((TOKENS, 5)))
    assert words in str(limit.explain((TOKENS, 5))).splitlines()[-1]


def test_scales_that_grow_apart_are_refused():
    """Without softmax, each layer raises the scale of an input to its third power, and H of very different ones has lost K."""
    layers = [SelfAttention(WIDTH, 2, "identity", "linear", tied=True) for _ in range(2)]
    limit = ntkit.infinite_width(nn.Sequential(*layers, nn.ReLU(), Read(), nn.Linear(WIDTH, 1)).double(), b_std=0.3)
    x = normal(3, TOKENS, WIDTH)
    torch.testing.assert_close(limit.ntk(x, engine="native"), limit.ntk(x, engine="reference"), rtol=1e-10, atol=0)
    x[0] *= 10
    with pytest.raises(
        ntkit.errors.EngineError, match="standard deviations of any two inputs within a factor of 65,536"
    ):
        limit.ntk(x, engine="native")
    assert torch.equal(limit.ntk(x), limit.ntk(x, engine="reference"))
