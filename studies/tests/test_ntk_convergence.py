from __future__ import annotations

import pytest

from ntkit.errors import InputError
from ntkit_studies import ntk_convergence
from ntkit_studies._by_width import by_width
from ntkit_studies.skeleton import Verdict


def test_errors_fall_with_the_width():
    settings = ntk_convergence.Settings(widths=(8, 64), draws=4)
    results = ntk_convergence.run(settings, seed=1)
    errors = by_width(results.values, settings.widths, settings.draws, lambda found: found.error)
    assert set(errors) == set(ntk_convergence.NETWORKS)
    comparisons = ntk_convergence.report(results).comparisons
    for values, comparison in zip(errors.values(), comparisons, strict=True):
        assert values.shape == (2, 4) and (values > 0).all()
        assert -1.2 < comparison.mean < -0.15, (comparison.quantity, values)
        assert (
            comparison.error > 0 and comparison.verdict is not Verdict.UNDECIDED
        )  # draws give an error for two widths too


def test_rates_are_compared_with_the_theory():
    results = ntk_convergence.run(ntk_convergence.QUICK, seed=1)
    for comparison in ntk_convergence.report(results).comparisons:
        assert comparison.paper == -0.5 and comparison.error > 0
        assert comparison.verdict in (Verdict.INSIDE, Verdict.WIDE, Verdict.OUTSIDE, Verdict.UNDECIDED)


@pytest.mark.parametrize("widths", [(8, 8), (8,), ()])
def test_bad_widths(widths):
    with pytest.raises(InputError, match="widths must be at least"):
        ntk_convergence.Settings(widths=widths)
