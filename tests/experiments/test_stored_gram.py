from __future__ import annotations

import errno
import os

import numpy as np
import pytest
import torch
from torch import nn

import ntkit
from ntkit.errors import InputError
from ntkit.experiments._stored_gram import stored_gram
from ntkit.kernels import InfiniteWidthKernel


def kernel(hidden=1, which="ntk", w_std=2**0.5):
    layers = [nn.Linear(4, 3, bias=False), nn.ReLU()]
    for _ in range(hidden - 1):
        layers += [nn.Linear(3, 3, bias=False), nn.ReLU()]
    return getattr(ntkit.infinite_width(nn.Sequential(*layers, nn.Linear(3, 1, bias=False)), w_std=w_std), which)


def points(n=16, seed=0):
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def entries(monkeypatch):
    """The entries that kernels are asked for."""
    asked, call = [], InfiniteWidthKernel.__call__

    def counted(self, x1, x2=None, **options):
        asked.append(len(x1) * len(x1 if x2 is None else x2))
        return call(self, x1, x2, **options)

    monkeypatch.setattr(InfiniteWidthKernel, "__call__", counted)
    return asked


def stop_after(calls):
    def progress(done, total):
        nonlocal calls
        calls -= 1
        if calls == 0:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_stopped_gram_resumes(tmp_path, symmetric, entries):
    x, other = points(23).split([16, 7])
    x1, x2 = (x, None) if symmetric else (other, x)
    expected = kernel()(x1, x2).numpy()
    with pytest.raises(KeyboardInterrupt):
        stored_gram(kernel(), x1, x2, tmp_path, block=3, progress=stop_after(2))
    entries.clear()
    seen = []
    matrix, seconds = stored_gram(kernel(), x1, x2, tmp_path, block=3, progress=lambda *at: seen.append(at))
    np.testing.assert_allclose(matrix, expected, rtol=1e-12)
    assert 0 < sum(entries) < 0.8 * expected.size and seconds > 0
    assert seen[-1][0] == seen[-1][1] and seen == sorted(seen)
    entries.clear()
    stored_gram(kernel(), x1, x2, tmp_path, block=3)
    assert not entries


@pytest.mark.parametrize("block", [1, 4, 5, 16, 100])
def test_another_block_size_leaves_no_row_out(tmp_path, block):
    x = points()
    with pytest.raises(KeyboardInterrupt):
        stored_gram(kernel(), x, None, tmp_path, block=2, progress=stop_after(1))
    matrix, _ = stored_gram(kernel(), x, None, tmp_path, block=block)
    np.testing.assert_allclose(matrix, kernel()(x).numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    "edited",
    [{"hidden": 2}, {"which": "nngp"}, {"w_std": 1.0}],
    ids=["another layer", "another kernel", "another gain"],
)
def test_an_edited_network_has_its_own_kernel(tmp_path, edited):
    x = points()
    stored_gram(kernel(), x, None, tmp_path)
    matrix, _ = stored_gram(kernel(**edited), x, None, tmp_path)
    np.testing.assert_allclose(matrix, kernel(**edited)(x).numpy(), rtol=1e-12)


def test_other_data_or_another_version_is_another_matrix(tmp_path, monkeypatch):
    x = points()
    stored_gram(kernel(), x, None, tmp_path)
    matrix, _ = stored_gram(kernel(), 2 * x, None, tmp_path)
    np.testing.assert_allclose(matrix, kernel()(2 * x).numpy(), rtol=1e-12)
    stored_gram(kernel(), x.float(), None, tmp_path)
    stored_gram(kernel(), x, x, tmp_path)
    monkeypatch.setattr("ntkit.experiments._stored_gram.version", lambda name: "another")
    stored_gram(kernel(), x, None, tmp_path)
    assert len(list(tmp_path.glob("*.npy"))) == 5


@pytest.mark.parametrize("suffix", [".npy", ".json"])
def test_a_file_that_was_cut_off(tmp_path, suffix):
    x = points(8)
    stored_gram(kernel(), x, None, tmp_path)
    (path,) = tmp_path.glob(f"*{suffix}")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="Remove both"):
        stored_gram(kernel(), x, None, tmp_path)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="space cannot be reserved")
def test_a_full_disk_is_an_error_before_the_computation(tmp_path, monkeypatch, entries):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        stored_gram(kernel(), points(), None, tmp_path)
    assert not entries and not list(tmp_path.iterdir())


def test_bad_block(tmp_path):
    with pytest.raises(InputError, match="block must be at least 1"):
        stored_gram(kernel(), points(), None, tmp_path, block=0)
