"""The choice of the strength, under the solution of indefinite systems."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.labels.pairs.oracles import base, data

import ntkit
from ntkit._src.labels import STRENGTHS
from ntkit._src.labels.pairs import _label_aware as module
from ntkit._src.labels.pairs._strength import mean_ratio, splits
from ntkit.errors import InputError, InputTypeError
from ntkit.labels import Pairs


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def fit_one(pairs, strength, x, y):
    return ntkit.LabelAware(base(), pairs=pairs, strength=strength, ridge=1e-2).fit(x, y)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("pairs", ["kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2"])
@pytest.mark.parametrize("validation", [3, 0.25])
def test_search_is_a_fit_on_each_part(pairs, classes, validation):
    """Accuracies and errors are those of kernels fitted to the training part alone."""
    x, y = data(40, classes)
    strengths = [0.01, 30.0]  # with the second the matrices of most estimators are indefinite
    kernel = ntkit.LabelAware(
        base(), pairs=pairs, strength=strengths, ridge=1e-2, validation=validation, generator=seeded()
    ).fit(x, y)
    codes = (y + 2) // 3
    targets = 2.0 * codes[:, None] - 1 if classes == 2 else torch.eye(classes)[codes] - 1 / classes
    hits, errors = np.zeros(2), np.zeros(2)
    parts = splits(codes, validation, seeded())
    for train, rest in parts:
        for index, strength in enumerate(strengths):
            part = fit_one(pairs, strength, x[train], y[train])
            gram = part(x[train])
            values, vectors = torch.linalg.eigh(gram)
            shifted = values + 1e-2 * values.abs().mean() * values.sign()
            dual = vectors @ ((vectors.T @ targets[train].double()) / shifted[:, None])
            scores = part(x[rest], x[train]) @ dual
            named = (scores[:, 0] > 0).long() if classes == 2 else scores.argmax(1)
            hits[index] += float((named == codes[rest]).sum())
            errors[index] += float(((scores - targets[rest]) ** 2).mean(1).sum())
    count = sum(len(rest) for _, rest in parts)
    assert kernel.search is not None
    np.testing.assert_allclose(kernel.search.accuracies, hits / count, rtol=1e-12)
    np.testing.assert_allclose(kernel.search.errors, errors / count, rtol=1e-6)
    assert kernel.strength == kernel.search.strength == strengths[int(kernel.search.best)]
    again = fit_one(pairs, kernel.strength, x, y)
    torch.testing.assert_close(again(x[:5], x), kernel(x[:5], x), rtol=1e-10, atol=1e-10)


class Erratic:
    def fit(self, pairs, labels):
        pass

    def __call__(self, pairs):
        sides = [side.sum(1) for side in (pairs.x1, pairs.x1 if pairs.x2 is None else pairs.x2)]
        return torch.cos(50 * torch.outer(*sides)).to(pairs.k)


class Oracle:
    """Knows the classes from the first coordinate; counts what it was fitted on."""

    fits: list[int] = []

    def fit(self, pairs, labels):
        self.fits.append(len(labels))

    def __call__(self, pairs):
        sides = [torch.sign(side[:, 0]) for side in (pairs.x1, pairs.x1 if pairs.x2 is None else pairs.x2)]
        return torch.outer(*sides).to(pairs.k)


def test_search_takes_a_strong_part_that_knows_the_classes_and_a_weak_one_that_does_not():
    x = torch.randn(60, 6, generator=seeded(), dtype=torch.float64)
    Oracle.fits.clear()
    known = ntkit.LabelAware(base(), pairs=Oracle(), strength=STRENGTHS, ridge=1e-2, generator=seeded()).fit(
        x, x[:, 0] > 0
    )
    assert known.strength == 1.0
    assert Oracle.fits == [48] * 5 + [60]
    misled = ntkit.LabelAware(base(), pairs=Erratic(), strength=[0.001, 10.0], ridge=1e-2, generator=seeded())
    assert misled.fit(x, x[:, 1] > 0).strength == 0.001


def test_base_gram_is_computed_once(monkeypatch):
    class Counted(ntkit.Kernel):
        calls = 0

        def __call__(self, x1, x2=None):
            Counted.calls += 1
            return base()(x1, x2)

        def diag(self, x):
            return base().diag(x)

    products = []
    original = Pairs.__dict__["products"].func
    monkeypatch.setattr(Pairs.__dict__["products"], "func", lambda self: products.append(1) or original(self))
    x, y = data(30, 2)
    kernel = ntkit.LabelAware(Counted(), pairs="fjlt-v2", strength=STRENGTHS, ridge=1e-2)
    gram = kernel.fit_gram(x, y)
    assert (Counted.calls, len(products)) == (1, 1)
    kernel.fit_gram(x, y, gram=base()(x))
    kernel.from_base(base()(x), x)
    assert Counted.calls == 1
    assert gram.shape == (30, 30)


@pytest.mark.parametrize("validation", [2, 5, 7, 0.2, 0.5])
def test_splits(validation):
    codes = torch.tensor([0] * 30 + [1] * 12 + [2] * 1)
    parts = splits(codes, validation, seeded())
    assert len(parts) == (validation if isinstance(validation, int) else 1)
    for train, rest in parts:
        assert sorted([*train.tolist(), *rest.tolist()]) == list(range(43))
    share = 1 / validation if isinstance(validation, int) else validation
    for _, rest in parts:
        for number, size in ((0, 30), (1, 12)):
            assert abs(int((codes[rest] == number).sum()) - share * size) <= 1
    if isinstance(validation, int):
        assert sorted(torch.cat([rest for _, rest in parts]).tolist()) == list(range(43))
    assert not torch.equal(parts[0][1], splits(codes, validation, seeded(1))[0][1])


@pytest.mark.parametrize(
    ("validation", "n", "error", "message"),
    [
        (1, 10, InputError, "from 2 on"),
        (0.0, 10, InputError, "between 0 and 1"),
        (1.5, 10, InputError, "between 0 and 1"),
        (True, 10, InputTypeError, "must be a number"),
        ("loo", 10, InputTypeError, "must be a number"),
        (0.99, 10, InputError, "no point on one side"),
        (5, 1, InputError, "two training points"),
    ],
)
def test_bad_splits(validation, n, error, message):
    with pytest.raises(error, match=message):
        splits(torch.zeros(n, dtype=torch.long), validation, None)


def test_more_folds_than_points():
    assert len(splits(torch.zeros(3, dtype=torch.long), 5, seeded())) == 3


def test_ratio_of_zero():
    assert mean_ratio(torch.ones(2, 2), torch.zeros(2, 2)) == 0.0
    assert mean_ratio(torch.tensor([[1.0, -3.0]]), torch.tensor([[0.5, -0.5]])) == 4.0
    x, y = data(20, 2)
    kernel = ntkit.LabelAware(base(), pairs=Zero()).fit(x, y)
    torch.testing.assert_close(kernel(x), base()(x))


class Zero:
    def fit(self, pairs, labels):
        pass

    def __call__(self, pairs):
        return torch.zeros_like(pairs.k)


def test_candidates_of_the_paper():
    assert module.STRENGTHS == (0.001, 0.01, 0.1, 1.0)
