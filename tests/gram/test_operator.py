"""Lazy Gram matrices against their dense ones, and everywhere that a Gram matrix is taken."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from linear_operator.operators import LinearOperator
from tests.cases import mlp, normal
from torch import Tensor

import ntkit
from ntkit._src.gram import DenseGram, GramOperator, KernelGram
from ntkit._src.gram._plan import Tile, TilePlan
from ntkit.errors import InputError, MemoryLimitError


def _operators(linear: Any, x: Tensor, folder: Path) -> list[GramOperator]:
    return [
        ntkit.gram(linear, x, out=folder / "k.zarr", tile=7),
        ntkit.gram(linear, x, out=folder / "k.npy", tile=7),
        KernelGram(linear, x, tile=7),
        DenseGram(linear(x)),
        ntkit.gram(linear, x, x[:10], out=folder / "cross.zarr", tile=7),
        KernelGram(linear, x, x[:10], tile=7),
    ]


INDICES: list[Any] = [
    3,
    -1,
    slice(None),
    slice(2, 9),
    slice(None, None, 3),
    (4, 5),
    (slice(3, 20), 2),
    (slice(1, 15), slice(2, 9)),
    (torch.tensor([22, 0, 8, 8]), slice(None)),
    (5, torch.tensor([9, 0])),
]


def test_parts_and_products(linear: Any, x: Tensor, tmp_path: Path) -> None:
    """Equal bits: every entry is a whole number, and so is every product."""
    for gram in _operators(linear, x, tmp_path):
        dense = gram.to_dense()
        assert isinstance(gram, LinearOperator) and gram.shape == dense.shape and gram.dtype == torch.float64
        for index in INDICES:
            torch.testing.assert_close(gram[index], dense[index], rtol=0, atol=0)
        rows, columns = torch.tensor([20, 1, 9]), torch.tensor([9, 9, 0, 3])
        assert torch.equal(gram.block(rows, columns), dense[rows][:, columns])
        assert torch.equal(gram.block(rows % 2 == 0 if len(rows) == 23 else rows), dense[rows])
        for v in (torch.ones(dense.shape[1]).double(), torch.arange(2.0 * dense.shape[1]).double().view(-1, 2)):
            torch.testing.assert_close(gram @ v, dense @ v, rtol=0, atol=0)
        np.testing.assert_array_equal(np.asarray(gram), dense.numpy())
        assert len(gram) == 23
        if gram.symmetric:
            assert torch.equal(gram.diagonal(), dense.diagonal())
            some = torch.tensor([4, 17, 2])
            assert torch.equal(gram.restricted(some).to_dense(), dense[some][:, some])
            assert torch.equal(gram.restricted(some).diagonal(), dense.diagonal()[some])
            assert torch.equal(gram.T @ torch.eye(23).double(), dense)


def test_float32_entries_add_up_in_float64(tmp_path: Path, linear: Any) -> None:
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    stored = ntkit.gram(linear, x, out=tmp_path / "k.zarr", tile=16)
    v = normal(40, 2, seed=1)
    torch.testing.assert_close(stored.product(v), stored.to_dense().double() @ v, rtol=1e-14, atol=1e-14)


class Uneven(ntkit.Kernel):
    """x . x', with halves that differ in their last digits, as a BLAS may give them."""

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        product = x1 @ (x1 if x2 is None else x2).T
        return product * (1 + 1e-7 * torch.ones_like(product).tril(-1))

    def diag(self, x: Tensor) -> Tensor:
        return (x * x).sum(1)

    def fingerprint(self) -> str:
        return "uneven"


def test_tiles_on_the_diagonal_are_symmetric(tmp_path: Path) -> None:
    x = normal(9, 3)
    for gram in (ntkit.gram(Uneven(), x, out=tmp_path / "k.zarr", tile=4), KernelGram(Uneven(), x, tile=4)):
        dense = gram.to_dense()
        assert torch.equal(dense, dense.T), "nothing is computed: one half is mirrored into the other"
        torch.testing.assert_close(gram.product(normal(9, 1)), dense @ normal(9, 1), rtol=1e-14, atol=1e-14)


def test_bad_indices(linear: Any, x: Tensor) -> None:
    gram = KernelGram(linear, x, tile=7)
    for rows in (torch.tensor([23]), torch.tensor([[1]]), -24):
        with pytest.raises(InputError, match="between -23 and 22"):
            gram.block(rows)
    with pytest.raises(InputError, match="gram.block"):
        gram[torch.tensor([1]), torch.tensor([2])]
    with pytest.raises(InputError, match="transpose"):
        KernelGram(linear, x, x[:3])._transpose_nonbatch()


def test_a_matrix_too_large_for_memory_is_not_made_dense(linear: Any) -> None:
    gram = KernelGram(linear, torch.zeros(1, 1).expand(3_000_000, 1))
    with pytest.raises(MemoryLimitError, match=r"ntkit.solve\(gram, y\)"):
        gram.to_dense()


def test_a_stored_gram_is_taken_wherever_a_gram_is(tmp_path: Path) -> None:

    net = mlp(3, 8, 1)
    kernel = ntkit.infinite_width(net, b_std=0.5).ntk
    x = normal(40, 3)
    y, classes = torch.sin(x[:, 0]), (x[:, 0] > 0).double()
    ntkit.gram(kernel, x, out=tmp_path / "k.zarr", tile=16)
    gram, dense = ntkit.open_gram(tmp_path / "k.zarr"), kernel(x)
    torch.testing.assert_close(ntkit.solve(gram, y, ridge=1e-3).value, ntkit.solve(dense, y, ridge=1e-3).value)
    # Equal matrices in other memory: LAPACK may round differently where rows are aligned differently.
    close = functools.partial(torch.testing.assert_close, rtol=1e-8, atol=1e-10)
    close(*[ntkit.GradientFlow("precomputed").fit(one, y).predict(None, 0.3) for one in (gram, dense)])
    close(*[ntkit.leave_one_out(one, y, [1e-3, 1e-1]).predictions for one in (gram, dense)])
    close(*[ntkit.LabelAware(kernel).fit_gram(x, classes, gram=one) for one in (gram, dense)])
    close(*[ntkit.log_marginal_likelihood(one, y, 1e-2) for one in (gram, dense)])
    close(*[ntkit.max_learning_rate(one) for one in (gram, dense)])
    for Estimator, target in ((ntkit.NTKRegressor, y), (ntkit.NTKClassifier, classes)):
        stored = Estimator(kernel="precomputed", ridge=1e-3).fit(gram, target.numpy())
        plain = Estimator(kernel="precomputed", ridge=1e-3).fit(dense.numpy(), target.numpy())
        found, expected = stored.predict(gram), plain.predict(dense.numpy())
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_the_order_of_tiles() -> None:
    plan = TilePlan((5, 5), 2, symmetric=True)
    assert [(tile.i, tile.j) for tile in plan.tiles()] == [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]
    assert (plan.rows(Tile(1, 2)), plan.columns(Tile(1, 2)), plan.entries) == (slice(2, 4), slice(4, 5), 17)
