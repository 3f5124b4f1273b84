"""Flattened, reshaped and reordered tensors have the kernel of the plain ones."""

import torch
from tests.cases import normal
from tests.trace.forms import Lambda, same_kernels
from torch import nn
from torch.nn import functional as F


def test_activation_after_flatten_acts_at_each_position():
    before = nn.Sequential(nn.Conv1d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1))
    after = nn.Sequential(nn.Conv1d(2, 8, 3), nn.Flatten(), nn.ReLU(), nn.Linear(32, 1))
    back = nn.Sequential(
        nn.Conv1d(2, 8, 3), nn.Flatten(), nn.Unflatten(1, (8, 4)), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1)
    )
    same_kernels(before, after, normal(3, 2, 6))
    same_kernels(before, back, normal(3, 2, 6))


def test_tokens_of_pixels_become_an_image_again():
    def image_of_tokens(m, x):
        h = m.a(x.flatten(2).transpose(1, 2))
        return m.fc(F.relu(m.b(F.relu(h.transpose(1, 2).reshape(x.shape[0], 8, 4, 3)))).mean((2, 3)))

    tokens = Lambda(image_of_tokens, a=nn.Linear(2, 8), b=nn.Conv2d(8, 8, (3, 2)), fc=nn.Linear(8, 1))
    image = nn.Sequential(
        nn.Conv2d(2, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, (3, 2)), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1)
    )  # fmt: skip
    same_kernels(tokens, image, normal(3, 2, 4, 3), b_std=0.2)


def test_features_flattened_in_other_orders():
    """The order in which positions and channels are flattened does not matter to the limit, but the replay must know it."""
    first = Lambda(
        lambda m, x: m.fc(torch.cat([F.relu(m.a(x)).permute(0, 2, 3, 1).flatten(1), F.relu(m.b(x)).flatten(1)], 1)),
        a=nn.Conv2d(2, 8, 3), b=nn.Conv2d(2, 6, 2), fc=nn.Linear(8 * 4 + 6 * 9, 1),
    )  # fmt: skip
    second = Lambda(
        lambda m, x: m.fc(torch.cat([F.relu(m.a(x)).flatten(1), F.relu(m.b(x)).flatten(1)], 1)),
        a=nn.Conv2d(2, 8, 3), b=nn.Conv2d(2, 6, 2), fc=nn.Linear(8 * 4 + 6 * 9, 1),
    )  # fmt: skip
    same_kernels(first, second, normal(3, 2, 4, 4))
    both = Lambda(
        lambda m, x: m.fc(torch.cat([torch.cat([m.a(x), m.b(x)], 1).movedim(1, -1).flatten(1), m.c(x).flatten(1)], 1)),
        a=nn.Conv2d(2, 8, 3), b=nn.Conv2d(2, 4, 3), c=nn.Conv2d(2, 6, 3), fc=nn.Linear(18 * 4, 1),
    )  # fmt: skip
    side = Lambda(
        lambda m, x: m.fc(torch.cat([m.a(x), m.b(x), m.c(x)], 1).flatten(1)),
        a=nn.Conv2d(2, 8, 3), b=nn.Conv2d(2, 4, 3), c=nn.Conv2d(2, 6, 3), fc=nn.Linear(18 * 4, 1),
    )  # fmt: skip
    same_kernels(both, side, normal(3, 2, 4, 4))
    added = Lambda(
        lambda m, x: m.fc(torch.relu(torch.cat([m.a(x), m.b(x)], 1) + m.c(x))),
        a=nn.Linear(4, 5), b=nn.Linear(4, 3), c=nn.Linear(4, 8), fc=nn.Linear(8, 1),
    )  # fmt: skip
    whole = Lambda(
        lambda m, x: m.fc(torch.relu(m.a(x) + m.c(x))), a=nn.Linear(4, 8), c=nn.Linear(4, 8), fc=nn.Linear(8, 1)
    )
    same_kernels(added, whole, normal(3, 4))
