from __future__ import annotations

import re
import sys

import numpy as np
import pytest
import torch

import ntkit
from ntkit.datasets import load_digits
from ntkit.experiments import digits
from ntkit.experiments._digits_methods import conv_net, kernel_columns

METHODS = {
    "NTK",
    "NNGP",
    "CNTK, flatten",
    "CNTK, average pooling",
    "CNN, flatten",
    "CNN, average pooling",
    "RBF SVM",
    "RBF kernel ridge",
    "random forest",
}


@pytest.fixture(scope="module")
def result():
    return digits.run(digits.QUICK, seed=1)


def test_every_method_has_accuracies(result):
    assert set(result.accuracy) == METHODS
    for values in result.accuracy.values():
        assert values.shape == (2, 2)
        assert np.all((values >= 0) & (values <= 1))
    assert result.accuracy["NTK"].mean() > 0.5  # chance is 0.1


def test_a_seed_gives_the_same_numbers(result):
    before, reports = torch.get_rng_state(), []
    again = digits.run(digits.QUICK, seed=1, progress=lambda *report: reports.append(report))
    for name in METHODS:
        np.testing.assert_array_equal(result.accuracy[name], again.accuracy[name])
    for name, kernel in result.kernels.items():
        np.testing.assert_array_equal(kernel, again.kernels[name])
        assert [(done, total) for what, done, total in reports if what == name][-1][0] > 0
    assert all(done <= total for _, done, total in reports)
    assert torch.equal(before, torch.get_rng_state())


def test_columns_are_those_of_the_whole_kernel():
    images, kernel = load_digits().images[:11], ntkit.infinite_width(conv_net("flatten")).ntk
    calls = []
    columns = kernel_columns(kernel, images, 6, lambda done, total: calls.append((done, total)))
    np.testing.assert_allclose(columns, kernel(images, images[:6]), rtol=1e-12)
    assert calls[-1] == (51, 51)


def test_program_writes_a_report_that_loads_nothing(tmp_path, capsys):
    path = tmp_path / "report.html"
    assert digits.main(["--quick", "--seed", "1", "--output", str(path)]) == 0
    page = path.read_text(encoding="utf-8")
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    assert not re.search(r"<(script|link|iframe)|@import|url\(", page)
    assert page.count('src="data:image/png;base64,') == 3 == page.count("<img")
    output = capsys.readouterr().out
    for name in METHODS:
        assert name in page
        assert name in output
    assert str(path.resolve().name) in output.replace("\n", "")


@pytest.mark.parametrize("place", ["missing/report.html", "."])
def test_output_that_cannot_be_written_ends_it_before_the_computation(tmp_path, capsys, monkeypatch, place):
    monkeypatch.setattr(digits, "run", lambda *_: pytest.fail("the computation started"))
    with pytest.raises(SystemExit) as end:
        digits.main(["--quick", "--output", str(tmp_path / place)])
    assert end.value.code == 2
    assert "cannot write to" in capsys.readouterr().err


def test_seed_out_of_range(capsys):
    with pytest.raises(SystemExit):
        digits.main(["--seed", "-1"])
    assert "--seed must be between 0 and" in capsys.readouterr().err


def test_missing_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit):
        digits.main(["--quick", "--output", str(tmp_path / "report.html")])
    assert "pip install 'ntkit[plot,cli]'" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
