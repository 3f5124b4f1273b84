"""Recursive feature machines of images: one metric for the patches at all positions, layer by layer if wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import unfold

import ntkit
from ntkit import Kernel
from ntkit.errors import InputError
from ntkit.extending import check_integer
from ntkit.features.rfm import DifferentiableKernel

__all__ = ["ConvolutionalState", "DeepLayer", "convolutional_rfm", "deep_convolutional_rfm", "patches"]


def patches(x: Tensor, window: int) -> Tensor:
    """Return every window of images as one pixel with many channels.

    Shape (n, channels * window**2, height - window + 1, width - window + 1), so that a 1 x 1 convolution of it is a convolution
    of the images, shape (n, channels, height, width).

    Examples
    --------
    >>> import torch
    >>> patches(torch.zeros(2, 3, 8, 8), 3).shape
    torch.Size([2, 27, 6, 6])
    """
    if x.ndim != 4 or not 1 <= window <= min(x.shape[2:]):
        raise InputError(
            f"x must have shape (n, channels, height, width), not smaller than the window {window}. Got {tuple(x.shape)}."
        )
    height, width = (size - window + 1 for size in x.shape[2:])
    return unfold(x, window).reshape(len(x), -1, height, width)


@dataclass(frozen=True)
class ConvolutionalState:
    """The predictor after some updates of the metric.

    Attributes
    ----------
    root
        M^1/2, shape (channels * window**2, channels * window**2), of largest eigenvalue 1.
    train, test
        Predictions, shape (n, c) and (n_test, c).
    """

    root: Tensor
    train: Tensor
    test: Tensor


def convolutional_rfm(
    kernel: Kernel, x: Tensor, y: Tensor, x_test: Tensor, window: int, iterations: int, ridge: float
) -> Iterator[ConvolutionalState]:
    r"""Yield the predictions of kernel regression for M = I, and after each update of a metric that all patches share.

    The kernel sees :math:`M^{1/2} p` for every patch p of an image. M is the average gradient outer product of the predictor in
    the patches, summed over positions (Beaglehole, Radhakrishnan, Pandit, Belkin 2023, "Mechanism of feature learning in
    convolutional neural networks", ConvRFM).

    Parameters
    ----------
    kernel
        Of :func:`patches`, differentiable in its first argument, such as that of a network whose first layer is a 1 x 1
        convolution. A predictor's own term of each point is left out of the gradients, as it has a cusp there.
    x, y, x_test
        Images, shape (n, channels, height, width), targets, shape (n, c), test images.
    window
        Size of the patches.
    iterations
        Number of updates.
    ridge
        Relative to trace(K) / n.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv2d(4, 8, 1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 9, 1, bias=False))
    >>> x = torch.randn(6, 1, 4, 4, dtype=torch.float64)
    >>> kernel = ntkit.infinite_width(net).ntk
    >>> [tuple(one.root.shape) for one in convolutional_rfm(kernel, x, x[:, 0, :1, 0], x, 2, iterations=1, ridge=1e-3)]
    [(4, 4), (4, 4)]
    """
    check_integer("iterations", iterations, 0)
    seen, seen_test = patches(x, window), patches(x_test, window)
    size = seen.shape[1]
    root = torch.eye(size).to(x)
    shape = tuple(seen.shape[1:])
    metric_kernel = DifferentiableKernel(kernel, shape)
    for iteration in range(iterations + 1):
        moved, moved_test = (torch.einsum("ij,njpq->nipq", root, one) for one in (seen, seen_test))
        gram = kernel(moved)
        coefficients = ntkit.solve(gram, y, ridge=ridge).value
        yield ConvolutionalState(root, gram @ coefficients, kernel(moved_test, moved) @ coefficients)
        if iteration < iterations:
            gradients = metric_kernel.gradients(moved.flatten(1), gram, coefficients)
            each = gradients.reshape(-1, size, gradients.shape[2] // size)
            inner = torch.einsum("nip,njp->ij", each, each)
            root = _root(root @ inner @ root)


def _root(matrix: Tensor) -> Tensor:
    """Return the root of a positive semidefinite matrix, scaled to a largest eigenvalue of 1; of zero the identity."""
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    top = float(values[-1])
    if top <= 0:
        return torch.eye(len(matrix)).to(matrix)
    product: Tensor = (vectors * (values.clamp_min(0) / top).sqrt()) @ vectors.T
    return product


@dataclass(frozen=True)
class DeepLayer:
    """A layer of a deep machine: the last predictor upon its inputs, and before its metric was learnt.

    Attributes
    ----------
    plain, learnt
        With M = I and with the layer's metric.
    """

    plain: ConvolutionalState
    learnt: ConvolutionalState


def deep_convolutional_rfm(
    kernels: Callable[[int, tuple[int, ...]], Kernel],
    x: Tensor,
    y: Tensor,
    x_test: Tensor,
    window: int,
    depth: int,
    width: int,
    iterations: int,
    ridge: float,
    generator: torch.Generator,
) -> Iterator[DeepLayer]:
    r"""Yield a deep machine's layers: learn the patches' metric, then go on with random features of the transformed patches.

    The next layer's images are :math:`\sqrt{2 / w}\, \mathrm{relu}(G M^{1/2} p)` for the patches p, with standard normal G of
    shape (w, channels * window**2): a random layer whose weights have the learnt covariance (Deep ConvRFM, same paper). With a
    window as large as the image it is the deep recursive feature machine of vectors.

    Parameters
    ----------
    kernels
        Makes the kernel for a layer, counted from 0, and the shape of its :func:`patches`, (channels, height, width).
    x, y, x_test, window, iterations, ridge
        As for :func:`convolutional_rfm`.
    depth, width
        Number of layers, and w.
    generator
        Of the random weights.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> def kernels(layer, shape):
    ...     c, h, w = shape
    ...     net = nn.Sequential(nn.Conv2d(c, 8, 1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(8 * h * w, 1, bias=False))
    ...     return ntkit.infinite_width(net).ntk
    >>> x = torch.randn(6, 1, 5, 5, dtype=torch.float64)
    >>> g = torch.Generator().manual_seed(0)
    >>> layers = deep_convolutional_rfm(kernels, x, x[:, 0, :1, 0], x, 2, depth=2, width=3, iterations=1, ridge=1e-3, generator=g)
    >>> [tuple(one.learnt.root.shape) for one in layers]
    [(4, 4), (12, 12)]
    """
    check_integer("depth", depth, 1)
    check_integer("width", width, 1)
    check_integer("iterations", iterations, 1)
    for layer in range(depth):
        kernel = kernels(layer, tuple(patches(x[:1], window).shape[1:]))
        plain, *_, learnt = convolutional_rfm(kernel, x, y, x_test, window, iterations, ridge)
        yield DeepLayer(plain, learnt)
        if layer < depth - 1:
            normal = torch.randn(width, len(learnt.root), generator=generator, dtype=torch.float64).to(x)
            weights = (2 / width) ** 0.5 * normal @ learnt.root
            x, x_test = (torch.einsum("ij,njpq->nipq", weights, patches(one, window)).relu() for one in (x, x_test))
