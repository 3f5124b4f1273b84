from __future__ import annotations

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit_studies import inpainting


def test_masks_and_methods():
    picture, mask = inpainting.load_picture("drawn", 32, True), inpainting.draw_mask(32, "hole", 0.5, 0)
    assert picture.shape == (3, 32, 32) and mask.sum() == 64 and mask[16, 16] and not mask[0, 0]
    assert abs(inpainting.draw_mask(64, "random", 0.3, 0).mean() - 0.3) < 0.03
    for method in (inpainting.NTK, inpainting.CHOSEN, inpainting.LINEAR):
        filled, _ = inpainting.fill(method, picture, mask, 2)
        np.testing.assert_array_equal(filled[:, ~mask], picture[:, ~mask])
        assert np.abs(filled - picture)[:, mask].mean() < 0.15


def test_program(tmp_path, capsys):
    assert inpainting.main(["--quick", "--output", str(tmp_path)]) == 0
    assert "linear" in capsys.readouterr().out and "Cholesky" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_bad_settings():
    with pytest.raises(InputError, match="missing must be"):
        inpainting.Settings(missing=1.0)
