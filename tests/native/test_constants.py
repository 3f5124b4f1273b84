"""What tables fix before any data: means that normalisations subtract, sums and joins of learned vectors, patches as channels."""

import pytest
import torch
from tests.cases import normal
from torch import nn

import ntkit
from ntkit._src.native._constants import UnknownMeans, with_constants
from ntkit._src.native._network import unsupported
from ntkit._src.native.families import Added, WholeMap
from ntkit._src.program import Conv, Dense, Input
from ntkit.layers import SelfAttention


class Positions(nn.Module):
    """Tokens from patches of an image, with learned vectors, and normalised."""

    def __init__(self, attend=True, norm=nn.LayerNorm):
        super().__init__()
        self.embed = nn.Conv2d(2, 4, 2, stride=2)
        self.first = nn.Parameter(normal(1, 1, 4, seed=1))
        self.positions, self.again = (nn.Parameter(normal(1, 5, 4, seed=seed)) for seed in (2, 3))
        self.norm = norm(4)
        self.attend = SelfAttention(4, 2, "softmax", "linear", tied=True) if attend else nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        h = self.embed(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.first.expand(len(x), -1, -1), h], 1) + self.positions
        return self.head(torch.relu(self.attend(self.norm(h + self.again))).mean(1))


def program(net, *shape):
    return ntkit.infinite_width(net.double(), b_std=0.2).program(shape)


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
@pytest.mark.parametrize("attend", [True, False])
def test_learned_vectors(attend, norm):
    limit = ntkit.infinite_width(Positions(attend, norm).double(), w_std=1.2, b_std=0.2)
    x, z = normal(9, 2, 4, 4), normal(3, 2, 4, 4, seed=1)
    x[1], x[2] = x[0], 3 * x[0]
    for other in (z, None):
        native, reference = (limit.both(x, other, engine=engine) for engine in ("native", "reference"))
        for a, b in zip(native, reference, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13 * b.abs().max().item())
    torch.testing.assert_close(limit.ntk.diag(x), native.ntk.diagonal(), rtol=1e-12, atol=0)


def test_programs_that_need_nothing_are_returned_as_they_are():
    plain = program(nn.Sequential(nn.Conv2d(2, 4, 2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 1)), 2, 4, 4)
    assert with_constants(plain) is plain


def test_patches_become_channels_and_means_one_matrix():
    changed = with_constants(program(Positions(), 2, 5, 4))  # the last row of pixels is in no patch
    ops = [node.op for node in changed.nodes]
    (data,) = [op for op in ops if isinstance(op, Input)]
    assert data.channels == 2 * 2 * 2
    assert not any(isinstance(op, Conv) for op in ops)
    assert isinstance(ops[1], Dense)
    assert sum(isinstance(op, Added) for op in ops) == 3  # in two sums, and what the normalisation subtracts
    assert sum(isinstance(op, WholeMap) for op in ops) == 1
    x = normal(2, 2, 5, 4)
    patches = changed.prefixes[data.prefix](x)
    assert patches.shape == (2, 2, 2, 8)
    torch.testing.assert_close(patches[0, 1, 0].sort().values, x[0, :, 2:4, :2].flatten().sort().values)


def test_means_of_the_data_are_left_to_the_reference_engine():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 1))
    traced = program(net, 3)
    with pytest.raises(UnknownMeans):
        with_constants(traced)
    assert unsupported(traced) == "means of channels"
