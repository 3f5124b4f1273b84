"""The three ways to a Hoeffding decomposition against each other, against coefficients written down, and their errors."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from tests.cases import normal
from torch import Tensor

from ntkit._src.labels.decomposition._label_law import LabelLaw, label_law
from ntkit._src.labels.decomposition._methods import (
    Evaluator,
    _weights,
    by_enumeration,
    by_pairs,
    by_sampling,
    second_part,
)
from ntkit.errors import InputError, InputTypeError

ETA = torch.tensor([0.5, 0.3, 0.8, 0.62], dtype=torch.float64)
THREE = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64)


def made(law: LabelLaw, triple: float = 0.0):
    """A function with these parts: mean (2,), first, second, and a multiple of one interaction of three labels."""
    n, k = law.size, law.classes - 1
    mean, first, second = normal(2), normal(n, k, 2, seed=1), normal(n, n, k, k, 2, seed=2)
    second = second + second.transpose(0, 1).transpose(2, 3)
    second[torch.arange(n), torch.arange(n)] = 0

    def values(y: Tensor) -> Tensor:
        phi = law.design(law.numbers(y)[None])
        total = mean + torch.einsum("mia,ias->ms", phi, first)[0] + second_part(phi, second)[0]
        return total + triple * phi[0, 0, 0] * phi[0, 1, 0] * phi[0, 2, 0]

    return values, {"mean": mean, "first": first, "second": second}


LAWS = {"two classes": label_law(4, ETA), "three classes": label_law(3, THREE)}


@pytest.mark.parametrize("name", LAWS)
def test_coefficients_come_back(name):
    law = LAWS[name]
    values, exact = made(law, triple=0.7)
    evaluate = Evaluator(values, law, 0, None)
    found = by_enumeration(evaluate, law)
    assert evaluate.evaluations == law.classes**law.size
    for part in exact:
        torch.testing.assert_close(found[part], exact[part], rtol=1e-12, atol=1e-12)
    norms = [
        exact["mean"] ** 2,
        exact["first"].square().sum((0, 1)),
        exact["second"].square().sum((0, 1, 2, 3)) / 2,
        torch.full((2,), 0.49, dtype=torch.float64),
    ]
    torch.testing.assert_close(found["levels"], torch.stack(norms), rtol=1e-11, atol=1e-12)
    inner = torch.diag(torch.stack(norms).mean(1))
    torch.testing.assert_close(found["inner_products"], inner, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", LAWS)
def test_pairs_of_labels(name):
    law = LAWS[name]
    values, exact = made(law)
    evaluate = Evaluator(values, law, 0, None)
    found = by_pairs(evaluate, law, 3, None)
    n, others = law.size, law.classes - 1
    assert evaluate.evaluations == 1 + n * others + math.comb(n, 2) * others**2 + 3
    for part in exact:
        torch.testing.assert_close(found[part], exact[part], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(
        found["levels"], by_enumeration(Evaluator(values, law, 0, None), law)["levels"], atol=1e-11, rtol=0
    )
    three, _ = made(law, triple=1e-3)
    with pytest.raises(InputError, match="joint effects of three labels"):
        by_pairs(Evaluator(three, law, 0, None), law, 60, None)
    by_pairs(Evaluator(three, law, 0, None), law, 60, tolerance=0.1)


@pytest.mark.parametrize("name", LAWS)
def test_samples_agree_within_their_errors(name):
    law = LAWS[name]
    values, exact = made(law, triple=0.5)
    exact["levels"] = by_enumeration(Evaluator(values, law, 0, None), law)["levels"]
    found = by_sampling(Evaluator(values, law, 0, None), law, 2000, torch.Generator().manual_seed(0))
    for part, truth in exact.items():
        error = found[f"{part}_error"]
        off = (found[part] - truth).abs()
        assert (off <= 4.5 * error + 1e-12).all(), part
        # An error bar that is far too long would hide anything; two numbers alone may be close by chance.
        relative = (off[error > 0] / error[error > 0]).square().mean().sqrt()
        assert (0.3 if off.numel() > 4 else 0) < relative < 3, (part, relative)


def test_weights_by_their_definition():
    law = LAWS["three classes"]
    numbers = law.draw(5, torch.Generator().manual_seed(0))
    found = _weights(law, numbers)
    for a, b in product(range(5), repeat=2):
        kappa = [
            float(numbers[a, i] == numbers[b, i]) / float(law.probabilities[i, numbers[a, i]]) - 1 for i in range(3)
        ]
        pairs = kappa[0] * kappa[1] + kappa[0] * kappa[2] + kappa[1] * kappa[2]
        expected = (0.0, 0.0, 0.0) if a == b else (1.0, sum(kappa), pairs)
        assert [float(w[a, b]) for w in found] == pytest.approx(expected, abs=1e-12)


def test_progress_and_shapes():
    law, seen = LAWS["two classes"], []
    evaluate = Evaluator(lambda y: y.float().outer(y.float()), law, 9, lambda done, total: seen.append((done, total)))
    rows = evaluate(law.every()[:2])
    assert seen == [(1, 9), (2, 9)]
    assert rows.shape == (2, 16) and rows.dtype == torch.float64
    assert evaluate.shape == (4, 4) and evaluate.eps == torch.finfo(torch.float32).eps


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (lambda y: 1.0, InputTypeError, "Got float"),
        (lambda y: torch.ones(2, dtype=torch.int64), InputTypeError, "torch.int64"),
        (lambda y: torch.ones(1 if y[-1] < 0 else 2), InputError, r"Got \(1,\) and then \(2,\)"),
        (lambda y: torch.ones(0), InputError, "at least one entry"),
        (lambda y: torch.ones(2) / (y[-1] - 1), InputError, "NaN or infinite numbers for the labels"),
    ],
)
def test_values_that_are_refused(values, error, message):
    law = LAWS["two classes"]
    with pytest.raises(error, match=message):
        Evaluator(values, law, 0, None)(law.every()[:2])
