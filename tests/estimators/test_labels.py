"""Labels as targets and scores as labels, with any regression in between."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax

from ntkit._src.estimators._labels import LabelEncoderMixin, check_classes
from ntkit.errors import InputError


class Recall(LabelEncoderMixin):
    """Its scores are the inputs."""

    def _scores(self, X: NDArray[np.float64]) -> NDArray[np.float64]:  # type: ignore[override]
        return np.asarray(X)


@pytest.mark.parametrize("offset", [None, 0.1, 0.0])
def test_targets_come_back_as_labels(offset: float | None) -> None:
    labels = np.array(["b", "a", "c", "b"])
    model = Recall()
    codes, targets = model._encode(labels, offset)
    assert model.classes_.tolist() == ["a", "b", "c"] and codes.tolist() == [1, 0, 2, 1]
    np.testing.assert_allclose(targets, np.eye(3)[codes] - (1 / 3 if offset is None else offset))
    assert model.predict(targets).tolist() == labels.tolist()
    np.testing.assert_allclose(model.predict_proba(targets), softmax(3 * targets, axis=1))
    model.temperature_ = 2.0
    np.testing.assert_allclose(model.predict_proba(targets), softmax(1.5 * targets, axis=1))


@pytest.mark.parametrize("columns", [(-1,), (-1, 1)])
def test_two_classes_have_one_column(columns: tuple[int, ...]) -> None:
    model = Recall()
    _, targets = model._encode(np.array([True, False]))
    assert targets.tolist() == [1.0, -1.0]
    scores = 0.5 * targets.reshape(columns)
    assert model.decision_function(scores).tolist() == [0.5, -0.5] and model.predict(scores).tolist() == [True, False]
    np.testing.assert_allclose(model.predict_proba(scores)[:, 1], 1 / (1 + np.exp([-1.0, 1.0])))


def test_what_is_no_class() -> None:
    with pytest.raises(InputError, match="at least two classes. Got one class"):
        Recall()._encode(np.zeros(3))
    with pytest.raises(ValueError, match="continuous"):
        check_classes(np.array([0.1, 0.2, 0.35]))
