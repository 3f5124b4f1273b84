from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import ntkit
from ntkit.results import InfiniteWidthKernel
from ntkit_studies import _stored_gram
from ntkit_studies._images import Images
from ntkit_studies._stored_gram import stored_gram, train_and_test
from ntkit_studies.skeleton import Run


def kernel(hidden=1, which="ntk", w_std=2**0.5):
    layers = [nn.Linear(4, 3, bias=False), nn.ReLU()]
    for _ in range(hidden - 1):
        layers += [nn.Linear(3, 3, bias=False), nn.ReLU()]
    return getattr(ntkit.infinite_width(nn.Sequential(*layers, nn.Linear(3, 1, bias=False)), w_std=w_std), which)


def points(n=16, seed=0):
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def entries(monkeypatch):
    """The entries that kernels are asked for, in tiles of four rows."""
    monkeypatch.setattr(_stored_gram, "_TILE", 4)
    asked, call = [], InfiniteWidthKernel.__call__

    def counted(self, x1, x2=None, **options):
        asked.append(len(x1) * len(x1 if x2 is None else x2))
        return call(self, x1, x2, **options)

    monkeypatch.setattr(InfiniteWidthKernel, "__call__", counted)
    return asked


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_stopped_gram_resumes(tmp_path, symmetric, entries):
    x, other = points(23).split([16, 7])
    x1, x2 = (x, None) if symmetric else (other, x)
    expected = kernel()(x1, x2).numpy()

    def stop(done, total):
        if 2 * done > total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored_gram(kernel(), x1, x2, tmp_path, stop)
    entries.clear()
    seen = []
    matrix = stored_gram(kernel(), x1, x2, tmp_path, lambda *at: seen.append(at))
    np.testing.assert_allclose(matrix, expected, rtol=1e-12)
    assert 0 < sum(entries) < 0.6 * expected.size
    assert seen[-1][0] == seen[-1][1] and seen == sorted(seen)
    entries.clear()
    np.testing.assert_array_equal(stored_gram(kernel(), x1, x2, tmp_path), matrix)
    assert not entries


@pytest.mark.parametrize(
    "edited",
    [{"hidden": 2}, {"which": "nngp"}, {"w_std": 1.0}],
    ids=["another layer", "another kernel", "another gain"],
)
def test_an_edited_network_has_its_own_kernel(tmp_path, edited):
    x = points()
    stored_gram(kernel(), x, None, tmp_path)
    matrix = stored_gram(kernel(**edited), x, None, tmp_path)
    np.testing.assert_allclose(matrix, kernel(**edited)(x).numpy(), rtol=1e-12)


def test_other_data_or_another_version_is_another_matrix(tmp_path, monkeypatch):
    x = points()
    stored_gram(kernel(), x, None, tmp_path)
    matrix = stored_gram(kernel(), 2 * x, None, tmp_path)
    np.testing.assert_allclose(matrix, kernel()(2 * x).numpy(), rtol=1e-12)
    stored_gram(kernel(), x.float(), None, tmp_path)
    stored_gram(kernel(), x, x, tmp_path)
    monkeypatch.setattr(_stored_gram, "version", lambda name: "another")
    stored_gram(kernel(), x, None, tmp_path)
    assert len(list(tmp_path.glob("*.npy"))) == 5


def test_a_file_that_was_cut_off_is_computed_again(tmp_path):
    x = points(8)
    stored_gram(kernel(), x, None, tmp_path)
    (path,) = tmp_path.glob("*.npy")
    path.write_bytes(path.read_bytes()[:-40])
    np.testing.assert_allclose(stored_gram(kernel(), x, None, tmp_path), kernel()(x).numpy(), rtol=1e-12)


def test_a_kernel_is_fingerprinted_once_for_all_its_matrices(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(_stored_gram, "kernel_fingerprint", lambda *given: calls.append(given) or {"kernel": "mine"})
    known, x = _stored_gram.Fingerprinted(kernel(), (4,)), points()
    for other in (None, x[:3]):
        np.testing.assert_allclose(stored_gram(known, x, other, tmp_path), kernel()(x, other).numpy(), rtol=1e-12)
    torch.testing.assert_close(known.diag(x), kernel().diag(x))
    assert len(calls) == 1


def test_train_and_test(tmp_path, entries):
    x, other = points(23).float().split([16, 7])
    told = []
    run = Run(None, 0, None, tmp_path, lambda label, done, total: told.append((label, done, total)))
    images = Images(x, np.zeros(16), other, np.zeros(7))
    for found, expected in zip(
        train_and_test(kernel(), images, run, "depth 2"), (kernel()(x), kernel()(other, x)), strict=True
    ):
        assert found.dtype == np.float32 and isinstance(found, np.memmap)
        np.testing.assert_array_equal(found, expected.numpy())
    assert ("depth 2, train", 160, 160) in told and ("depth 2, test", 112, 112) in told
    before = len(entries)
    train_and_test(kernel(), images, run, "again")
    assert len(entries) == before
