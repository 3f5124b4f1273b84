from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import ntkit
from ntkit_studies import cntk_cifar as experiment
from ntkit_studies._images import load_images
from ntkit_studies.skeleton import Data, Results, Verdict


@pytest.mark.parametrize("head", ["flatten", "average"])
def test_accuracy_is_that_of_the_classifier(head):
    settings = experiment.Settings(depths=(3,), head=head, train=40, test=40)
    (result,) = experiment.run(settings, seed=1).values.values()
    data = load_images(40, 40, 1)
    net = experiment.network(3, head, 1, 8)
    model = ntkit.NTKClassifier(net, input_shape=(1, 8, 8)).fit(data.x.flatten(1).numpy(), data.y)
    assert model.score(data.x_test.flatten(1).numpy(), data.y_test) == result.accuracy
    assert [p.requires_grad for p in net.parameters()] == ([True] * 3 if head == "flatten" else [False, True, False])


@pytest.mark.parametrize("head", ["flatten", "average"])
@pytest.mark.parametrize(("depth", "convolutions"), [(3, 2), (4, 3), (6, 5), (11, 10), (21, 20)])
def test_depth_counts_layers_with_weights(depth, convolutions, head):
    """Arora et al. 2019, section 5.1: "We set the number of convolution layers to be 2, 3, 5, 10, or 20"."""
    net = experiment.network(depth, head, 3, 8)
    kinds = [type(layer) for layer in net if isinstance(layer, (nn.Conv2d, nn.Linear))]
    assert kinds == [nn.Conv2d] * convolutions + [nn.Linear]
    assert all(layer.kernel_size == (3, 3) and layer.stride == (1, 1) for layer in net if isinstance(layer, nn.Conv2d))
    assert net(torch.zeros(2, 3, 8, 8)).shape == (2, 1)
    assert all(depth in by_depth for by_depth in experiment.PAPER[head].values())


def test_program(tmp_path, capsys):
    folder = tmp_path / "kernels"
    assert experiment.main(["--quick", "--output", str(folder)]) == 0
    first = capsys.readouterr().out
    assert "depth" in first and "64.47" not in first  # the paper's images are others
    cells = json.loads((folder / "results.json").read_text())["cells"]
    assert [one["cell"]["depth"] for one in cells] == [3, 4]
    assert len(list((folder / "kernels").glob("*.npy"))) == 4
    assert experiment.main(["--quick", "--depths", "4", "--output", str(folder)]) == 0


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


@pytest.mark.parametrize(
    ("train", "test", "verdict"),
    [(2000, 10_000, Verdict.INSIDE), (500, 10_000, Verdict.SMALLER), (2000, 1000, Verdict.SMALLER)],
)
def test_paper_beside_cifar(train, test, verdict):
    ours = experiment.run(experiment.QUICK)
    settings = experiment.Settings(depths=(3,), train=train, test=test)
    found = {experiment.Depth(3): experiment.Accuracy(0.415)}
    manifest = ours.manifest.__class__(**vars(ours.manifest) | {"cell_seconds": (1.0,)})
    report = experiment.report(Results(settings, 0, Data("cifar.npz", "0", False), found, manifest))
    (comparison,) = report.comparisons
    assert (comparison.paper, comparison.verdict) == (40.94, verdict)
    assert comparison.error == pytest.approx(100 * (0.415 * 0.585 / test) ** 0.5)
    assert comparison.size == f"{train:,} training and {test:,} test images"
    assert comparison.paper_size == "2,000 training and 10,000 test images"
    assert report.sections[0].parts[0].rows[0][2:4] == ["40.94", "64.47"]
