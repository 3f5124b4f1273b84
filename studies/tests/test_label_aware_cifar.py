from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from studies.tests.image_files import write_images
from torch import nn

import ntkit
from ntkit.errors import InputError
from ntkit_studies import label_aware_cifar as experiment

PAIR = replace(experiment.QUICK, pairs=experiment.QUICK.pairs[:1])


def test_network_is_that_of_the_paper():
    net = experiment.network(3, 32)
    convolutions = [layer for layer in net if isinstance(layer, nn.Conv2d)]
    assert [layer.stride[0] for layer in convolutions] == [1, 1, 1, 2, 1, 1, 2]
    assert sum(isinstance(layer, nn.ReLU) for layer in net) == 7 and net[-1].in_features == 64
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 1)
    assert experiment.network(1, 9)(torch.zeros(1, 1, 9, 9)).shape == (1, 1)


def test_network_of_the_code_pads_on_one_side():
    x = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    net = experiment.network(3, 8, "code")
    assert [layer.stride[0] for layer in net if isinstance(layer, nn.Conv2d)] == [1, 1, 1, 2, 1, 2, 1]
    assert isinstance(net[-3], nn.Conv2d)  # no ReLU before the last layer
    layers: list[nn.Module] = []
    for stride in (1, 1, 1, 2, 1, 2, 1):  # zeros on both sides of the mirrored images are zeros after the last pixel
        layers += [nn.Conv2d(3 if not layers else 1, 1, 3, stride, padding=1, bias=False), nn.ReLU()]
    mirrored = nn.Sequential(*layers[:-1], nn.Flatten(), nn.Linear(4, 1, bias=False))
    torch.testing.assert_close(ntkit.infinite_width(net).ntk(x), ntkit.infinite_width(mirrored).ntk(x.flip(2, 3)))


def test_more_draws_keep_the_old_ones(tmp_path, monkeypatch):
    first = experiment.run(PAIR, seed=1, folder=tmp_path).values
    more = experiment.run(replace(PAIR, draws=(3,)), seed=1, folder=tmp_path).values
    assert len(first) == 10 and len(more) == 15 and all(more[cell] == found for cell, found in first.items())
    assert len(list((tmp_path / "kernels").glob("*.npy"))) == 1
    monkeypatch.setattr(experiment, "load_images", None)
    assert experiment.EXPERIMENT.read(tmp_path).values == more


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--train", "12", "--test", "8"], ["deer vs dog", "cat vs deer", "85.15", "best by validation"]),
        (["--table", "2", "--train", "40", "50", "--test", "30", "--seeds", "2", "1"], ["40", "50", "FJLT-V2"]),
    ],
)
def test_program(options, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    folder, data = tmp_path / "results", write_images(tmp_path / "a.npz", classes=10, n=10, side=8)
    common = ["--quick", "--data", str(data), "--output", str(folder), "--threads", str(torch.get_num_threads())]
    assert experiment.main([*common, *options]) == 0
    output = capsys.readouterr().out
    assert all(word in output for word in words)
    assert "Difference to CNTK" in output
    assert len(list((folder / "kernels").glob("*.npy"))) == (1 if "--table" in options else 2)


def test_sizes_of_the_tables():
    first, second = (experiment.tasks_of(experiment.Settings(table=which), from_file=True) for which in (1, 2))
    names = ["deer vs dog", "cat vs deer", "cat vs frog", "deer vs frog", "bird vs frog"]
    assert [task.name for task in first] == names
    assert [task.classes for task in first] == [(4, 5), (3, 4), (3, 6), (4, 6), (2, 6)]
    assert {(task.train, task.test, task.draws) for task in first} == {(2000, 400, 5)}
    assert [(task.train, task.test, task.classes) for task in second] == [(2000, 2000, None), (5000, 2000, None)]
    assert experiment.Settings().strengths == (0.001, 0.01, 0.1, 1.0)
    assert experiment.Settings().left_out == 5 and experiment.Settings(table=2).left_out == 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "missing.npz"], "must be an .npz file"),
        (["--train", "7"], "multiple"),
        (["--test", "0"], "multiple"),
        (["--validation", "0"], "between 0 and 1"),
        (["--train", "20", "40"], "Table 1 has one training size"),
        (["--seeds", "0"], "draws must be positive"),
        (["--table", "2", "--seeds", "1", "2", "3"], "one for each"),
        (["--validation", "2.5"], "a number of folds, or a share below 1"),
        (["--validation", "1"], "number of folds, an integer from 2 on"),
        (["--threads", "0"], "--threads must be at least 1"),
    ],
)
def test_bad_options(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        experiment.main(["--quick", *options])
    assert message in capsys.readouterr().err


def test_strengths_must_be_positive():
    with pytest.raises(InputError, match="strengths must be positive"):
        replace(PAIR, strengths=(0.0, 1.0))
