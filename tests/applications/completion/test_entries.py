from __future__ import annotations

import numpy as np
import pytest

from ntkit._src.applications.completion._entries import fit_offsets, no_offsets, read_entries


def test_effects_solve_the_ridge_problem_with_the_shrinkage_found():
    rng = np.random.default_rng(0)
    matrix = 3 + rng.normal(size=(40, 1)) + 0.5 * rng.normal(size=15) + 0.7 * rng.normal(size=(40, 15))
    matrix[rng.random(matrix.shape) < 0.5] = np.nan
    entries = read_entries(matrix, np.nan)
    offsets = fit_offsets(entries)
    # The joint ridge problem, dense: mean unpenalised, rows and columns with their own ridges.
    design = np.zeros((len(entries), 1 + 40 + 15))
    design[:, 0] = 1
    design[np.arange(len(entries)), 1 + entries.rows] = 1
    design[np.arange(len(entries)), 41 + entries.columns] = 1
    ridge = np.diag([0.0] + [offsets.row_shrinkage] * 40 + [offsets.column_shrinkage] * 15)
    expected = np.linalg.solve(design.T @ design + ridge, design.T @ entries.values)
    np.testing.assert_allclose(offsets.mean, expected[0], atol=1e-5)
    np.testing.assert_allclose(offsets.of_rows(entries), expected[1:41], atol=1e-5)
    np.testing.assert_allclose(offsets.columns, expected[41:], atol=1e-5)
    # Shrinkage is the ratio of variances: 0.49 / 1 and 0.49 / 0.25, up to what 40 and 15 effects tell.
    assert 0.2 < offsets.row_shrinkage < 1.2 and 0.6 < offsets.column_shrinkage < 8


def test_additive_matrices_are_recovered():
    rng = np.random.default_rng(1)
    full = rng.normal(size=(20, 1)) + rng.normal(size=12)
    entries = read_entries(np.where(rng.random(full.shape) < 0.3, np.nan, full), np.nan)
    np.testing.assert_allclose(fit_offsets(entries).table(entries), full, atol=1e-3)


@pytest.mark.parametrize("value", [0.0, 4.0])
def test_constant_entries(value):
    entries = read_entries(np.full((3, 4), value), np.nan)
    np.testing.assert_array_equal(fit_offsets(entries).table(entries), np.full((3, 4), value))
    np.testing.assert_array_equal(no_offsets(entries).table(entries), np.zeros((3, 4)))
