from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau

from ntkit_studies import architecture_search
from ntkit_studies._search_space import SPACE, Architecture, build, draw_architectures


def test_every_network_of_the_space_runs():
    assert len(SPACE) == 84 == len(set(SPACE))
    for one in SPACE:
        assert build(one, (3, 8, 8), 5, 4, 0)(torch.randn(2, 3, 8, 8)).shape == (2, 5)
    assert len(set(draw_architectures(60, 0))) == 60


def test_tau_and_its_interval():
    accuracy = np.arange(30.0)
    assert architecture_search.interval(accuracy, accuracy, 50) == pytest.approx((1, 1, 1))
    assert architecture_search.interval(-accuracy, accuracy, 50)[0] == pytest.approx(-1)
    noise = np.random.default_rng(0).normal(size=30)
    value, low, high = architecture_search.interval(noise, accuracy, 200)
    assert low < value < high and low < 0 < high
    assert all(math.isnan(number) for number in architecture_search.interval(np.ones(5), np.arange(5.0), 20))


def test_interval_is_that_of_a_loop_over_draws():
    generator = np.random.default_rng(1)
    accuracy = generator.integers(8, size=20) / 8  # with ties
    predictor = np.where(generator.random(20) < 0.2, -np.inf, generator.integers(6, size=20))
    draws = np.random.default_rng(0).integers(20, size=(100, 20))
    drawn = [kendalltau(predictor[rows], accuracy[rows]).statistic for rows in draws]
    expected = (kendalltau(predictor, accuracy).statistic, *np.quantile(drawn, [0.025, 0.975]))
    assert architecture_search.interval(predictor, accuracy, 100) == pytest.approx(expected, abs=1e-14)


def test_conclusions_follow_from_the_intervals():
    none, strong = (0.1, -0.2, 0.4), (0.6, 0.4, 0.8)
    taus = {name: {"all": none, "head mean": none} for name in architecture_search.TRIVIAL}
    taus["depth"] = {"all": (0.7, 0.5, 0.9)}
    for name in (*architecture_search.PROXIES, "TE-NAS (both ranks)"):
        taus[name] = {"all": strong, "head mean": none, "head flatten": strong}
    taus["NTK score"] = {"all": none, "head mean": none}
    texts = architecture_search.conclusions(taus)
    assert texts[0] == "The best trivial predictor over all networks is depth, tau 0.70."
    assert "tau 0.60 over all networks, above none and below that of the best trivial" in texts[1]
    assert "above none in 1 of 2 (head flatten)." in texts[1]
    assert "not distinguishable from none" in next(text for text in texts if text.startswith("NTK score"))


def test_program(tmp_path, capsys):
    small = ["--quick", "--networks", "4", "--workers", "1", "--output", str(tmp_path)]
    assert architecture_search.main(small) == 0
    printed = capsys.readouterr().out
    assert "best trivial predictor" in (tmp_path / "report.html").read_text(encoding="utf-8") and "tau" in printed
    assert isinstance(SPACE[0], Architecture)


def test_weights_follow_the_seed_alone():
    one = Architecture(2, 3, "average", "mean", True)
    before = torch.get_rng_state()
    first, again, other = (build(one, (3, 8, 8), 5, 4, seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())  # cells on other threads draw from the global generator
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b) and not torch.equal(a, c)
    bound = 3**-0.5 / 3
    assert 0.8 * bound < float(first[0].weight.detach().abs().max()) <= bound
