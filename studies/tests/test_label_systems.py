from __future__ import annotations

import numpy as np
import pytest
import torch

from ntkit.errors import InputError
from ntkit_studies import label_systems as experiment


def test_every_picture_is_used_once_in_every_combination():
    y = np.array([3, 8, 4, 9] * 4)
    x = torch.arange(16.0)[:, None, None, None].expand(16, 1, 2, 2)
    images, labels = experiment.paired_images(x, y, (3, 8, 4, 9))
    assert images.shape == (8, 1, 2, 4) and labels.shape == (8, 2)
    left, right = images[:, 0, 0, 0].long(), images[:, 0, 0, 2].long()
    assert sorted(torch.cat([left, right]).tolist()) == list(range(16))
    for image in range(8):
        assert (y[left[image]], y[right[image]]) == ((3, 8)[labels[image, 0]], (4, 9)[labels[image, 1]])
    assert sorted(map(tuple, labels.tolist())) == [(a, b) for a in (0, 1) for b in (0, 1) for _ in range(2)]


def test_program(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert experiment.EXPERIMENT.main(["--quick", "--seeds", "1", "--output", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert (
        "3 vs 8, train-train pairs: RR in %" in text
        and "4 vs 9, test-train pairs" in text
        and text.count("smaller than the paper's") == 8
    )
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("<img alt=") == 1
    (record,) = experiment.EXPERIMENT.read(tmp_path).values.values()
    for ratios in (np.array(record.train), np.array(record.test)):
        assert ratios.shape == (2, 2, 3) and (ratios > 0).all() and (ratios < 1).all()
        np.testing.assert_array_equal(ratios[0, :, 0], ratios[1, :, 0])  # both start from one network


def test_verdicts_follow_from_the_ratios():
    rising = [[[0.5, 0.6], [0.5, 0.52]], [[0.5, 0.58], [0.5, 0.55]]]  # on the second labels the first rise more
    falling = [[[0.5, 0.6], [0.5, 0.52]], [[0.5, 0.4], [0.5, 0.45]]]
    said = experiment.claims(experiment.Settings(), [experiment.Course(rising, falling, False)])
    assert [one.holds for one in said] == [True, True, True, False, True, True, False, True]
    assert said[1].found == "10.000 and 2.000"


def test_bad_settings():
    with pytest.raises(InputError, match="four different"):
        experiment.Settings(classes=(3, 8, 3, 9))
