from __future__ import annotations

from dataclasses import replace

import pytest

from ntkit.errors import InputError
from ntkit_studies import myrtle_by_resolution as experiment
from ntkit_studies.skeleton import Data, Results, Verdict

SMALL = experiment.Settings(sides=(4, 8), train=6, test=6, draws=2, steps=20.0)


def test_days_at_224_pixels():
    ours = experiment.run(SMALL)
    manifest = ours.manifest.__class__(**vars(ours.manifest) | {"cell_seconds": (1.0,) * len(ours.values)})
    found = experiment.report(Results(SMALL, 0, Data("stl.npz", "0", False), ours.values, manifest))
    (comparison,) = found.comparisons
    # A second for the 21 pairs of 6 images.
    assert comparison.mean == pytest.approx(1 / 21 * 28**4 * 125250 / 86400)
    assert (comparison.paper, comparison.verdict) == (150.0, Verdict.SMALLER)
    # Equal seconds at every side, which are far fewer pixels than the paper's.
    assert found.claims[0].holds is None and found.claims[1].holds is True
    # The digits have 8 pixels: none was enlarged.
    assert "stl.npz, 8 pixels wide)" in comparison.size and "STL-10" in comparison.paper_size
    assert "enlarged" not in found.introduction
    assert len(found.sections[0].parts[0].rows) == 6
    assert experiment.report(ours).comparisons[0].paper is None


def test_enlarged_images_are_said_to_be():
    found = experiment.report(experiment.run(replace(SMALL, sides=(8, 12, 16), draws=1)))
    for words in (found.introduction, found.comparisons[0].size, found.claims[0].size):
        assert "scikit-learn's digits, 8 pixels wide, enlarged to 12 and 16" in words


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sides": (4, 10)}, "multiples of 4"),
        ({"sides": ()}, "at least"),
        ({"draws": 0}, "at least"),
        ({"train": 1}, "at least"),
    ],
)
def test_bad_settings(wrong, message):
    with pytest.raises(InputError, match=message):
        experiment.Settings(**wrong)
