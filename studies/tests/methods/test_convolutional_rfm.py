"""Recursive feature machines of images: patches are windows, and the metric is the average gradient outer product."""

from __future__ import annotations

import pytest
import torch
from tests.cases import normal
from torch import nn
from torch.nn.functional import conv2d

import ntkit
from ntkit.errors import InputError
from ntkit_studies.methods._convolutional_rfm import convolutional_rfm, deep_convolutional_rfm, patches

X, Y, NEW = normal(5, 2, 4, 4), normal(5, 1, seed=1), normal(3, 2, 4, 4, seed=2)


def kernel_of(channels: int, positions: int) -> ntkit.Kernel:
    layers = [nn.Conv2d(channels, 8, 1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(8 * positions, 1, bias=False)]
    return ntkit.infinite_width(nn.Sequential(*layers)).ntk


def test_a_pointwise_convolution_of_patches_is_a_convolution():
    weight = normal(3, 2, 2, 2, seed=3)
    torch.testing.assert_close(
        conv2d(patches(X, 2), weight.reshape(3, 8, 1, 1)), conv2d(X, weight), rtol=1e-12, atol=1e-12
    )


def test_the_metric_is_the_average_gradient_outer_product_of_the_patches():
    kernel, ridge = kernel_of(8, 9), 1e-2
    plain, learnt = convolutional_rfm(kernel, X, Y, NEW, 2, iterations=1, ridge=ridge)
    seen = patches(X, 2)
    gram = kernel(seen)
    shift = ridge * gram.diagonal().mean() * torch.eye(5, dtype=torch.float64)
    coefficients = torch.linalg.solve(gram + shift, Y)
    torch.testing.assert_close(plain.test, kernel(patches(NEW, 2), seen) @ coefficients, rtol=1e-9, atol=1e-10)
    metric = torch.zeros(8, 8, dtype=torch.float64)
    for i in range(5):
        point, others = seen[i : i + 1].clone().requires_grad_(), [j for j in range(5) if j != i]
        (gradient,) = torch.autograd.grad(
            (kernel(point, seen[others], engine="reference") @ coefficients[others]).sum(), point
        )
        metric += torch.einsum("ipq,jpq->ij", gradient[0], gradient[0])
    expected = metric / torch.linalg.eigvalsh(metric)[-1]
    torch.testing.assert_close(learnt.root @ learnt.root, expected, rtol=1e-8, atol=1e-9)


def test_the_first_layer_of_a_deep_machine_is_a_machine():
    layers = [*deep_convolutional_rfm(
        lambda layer, shape: kernel_of(shape[0], shape[1] * shape[2]), X, Y, NEW, window=2, depth=2, width=3, iterations=1,
        ridge=1e-2, generator=torch.Generator().manual_seed(0),
    )]  # fmt: skip
    plain, learnt = convolutional_rfm(kernel_of(8, 9), X, Y, NEW, 2, iterations=1, ridge=1e-2)
    assert len(layers) == 2 and layers[1].learnt.root.shape == (12, 12)
    torch.testing.assert_close(layers[0].plain.test, plain.test, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(layers[0].learnt.test, learnt.test, rtol=1e-9, atol=1e-10)


def test_images_smaller_than_the_window_are_refused():
    with pytest.raises(InputError, match="not smaller than the window 5"):
        patches(X, 5)
