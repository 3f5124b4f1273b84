from __future__ import annotations

import math

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit_studies import federated_images


def test_partitions_hold_every_point_once_and_are_uneven():
    labels = np.repeat(np.arange(10), 50)
    parts = federated_images.partition(labels, 10, 0.1, 0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(500)) and all(len(part) for part in parts)
    shares = [np.bincount(labels[part], minlength=10).max() / len(part) for part in parts]
    assert np.mean(shares) > 0.5
    even = federated_images.partition(labels, 10, 1000.0, 0)
    assert np.mean([np.bincount(labels[part], minlength=10).max() / len(part) for part in even]) < 0.2


def test_rounds_to_a_target():
    assert federated_images.rounds_to((0.9, 0.2, 0.5, 0.6), 0.5) == 2
    assert federated_images.rounds_to((0.1, 0.2), 0.5) == math.inf


def test_program(tmp_path, capsys):
    assert federated_images.main(["--quick", "--output", str(tmp_path)]) == 0
    assert "rounds" in capsys.readouterr().out
    assert "data:image/png" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_files(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.zeros((40, 3, 3)), y_train=np.arange(40) % 2)
    with pytest.raises(InputError, match="must be uint8"):
        federated_images.load_flat(tmp_path / "a.npz", 10, 10, 0)
