"""What training with a tangent kernel costs and gives: the Gram matrix, the gradient flow and the predictions, timed one by one.

The cells of the experiments after section 9 of Golikov et al. 2022. A cell is one stage, so that the manifest holds the
seconds of each; results hold only what the settings determine. Training sets are nested: the Gram matrix of the larger
one is that of the smaller one with more rows, and the seconds of both are sums over blocks of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ntkit import GradientFlow, Kernel, empirical, infinite_width, initialize, parametrize_ntk
from ntkit.diagnostics import pair_operations

from ._images import Images, load_images
from ._operations import Operations
from ._stored_gram import Fingerprinted, stored_gram

__all__ = ["REGIMES", "Block", "Case", "Flow", "Inputs", "Outcome", "Shared", "Work", "case_cells", "compute", "share"]

Regime = Literal["NTK", "NNGP", "empirical NTK"]
REGIMES: tuple[Regime, ...] = ("NTK", "NNGP", "empirical NTK")

WIDTH = 64
"""Channels of the finite networks, as in the paper."""

_BLOCK = 500
"""Rows of a block at most: what a stopped run loses."""


@dataclass(frozen=True)
class Case:
    """A kernel on a set of images.

    Attributes
    ----------
    regime
        The exact NTK or NNGP kernel, or the tangent kernel of a random network of 64 channels.
    classes
        Two classes are told apart with the binary cross-entropy, more with the cross-entropy.
    side
        Of the images, in pixels; 0 keeps that of the data.
    draw
        Number of the random images and, for the empirical kernel, of the random network.
    """

    regime: Regime
    classes: int
    side: int
    draw: int


@dataclass(frozen=True)
class Block:
    """A cell: some rows of the Gram matrix, or some columns of the kernel between test and training images.

    Attributes
    ----------
    case
        Which kernel and images.
    part
        ``"train"``: rows ``first`` to ``last`` up to the diagonal. ``"test"``: columns ``first`` to ``last``.
    first, last
        The training images, the last one excluded.
    """

    case: Case
    part: Literal["train", "test"]
    first: int
    last: int


@dataclass(frozen=True)
class Flow:
    """A cell: training on the first n images.

    Attributes
    ----------
    case
        Which kernel and images.
    n
        Training images.
    """

    case: Case
    n: int


@dataclass(frozen=True)
class Work:
    """How much a block was.

    Attributes
    ----------
    pairs
        Entries of the kernel computed.
    operations
        Arithmetic operations: of exact kernels those of the layers with ReLU on the entries that the native engine computes,
        of empirical kernels those of products and convolutions.
    """

    pairs: int
    operations: float


@dataclass(frozen=True)
class Outcome:
    """What training gave.

    Attributes
    ----------
    test, train
        Accuracy.
    loss
        Mean training loss at the end.
    operations
        Arithmetic operations of the integration, as torch counts them in products.
    """

    test: float
    train: float
    loss: float
    operations: float


@dataclass(frozen=True)
class Inputs:
    """What images to draw.

    Attributes
    ----------
    sizes, test
        Training sets, each the beginning of the next, and test images; multiples of the number of classes.
    pair
        The two classes of the binary task.
    seed
        Decides which images.
    data
        A file of images, or None for digits.
    """

    sizes: tuple[int, ...]
    test: int
    pair: tuple[int, ...]
    seed: int
    data: Path | None


@dataclass(frozen=True)
class Shared:
    """What cells share: kernels, images and where blocks are kept."""

    inputs: Inputs
    steps: float
    folder: Path
    kernels: dict[Case, tuple[Kernel, float]]
    images: dict[tuple[int, int, int], Images]


def case_cells(cases: Iterable[Case], sizes: Sequence[int]) -> list[Block | Flow]:
    """Give the cells of each case: blocks that end at every size, and a flow for each size."""
    cells: list[Block | Flow] = []
    for case in cases:
        cells += [*_blocks(case, sizes), *(Flow(case, n) for n in sizes)]
    return cells


def _blocks(case: Case, sizes: Sequence[int]) -> list[Block]:
    marks = sorted({0, *sizes, *range(0, max(sizes), _BLOCK)})
    parts: tuple[Literal["train", "test"], ...] = ("train", "test")
    return [Block(case, part, *ends) for part in parts for ends in pairwise(marks)]


def share(
    inputs: Inputs, steps: float, folder: Path, cases: Iterable[Case], network: Callable[[int, int], nn.Module]
) -> Shared:
    """Draw images and make kernels, each used once as cells do, so that none pays for plans, imports and first calls.

    Parameters
    ----------
    inputs
        The images.
    steps
        Training time: steps of gradient descent on the mean loss at learning rate one.
    folder
        Where blocks are kept.
    cases
        All cases of the run.
    network
        Gives the network by the images' channels and its width.
    """
    shared = Shared(inputs, steps, folder, {}, {})
    for case in cases:
        key = case.classes, case.side, case.draw
        if key not in shared.images:
            shared.images[key] = _draw(inputs, *key)
        x = shared.images[key].x
        own, operations = _kernel(case, x, network, inputs.seed)
        kernel = Fingerprinted(own, x.shape[1:])
        with Operations():
            stored_gram(kernel, x[:3], None, folder, resume=False)  # three rows are as many as a survey reads
        shared.kernels[case] = kernel, operations
    return shared


def compute(shared: Shared, cell: Block | Flow) -> Work | Outcome:
    """Compute a block, or train."""
    return _block(shared, cell) if isinstance(cell, Block) else _flow(shared, cell)


def _kernel(case: Case, x: Tensor, network: Callable[[int, int], nn.Module], seed: int) -> tuple[Kernel, float]:
    """Give a kernel, and the operations per pair where they are not counted while it is computed."""
    channels, shape = x.shape[1], tuple(x.shape[1:])
    if case.regime == "empirical NTK":
        net = parametrize_ntk(network(channels, WIDTH))
        initialize(net, generator=torch.Generator().manual_seed(seed + 7919 * case.draw))
        return empirical(net).ntk, 0.0
    limit = infinite_width(network(channels, 1))
    kernel = limit.ntk if case.regime == "NTK" else limit.nngp
    return kernel, float(pair_operations(kernel, shape, x.dtype))


def _draw(inputs: Inputs, classes: int, side: int, draw: int) -> Images:
    """Draw images of a side, the classes in turn, so that every beginning of a multiple of their number is balanced."""
    chosen = inputs.pair if classes == 2 else None
    found = load_images(max(inputs.sizes), inputs.test, inputs.seed + 7919 * draw, inputs.data, chosen)
    _, labels = np.unique(found.y, return_inverse=True)
    number = np.zeros(len(labels), np.int64)
    for one in range(labels.max() + 1):
        number[labels == one] = np.arange((labels == one).sum())
    order = np.lexsort((labels, number))
    _, test_labels = np.unique(found.y_test, return_inverse=True)
    return Images(_resized(found.x[order], side), labels[order], _resized(found.x_test, side), test_labels)


def _resized(x: Tensor, side: int) -> Tensor:
    if side in (0, x.shape[-1]):
        return x
    return nn.functional.interpolate(x, (side, side), mode="bilinear", antialias=True)


def _block(shared: Shared, cell: Block) -> Work:
    _, operations = shared.kernels[cell.case]
    with Operations() as counter:
        parts = _parts(shared, cell, resume=False)
    n, first = cell.last - cell.first, cell.first
    pairs = n * (n + 1) // 2 + n * first if cell.part == "train" else sum(part.size for part in parts)
    return Work(pairs, float(counter.total) + operations * pairs)


def _parts(shared: Shared, cell: Block, resume: bool) -> list[Any]:
    """Give the matrices of a block: computed anew, or from disk as far as they are there."""
    kernel, _ = shared.kernels[cell.case]
    images = shared.images[cell.case.classes, cell.case.side, cell.case.draw]
    new = images.x[cell.first : cell.last]
    if cell.part == "test":
        return [stored_gram(kernel, images.x_test, new, shared.folder, resume=resume)]
    own = stored_gram(kernel, new, None, shared.folder, resume=resume)
    if not cell.first:
        return [own]
    return [own, stored_gram(kernel, new, images.x[: cell.first], shared.folder, resume=resume)]


def _flow(shared: Shared, cell: Flow) -> Outcome:
    case, n = cell.case, cell.n
    images = shared.images[case.classes, case.side, case.draw]
    gram = torch.zeros(n, n, dtype=torch.float64)
    between = torch.zeros(len(images.x_test), n, dtype=torch.float64)
    for block in _blocks(case, shared.inputs.sizes):
        if block.last > n:
            continue
        rows, parts = slice(block.first, block.last), _parts(shared, block, resume=True)
        if block.part == "test":
            between[:, rows] = torch.from_numpy(np.array(parts[0]))
            continue
        gram[rows, rows] = torch.from_numpy(np.array(parts[0]))
        if block.first:
            gram[rows, : block.first] = torch.from_numpy(np.array(parts[1]))
            gram[: block.first, rows] = gram[rows, : block.first].T
    y, y_test = torch.from_numpy(images.y[:n]), torch.from_numpy(images.y_test)
    binary = case.classes == 2
    targets = y.double() if binary else nn.functional.one_hot(y, case.classes).double()
    # A step at learning rate one on the mean of n losses is a time of 1 / n on their sum.
    flow = GradientFlow(
        "precomputed", loss="binary_cross_entropy" if binary else "cross_entropy", integrator="RKC"
    ).fit(gram, targets)
    with Operations() as counter:
        outputs = flow.predict(None, t=shared.steps / n)
        predicted = flow.predict(between, t=shared.steps / n)
    loss = float(flow.loss_at(shared.steps / n)) / n
    return Outcome(_accuracy(predicted, y_test), _accuracy(outputs, y), loss, float(counter.total))


def _accuracy(outputs: Tensor, labels: Tensor) -> float:
    found = (outputs > 0).long() if outputs.ndim == 1 else outputs.argmax(1)
    return float((found == labels).double().mean())
