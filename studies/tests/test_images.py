from __future__ import annotations

import numpy as np
import pytest
import torch
from studies.tests.image_files import write_images

from ntkit.errors import InputError
from ntkit_studies._images import load_images


def test_images_from_a_file_are_standardised_and_balanced(tmp_path):
    data = load_images(10, 8, 0, write_images(tmp_path / "a.npz", classes=3, n=12, side=4), (0, 2))
    assert data.x.shape == (10, 3, 4, 4) and data.x_test.shape == (8, 3, 4, 4) and data.x.dtype == torch.float32
    assert data.x.mean((0, 2, 3)).abs().max() < 1e-5 and abs(data.x.std() - 1) < 0.02
    assert sorted(data.y.tolist()) == [0] * 5 + [2] * 5
    assert sorted(load_images(9, 6, 0, tmp_path / "a.npz").y.tolist()) == [0] * 3 + [1] * 3 + [2] * 3


def test_training_and_test_digits_are_others():
    data = load_images(50, 50, 3)
    assert data.x.shape == (50, 1, 8, 8) and not (data.x[:, None] == data.x_test[None]).flatten(2).all(2).any()


def test_arrays_of_another_kind(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.zeros((3, 4)), y_train=np.zeros(3))
    with pytest.raises(InputError, match="uint8"):
        load_images(2, 2, 0, tmp_path / "a.npz")
