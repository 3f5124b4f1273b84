from __future__ import annotations

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit_studies import matrix_completion
from ntkit_studies._completion_methods import SoftImpute
from ntkit_studies._ratings import draw_ratings, load_ratings, split_ratings


def test_ratings_of_a_file(tmp_path):
    path = tmp_path / "u.data"
    path.write_text("196\t242\t3\t881250949\n186\t302\t3\t891717742\n196\t302\t5\t0\n")
    expected = [[1, 0, 3], [0, 1, 3], [1, 1, 5]]
    np.testing.assert_array_equal(load_ratings(path), expected)
    path.write_text("userId,movieId,rating\n196,242,3\n186,302,3\n196,302,5\n")
    np.testing.assert_array_equal(load_ratings(path), expected)
    path.write_text("1 2\n")
    with pytest.raises(InputError, match="a user, an item and a rating on each line"):
        load_ratings(path)


def test_splits_hold_ratings_out():
    ratings = draw_ratings(40, 30, 0)
    split = split_ratings(ratings, 0.2, 0)
    assert len(split.values) == round(0.2 * len(ratings)) and np.isnan(split.matrix[split.rows, split.columns]).all()
    assert (~np.isnan(split.matrix)).sum() + len(split.values) == len(ratings)
    assert split.error(np.full(split.matrix.shape, 3.0)) == pytest.approx(np.sqrt(np.mean((split.values - 3) ** 2)))


def test_soft_impute_finds_a_matrix_of_low_rank():
    rng = np.random.default_rng(0)
    full = rng.normal(size=(50, 2)) @ rng.normal(size=(2, 40))
    gaps = np.where(rng.random(full.shape) < 0.3, np.nan, full)
    completed = SoftImpute(steps=60).fit(gaps).transform(gaps)
    missing = np.isnan(gaps)
    assert np.mean((completed - full)[missing] ** 2) < 0.2 * full[missing].var()


def test_program(tmp_path, capsys):
    methods = ["NTK, rows, prior observed", "offsets alone", "soft-impute"]
    data = tmp_path / "ratings.txt"
    np.savetxt(data, draw_ratings(60, 30, 1), fmt="%d")
    output = str(tmp_path / "out")
    assert matrix_completion.main(["--quick", "--methods", *methods, "--data", str(data), "--output", output]) == 0
    printed = capsys.readouterr().out
    assert all(method in printed for method in methods) and "the best first" in printed


def test_the_kernel_wins_on_ratings_of_low_rank():
    settings = matrix_completion.Settings(1, methods=("NTK, rows, prior observed", "offsets alone"))
    found = {cell.method: score.error for cell, score in matrix_completion.run(settings).values.items()}
    assert found["NTK, rows, prior observed"] < 0.97 * found["offsets alone"]
