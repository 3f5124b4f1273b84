"""The law of labels: orthonormal functions, probabilities of vectors, draws, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch

from ntkit._src.labels.decomposition._label_law import label_law, number_of_vectors
from ntkit.errors import InputError

TABLE = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]], dtype=torch.float64)
LAWS = {"fair": label_law(2, None), "biased": label_law(2, torch.tensor([0.3, 0.9])), "classes": label_law(2, TABLE)}


@pytest.mark.parametrize("name", LAWS)
def test_functions_are_orthonormal(name):
    law = LAWS[name]
    products = torch.einsum("nka,nla,na->nkl", law.functions, law.functions, law.probabilities)
    torch.testing.assert_close(products, torch.eye(law.classes, dtype=torch.float64).expand_as(products))
    assert (law.functions[:, 0] == 1).all()
    assert (law.functions[:, 1, 1] > law.functions[:, 1, 0]).all()  # rises from the first class to the second


@pytest.mark.parametrize("name", LAWS)
def test_vectors_and_their_weights(name):
    law = LAWS[name]
    numbers = law.every()
    assert len(numbers) == law.classes**2 == number_of_vectors(law)
    weights = law.weights(numbers)
    expected = [float(law.probabilities[0, a] * law.probabilities[1, b]) for a, b in numbers.tolist()]
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))
    assert torch.equal(law.numbers(law.labels(numbers)), numbers)
    design = law.design(numbers)
    for row, (a, b) in zip(design, numbers.tolist(), strict=True):
        assert torch.equal(row, torch.stack([law.functions[0, 1:, a], law.functions[1, 1:, b]]))


def test_draws_have_the_probabilities():
    numbers = LAWS["classes"].draw(4000, torch.Generator().manual_seed(0))
    for i in range(2):
        shares = torch.bincount(numbers[:, i], minlength=3) / 4000
        assert (shares - TABLE[i]).abs().max() < 0.03


def test_labels_are_signs_or_classes():
    assert LAWS["fair"].labels(torch.tensor([0, 1])).tolist() == [-1.0, 1.0]
    assert LAWS["classes"].labels(torch.tensor([0, 2])).tolist() == [0, 2]
    with pytest.raises(InputError, match="from 0 to 2"):
        LAWS["classes"].numbers(torch.tensor([0, 3]))
    with pytest.raises(InputError, match=r"-1 and \+1"):
        LAWS["fair"].numbers(torch.tensor([0.5, 1.0]))


def test_many_vectors():
    assert number_of_vectors(label_law(1200, None)) == math.inf
    assert number_of_vectors(label_law(900, None)) == 2.0**900
