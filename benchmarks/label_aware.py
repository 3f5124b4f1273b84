"""Label-aware kernels whose Gram matrix is indefinite, solved as they are, on pairs of classes of CIFAR-10.

    python benchmarks/label_aware.py --data cifar.npz [--train 2000 --test 2000] [--store]

KR-V1 over the kernel of the network of Chen, He and Su 2020, without ridge: its test accuracy beside that of the base kernel, of
``numpy.linalg.solve`` on the same matrix, and of the matrix made definite by a shift of twice its smallest eigenvalue.
The run fails if the scores are not those of numpy, or if strength 0.1 is below the base kernel by more than a standard error.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from history import Table, add_store, publish, started
from numpy.typing import NDArray
from rich.progress import track

import ntkit
from ntkit_studies._images import load_images, pair_name
from ntkit_studies.label_aware_cifar import network

PAIRS = ((4, 5), (8, 9), (3, 4))
STRENGTHS = (0.01, 0.1, 1.0)


def compare(data: Path, pair: tuple[int, int], train: int, test: int) -> list[list[str]]:
    """Give one row for each strength."""
    images = load_images(train, test, 0, data, pair)
    base = ntkit.infinite_width(network(3, 32)).ntk
    k, cross = base(images.x).double(), base(images.x_test, images.x).double()
    x, x_test = images.x.double(), images.x_test.double()
    y, y_test = (torch.from_numpy(np.where(one == pair[1], 1.0, -1.0)) for one in (images.y, images.y_test))

    def right(kernel: torch.Tensor, dual: torch.Tensor) -> NDArray[Any]:
        return ((kernel @ dual > 0) == (y_test > 0)).double().numpy()

    plain = right(cross, ntkit.solve(k, y).value)
    rows = []
    for strength in STRENGTHS:
        aware = ntkit.LabelAware(base, "kr-v1", strength)
        gram = aware.fit_gram(x, y, gram=k)
        between = aware.from_base(cross, x_test, x)
        solution, lowest = ntkit.solve(gram, y, method="indefinite"), aware.definiteness(gram).smallest
        direct = torch.from_numpy(np.linalg.solve(gram.numpy(), y.numpy()))
        scores, expected = between @ solution.value, between @ direct
        difference = float((scores - expected).abs().max() / expected.abs().max())
        assert difference < 1e-9, f"{pair}, strength {strength}: scores differ from numpy's by {difference:.1e}"
        found = right(between, solution.value)
        shifted = gram + 2 * max(0.0, -lowest) * torch.eye(len(gram), dtype=gram.dtype)
        gain, error = float((found - plain).mean()), float(np.std(found - plain) / len(plain) ** 0.5)
        assert strength != 0.1 or gain > -error, f"{pair}: {100 * gain:.1f} points below the base kernel"
        accuracies = (plain, found, right(between, direct), right(between, torch.linalg.solve(shifted, y)))
        rows.append(
            [
                pair_name(pair, True),
                f"{strength:g}",
                *(f"{100 * one.mean():.2f}" for one in accuracies),
                f"{100 * gain:+.2f} ± {100 * error:.2f}",
                f"{lowest:.3g}",
                f"{int(solution.stats['negative'])}",
            ]
        )
    return rows


def main() -> None:
    """Compare on three pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--test", type=int, default=2000)
    add_store(parser)
    options = parser.parse_args()
    start = started()
    rows = [row for pair in track(PAIRS) for row in compare(options.data, pair, options.train, options.test)]
    columns = [
        "pair",
        "strength",
        "base",
        "KR-V1",
        "numpy",
        "made definite",
        "KR-V1 - base",
        "smallest eigenvalue",
        "negative",
    ]
    caption = (
        f"Test accuracy in % of KR-V1 on pairs of CIFAR-10, {options.train} training and {options.test} test images: solved as "
        "it is, by numpy, and with a shift of the diagonal that makes the matrix definite; the gain with its standard error."
    )
    publish("label_aware", [Table(columns, rows, caption)], start, options.store)


if __name__ == "__main__":
    main()
