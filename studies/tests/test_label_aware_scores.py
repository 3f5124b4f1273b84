from __future__ import annotations

import numpy as np
import pytest
import torch
from studies.tests.label_aware_numbers import scores

import ntkit
from ntkit.datasets import balanced_split
from ntkit_studies import label_aware_cifar as experiment
from ntkit_studies._images import load_images
from ntkit_studies._label_aware_scores import BASE, METHODS, Scored, _bits, _packed, scores_from


@pytest.mark.parametrize("classes", [(3, 8), None], ids=["pair", "all"])
def test_scores_are_those_of_the_classifiers(classes):
    # Every number again from float64 images, without a stored Gram matrix.
    settings = experiment.Settings(
        table=1 if classes else 2, train=(60,), test=40, draws=(2,), pairs=(classes,) if classes else None,
        strengths=(0.01, 3.0), validation=3,
    )  # fmt: skip
    (result,) = experiment.scores_of(experiment.run(settings, seed=4)).values()
    found = load_images(60, 40, 4, None, classes)
    x = torch.cat([found.x, found.x_test]).double()
    y = torch.from_numpy(np.concatenate([found.y, found.y_test]))
    net = experiment.network(1, 8)
    base = ntkit.infinite_width(net).ntk
    for draw in range(2):
        rows, others = balanced_split(y, [60, 40], 4 + draw)
        assert not set(rows.tolist()) & set(others.tolist())

        def accuracy(model, rows=rows, others=others):
            model.fit(x[rows].flatten(1).numpy(), y[rows].numpy())
            return model.score(x[others].flatten(1).numpy(), y[others].numpy())

        assert result.base[draw] == accuracy(ntkit.NTKClassifier(net, input_shape=(1, 8, 8)))
        for name in METHODS:
            generator = torch.Generator().manual_seed(4 + draw)
            aware = ntkit.LabelAware(base, name, (0.01, 3.0), validation=3, generator=generator).fit(x[rows], y[rows])
            np.testing.assert_array_equal(result.validation[name][draw], aware.search.accuracies)
            np.testing.assert_allclose(result.error[name][draw], aware.search.errors, rtol=1e-3)
            assert settings.strengths[result.chosen(name)[draw]] == aware.strength
            for number, strength in enumerate(settings.strengths):
                model = ntkit.LabelAwareClassifier(
                    kernel=base, input_shape=(1, 8, 8), pairs=name, strength=strength, calibration=None
                )
                assert result.test[name][draw, number] == accuracy(model)
                assert result.indefinite[name][draw, number] == (model.definiteness_.negative > 0)


def test_validation_decides_and_test_images_do_not():
    test = {"kr-v1": [[0.1, 0.9], [0.2, 0.8]], "kr-v2": [[0.3, 0.95], [0.4, 0.7]]}
    validation = {"kr-v1": [[0.6, 0.5], [0.5, 0.5]], "kr-v2": [[0.6, 0.1], [0.2, 0.1]]}
    error = {"kr-v1": [[2.0, 1.0], [2.0, 1.0]], "kr-v2": [[1.0, 1.0], [1.0, 1.0]]}
    for one, value in ((test, 0.0), (validation, 0.0), (error, 0.0)):
        one |= {"fjlt-v1": [[value] * 2] * 2, "fjlt-v2": [[value] * 2] * 2}
    found = scores([0.5, 0.5], test, validation, error)
    # The higher accuracy in the first draw although its error is larger; of equal ones the smaller error in the second.
    assert found.chosen("kr-v1").tolist() == [0, 1]
    assert found.by_validation("kr-v1").tolist() == [0.1, 0.8]
    assert found.by_validation(*METHODS).tolist() == [0.3, 0.8]
    assert found.best_method_on_test().tolist() == [0.3, 0.8]
    assert found.best_on_test().tolist() == [0.95, 0.8]


def test_records_are_put_together():
    found = {(BASE, draw): Scored((0.5 + draw,)) for draw in range(2)}
    for place, method in enumerate(METHODS):
        for draw in range(2):
            found[method, draw] = Scored((place, draw), (0.1, 0.2), (0.3, 0.4), (False, True))
    result = scores_from(found, (0.1, 1.0), 2)
    assert result.base.tolist() == [0.5, 1.5] and result.strengths == (0.1, 1.0)
    assert result.test["kr-v2"].tolist() == [[1, 0], [1, 1]]
    assert result.indefinite["fjlt-v2"].tolist() == [[False, True]] * 2


def test_right_images_are_kept_bit_by_bit():
    for right in ([False, False, True], [True], [False] * 7):
        np.testing.assert_array_equal(_bits(_packed(np.array(right))), right)


def test_given_test_images_stay_apart():
    settings = experiment.Settings(
        train=(20,), test=20, draws=(2,), pairs=((3, 8),), strengths=(0.1, 1.0), split="given", network="code",
        methods=("kr-v1",), validation=0.5,
    )  # fmt: skip
    found = experiment.run(settings, seed=3)
    (result,) = experiment.scores_of(found).values()
    assert result.methods == ("kr-v1",) and result.right["kr-v1"].shape == (2, 2, 20)
    np.testing.assert_allclose(result.right["kr-v1"].mean(2), result.test["kr-v1"])
    images = load_images(20, 20, 3, None, (3, 8))  # without a file, the digits as they are
    base = ntkit.infinite_width(experiment.network(1, 8, "code")).ntk
    x, y = images.x.double(), torch.from_numpy(images.y)
    dual = torch.linalg.solve(base(x), torch.where(y == 3, -1.0, 1.0).double())
    right = ((base(images.x_test.double(), x) @ dual > 0) == torch.from_numpy(images.y_test == 8)).numpy()
    for draw in range(2):  # both draws have all training images, in another order
        np.testing.assert_array_equal(result.base_right[draw], right)
