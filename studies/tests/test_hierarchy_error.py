from __future__ import annotations

import pytest
import torch

import ntkit
from ntkit.errors import InputError
from ntkit_studies import hierarchy_error as experiment
from ntkit_studies._by_width import WidthCell, network_seed, width_cells
from ntkit_studies.skeleton import Results, Run
from ntkit_studies.skeleton._manifest import Manifest, this_machine

SETTINGS = experiment.Settings(widths=(8, 32), draws=1, time=0.3)


@pytest.mark.parametrize("curve", experiment.NETWORKS)
def test_errors_are_those_of_a_network_in_small_steps(curve, tmp_path):
    cell = WidthCell(curve, 32, 0)
    found = experiment.compute(Run(SETTINGS, 1, None, tmp_path, lambda *_: None), cell)
    x, y, x_test = experiment.points()
    points = torch.cat([x, x_test])
    net = ntkit.parametrize_ntk(experiment.network(experiment.NETWORKS[curve], 32), w_std=1.2)
    seed = network_seed(1, cell, SETTINGS.widths, 1)
    ntkit.initialize(net, generator=torch.Generator().manual_seed(seed))
    start, f0 = ntkit.empirical(net).ntk(points), net(x)[:, 0].detach()
    expected = ntkit.infinite_width(experiment.network(experiment.NETWORKS[curve], 3), w_std=1.2).ntk(points)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3 / 300)
    for _ in range(300):
        optimizer.zero_grad()
        (0.5 * (net(x)[:, 0] - f0 - y).square().sum()).backward()
        optimizer.step()
    end = ntkit.empirical(net).ntk(points)
    assert found.start == pytest.approx(float((end - start).norm() / end.norm()), rel=0.01)
    assert found.expected == pytest.approx(float((end - expected).norm() / end.norm()), rel=0.01)
    assert found.hierarchy < found.start < found.third + found.fourth + found.hierarchy
    assert min(found.third, found.fourth) > 0


def test_program(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert experiment.EXPERIMENT.main(["--quick", "--draws", "1", "--output", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert (
        "2 hidden layers: exponent of the term of K_4" in text and "smaller than the paper's" in text and "of 4" in text
    )
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("<img alt=") == 1


def test_rates_get_a_verdict_by_rule():
    settings = experiment.Settings()
    values = {}
    for cell in width_cells(list(experiment.NETWORKS), settings.widths, settings.draws):
        w, off = float(cell.width), 1 + 0.1 * (-1) ** (cell.draw + settings.widths.index(cell.width))
        values[cell] = experiment.Errors(off * w**-0.5, off / w, off * w**-2, off / w, off / w)
    manifest = Manifest("hierarchy_error", {}, this_machine(), "", 0.0, (0.0,) * len(values))
    report = experiment.report(Results(settings, 0, None, values, manifest))
    verdicts = [one.verdict.name for one in report.comparisons]
    assert verdicts == ["OUTSIDE", "INSIDE", "INSIDE", "INSIDE", "INSIDE"] * 2
    assert report.claims[0].holds and report.claims[0].found == "48 of 48"


def test_bad_settings():
    with pytest.raises(InputError, match="two different"):
        experiment.Settings(widths=(8, 8))
    with pytest.raises(InputError, match="time must be"):
        experiment.Settings(time=0.0)
