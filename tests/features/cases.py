"""Small networks and their derivatives by brute force: one sample, one output, one perturbed entry at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ntkit


class Residual(nn.Module):
    """A linear layer, two residual blocks and a head."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.blocks = nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 5)])
        self.head = nn.Linear(5, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(torch.tanh(x))
        return self.head(torch.relu(x))


class Repeated(nn.Module):
    """One layer used three times, overwritten in place each time."""

    def __init__(self) -> None:
        super().__init__()
        self.core = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.core(x).tanh_() + x
        return self.head(x)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3))


def tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    net[2].weight = net[0].weight
    return net


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 6, (2, 3), padding=(1, 2), dilation=(1, 2), groups=2, padding_mode="circular"),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 3),
    )


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (4,)),
    "mlp, frozen": (lambda: mlp().requires_grad_(False), (4,)),
    "mlp, NTK parametrisation": (lambda: ntkit.parametrize_ntk(mlp(), w_std=1.3, b_std=0.2), (4,)),
    "cnn": (cnn, (2, 6, 5)),
    "conv over positions of a sequence": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(9, 2)),
        (2, 5),
    ),
    "residual": (lambda: Residual(2), (4,)),
    "repeated": (Repeated, (4,)),
    "tied": (tied, (4,)),
}


def build(name: str, n: int = 5, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """Give a case's module in float64 and n samples."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        make, shape = CASES[name]
        return make().double(), torch.randn(n, *shape, dtype=torch.float64)


def moved(module: nn.Module, seed: int = 1) -> dict[str, Tensor]:
    """Give the state of a module, and then move its parameters."""
    state = {name: value.clone() for name, value in module.state_dict().items()}
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return state


def weight_of(layer: nn.Module) -> Tensor:
    """Give the dense matrix of a layer, entry by entry."""
    weight = layer.weight.detach()
    if isinstance(layer, nn.Linear):
        return weight
    out, per_group = weight.shape[0], weight.shape[1]
    dense = weight.new_zeros(out, layer.in_channels, *weight.shape[2:])
    for channel in range(out):
        group = channel // (out // layer.groups)
        dense[channel, group * per_group : (group + 1) * per_group] = weight[channel]
    return dense.flatten(1)


def patches_of(layer: nn.Module, features: Tensor) -> Tensor:
    """Give the patches of one sample, shape (P, in * window)."""
    if isinstance(layer, nn.Linear):
        return features.reshape(-1, features.shape[-1])
    if isinstance(layer, nn.Conv1d):
        assert not any(layer.padding) and layer.stride == (1,)
        return features[0].unfold(1, layer.kernel_size[0], 1).permute(1, 0, 2).flatten(1)
    ph, pw = layer.padding
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = F.pad(features, (pw, pw, ph, ph), mode=mode)
    unfolded = F.unfold(padded, layer.kernel_size, dilation=layer.dilation, stride=layer.stride)
    return unfolded[0].T


def brute(module: nn.Module, x: Tensor, path: str) -> tuple[Tensor, Tensor]:
    """Give J, shape (n, c, P, out), and the patches, shape (n, P, in * window), of one layer, sample by sample."""
    layer = module.get_submodule(path)
    jacobians, patches = [], []
    for sample in x.split(1):
        read: list[Tensor] = []
        shapes: list[torch.Size] = []

        def look(_, args, output, read=read, shapes=shapes):
            read.append(args[0].detach().clone())
            shapes.append(output.shape)

        handle = layer.register_forward_hook(look)
        with torch.no_grad():
            module(sample)
        handle.remove()

        def outputs(*deltas: Tensor, sample=sample) -> Tensor:
            left = list(deltas)
            handle = layer.register_forward_hook(lambda _, args, output: output + left.pop(0))
            try:
                return module(sample).flatten()
            finally:
                handle.remove()

        zeros = tuple(x.new_zeros(shape) for shape in shapes)
        parts = torch.autograd.functional.jacobian(outputs, zeros)
        by_call = []
        for part in parts:  # (c, 1, out) or (c, 1, out, ...)
            flat = part[:, 0]
            by_call.append(flat[:, None] if flat.ndim == 2 else flat.flatten(2).transpose(1, 2))
        jacobians.append(torch.cat(by_call, 1))
        patches.append(torch.cat([patches_of(layer, features) for features in read]))
    return torch.stack(jacobians), torch.stack(patches)


def total_gradients(module: Residual, x: Tensor, path: str) -> Tensor:
    """Give the total derivative of the outputs in what a layer of the residual network reads, shape (n, c, in)."""
    index = int(path.rsplit(".", 1)[1])

    def rest(z: Tensor, start: Tensor) -> Tensor:
        value = start
        for number, block in enumerate(module.blocks):
            hidden = torch.tanh(value)
            if number == index:
                hidden = z
            value = value + block(hidden)
        return module.head(torch.relu(value)).flatten()

    rows = []
    for sample in x.split(1):
        start = module.first(sample).detach()
        value = start
        for block in module.blocks[:index]:
            value = value + block(torch.tanh(value))
        rows.append(
            torch.autograd.functional.jacobian(lambda z, start=start: rest(z, start), torch.tanh(value.detach()))
        )
    return torch.stack(rows)[:, :, 0]
