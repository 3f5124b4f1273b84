from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import ntkit
from ntkit.errors import InputError
from ntkit_studies import hierarchy_accuracy as experiment
from ntkit_studies._images import load_images
from ntkit_studies.skeleton import Verdict


def test_accuracies_are_those_of_the_kernels():
    settings = replace(experiment.QUICK, seeds=1)
    ((_, found),) = experiment.run(settings, seed=5).values.items()
    images = load_images(12, 20, 5, None, (3, 8))
    x, x_test = (one.flatten(1).double() for one in (images.x, images.x_test))
    scale = x.square().sum(1).mean().sqrt()
    x, x_test, y = x / scale, x_test / scale, torch.from_numpy(images.y == 8).double() * 2 - 1
    for name, width in (("NTK", 0), ("LANTK-NTH 64", 64), ("LANTK-NTH 1024", 1024)):
        generator = torch.Generator().manual_seed(5)
        nth = ntkit.TangentHierarchy("erf", width=width or 1, n_samples=256, ridge=1e-3, generator=generator).fit(x, y)
        kernel = nth if width else nth.at(0.0)
        gram = kernel(x)
        gram = gram + 1e-3 * gram.diagonal().mean() * torch.eye(12)
        named = kernel(x_test, x) @ torch.linalg.solve(gram, y) > 0
        assert found.accuracy["12"][name] == float((named == torch.from_numpy(images.y_test == 8)).double().mean())
    assert found.share["12"] > 0 and found.error["12"] > 0


def test_more_classes_have_a_hierarchy_each():
    settings = replace(experiment.QUICK, classes=(0, 1, 4), train=(18,), test=30, seeds=1)
    (found,) = experiment.run(settings).values.values()
    assert all(accuracy > 0.5 for accuracy in found.accuracy["18"].values()) and len(found.accuracy["18"]) == 4


def test_the_claim_is_of_one_width_fixed_beforehand():
    settings = replace(experiment.sizes("default", False), train=(100, 500))
    names = ("NTK", "LANTK-HR", *(f"LANTK-NTH {width}" for width in settings.widths))
    records = [
        experiment.Accuracies(
            {str(n): {one: 0.8 + 0.01 * i + 0.001 * seed * (i > 0) for i, one in enumerate(names)} for n in settings.train},
            {str(n): 0.1 for n in settings.train},
            {str(n): 0.05 for n in settings.train},
        )
        for seed in range(5)
    ]  # fmt: skip
    found = experiment.claims(settings, records)
    quoted = [one for one in found if one.quotes]
    assert [one.what for one in quoted] == [
        f"LANTK-NTH 1024 less NTK, {n} images, in points of accuracy" for n in settings.train
    ]
    assert quoted[0].found == "+3.20 ± 0.07" and quoted[0].verdict is Verdict.SMALLER
    assert quoted[1].verdict is Verdict.HOLDS
    assert list(experiment.draw(settings, records))


def test_bad_settings():
    with pytest.raises(InputError, match="two different ones or more"):
        replace(experiment.QUICK, classes=(3, 3))
