from __future__ import annotations

import contextlib
import io
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import ntkit
from ntkit.datasets import load_digits
from ntkit.errors import InputError
from ntkit_studies import digits
from ntkit_studies._digits_cells import KERNELS, METHODS, NETWORKS, KernelView, Limit, Wide
from ntkit_studies._digits_methods import conv_net
from ntkit_studies._digits_report import accuracies
from ntkit_studies.plots import Picture
from ntkit_studies.skeleton._records import encode, rounded


@pytest.fixture(scope="module")
def reports():
    return []


@pytest.fixture(scope="module")
def result(reports):
    before = torch.get_rng_state()
    result = digits.run(digits.QUICK, seed=1, workers=1, progress=lambda *report: reports.append(report))
    assert torch.equal(before, torch.get_rng_state())
    return result


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The folder that the program wrote, and what it printed."""
    folder, printed = tmp_path_factory.mktemp("digits"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert digits.main(["--quick", "--seed", "1", "--output", str(folder)]) == 0
    return folder, printed.getvalue()


def test_every_method_has_accuracies(result):
    found = accuracies(result)
    assert tuple(found) == METHODS
    for values in found.values():
        assert values.shape == (2, 2)
        assert np.all((values >= 0) & (values <= 1))
    assert found["NTK"].mean() > 0.5  # chance is 0.1


def test_a_seed_gives_the_same_numbers(result, program):
    stored = digits.EXPERIMENT.read(program[0]).values
    assert list(stored) == list(result.values)
    for cell, found in result.values.items():  # a stored number has thirteen digits
        assert encode(stored[cell]) == rounded(encode(found))


def test_progress(result, reports):
    assert {name for name, *_ in reports} == {*KERNELS, "cells"}
    assert all(done <= total for _, done, total in reports)


def test_columns_are_those_of_the_whole_kernel():
    images, kernel = load_digits().images[:11], ntkit.infinite_width(conv_net("flatten")).ntk
    calls = []
    columns = digits.kernel_columns(kernel, images, 6, lambda done, total: calls.append((done, total)))
    np.testing.assert_allclose(columns, kernel(images, images[:6]), rtol=1e-12)
    assert calls[-1] == (51, 51)


def test_views_are_those_of_the_kernels(result):
    for name in KERNELS:
        found = result.values[KernelView(name)]
        assert sum(found.shares) == pytest.approx(1, abs=1e-6) and list(found.shares) == sorted(
            found.shares, reverse=True
        )
        cosines = np.array(found.cosines)
        np.testing.assert_allclose(np.diagonal(cosines), 1)
        np.testing.assert_allclose(cosines, cosines.T, rtol=1e-9)
        assert found.classes == tuple(sorted(found.classes)) and len(set(found.classes)) == 10


def test_the_limit_and_networks_have_one_shape(result):
    settings, limit = digits.QUICK, result.values[Limit()]
    assert np.shape(limit.mean) == np.shape(limit.std) == (len(settings.steps), settings.path)
    for width in settings.widths:
        for draw in range(settings.members):
            found = result.values[Wide(width, draw)]
            assert np.shape(found.outputs) == np.shape(limit.mean) and len(found.losses) == len(limit.losses)


def test_program_writes_a_report_that_loads_nothing(program):
    folder, output = program
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    assert not re.search(r"<(script|link|iframe)|@import|url\(", page)
    assert page.count('src="data:image/png;base64,') == 7 == page.count("<img") == page.count("<img alt=")
    for name in METHODS:
        assert name in page
        assert name in output
    assert "report.html" in output.replace("\n", "")


def test_the_first_report_needs_no_network(result, tmp_path):
    shown = []
    digits.run(digits.QUICK, seed=1, workers=1, preview=shown.append)
    (found,) = shown
    assert set(found.values) == set(digits.first(SimpleNamespace(settings=digits.QUICK)))
    assert found.values.items() <= result.values.items()
    assert set(accuracies(found)) == {*METHODS} - {*NETWORKS}
    report = digits.EXPERIMENT.report(found)
    assert "load this page again" in report.introduction
    assert any(isinstance(part, Picture) for part in report.sections[0].parts)
    assert len(report.sections) == len(digits.EXPERIMENT.report(result).sections) - 5


def test_the_program_shows_the_first_report_on_the_way(tmp_path, capsys):
    page = tmp_path / "demo.html"
    assert digits.main(["--quick", "--output", str(page), "--workers", "1"]) == 0
    printed = capsys.readouterr()
    assert "First figures: " in printed.err and "CNN, flatten" not in printed.err.split("First figures")[0]
    assert "CNN, flatten" in printed.out and "load this page again" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": (1, 2)}, "steps must increase from 0"),
        ({"steps": (0, 2, 2)}, "steps must increase from 0"),
        ({"classes": (3, 3)}, "two different"),
        ({"members": 1}, "members must be at least 2"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(InputError, match=message):
        digits.Settings(**changes)
