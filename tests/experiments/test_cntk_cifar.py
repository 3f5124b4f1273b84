from __future__ import annotations

import errno
import json
import os

import numpy as np
import pytest
import torch

import ntkit
from ntkit.errors import InputError
from ntkit.experiments import cntk_cifar as experiment
from ntkit.experiments._images import load_images
from ntkit.experiments._stored_gram import stored_gram


class Counted(ntkit.Kernel):
    """x . x', which counts the entries it is asked for."""

    def __init__(self):
        self.entries = 0

    def __call__(self, x1, x2=None):
        x2 = x1 if x2 is None else x2
        self.entries += len(x1) * len(x2)
        return x1 @ x2.T

    def diag(self, x):
        return (x * x).sum(1)


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_stopped_gram_goes_on(tmp_path, symmetric):
    x, other = torch.randn(23, 4, generator=torch.Generator().manual_seed(0)).split([16, 7])
    x1, x2 = (x, None) if symmetric else (other, x)
    expected = (x1 @ (x1 if x2 is None else x2).T).numpy()
    path = tmp_path / "k.npy"

    def stop(done, total):
        if done > total / 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored_gram(Counted(), x1, x2, path, "linear", block=3, progress=stop)
    kernel = Counted()
    seen = []
    matrix, seconds = stored_gram(kernel, x1, x2, path, "linear", block=3, progress=lambda *at: seen.append(at))
    np.testing.assert_allclose(matrix, expected, rtol=1e-6, atol=1e-6)
    assert kernel.entries < 0.8 * expected.size and seconds > 0
    assert seen[-1][0] == seen[-1][1] and seen == sorted(seen)
    again = Counted()
    stored_gram(again, x1, x2, path, "linear", block=3)
    assert again.entries == 0
    with pytest.raises(InputError, match="another network"):
        stored_gram(again, x1, x2, path, "another", block=3)
    with pytest.raises(InputError, match="other data"):
        stored_gram(again, 2 * x1, x2, path, "linear", block=3)


@pytest.mark.parametrize("which", ["k.npy", "k.json"])
def test_a_file_that_was_cut_off(tmp_path, which):
    x = torch.randn(8, 3)
    stored_gram(Counted(), x, None, tmp_path / "k.npy", "linear")
    (tmp_path / which).write_bytes((tmp_path / which).read_bytes()[:-40])
    with pytest.raises(InputError, match="Remove both"):
        stored_gram(Counted(), x, None, tmp_path / "k.npy", "linear")


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="space cannot be reserved")
def test_a_full_disk_is_an_error_before_the_computation(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    kernel = Counted()
    with pytest.raises(OSError, match="No space left"):
        stored_gram(kernel, torch.randn(8, 3), None, tmp_path / "k.npy", "linear")
    assert kernel.entries == 0 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("head", ["flatten", "average"])
def test_accuracy_is_that_of_the_classifier(head):
    settings = experiment.Settings(depths=(3,), head=head, train=40, test=40)
    (result,) = experiment.run(settings, seed=1)
    data = load_images(40, 40, 1)
    net = experiment.network(3, head, 1, 8)
    model = ntkit.NTKClassifier(net, input_shape=(1, 8, 8)).fit(data.x.flatten(1).numpy(), data.y)
    assert model.score(data.x_test.flatten(1).numpy(), data.y_test) == result.accuracy
    assert [p.requires_grad for p in net.parameters()] == ([True] * 3 if head == "flatten" else [False, True, False])


def test_program(tmp_path, capsys):
    folder = tmp_path / "kernels"
    assert experiment.main(["--quick", "--output", str(folder)]) == 0
    first = capsys.readouterr().out
    assert "depth" in first and "64.47" not in first  # the paper's images are others
    assert [result["depth"] for result in json.loads((folder / "results.json").read_text())] == [3, 4]
    assert experiment.main(["--quick", "--output", str(folder)]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "missing.npz"], "must be an .npz file"),
        (["--depths", "1"], "at least 2"),
        (["--train", "7"], "multiple"),
    ],
)
def test_bad_options(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        experiment.main(["--quick", *options])
    assert message in capsys.readouterr().err


def test_paper_beside_cifar():
    results = [experiment.DepthResult(3, 0.5, 1.0, 1.0)]
    assert experiment.table(experiment.Settings(), results, cifar=True).rows[0][2:4] == ["40.94", "64.47"]
