"""Pre-activation tangent kernels and layer tangent kernels against derivatives taken one sample at a time."""

from __future__ import annotations

import pytest
import torch
from tests.features.cases import CASES, brute, build, weight_of

import ntkit
from ntkit import features
from ntkit.errors import InputError, InputTypeError

PRECISION = {"rtol": 1e-10, "atol": 1e-12}


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("name", CASES)
def test_kernels_are_those_of_brute_force(name: str, batch_size: int | None) -> None:
    module, x1 = build(name)
    _, x2 = build(name, n=3, seed=7)
    both = features.ptk(module, x1, x2, batch_size=batch_size)
    own = features.ptk(module, x1, batch_size=batch_size)
    apart = features.ptk(module, x1, batch_size=batch_size, positions=True)
    ntk = features.layer_ntk(module, x1, x2, batch_size=batch_size)
    for path in both:
        (J1, a1), (J2, a2) = brute(module, x1, path), brute(module, x2, path)
        torch.testing.assert_close(both[path], torch.einsum("acpi,bcpi->ab", J1, J2), **PRECISION)
        torch.testing.assert_close(own[path], torch.einsum("acpi,bcpi->ab", J1, J1), **PRECISION)
        torch.testing.assert_close(apart[path], torch.einsum("acpi,bcqi->abpq", J1, J1), **PRECISION)
        layer = module.get_submodule(path)
        groups = getattr(layer, "groups", 1)
        expected = torch.zeros_like(ntk[path])
        for group in range(groups):  # Proposition 3, for each group of channels
            out, wide = J1.shape[3] // groups, a1.shape[2] // groups
            rows, columns = slice(group * out, (group + 1) * out), slice(group * wide, (group + 1) * wide)
            pairs = torch.einsum("acpi,bcqi->abpq", J1[..., rows], J2[..., rows])
            expected += (pairs * torch.einsum("apj,bqj->abpq", a1[..., columns], a2[..., columns])).sum((2, 3))
        torch.testing.assert_close(ntk[path], expected, **PRECISION)
        if a1.shape[1] == 1:
            torch.testing.assert_close(ntk[path], both[path] * (a1[:, 0] @ a2[:, 0].T), **PRECISION)
        assert weight_of(layer).shape == (J1.shape[3], a1.shape[2])


@pytest.mark.parametrize("name", ["mlp", "cnn", "residual"])
def test_layers_add_up_to_the_empirical_kernel_of_the_weights(name: str) -> None:
    module, x = build(name)
    for key, parameter in module.named_parameters():
        parameter.requires_grad_(key.endswith("weight"))
    total = sum(features.layer_ntk(module, x).values()) / module(x).shape[1]  # "trace" is the mean over outputs
    torch.testing.assert_close(total, ntkit.empirical(module).ntk(x), **PRECISION)


def test_bad_pairs() -> None:
    module, x = build("mlp")
    with pytest.raises(InputTypeError, match="dtype"):
        features.ptk(module, x, x.float())
    with pytest.raises(InputError, match="cannot run"):
        features.ptk(module, x, x[:, :2])
