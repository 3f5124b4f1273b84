from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ntkit_studies import trained_kernel_cifar as experiment
from ntkit_studies._networks import drawn_network


def test_accuracy_is_that_of_regression_with_all_derivatives():
    net = drawn_network(4, 6, 0).double()
    generator = torch.Generator().manual_seed(1)
    x, x_test = (torch.randn(n, 1, 2, 2, generator=generator, dtype=torch.float64) for n in (8, 30))
    y, y_test = (torch.where(one[:, 0, 0, 0] * one[:, 0, 1, 1] > 0, 1.0, -1.0).double() for one in (x, x_test))

    def jacobian(points):
        rows = []
        for point in points:
            net.zero_grad()
            net(point[None])[0, 0].backward()
            rows.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
        return torch.stack(rows)

    J, J_test = jacobian(x), jacobian(x_test)
    K = J @ J.T
    weights = torch.linalg.solve(K + 1e-3 * K.diagonal().mean() * torch.eye(8, dtype=torch.float64), y)
    expected = float(((J_test @ (J.T @ weights) > 0) == (y_test > 0)).double().mean())
    assert experiment.accuracy(net, x, y, x_test, y_test, 1e-3) == expected


def test_program(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert experiment.EXPERIMENT.main(["--quick", "--seeds", "1", "--output", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "3 vs 8: accuracy with K_t less that with K_0" in text and text.count("smaller than the paper's") == 3
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("<img alt=") == 1
    (record,) = experiment.EXPERIMENT.read(tmp_path).values.values()
    assert len(record.before) == len(record.after) == len(record.network) == 2 and not record.from_file


def test_verdicts_follow_from_the_gains():
    records = [experiment.Accuracies((0.8, 0.9), (0.9 + shift, 0.9 + shift), (0.9, 0.9), True) for shift in (0.0, 0.02)]
    settings = experiment.Settings(pairs=((6, 8), (6, 9)))
    first, second, mean, network = experiment.claims(settings, records)
    assert first.what.startswith("frog vs ship") and first.holds and first.found.startswith("11.000 ± 1.000 (80.0 to")
    assert second.holds is False and mean.holds and network.holds is None  # 1 with a standard error of 1
    assert {one.holds for one in experiment.claims(settings, records[:1])} == {None}
    digits = [replace(record, from_file=False) for record in records]
    assert {one.holds for one in experiment.claims(settings, digits)} == {None}


@pytest.mark.parametrize("from_file", [False, True])
def test_sizes(from_file):
    quick, usual, full = (experiment.sizes(size, from_file) for size in ("quick", "default", "full"))
    assert len(usual.pairs) == 6 and set(quick.pairs) < set(usual.pairs) and full.width >= usual.width
    assert np.sum([full.train, full.test]) <= (12000 if from_file else 348)  # the digits have 174 of the class 8
