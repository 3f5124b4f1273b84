from __future__ import annotations

import numpy as np
import pytest
import torch

from ntkit_studies._digits_features import VARIANCES, features_of, features_picture, features_table
from ntkit_studies._digits_pair import Pair


@pytest.fixture(scope="module")
def found():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 64, generator=generator, dtype=torch.float64)
    y = torch.sign(x[:, 0])
    pair = Pair(x, y, x, y, x[:5], None, 0.1, (0, 1), (1,))  # the limit is not asked
    return {variance: features_of(pair, variance, 0) for variance in VARIANCES}


def test_a_small_start_learns_the_pixel_that_decides(found):
    large, small = (found[variance] for variance in VARIANCES)
    assert small.after > large.after + 0.3 and small.movement > large.movement
    assert np.argmax(small.weights) == np.argmax(small.gradients) == 0


def test_what_the_report_shows(found):
    table, picture = features_table(found), features_picture(found)
    assert [row[0] for row in table.rows] == ["1", "0.01"] and len(picture.figure.axes) == 4
