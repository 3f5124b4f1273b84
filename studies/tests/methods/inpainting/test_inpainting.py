"""Kernels between pixels against those of larger tori, and images against dense regression."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import ntkit
from ntkit.errors import InputError, InputTypeError, SingularKernelError
from ntkit_studies.methods import InpaintingKernel, encoder_decoder, inpaint
from ntkit_studies.methods.inpainting._held_out import RIDGES
from ntkit_studies.methods.inpainting._sparse_system import solve_sparse


def direct(levels: int, upsampling: str, side: int, last: bool = False) -> torch.Tensor:
    limit = ntkit.infinite_width(encoder_decoder(levels, upsampling, last_convolution=last))
    return limit.with_prior("stationary", (1, side, side)).ntk.positions()


def check_expansion(levels: int, upsampling: str, side: int, last: bool) -> None:
    kernel = InpaintingKernel(levels=levels, upsampling=upsampling, last_convolution=last)
    expected = direct(levels, upsampling, side, last)
    torch.testing.assert_close(kernel.dense(side, side), expected, rtol=1e-12, atol=0)
    rng = np.random.default_rng(0)
    rows, columns = (rng.permutation(side * side)[:size] for size in (40, 30))
    sparse = kernel.sparse(side, side, rows, columns)
    own = expected.reshape(side * side, -1).numpy()[np.ix_(rows, columns)]
    np.testing.assert_allclose(sparse.toarray() + kernel.constant, own, rtol=1e-12)


@pytest.mark.parametrize(
    ("levels", "upsampling", "side", "last"),
    [
        (1, "nearest", 8, False),
        (1, "nearest", 8, True),
        (2, "nearest", 16, False),
        (2, "nearest", 16, True),
        (3, "nearest", 32, False),
        (1, "bilinear", 24, False),
    ],
)
def test_expansion_equals_the_kernel_of_a_larger_torus(levels, upsampling, side, last):
    check_expansion(levels, upsampling, side, last)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("levels", "upsampling", "side", "last"),
    [(3, "nearest", 32, True), (4, "nearest", 64, False), (2, "bilinear", 48, False)],
)
def test_expansion_equals_the_kernel_of_a_much_larger_torus(levels, upsampling, side, last):
    check_expansion(levels, upsampling, side, last)


@pytest.mark.parametrize("module", [None, "auto"])
@pytest.mark.parametrize("prior", ["stationary", "meshgrid"])
def test_choices_read_known_pixels_alone(module, prior):
    picture, mask = image(12, 12, 1)
    spoilt = torch.where(mask, math.nan, picture)
    found = inpaint(spoilt, mask, module, prior, levels=1)
    # The same choice by hand: the least error on a tenth of the known pixels, learnt from the others.
    known = np.flatnonzero(~mask.numpy().ravel())
    held = np.sort(np.random.default_rng(0).permutation(len(known))[: len(known) // 10])
    smaller = mask.clone().view(-1)
    smaller[torch.from_numpy(known[held])] = True
    smaller = smaller.view(12, 12)
    errors = {}
    for last in (False, True) if module else (False,):
        network = encoder_decoder(1, channels=2 if prior == "meshgrid" else 1, last_convolution=last)
        for ridge in RIDGES:
            filled = inpaint(spoilt, smaller, network, prior, levels=1, ridge=ridge).image.flatten()
            errors[last, ridge] = float((filled - picture.flatten())[torch.from_numpy(known[held])].square().mean())
    last, ridge = min(errors, key=errors.__getitem__)
    assert found.ridge == ridge and f"Best of {len(errors)} on {len(held)}" in found.status
    assert ("one convolution more" in found.status) == last
    network = encoder_decoder(1, channels=2 if prior == "meshgrid" else 1, last_convolution=last)
    torch.testing.assert_close(found.image, inpaint(spoilt, mask, network, prior, levels=1, ridge=ridge).image)


def test_too_few_known_pixels_to_choose_by():
    picture, mask = image(8, 8, 1)
    mask[:] = True
    mask[::3, ::3] = False
    found = inpaint(picture, mask, "auto", levels=1)
    assert found.ridge == 1e-4 and "Too few known pixels" in found.status


@pytest.mark.parametrize(("levels", "last"), [(2, True), pytest.param(3, False, marks=pytest.mark.slow)])
def test_networks_whose_distant_pixels_differ_are_refused(levels: int, last: bool):
    network = encoder_decoder(levels, "bilinear", last_convolution=last)
    with pytest.raises(InputError, match="not one constant between distant pixels"):
        InpaintingKernel(network, levels, "bilinear")


def test_tori_of_unequal_sides():
    limit = ntkit.infinite_width(encoder_decoder(1))
    expected = limit.with_prior("stationary", (1, 6, 10)).ntk.positions()
    torch.testing.assert_close(InpaintingKernel(levels=1).dense(6, 10), expected, rtol=1e-12, atol=0)


def image(height: int, width: int, channels: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    smooth = torch.stack([torch.sin(rows / 4 + c) + torch.cos(columns / (5 + c)) for c in range(channels)]).double()
    return smooth, torch.rand(height, width, generator=generator) < 0.5


@pytest.mark.parametrize("ridge", [0.0, 0.01])
@pytest.mark.parametrize("solver", ["cg", "dense"])
def test_equals_dense_regression_on_the_torus(solver, ridge):
    picture, mask = image(16, 24)
    gram = ntkit.infinite_width(encoder_decoder(2)).with_prior("stationary", (1, 16, 24)).ntk.positions()
    gram = gram.reshape(16 * 24, 16 * 24)
    known, missing = (~mask).flatten(), mask.flatten()
    system = gram[known][:, known]
    system = system + ridge * system.diagonal().mean() * torch.eye(len(system), dtype=torch.float64)
    weights = torch.linalg.solve(system, picture.flatten(1)[:, known].T)
    expected = (gram[missing][:, known] @ weights).T
    spoilt = torch.where(mask, math.nan, picture)  # what is missing is never read
    found = inpaint(spoilt, mask, levels=2, solver=solver, ridge=ridge, tolerance=1e-11)
    torch.testing.assert_close(found.image.flatten(1)[:, missing], expected, rtol=1e-7, atol=1e-8)
    assert torch.equal(found.image[:, ~mask], picture[:, ~mask]) and found.residual < 1e-10
    assert (found.iterations > 0) == (solver == "cg")
    # A kernel serves many images, and one channel may come without its axis.
    again = inpaint(spoilt[0], mask, InpaintingKernel(levels=2), solver=solver, ridge=ridge, tolerance=1e-11)
    torch.testing.assert_close(again.image, found.image[0])


def test_other_sides_are_padded_and_said():
    picture, mask = image(18, 21, 1)
    found = inpaint(picture, mask, levels=2)
    assert "padded to 20 x 24" in found.status and found.image.shape == (1, 18, 21)
    larger = torch.zeros(1, 20, 24).double()
    gaps = torch.ones(20, 24, dtype=torch.bool)
    larger[:, :18, :21], gaps[:18, :21] = picture, mask
    torch.testing.assert_close(found.image, inpaint(larger, gaps, levels=2).image[:, :18, :21])


@pytest.mark.parametrize("prior", ["meshgrid", "array"])
def test_priors_of_data(prior):
    picture, mask = image(8, 12, 1)
    axes = [torch.linspace(-1, 1, side, dtype=torch.float64) for side in (8, 12)]
    given = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    if prior == "array":
        given = torch.randn(3, 8, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    module = encoder_decoder(2, channels=len(given))
    gram = ntkit.infinite_width(module).ntk.positions(given[None])[0, 0].reshape(96, 96)
    known, missing = (~mask).flatten(), mask.flatten()
    system = gram[known][:, known]
    system = system + 1e-3 * system.diagonal().mean() * torch.eye(len(system), dtype=torch.float64)
    expected = gram[missing][:, known] @ torch.linalg.solve(system, picture.flatten()[known])
    found = inpaint(picture, mask, prior=given if prior == "array" else prior, levels=2, ridge=1e-3)
    torch.testing.assert_close(found.image.flatten()[missing], expected, rtol=1e-7, atol=1e-8)


def test_clip_only_on_request():
    picture, mask = image(16, 16, 1)
    wild = inpaint(picture, mask, levels=1).image
    tame = inpaint(picture, mask, levels=1, clip=(-0.5, 0.5)).image
    assert float(wild[:, mask].abs().max()) > 0.5 >= float(tame[:, mask].abs().max())
    assert torch.equal(tame[:, ~mask], picture[:, ~mask])


def test_modules_of_ones_own_are_checked():
    own = encoder_decoder(1)
    torch.testing.assert_close(InpaintingKernel(own, 1).table, InpaintingKernel(levels=1).table)
    zeros = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
    for module, message in (
        (zeros, "no expansion|not one constant"),
        (encoder_decoder(2), "no expansion|not one constant"),
        (nn.Sequential(nn.Conv2d(1, 1, 3)), "images of the same size"),
        (nn.Identity(), "Conv2d layer that reads"),
    ):
        with pytest.raises(InputError, match=message):
            InpaintingKernel(module, 1)


def test_an_unconverged_image_is_never_returned():
    picture, mask = image(32, 32)
    with pytest.raises(SingularKernelError, match="stopped after 3 iterations"):
        inpaint(picture, mask, solver="cg", max_iterations=3)


def test_sparse_systems():
    rng = np.random.default_rng(0)
    import scipy.sparse

    half = scipy.sparse.random_array((40, 40), density=0.1, rng=rng)
    matrix = scipy.sparse.csr_array(half @ half.T + scipy.sparse.eye_array(40))
    y = np.concatenate([rng.normal(size=(40, 2)), np.zeros((40, 1))], 1)
    found = solve_sparse(matrix, 0.7, 0.2, y, 1e-12, 200)
    np.testing.assert_allclose(found.value, np.linalg.solve(matrix.toarray() + 0.7 + 0.2 * np.eye(40), y), atol=1e-11)
    assert found.converged and found.residual < 1e-12
    assert not solve_sparse(-matrix, 0.7, 0.0, y, 1e-12, 200).converged


PICTURE, MASK = image(16, 16)
BAD = [
    ((PICTURE, MASK[:8]), {}, InputError, r"mask must have the shape \(16, 16\)"),
    ((PICTURE, torch.zeros(16, 16, dtype=torch.bool)), {}, InputError, "nothing to fill in"),
    ((PICTURE, torch.ones(16, 16, dtype=torch.bool)), {}, InputError, "leave a known pixel"),
    ((PICTURE, MASK.double()), {}, InputTypeError, "mask must be boolean"),
    ((PICTURE.long(), MASK), {}, InputTypeError, "float32 or float64"),
    ((PICTURE * math.nan, MASK), {}, InputError, "known pixels of image must be finite"),
    ((PICTURE[0, 0], MASK), {}, InputError, r"\(H, W\) or"),
    ((PICTURE[:, :6, :6], MASK[:6, :6]), {}, InputError, "levels=2 or less"),
    ((PICTURE, MASK), {"levels": 0}, InputError, "levels must be"),
    ((PICTURE, MASK), {"upsampling": "cubic"}, InputError, "upsampling must be"),
    ((PICTURE, MASK), {"solver": "lu"}, InputError, "solver must be"),
    ((PICTURE, MASK), {"ridge": -1}, InputError, "ridge must be"),
    ((PICTURE, MASK), {"ridge": "best"}, InputTypeError, "ridge must be"),
    ((PICTURE, MASK), {"module": "best"}, InputError, "module must be"),
    ((PICTURE, MASK), {"clip": (1, 0)}, InputError, "clip must be"),
    ((PICTURE, MASK), {"prior": "noise"}, InputError, "prior must be"),
    ((PICTURE, MASK), {"prior": "meshgrid", "solver": "cg"}, InputError, "without structure"),
    ((PICTURE, MASK), {"prior": torch.ones(1, 4, 4)}, InputError, r"\(c, 16, 16\)"),
    ((PICTURE[:, :12], MASK[:12]), {"prior": "meshgrid"}, InputError, "multiples of 8"),
]


@pytest.mark.parametrize(("arguments", "options", "error", "message"), BAD)
def test_bad_input(arguments, options, error, message):
    with pytest.raises(error, match=message):
        inpaint(*arguments, **options)
