"""Modules that take several arguments and return more than a tensor, as language models do."""

from dataclasses import dataclass

import pytest
import torch
from tests.cases import mlp
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import InputError, InputTypeError


@dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor


class Block(nn.Module):
    """A pre-norm transformer block whose projections are products with parameters, as in GPT-2."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.shift = nn.Parameter(0.3 * torch.randn(width, 3 * width)), nn.Parameter(torch.randn(3 * width))
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, h, mask):
        q, k, v = (self.norm1(h) @ self.qkv + self.shift).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None, :] == 0, -1e9)
        h = h + self.out((scores.softmax(3) @ v).transpose(1, 2).flatten(2))
        return h + self.down(F.gelu(self.up(self.norm2(h))))


class LanguageModel(nn.Module):
    """GPT-2 in small: token and position tables, two blocks, the token table again as the output layer."""

    def __init__(self, causal=True, classes=None):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.blocks = nn.ModuleList([Block(8, 2, causal) for _ in range(2)])
        self.norm = nn.LayerNorm(8)
        self.classes, self.head = classes, nn.Linear(8, classes or 11, bias=classes is not None)
        if classes is None:
            self.head.weight = self.tokens.weight

    def forward(self, input_ids, attention_mask=None, scale=1.0):
        h = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        for block in self.blocks:
            h = block(h, attention_mask)
        h = self.norm(h)
        logits = self.head(h if self.classes is None else h[:, 0])
        return Output(scale * logits, h)


def brute(module, rows, read):
    parameters = [p for p in module.parameters() if p.requires_grad]
    derivatives = []
    for row in rows:
        for value in read(module(**row)).flatten():
            gradients = torch.autograd.grad(
                value, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            derivatives.append(torch.cat([gradient.flatten() for gradient in gradients]))
    jacobian = torch.stack(derivatives)
    return jacobian @ jacobian.T


IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 1, 1], [10, 0, 2, 7]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]])


@pytest.fixture(params=["gpt2", "bert"])
def model(request):
    torch.manual_seed(0)
    return LanguageModel() if request.param == "gpt2" else LanguageModel(causal=False, classes=3)


@pytest.mark.parametrize("method", ["auto", "structured", "jacobian"])
def test_language_models_equal_brute_force(model, method):
    model = model.double()
    emp = ntkit.empirical(model, "full", method, read=lambda out: out.logits)
    batch = {"input_ids": IDS, "attention_mask": MASK, "scale": 0.5}
    rows = [{"input_ids": IDS[i : i + 1], "attention_mask": MASK[i : i + 1], "scale": 0.5} for i in range(3)]
    expected = brute(model, rows, lambda out: out.logits)
    scale = expected.abs().max()
    assert (emp.ntk(batch) - expected).abs().max() < 1e-10 * scale
    few = {"input_ids": IDS[:1], "attention_mask": MASK[:1], "scale": 0.5}
    assert (emp.ntk(few, batch) - expected[: len(expected) // 3]).abs().max() < 1e-10 * scale
    assert (emp.ntk.diag(batch) - expected.diagonal()).abs().max() < 1e-10 * scale


def test_products_and_outputs_by_function():
    torch.manual_seed(1)
    model = LanguageModel(causal=False, classes=2).double()
    batch = {"input_ids": IDS, "attention_mask": MASK}
    emp = ntkit.empirical(model, output=lambda out: out.logits)
    expected = emp.ntk(batch)
    vector = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    assert torch.allclose(emp.ntk_operator(batch) @ vector, expected @ vector, rtol=1e-10)
    full = ntkit.empirical(model, "full", read=lambda out: out.logits).ntk(batch)
    assert torch.allclose(full.view(3, 2, 3, 2).diagonal(dim1=1, dim2=3).mean(2), expected, rtol=1e-10)
    unmasked = emp.ntk({"input_ids": IDS})
    assert torch.allclose(emp.ntk((IDS,)), unmasked, rtol=1e-12)
    assert not torch.allclose(unmasked, expected, rtol=1e-3)


def test_auto_is_fast_where_outputs_are_many():
    """A pass per output and column would take a thousand times as long as derivatives formed at once."""
    torch.manual_seed(0)
    emp = ntkit.empirical(LanguageModel(), "full", read=lambda out: out.logits)
    assert emp.method_for({"input_ids": IDS}) != "ntk-vp"


class Watchful(nn.Module):
    """Computes otherwise where its weight is no parameter, as it is while torch.func differentiates."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x) if isinstance(self.fc.weight, nn.Parameter) else self.fc(x)[:, :1]


def test_modules_that_notice_a_transform_are_differentiated_plainly():
    torch.manual_seed(0)
    x, module = torch.randn(4, 3, dtype=torch.float64), Watchful().double()
    expected = brute(module, [{"x": row[None]} for row in x], lambda out: out)
    found = ntkit.empirical(module, "full", "jacobian").ntk(x)
    assert (found - expected).abs().max() < 1e-12


BAD = {
    "rows differ": ({"input_ids": IDS, "attention_mask": MASK[:2]}, InputError, r"same number of rows.*expand"),
    "no tensor": ({"scale": 2.0}, InputTypeError, "at least one torch.Tensor"),
    "scalar": ((IDS, torch.tensor(1.0)), InputError, r"x\[1\] must have one row"),
    "unknown keyword": ({"ids": IDS}, InputTypeError, "cannot run"),
    "an array": (IDS.numpy(), InputTypeError, "torch.Tensor"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_batches(name):
    batch, error, message = BAD[name]
    with pytest.raises(error, match=message):
        ntkit.empirical(LanguageModel(), output=lambda out: out.logits).ntk(batch)


def test_bad_readers():
    model = LanguageModel()
    with pytest.raises(InputError, match=r"output=lambda out: out.logits"):
        ntkit.empirical(model).ntk({"input_ids": IDS})
    with pytest.raises(InputError, match="give the function once"):
        ntkit.empirical(model, lambda out: out.logits, read=lambda out: out.logits)
    with pytest.raises(InputError, match="same arguments"):
        ntkit.empirical(model, lambda out: out.logits).ntk(
            {"input_ids": IDS}, {"input_ids": IDS, "attention_mask": MASK}
        )
    with pytest.raises(InputTypeError, match="read must be a function"):
        ntkit.empirical(model, read="logits")


def test_transformers_package():
    """The same with Hugging Face's own classes where they are installed."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=11, n_positions=6, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config).double().eval()
    emp = ntkit.empirical(model, "full", read=lambda out: out.logits)
    rows = [{"input_ids": IDS[i : i + 1], "use_cache": False} for i in range(3)]
    expected = brute(model, rows, lambda out: out.logits)
    found = emp.ntk({"input_ids": IDS, "use_cache": False})
    assert (found - expected).abs().max() < 1e-10 * expected.abs().max()


def test_hooks_that_change_a_layers_output_count():
    torch.manual_seed(0)
    net = mlp(3, 6, 2, activation=nn.Tanh).double()
    net[0].register_forward_hook(lambda layer, args, out: out * torch.arange(1.0, 7, dtype=out.dtype))
    x = torch.randn(4, 3, dtype=torch.float64)
    expected = brute(net, [{"input": row[None]} for row in x], lambda out: out)
    for method in ("structured", "jacobian"):
        assert (ntkit.empirical(net, "full", method).ntk(x) - expected).abs().max() < 1e-12
