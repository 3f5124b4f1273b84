from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ntkit.errors import InputError
from ntkit_studies import myrtle_by_size, resnet_by_size
from ntkit_studies._by_size import Settings
from ntkit_studies._deep_networks import resnet50
from ntkit_studies._flow_costs import Block, Case, Flow, Inputs, Outcome, Work, compute, share
from ntkit_studies.skeleton import Data, Results, Verdict
from ntkit_studies.skeleton._manifest import Manifest, this_machine
from ntkit_studies.skeleton._run import Run

SMALL = Settings(sizes=(10, 20), test=10, draws=1, steps=20.0)


def test_program_resumes_to_the_same_results(tmp_path, capsys):
    options = ["--quick", "--sizes", "10", "20", "--test", "10", "--draws", "1", "--steps", "20", "--classes", "2"]
    options += ["--output", str(tmp_path)]
    assert myrtle_by_size.main(options) == 0
    assert "years" in capsys.readouterr().out
    assert "NTK: years for the Gram matrix of a million images" in (tmp_path / "results.csv").read_text()
    first = (tmp_path / "results.json").read_bytes()
    lines = (tmp_path / "cells.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cells.jsonl").write_text("".join(lines[::2]))
    assert myrtle_by_size.main(options) == 0
    assert (tmp_path / "results.json").read_bytes() == first
    assert len(json.loads(first)["cells"]) == 3 * 6


def test_years_for_a_million_images():
    ours = myrtle_by_size.run(SMALL)
    manifest = ours.manifest.__class__(**vars(ours.manifest) | {"cell_seconds": (1.0,) * len(ours.values)})
    data = Data("cifar.npz", "0", False)
    found = myrtle_by_size.EXPERIMENT.report(Results(SMALL, 0, data, ours.values, manifest))
    first = found.comparisons[0]
    assert first.quantity.startswith("Figure 5, airplane vs car, NTK: years")
    # Two blocks of a second each are 210 pairs; the paper says "5e9 seconds, which is around 160 years".
    assert first.mean == pytest.approx(2 / 210 * 1e6 * 1000001 / 2 / (365.25 * 86400))
    assert first.paper == pytest.approx(158.4, abs=0.1) and first.verdict is Verdict.SMALLER
    assert all(one.paper is None for one in found.comparisons[1:])
    # Twenty images say nothing of ten thousand; equal seconds are equal at any size.
    assert [one.holds for one in found.claims[:3]] == [None, None, True]
    assert "up to 20 images" in found.claims[0].size and "10,000" in found.claims[0].paper_size
    on_digits = myrtle_by_size.EXPERIMENT.report(ours)
    assert all(one.paper is None for one in on_digits.comparisons) and all(c.holds is None for c in on_digits.claims)


@pytest.mark.parametrize(("most", "sizes"), [(0, set()), (10, {10})])
def test_empirical_kernels_up_to_a_size(most, sizes, tmp_path):
    settings = replace(SMALL, classes=(2,), empirical=most)
    results = myrtle_by_size.run(settings, folder=tmp_path)
    found = {cell.n for cell in results.values if isinstance(cell, Flow) and cell.case.regime == "empirical NTK"}
    assert found == sizes
    table, picture = myrtle_by_size.EXPERIMENT.report(results).sections[0].parts
    assert [row[:2] for row in table.rows if row[0] == "empirical NTK"] == [
        ["empirical NTK", str(n)] for n in sorted(sizes)
    ]
    assert len(picture.figure.axes) == 2


def test_resnet_beside_the_paper(tmp_path):
    """The report from made-up results: a finite ResNet-50 takes too long for a test."""
    settings = Settings(sizes=(10,), test=10, classes=(10,), draws=1)
    cells = resnet_by_size.EXPERIMENT.cells(Run(settings, 0, None, tmp_path, lambda *_: None))
    values = {one: Work(55, 1.0) if isinstance(one, Block) else Outcome(0.5, 1.0, 0.1, 1.0) for one in cells}
    manifest = Manifest("resnet_by_size", {}, this_machine(), "2026-01-01", 1.0, (1.0,) * len(values))
    found = resnet_by_size.EXPERIMENT.report(Results(settings, 0, Data("a", "0", False), values, manifest))
    assert found.comparisons[0].quantity.startswith("Figure 7, 10 classes, NTK")
    # "6.25e11 seconds, which is around 20000 years"
    assert found.comparisons[0].paper == pytest.approx(19805, abs=1)


def test_resnet_kernels_are_computed(tmp_path):
    case = Case("NNGP", 10, 0, 0)
    held = share(Inputs((10,), 10, (0, 1), 0, None), 20.0, tmp_path, [case], resnet50)
    work = compute(held, Block(case, "train", 0, 10))
    assert isinstance(work, Work) and work.pairs == 55


@pytest.mark.parametrize(
    "wrong", [{"sizes": ()}, {"sizes": (1,)}, {"draws": 0}, {"test": 1}, {"classes": (1,)}, {"empirical": -1}]
)
def test_bad_settings(wrong):
    with pytest.raises(InputError, match="must be at least"):
        Settings(**wrong)
