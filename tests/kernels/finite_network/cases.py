"""Networks of every kind that an empirical kernel must get right, and the brute-force kernel of each."""

from functools import cache

import torch
from tests.cases import mlp
from torch import nn
from torch.func import functional_call, jacrev
from torch.nn import functional as F

import ntkit


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.a = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.down, self.short = nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.Conv2d(4, 6, 1, stride=2)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        h = F.relu(self.stem(x))
        h = F.relu(h + self.a(h))
        h = F.relu(self.down(h) + self.short(h))
        return self.head(h.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        self.batch_first = batch_first
        self.embed, self.norm = nn.Linear(3, 8), nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        h = self.embed(x if self.batch_first else x.transpose(0, 1))
        h = h + self.attention(*[self.norm(h)] * 3, need_weights=False)[0]
        return self.head(h).mean(1) if self.batch_first else self.head(h)[0]


class Tied(nn.Module):
    """An autoencoder that decodes with the encoder's weight."""

    def __init__(self):
        super().__init__()
        self.encoder, self.shift = nn.Linear(4, 5), nn.Parameter(torch.randn(4))

    def forward(self, x):
        return torch.tanh(self.encoder(x)) @ self.encoder.weight + self.shift


class Embedded(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        self.embedding, self.fc = nn.Embedding(7, 5), nn.Linear(5, 5)
        self.head = nn.Linear(5, 7, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(F.gelu(self.fc(self.embedding(tokens).mean(1))))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.shared, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.shared(torch.tanh(self.shared(self.first(x))))))


class Function(nn.Module):
    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.function(self, x)


def partly_frozen():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    net[0].requires_grad_(False)
    net[2].bias.requires_grad_(False)
    net[4].weight.requires_grad_(False)
    return net


def normed():
    """Batch norms with statistics that are not trivial."""
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3), nn.BatchNorm1d(3)
    )
    for layer in net:
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(layer.weight, 0.5, 2)
            nn.init.normal_(layer.bias)
            nn.init.normal_(layer.running_mean)
            nn.init.uniform_(layer.running_var, 0.5, 2)
    return net.eval()


def parametrized():
    net = nn.Sequential(
        nn.Conv1d(2, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(30, 7), nn.ReLU(), nn.Linear(7, 2)
    )
    return ntkit.initialize(ntkit.parametrize_ntk(net, b_std=0.3), generator=torch.Generator().manual_seed(1))


def weight_normed():
    net = mlp(4, 6, 2)
    nn.utils.parametrizations.weight_norm(net[0])
    return net


def sequential(*layers):
    return lambda: nn.Sequential(*[layer() if isinstance(layer, type) else layer for layer in layers])


# name: (module maker, shape of one input, or (shape, number of tokens) for integers)
CASES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)), (4,)),
    "one output, no output axis": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0)), (4,)),
    "strides, padding, dilation": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0)), nn.ReLU(),
                              nn.Conv2d(4, 3, 2, dilation=2, padding=1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)), (2, 6, 6)),
    "groups, circular padding": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), nn.ReLU(),
                              nn.Conv2d(4, 6, 3, groups=2, padding="same"), nn.ReLU(),
                              nn.Conv2d(6, 6, 3, groups=6, stride=2), nn.Flatten(), nn.LazyLinear(2)), (2, 5, 5)),
    "reflect, conv1d": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3, padding=2, padding_mode="reflect"), nn.GELU(),
                              nn.Conv1d(4, 4, 2, padding="same"), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3)),
        (2, 7)),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(1, 3, 2), nn.ReLU(), nn.Conv3d(3, 2, 2), nn.Flatten()), (1, 4, 3, 3)),
    "transposed convolution": (
        lambda: nn.Sequential(nn.ConvTranspose1d(2, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)), (2, 4)),
    "transposed: groups, dilation, padding": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(),
                              nn.ConvTranspose2d(4, 6, (3, 2), stride=2, padding=(1, 2), output_padding=(1, 0), groups=2,
                                                 dilation=(1, 2)),
                              nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)), (2, 4, 4)),
    "residual": (Residual, (2, 6, 6)),
    "batch norm": (normed, (2, 5, 5)),
    "group norm, prelu": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.PReLU(), nn.Linear(8, 2)), (4,)),
    "max pool": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)), (1, 6, 6)),
    "in place": (
        lambda: nn.Sequential(nn.Linear(3, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(inplace=True),
                              nn.Flatten(), nn.LazyLinear(2)), (3, 3)),
    "attention": (lambda: Attention().eval(), (5, 3)),
    "attention, batch second": (lambda: Attention(batch_first=False).eval(), (5, 3)),
    "attention, batch second, as many positions as rows": (lambda: Attention(batch_first=False).eval(), (3, 3)),
    "transformer": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), nn.Flatten(), nn.Linear(18, 2)).eval(),
        (3, 6)),
    "recurrent": (lambda: Function(lambda m, x: m.head(m.rnn(x)[0][:, -1]),
                                   rnn=nn.GRU(3, 5, batch_first=True), head=nn.Linear(5, 2)), (4, 3)),
    "embedding, mean": (Embedded, ((4,), 7)),
    "embedding, tied": (lambda: Embedded(tied=True), ((4,), 7)),
    "tied weights": (Tied, (4,)),
    "called twice": (Twice, (4,)),
    "positions": (
        lambda: nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Flatten(), nn.Linear(30, 2)), (5, 3)),
    "positions in the output": (lambda: mlp(3, 6, 2), (4, 3)),
    "positions in the batch": (
        lambda: Function(lambda m, x: m.head(torch.tanh(m.fc(x.flatten(0, 1)))).view(len(x), -1),
                         fc=nn.Linear(3, 6), head=nn.Linear(6, 1)), (4, 3)),
    "parameter of its own": (
        lambda: Function(lambda m, x: m.scale * m.fc(x).sin() @ m.w, scale=nn.Parameter(torch.tensor(0.7)),
                         fc=nn.Linear(4, 5), w=nn.Parameter(torch.randn(5, 2))), (4,)),
    "not vectorisable": (
        lambda: Function(lambda m, x: m.fc(x) * (2 if float(x.sum()) > -1e9 else 1), fc=nn.Linear(4, 2),
                         unused=nn.Linear(3, 3)), (4,)),
    "output unused": (
        lambda: Function(lambda m, x: (m.fc(x), F.linear(x, m.fc.weight) ** 2)[1], fc=nn.Linear(4, 2)), (4,)),
    "no bias trained, frozen": (partly_frozen, (4,)),
    "ntk parametrisation": (parametrized, (2, 5)),
    "weight norm": (weight_normed, (4,)),
    "keyword input": (lambda: Function(lambda m, x: m.fc(input=x).sin(), fc=nn.Linear(4, 2)), (4,)),
}  # fmt: skip


def make(name, n=4):
    """Give the module of a case and n inputs, in float64."""
    maker, shape = CASES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = maker()
        if isinstance(shape[0], tuple):
            x = torch.randint(shape[1], (n, *shape[0]))
        else:
            x = torch.randn(n, *shape)
            if any(isinstance(p, nn.UninitializedParameter) for p in module.parameters()):
                module(x)
    module = module.double()
    return module, x.double() if x.is_floating_point() else x


def brute_jacobian(module, x):
    """Give the derivatives by parameter, each of shape (n, k, size)."""
    parameters = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    n = len(x)

    def outputs(values):
        return functional_call(module, values, (x,)).reshape(n, -1)

    return {name: j.reshape(*j.shape[:2], -1) for name, j in jacrev(outputs)(parameters).items()}


def brute_ntk(module, x1, x2, output="trace"):
    """Give the kernel by forming all derivatives of both batches."""
    j1, j2 = brute_jacobian(module, x1), brute_jacobian(module, x2)
    return _of_output(sum(torch.einsum("iap,jbp->iajb", j1[name], j2[name]) for name in j1), output)


@cache
def _brute_full(name, n):
    module, x = make(name, n)
    jacobian = brute_jacobian(module, x)
    return sum(torch.einsum("iap,jbp->iajb", one, one) for one in jacobian.values())


def brute_ntk_of_case(name, output="trace", rows=slice(None), columns=slice(None), n=4):
    """Give the same for rows and columns of the n inputs of a case, which are differentiated once for all tests."""
    return _of_output(_brute_full(name, n)[rows][:, :, columns], output)


def _of_output(full, output):
    if output == "full":
        return full.flatten(2).flatten(0, 1)
    if output == "sum":
        return full.sum((1, 3))
    if output == "trace":
        return torch.einsum("iaja->ij", full) / full.shape[1]
    return full[:, output, :, output]
