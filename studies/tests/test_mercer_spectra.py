from __future__ import annotations

import pytest

from ntkit.errors import InputError
from ntkit_studies import mercer_spectra


def test_exponents_are_the_dimensions():
    settings = mercer_spectra.Settings(dimensions=(2, 3), hidden=(1,), degrees=80)
    results = mercer_spectra.run(settings)
    for cell, found in results.values.items():
        assert found.exponent == pytest.approx(cell.dimension, abs=0.1)
        assert found.vanishing == (0 if cell.bias else 39)  # the odd degrees 3, 5, ..., 79
        assert len(found.eigenvalues) == 81 and found.error < 1e-12
    report = mercer_spectra.report(results)
    assert len(report.comparisons) == 2 and all(one.paper in (2.0, 3.0) for one in report.comparisons)


def test_a_decay_needs_degrees():
    with pytest.raises(InputError, match="degrees must be at least first"):
        mercer_spectra.Settings(degrees=30)
